// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raw Ethernet frames, and IP addresses, between the two ends of a veth pair, in a network namespace of the test's
//! own. Needs root and the program `ip`.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;

use clap::Parser;
use netgauge::cli::Cli;
use netgauge::progress::Quiet;
use netgauge::report::{Outcome, Report};
use netgauge::{client, server};
use nix::sched::{unshare, CloneFlags};

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("this test needs the program `ip`: install iproute2");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `test` in a thread with a network namespace of its own, where veth `left` leads to `right`.
fn with_veth(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root, for a network namespace");
        ip("link set lo up");
        ip("link add left address 02:00:00:00:00:01 type veth peer name right address 02:00:00:00:00:02");
        ip("link set left up");
        ip("link set right up");
        ip("address add 10.9.0.1/24 dev left");
        ip("address add 10.9.0.2/24 dev right");
        test();
    });
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Measures between the pair's ends, the control connection on loopback.
fn measure(options: &str) -> Report {
    let listener = server::listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let cli = Cli::parse_from(["netgauge", "--server", "--once", "--interface", "right"]);
    let server = thread::spawn(move || server::serve(&listener, &cli.server_options()));
    let line = format!("netgauge --connect 127.0.0.1 --port {port} --interface left {options}");
    let cli = Cli::parse_from(line.split_whitespace());
    let report = client::run(&cli.client_options("127.0.0.1").unwrap(), &Quiet).unwrap();
    server.join().unwrap().unwrap();
    report
}

#[test]
fn frames_of_every_size_come_back() {
    with_veth(|| {
        // 1500 bytes fill a frame; more go as several.
        let report = measure("-m raw -s 1,45,46,1500,1501,65536 -c 5 --warmup 1");
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.runs[0].rows.len(), 6);
        // Nothing makes good a frame that a busy host dropped or took too long over; that they
        // do come back shows in the others.
        assert!(
            report.runs[0].rows.iter().all(|row| row.lost < row.tests),
            "{report:?}"
        );
    });
}

#[test]
fn ip_goes_between_the_addresses_of_the_named_interfaces() {
    with_veth(|| {
        let report = measure("-m tcp,tcp-zerocopy,udp -s 1,5000 -c 5");
        assert!(report.is_complete(), "{report:?}");
        let report = measure("-m tcp -x setup -c 20");
        assert!(report.is_complete(), "{report:?}");
        ip("address flush dev right");
        let report = measure("-m tcp -s 1 -c 1");
        let Outcome::Failed { error } = &report.runs[0].outcome else {
            panic!("{report:?}")
        };
        assert!(
            error.contains("interface right has no IP address"),
            "{error}"
        );
    });
}

#[test]
fn bulk_over_frames() {
    with_veth(|| {
        let report = measure("-m raw -x bulk -s 1,1000000 -c 2");
        assert!(report.is_complete(), "{report:?}");
        // Nothing makes good a frame that a busy host dropped or took too long over; that they
        // do come back shows in the others.
        assert!(
            report.runs[0].rows.iter().all(|row| row.lost < row.tests),
            "{report:?}"
        );
    });
}

#[test]
fn another_ethernet_type_does_as_well() {
    with_veth(|| {
        let report = measure("-m raw -s 64 -c 2 --ethertype 0x6000");
        assert!(report.is_complete(), "{report:?}");
    });
}

#[test]
fn a_link_that_loses_everything_ends_the_run() {
    with_veth(|| {
        // The server looks at an interface that `left` does not lead to.
        ip("link add elsewhere type veth peer name nowhere");
        ip("link set elsewhere up");
        ip("link set nowhere up");
        let listener = server::listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let cli = Cli::parse_from(["netgauge", "--server", "--once", "--interface", "elsewhere"]);
        let server = thread::spawn(move || server::serve(&listener, &cli.server_options()));
        let line = format!(
            "netgauge --connect 127.0.0.1 --port {port} --interface left -m raw,unix -s 64 -c 2 \
             --loss-timeout 20"
        );
        let cli = Cli::parse_from(line.split_whitespace());
        let report = client::run(&cli.client_options("127.0.0.1").unwrap(), &Quiet).unwrap();
        server.join().unwrap().unwrap();
        let Outcome::Failed { error } = &report.runs[0].outcome else {
            panic!("{report:?}")
        };
        assert!(error.contains("5 messages in a row"), "{error}");
        assert_eq!(report.runs[1].outcome, Outcome::Ok, "{report:?}");
    });
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures between the two ends of a veth pair, in a network namespace of the test. Some tests use
//! raw Ethernet frames, others IP through named interfaces. Needs root and the program `ip`.

mod common;

use std::process::Command;
use std::thread;

use common::measure_with;
use netgauge::progress::Quiet;
use netgauge::report::{Outcome, Report};
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

/// Runs `test` in a thread with a network namespace of its own, where veth `left` is connected to
/// `right`.
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

/// Measures from end `left` of the veth pair. The server uses interface `there`. The control
/// connection is on loopback.
fn measure_from(there: &str, options: &str) -> Report {
    let client = format!("--interface left {options}");
    measure_with(&format!("--interface {there}"), &client, &Quiet)
}

/// Measures between the two ends of the veth pair.
fn complete(options: &str) -> Report {
    let report = measure_from("right", options);
    assert!(report.is_complete(), "{report:?}");
    report
}

/// Measures like [`complete`], but over raw frames. A busy host may drop some frames, or delay them
/// too long. So some tests of each size may be lost, but not all.
fn some_come_back(options: &str, rows: usize) {
    let report = complete(options);
    assert_eq!(report.runs[0].rows.len(), rows);
    let mut rows = report.runs[0].rows.iter();
    assert!(rows.all(|row| row.lost < row.tests), "{report:?}");
}

#[test]
fn frames_of_every_size_come_back() {
    // A message of 1500 bytes fills one frame, and a larger message is sent as several frames.
    with_veth(|| some_come_back("-m raw -s 1,45,46,1500,1501,65536 -c 5 --warmup 1", 6));
}

#[test]
fn ip_goes_between_the_addresses_of_the_named_interfaces() {
    with_veth(|| {
        complete("-m tcp,tcp-zerocopy,udp -s 1,5000 -c 5");
        complete("-m tcp -x setup -c 20");
        ip("address flush dev right");
        let report = measure_from("right", "-m tcp -s 1 -c 1");
        let Outcome::Failed { error } = &report.runs[0].outcome else {
            panic!("{report:?}")
        };
        let expected = "interface right has no IP address";
        assert!(error.contains(expected), "{error}");
    });
}

#[test]
fn bulk_over_frames() {
    with_veth(|| some_come_back("-m raw -x bulk -s 1,1000000 -c 2", 2));
}

#[test]
fn another_ethernet_type_does_as_well() {
    with_veth(|| drop(complete("-m raw -s 64 -c 2 --ethertype 0x6000")));
}

#[test]
fn a_link_that_loses_everything_ends_the_run() {
    with_veth(|| {
        // The server uses an interface that `left` is not connected to.
        ip("link add elsewhere type veth peer name nowhere");
        ip("link set elsewhere up");
        ip("link set nowhere up");
        let report = measure_from("elsewhere", "-m raw,unix -s 64 -c 2 --loss-timeout 20");
        let Outcome::Failed { error } = &report.runs[0].outcome else {
            panic!("{report:?}")
        };
        assert!(error.contains("5 messages in a row"), "{error}");
        assert_eq!(report.runs[1].outcome, Outcome::Ok, "{report:?}");
    });
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests with client and server in one process, over the transports that need no kernel module.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use common::{measure_with, parse};
use netgauge::progress::{Progress, Quiet};
use netgauge::report::format::Format;
use netgauge::report::{LeftOut, Measured, Outcome, Report};
use netgauge::server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// Runs a client with these options against a server of its own. Returns the report.
fn measure(options: &str) -> Report {
    measure_with("", options, &Quiet)
}

/// Returns the report of [`measure`], which must be complete.
fn complete(options: &str) -> Report {
    let report = measure(options);
    assert!(report.is_complete(), "{options}: {report:?}");
    report
}

#[test]
fn ping_pong_over_tcp_and_udp() {
    let report = complete("-m tcp,udp -s 1-256K -c 5 --warmup 1");
    let names: Vec<_> = report
        .runs
        .iter()
        .map(|run| run.transport.as_str())
        .collect();
    assert_eq!(names, ["tcp", "udp"]);
    for run in &report.runs {
        let sizes: Vec<_> = run.rows.iter().map(|row| row.size).collect();
        assert_eq!(
            sizes,
            (0..=18).map(|power| 1 << power).collect::<Vec<u64>>()
        );
        for row in &run.rows {
            let Measured::HalfRoundTrip { half_rtt_ns } = &row.measured else {
                panic!("{row:?}");
            };
            assert_eq!(row.tests, 5);
            assert!(0 < half_rtt_ns.min && half_rtt_ns.min <= half_rtt_ns.median);
            assert!(half_rtt_ns.median <= half_rtt_ns.max);
            let expected = row.size as f64 * 8_000.0 / half_rtt_ns.median as f64;
            assert!((row.mbit_per_s - expected).abs() < 1e-6 * expected);
        }
    }
}

#[test]
fn bulk_over_tcp_and_udp() {
    // Neither size is a whole number of blocks, or of groups of datagrams that are confirmed
    // together.
    let report = complete("-m tcp,udp -x bulk -s 1,5000000 -c 2");
    for run in &report.runs {
        assert_eq!(run.rows.len(), 2);
        for row in &run.rows {
            let Measured::Bulk {
                total_ns,
                ns_per_byte,
            } = &row.measured
            else {
                panic!("{row:?}");
            };
            let expected = total_ns.median as f64 / row.size as f64;
            assert!((*ns_per_byte - expected).abs() < 1e-9 * expected);
        }
    }
}

#[test]
fn logp_over_tcp_and_udp() {
    let report = complete("-m tcp,udp -x logp -s 1,1000,100K -c 10 --warmup 2");
    for run in &report.runs {
        assert_eq!(run.rows.len(), 3);
        for row in &run.rows {
            let Measured::LogP {
                send_overhead_ns,
                receive_overhead_ns,
                gap_ns,
                rtt_ns,
                latency_ns,
            } = &row.measured
            else {
                panic!("{row:?}");
            };
            // A round trip includes the sending call, so it takes longer than the call.
            assert!(0 < send_overhead_ns.min && send_overhead_ns.max < rtt_ns.max);
            assert!(0 < receive_overhead_ns.min);
            assert!(*latency_ns <= rtt_ns.median / 2);
            let expected = row.size as f64 * 8_000.0 / gap_ns.median.max(1) as f64;
            assert!((row.mbit_per_s - expected).abs() <= 1e-6 * expected);
        }
    }
}

#[test]
fn bulk_in_blocks_of_a_chosen_size() {
    complete("-m tcp,udp,unix -x bulk --block 1M -s 5000000 -c 2");
    complete("-m tcp -x bulk --block 1 -s 1000 -c 2");
}

#[test]
fn calls_without_time_limits() {
    let report = complete("-m tcp,udp,unix -x one-one,bulk -s 1,100K -c 5 --no-timeouts");
    for run in &report.runs {
        assert!(run.about.contains("no timeouts"), "{run:?}");
    }
}

#[test]
fn a_flood_over_tcp_and_udp() {
    let report = complete("-m tcp,udp -x flood -s 1,100 -c 500");
    for run in &report.runs {
        for row in &run.rows {
            let Measured::Flood {
                messages_per_s,
                packets_per_message,
                ..
            } = &row.measured
            else {
                panic!("{row:?}");
            };
            assert_eq!(row.tests, 500);
            assert!(*messages_per_s > 0.0, "{row:?}");
            assert_eq!(packets_per_message.is_some(), run.transport == "tcp");
            assert!(run.transport == "udp" || row.lost == 0, "{row:?}");
        }
    }
}

#[test]
fn a_flood_of_records_has_a_packet_for_each() {
    let report = measure("-m tcp -x flood -s 1 -c 500 --eor");
    let Measured::Flood {
        packets_per_message: Some(packets),
        ..
    } = report.runs[0].rows[0].measured
    else {
        panic!("{report:?}");
    };
    assert!(packets >= 1.0, "{packets}");
}

#[test]
fn transports_without_records_are_left_out_of_a_flood_of_records() {
    let report = complete("-m all -x one-one,flood -s 1 -c 20 --eor");
    for name in ["unix", "tcp-zerocopy", "tcp-splice"] {
        let title = format!("{name}, flood");
        let mut outs = report.left_out.iter();
        let out = outs.find(|out| out.title() == title);
        let reason = &out.unwrap_or_else(|| panic!("{report:?}")).reason;
        assert!(reason.contains("keeps no records apart"), "{reason}");
        // The option applies only to flood, so one-one runs over this transport.
        let mut runs = report.runs.iter();
        assert!(runs.any(|run| run.transport == name && run.pattern == "one-one"));
    }
}

#[test]
fn messages_beyond_a_datagram_are_no_flood() {
    let report = measure("-m udp -x flood -s 8,64K -c 5");
    let run = &report.runs[0];
    assert_eq!(run.rows.len(), 1);
    let Outcome::Failed { error } = &run.outcome else {
        panic!("{report:?}");
    };
    assert!(error.contains("lower -s"), "{error}");
}

/// A receiver of progress that keeps all reports.
struct Snapshots(Mutex<Vec<Report>>);

impl Progress for Snapshots {
    fn begin(&self, _transport: &str, _pattern: &str) {}
    fn advance(&self, _sizes: u64) {}
    fn measured(&self, so_far: Report) {
        self.0.lock().unwrap().push(so_far);
    }
}

#[test]
fn interrupt_preserves_results() {
    let snapshots = Snapshots(Mutex::new(Vec::new()));
    measure_with("", "-m tcp,udp -s 1 -c 1 --send-buffer 64K", &snapshots);
    let snapshots = snapshots.0.into_inner().unwrap();
    let seen: Vec<_> = snapshots
        .iter()
        .map(|report| {
            let runs = report.runs.iter();
            runs.map(|run| (run.outcome == Outcome::Ok, run.rows.len()))
                .collect::<Vec<_>>()
        })
        .collect();
    let expected: [&[(bool, usize)]; 4] = [
        &[(false, 0)],
        &[(false, 1)],
        // In this report, tcp has all its results, and udp has none yet.
        &[(true, 1), (false, 0)],
        &[(true, 1), (false, 1)],
    ];
    assert_eq!(seen, expected);
    for run in snapshots.iter().flat_map(|report| &report.runs) {
        assert!(run.about.contains("SO_SNDBUF 65536"), "{}", run.about);
    }
}

#[test]
fn connections_are_set_up_over_tcp() {
    let report = measure("-m all -x setup -s 1,64K -c 20 --warmup 1");
    let tcp = &report.runs[0];
    assert_eq!((&tcp.outcome, tcp.rows.len()), (&Outcome::Ok, 2));
    for row in &tcp.rows {
        let Measured::SetUp {
            connect_ns,
            connection_ns,
            connections_per_s,
        } = &row.measured
        else {
            panic!("{row:?}");
        };
        assert!(connect_ns.min < connection_ns.min);
        let most = 1e9 / connection_ns.min as f64;
        assert!(0.0 < *connections_per_s && *connections_per_s <= most);
    }
    let titles = report.left_out.iter().map(LeftOut::title);
    let expected = ["udp, setup", "raw, setup", "edp, setup"];
    assert_eq!(titles.take(3).collect::<Vec<_>>(), expected);
}

#[test]
fn a_clean_path_loses_nothing() {
    // The time limit is long enough for a busy machine.
    let report = complete("-m tcp,udp -x recovery -c 50 --loss-timeout 60000");
    for run in &report.runs {
        let sizes: Vec<_> = run.rows.iter().map(|row| row.size).collect();
        assert_eq!(sizes, [1, 65_536]);
        for row in &run.rows {
            let Measured::Recovery {
                exchange_ns,
                stalled_ns,
                lost_share,
                packets_resent,
                ..
            } = &row.measured
            else {
                panic!("{row:?}");
            };
            assert_eq!((row.tests, row.lost), (50, 0));
            assert!(*stalled_ns <= 50 * exchange_ns.max);
            let expected = (run.transport == "udp").then_some(0.0);
            assert_eq!(*lost_share, expected);
            assert_eq!(packets_resent.is_some(), run.transport == "tcp");
        }
    }
}

#[test]
fn a_transport_that_fails_is_named_and_the_rest_goes_on() {
    struct Count(AtomicU64);
    impl Progress for Count {
        fn begin(&self, _transport: &str, _pattern: &str) {}
        fn advance(&self, sizes: u64) {
            self.0.fetch_add(sizes, Ordering::Relaxed);
        }
    }
    let count = Count(AtomicU64::new(0));
    // Loopback is no Ethernet device, so raw and esp fail on the client's side with any kernel.
    let report = measure_with("", "-m raw,tcp,esp,udp -s 1,2 -c 1", &count);
    assert!(!report.is_complete());
    let failed: Vec<_> = report
        .runs
        .iter()
        .map(|run| run.outcome != Outcome::Ok)
        .collect();
    assert_eq!(failed, [true, false, true, false]);
    let Outcome::Failed { error } = &report.runs[0].outcome else {
        unreachable!()
    };
    assert!(error.contains("--interface"), "{error}");
    // The progress bar reaches its end although two transports fail.
    assert_eq!(count.0.into_inner(), 8);
}

#[test]
fn the_client_reports_a_failure_of_the_server() {
    // The server uses an interface that does not exist.
    let cli = parse("--server --once --interface absent0");
    let listener = server::listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || server::serve(&listener, &cli.server_options()));

    use netgauge::control::{Control, Message, Open};
    use netgauge::transport::SocketOptions;
    use netgauge::wire::Endpoint;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = std::net::TcpStream::connect(address).unwrap();
    let mut control = Control::new(stream, Some(std::time::Duration::from_secs(10))).unwrap();
    control.hello().unwrap();
    control.greeted().unwrap();
    let told = control
        .peer_machine()
        .and_then(|machine| machine.device.as_ref());
    assert_eq!(told.unwrap().name, "absent0");
    let open = |transport: &str, pattern: &str| {
        Message::Open(Open {
            transport: transport.to_owned(),
            pattern: pattern.to_owned(),
            ethertype: 0x4E47,
            endpoint: Endpoint::default(),
            options: SocketOptions::default(),
        })
    };
    for (transport, pattern, expected) in [
        ("raw", "one-one", "absent0"),
        ("tcp", "one-one", "absent0"),
        ("pigeon", "one-one", "pigeon"),
        ("tcp", "ring", "ring"),
    ] {
        control.send(&open(transport, pattern)).unwrap();
        let error = control.answer().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        control.send(&Message::Close).unwrap();
        assert_eq!(control.answer().unwrap(), Message::Closed);
    }
    drop(control);
    server.join().unwrap().unwrap();
}

#[test]
fn a_busy_server_is_reported_as_such() {
    // The kernel completes the connection, but no server accepts it.
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let give_up = Duration::from_millis(100);
    let error = netgauge::control::reach("127.0.0.1", port, Duration::ZERO, give_up).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("serves one at a time"), "{text}");
    assert!(text.contains(&format!("port {port}")), "{text}");
}

#[test]
fn sizes_beyond_a_pattern_are_refused_before_anything_runs() {
    let cli = parse("--connect 127.0.0.1 -s 1G");
    let error = cli.client_options("127.0.0.1").err().unwrap().to_string();
    assert!(error.contains("lower -s"), "{error}");
}

/// Runs the transports that need no kernel module, on one host, with options that differ from the
/// defaults.
#[test]
fn every_transport_that_needs_no_module_does_every_pattern_with_options() {
    let all = "tcp,udp,unix,tcp-zerocopy,tcp-splice";
    for (transports, options) in [
        (all, ""),
        (all, "-N both"),
        (all, "-N send"),
        (all, "-N receive"),
        (all, "--send-buffer 16K"),
        (
            "tcp,udp,tcp-zerocopy,tcp-splice",
            "--receive-buffer 64K --busy-poll 10",
        ),
        ("tcp,tcp-zerocopy,tcp-splice", "--nodelay off -N both"),
    ] {
        let report = complete(&format!(
            "-m {transports} -x one-one,bulk -s 1,5000,100000 -c 3 --warmup 1 {options}"
        ));
        assert_eq!(report.runs.len(), 2 * transports.split(',').count());
        for run in &report.runs {
            assert_eq!(run.rows.len(), 3, "{options}: {run:?}");
            let nonblocking = run.about.contains("non-blocking");
            assert_eq!(nonblocking, options.contains("-N"), "{}", run.about);
        }
    }
}

#[test]
fn copied_zero_copy_sends_are_reported() {
    let report = measure("-m tcp-zerocopy -s 100000 -c 2");
    let about = &report.runs[0].about;
    assert!(
        about.contains("MSG_ZEROCOPY, TCP_NODELAY; the kernel copied"),
        "{about}"
    );
}

#[test]
fn all_transports_are_measured_or_left_out_with_a_reason() {
    // Transports on Ethernet do not work on loopback.
    let report = complete("-m all -x one-one,bulk -s 64 -c 2 --nodelay off");
    for name in ["tcp", "udp", "unix", "tcp-zerocopy", "tcp-splice"] {
        let runs: Vec<_> = report
            .runs
            .iter()
            .filter(|run| run.transport == name)
            .collect();
        assert_eq!(runs.len(), 2, "{report:?}");
        let nagle = runs[0].about.contains("TCP_NODELAY off");
        assert_eq!(nagle, name.starts_with("tcp"), "{}", runs[0].about);
    }
    let reason = |name| {
        let mut outs = report.left_out.iter().filter(|out| out.transport == name);
        let out = outs.next().unwrap_or_else(|| panic!("{name}: {report:?}"));
        assert!(outs.next().is_none(), "{report:?}");
        out.reason.clone()
    };
    for name in ["raw", "edp", "esp"] {
        assert!(
            reason(name).contains("not an Ethernet interface"),
            "{}",
            reason(name)
        );
    }
    let mut table = Vec::new();
    report.write(Format::Table, &mut table).unwrap();
    assert!(String::from_utf8(table)
        .unwrap()
        .contains("Left out: raw: "));
}

#[test]
fn tipc_needs_its_module_and_nothing_else_on_one_host() {
    let loaded = socket2::Socket::new(
        socket2::Domain::from(libc::AF_TIPC),
        socket2::Type::STREAM,
        None,
    );
    let report = measure("-m tipc -x one-one,bulk -s 1,100000 -c 3 -N both");
    for run in &report.runs {
        match (&loaded, &run.outcome) {
            (Ok(_), Outcome::Ok) => {}
            (Err(_), Outcome::Failed { error }) => {
                assert!(error.contains("modprobe tipc"), "{error}");
            }
            (loaded, outcome) => panic!("{loaded:?}: {outcome:?}"),
        }
    }
}

#[test]
fn an_option_that_means_nothing_to_a_transport_is_refused_before_anything_runs() {
    let cli = parse("--connect 127.0.0.1 -m tcp,unix --receive-buffer 64K");
    let error = cli.client_options("127.0.0.1").err().unwrap().to_string();
    assert!(
        error.contains("--receive-buffer means nothing to unix"),
        "{error}"
    );
}

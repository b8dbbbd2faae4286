// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of many participants, each a process on loopback: their results, and how they end when
//! a participant dies.

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Instant;

use common::{finish, netgauge, report, run, start, succeed, text, Server, PATIENCE};
use netgauge::group::coordinator::esp_params::ParamsReport;
use netgauge::group::coordinator::figures::Share;
use netgauge::group::coordinator::report::{Cast, GroupReport, GroupRun};
use netgauge::report::Outcome;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

fn servers(count: usize, arguments: &str) -> Vec<Server> {
    (0..count).map(|_| Server::start(arguments)).collect()
}

/// Returns the command of a coordinator that measures one-many among these servers.
fn coordinator(servers: &[Server], arguments: &str) -> Command {
    coordinator_of("one-many", servers, arguments)
}

/// Returns the command of a coordinator that measures `pattern` among these servers.
fn coordinator_of(pattern: &str, servers: &[Server], arguments: &str) -> Command {
    let names: Vec<_> = servers.iter().map(Server::name).collect();
    let mut command = netgauge(&format!("-x {pattern} --peers {}", names.join(",")));
    command.args(arguments.split_whitespace());
    command
}

/// Starts a pattern among these servers, and waits until all take part.
fn begin(pattern: &str, servers: &mut [Server], arguments: &str) -> Child {
    let arguments = format!("{arguments} --format json");
    let child = start(coordinator_of(pattern, servers, &arguments));
    servers.iter_mut().for_each(Server::await_client);
    child
}

/// Starts one-many with so many rounds that the test ends the run before they are done.
fn endless(servers: &mut [Server]) -> Child {
    let endless = "--server-index 0 -s 64K -c 2000000000 --clients 2,3";
    begin("one-many", servers, endless)
}

/// Checks that a run failed, and that its error contains `said`, the name of a server.
fn failed_by(output: &Output, said: &str) {
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains(said), "{said}: {stderr}");
}

/// Checks that the remaining servers serve the next coordinator.
fn go_on(pattern: &str, servers: &[Server]) {
    succeed(coordinator_of(pattern, servers, "-s 1 -c 1"));
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id() as i32), signal).unwrap();
}

fn cast(run: &GroupRun) -> &Cast {
    run.cast.as_ref().unwrap()
}

fn error(run: &GroupRun) -> &str {
    match &run.outcome {
        Outcome::Ok => panic!("{run:?}"),
        Outcome::Failed { error } => error,
    }
}

#[test]
fn every_number_of_clients_and_every_size_is_measured() {
    let servers = servers(4, "");
    let options = "--clients 1-3 -s 1,64K,1M -c 3 --warmup 1 --rate 1G --congestion reno";
    let output = run(coordinator(&servers, &format!("{options} --format json")));
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Standard error is no terminal, so no progress bar is drawn there.
    assert_eq!(text(&output.stderr), "");
    let report: GroupReport = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = servers.iter().map(Server::name).collect();
    assert_eq!(report.participants, names);
    assert_eq!(report.rate_bit_per_s, Some(1_000_000_000));
    assert_eq!(report.runs.len(), 3);
    for (run, clients) in report.runs.iter().zip(1..) {
        assert_eq!(
            (cast(run).clients, run.congestion.as_deref()),
            (clients, Some("reno"))
        );
        assert!(cast(run).server_index <= clients);
        assert_eq!(cast(run).server, names[cast(run).server_index]);
        let sizes: Vec<_> = run.rows.iter().map(|row| row.size).collect();
        assert_eq!(sizes, [1, 64 << 10, 1 << 20]);
        for row in &run.rows {
            assert_eq!((row.rounds, row.errors), (3, 0));
            let goodput = row.goodput_bit_per_s.unwrap();
            assert!(0 < goodput.worst, "{row:?}");
            assert!(goodput.worst <= goodput.median && goodput.median <= goodput.best);
            let Some(Share::OfRounds { median, .. }) = row.share else {
                panic!("{row:?}");
            };
            assert!((median * 1e9 - goodput.median as f64).abs() < 1.0);
            let fairness = row.fairness.unwrap();
            let least = 1.0 / clients as f64;
            assert!(
                (least - 1e-9..=1.0 + 1e-9).contains(&fairness.worst),
                "{row:?}"
            );
            assert!(fairness.worst <= fairness.median);
        }
    }

    let csv = run(coordinator(&servers, &format!("{options} --format csv")));
    let csv = text(&csv.stdout);
    let (comments, lines): (Vec<_>, Vec<_>) = csv.lines().partition(|line| line.starts_with('#'));
    assert_eq!(lines.len(), 1 + 3 * 3);
    // The four comments are the start time, the command, and two lines of facts such as the kernel:
    // one that all servers share, and one of the coordinator, which has fewer facts.
    assert_eq!(comments.len(), 4, "{csv}");
    let table = text(&run(coordinator(&servers, options)).stdout);
    for expected in ["tcp reno", "1 MiB", "median share", "worst fairness"] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn local_sockets_measure_what_a_host_can_do_without_a_network() {
    let servers = servers(3, "");
    for (named, pattern) in [
        ("one-many", "one-many"),
        ("incast", "one-many"),
        ("many-one", "many-one"),
        ("all-to-all", "all-to-all"),
        ("bisection", "bisection"),
        ("loaded-latency", "loaded-latency"),
        ("beside", "loaded-latency"),
    ] {
        let options = "-m unix -s 1,64K,1M -c 2 --format json";
        let report: serde_json::Value = report(coordinator_of(named, &servers, options));
        assert_eq!(report["pattern"], pattern);
        let run = &report["runs"][0];
        assert_eq!(run["transport"], "unix", "{pattern}");
        assert_eq!(run["rows"].as_array().unwrap().len(), 3, "{pattern}");
    }
}

#[test]
fn remote_calls_are_timed_alone_and_while_others_send() {
    let servers = servers(4, "");
    // Without pauses, all calls may be made before a busy host sends any data on the streams.
    let options = "-m tcp -s 100,10000 -c 50 --pause 5 --server-index 0 --rate 1G";
    let report: GroupReport = report(coordinator_of(
        "loaded-latency",
        &servers,
        &format!("{options} --format json"),
    ));
    for row in &report.runs[0].rows {
        let calls = row.rpc.unwrap();
        assert_eq!((row.rounds, row.errors), (50, 0), "{row:?}");
        assert!(calls.median_ns > 0 && calls.p99_ns <= calls.max_ns);
        assert!(row.goodput_bit_per_s.unwrap().median > 0, "{row:?}");
    }
    let table = text(&run(coordinator_of("loaded-latency", &servers, options)).stdout);
    for expected in ["p99 slowdown", "longest pause ns", "median share"] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn a_seed_draws_the_same_server_again_and_an_index_fixes_it() {
    let servers = servers(3, "");
    let server_of = |arguments: &str| {
        let options = format!("-s 1 -c 1 --clients 2 --format json {arguments}");
        let report: GroupReport = report(coordinator(&servers, &options));
        cast(&report.runs[0]).server_index
    };
    assert_eq!(server_of("--seed 5"), server_of("--seed 5"));
    for index in 0..3 {
        assert_eq!(server_of(&format!("--server-index {index}")), index);
    }
}

#[test]
fn a_connection_makes_this_host_the_client() {
    let server = Server::start("");
    let mut command = server.client("-x one-many -s 64K -c 3 --format json");
    command.stdin(Stdio::null());
    let report: GroupReport = report(command);
    assert_eq!(report.participants, [server.name(), "this host".to_owned()]);
    let run = &report.runs[0];
    assert_eq!(
        (
            cast(run).clients,
            cast(run).server_index,
            run.rows[0].rounds
        ),
        (1, 0, 3)
    );
}

#[test]
fn a_client_that_is_killed_is_named_and_the_others_go_on_serving() {
    let mut servers = servers(4, "");
    let child = endless(&mut servers);
    signal(&servers[2].process, Signal::SIGKILL);
    let output = finish(child);
    let gone = format!("participant {} is gone", servers[2].name());
    failed_by(&output, &gone);
    let report: GroupReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.runs.len(), 2);
    assert!(error(&report.runs[0]).contains(&gone));
    assert!(error(&report.runs[1]).contains("not measured"));

    servers.remove(2);
    go_on("one-many", &servers);
}

#[test]
fn a_server_that_is_killed_is_named_and_its_clients_go_on_serving() {
    let mut servers = servers(4, "");
    let child = endless(&mut servers);
    signal(&servers[0].process, Signal::SIGKILL);
    let gone = format!("participant {} is gone", servers[0].name());
    failed_by(&finish(child), &gone);

    servers.remove(0);
    go_on("one-many", &servers);
}

#[test]
fn a_member_that_falls_silent_is_named() {
    for (pattern, options) in [
        ("one-many", "--server-index 0 -s 64K"),
        ("all-to-all", "-s 1M"),
    ] {
        let mut servers = servers(3, "--give-up 1");
        let options = format!("{options} -c 2000000000 --give-up 1");
        let child = begin(pattern, &mut servers, &options);
        signal(&servers[1].process, Signal::SIGSTOP);
        let output = finish(child);
        signal(&servers[1].process, Signal::SIGCONT);
        // The error names this server in either case. A server that is stopped before the rounds
        // does not answer; one that is stopped during the rounds does not send.
        failed_by(&output, &servers[1].name());
    }
}

#[test]
fn a_coordinator_that_is_killed_or_interrupted_leaves_all_serving() {
    for (deadly, status) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let mut servers = servers(4, "");
        let child = endless(&mut servers);
        signal(&child, deadly);
        assert_eq!(finish(child).status.code(), status);
        go_on("one-many", &servers);
    }
}

#[test]
fn a_coordinator_that_is_interrupted_takes_the_processes_it_started_with_it() {
    let mut server = Server::start("");
    let child = server
        .client("-x one-many -s 64K -c 2000000000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    server.await_client();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let started = loop {
        // The kernel must have CONFIG_PROC_CHILDREN. The file is empty until the coordinator has
        // started its child.
        match std::fs::read_to_string(&children) {
            Ok(text) if text.trim().is_empty() => thread::yield_now(),
            listed => break listed.unwrap().trim().to_owned(),
        }
    };
    signal(&child, Signal::SIGINT);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(text(&output.stderr).trim(), "netgauge: interrupted");
    assert!(!Path::new("/proc").join(started).exists());
}

#[test]
fn many_one_is_measured_as_one_many_is() {
    let servers = servers(4, "");
    let options = "--clients 1-3 -s 1,1M -c 3 --server-index 1 --rate 1G";
    let report: GroupReport = report(coordinator_of(
        "many-one",
        &servers,
        &format!("{options} --format json"),
    ));
    assert_eq!(report.pattern, "many-one");
    for (run, clients) in report.runs.iter().zip(1..) {
        assert_eq!((cast(run).clients, cast(run).server_index), (clients, 1));
        assert_eq!(run.rows.len(), 2);
        for row in &run.rows {
            assert_eq!((row.rounds, row.errors), (3, 0));
            assert!(row.goodput_bit_per_s.unwrap().worst > 0 && row.share.is_some());
            let fairness = row.fairness.unwrap();
            assert!(
                0.0 < fairness.worst && fairness.worst <= 1.0 + 1e-9,
                "{row:?}"
            );
        }
    }
    let table = text(&run(coordinator_of("many-one", &servers, options)).stdout);
    assert!(table.contains("many-one: one server sends"), "{table}");
}

#[test]
fn all_take_part_in_all_to_all_and_in_bisection() {
    // The number is odd, so one server has no partner in a bisection.
    let servers = servers(5, "");
    for pattern in ["all-to-all", "bisection"] {
        let options = "-s 1,256K -c 4 --seed 3 --rate 1G";
        let measure = |format: &str| {
            let options = format!("{options} --format {format}");
            succeed(coordinator_of(pattern, &servers, &options))
        };
        let report: GroupReport = serde_json::from_slice(&measure("json")).unwrap();
        assert_eq!(
            (&report.pattern[..], report.participants.len()),
            (pattern, 5)
        );
        let run = &report.runs[0];
        assert_eq!((&run.outcome, run.rows.len()), (&Outcome::Ok, 2));
        assert_eq!(run.about, "TCP over IP, TCP_NODELAY");
        for row in &run.rows {
            assert_eq!((row.rounds, row.errors), (4, 0));
            let host = row.host_bit_per_s.unwrap();
            assert!(0 < host.worst && host.worst <= host.median && host.median <= host.best);
            let average = host.average.unwrap();
            assert!(host.worst <= average && average <= host.best);
            let Some(Share::Average(share)) = row.share else {
                panic!("{row:?}");
            };
            assert!((share * 1e9 - average as f64).abs() < 1.0);
            let together = match pattern {
                "bisection" => (None, Some(average * 2)),
                _ => (Some(average * 5), None),
            };
            assert_eq!((row.total_bit_per_s, row.bisection_bit_per_s), together);
            assert_eq!(row.fairness.is_some(), pattern == "all-to-all");
        }
        let csv = text(&measure("csv"));
        let fields = |line: &str| line.split(',').count();
        let lines = csv.lines().filter(|line| !line.starts_with('#'));
        let counts: Vec<_> = lines.map(fields).collect();
        assert_eq!(counts, [16, 16, 16], "{csv}");
        let table = text(&measure("table"));
        assert!(
            table.contains(pattern) && table.contains("256 KiB"),
            "{table}"
        );
    }
}

#[test]
fn a_member_that_is_killed_is_named_and_the_others_go_on_serving() {
    for pattern in ["many-one", "all-to-all", "bisection"] {
        // Any member that dies must be named, including member 0, which keeps the time.
        for victim in [0, 2] {
            let mut servers = servers(4, "");
            let child = begin(pattern, &mut servers, "-s 64K -c 2000000000 --seed 1");
            signal(&servers[victim].process, Signal::SIGKILL);
            let gone = format!("participant {} is gone", servers[victim].name());
            failed_by(&finish(child), &gone);
            servers.remove(victim);
            go_on(pattern, &servers);
        }
    }
}

#[test]
fn a_run_that_is_interrupted_prints_what_was_measured() {
    for pattern in ["one-many", "many-one", "all-to-all", "bisection"] {
        let mut servers = servers(3, "");
        // These rounds take much longer than the test lets the run last.
        let child = begin(pattern, &mut servers, "-s 1,1M -c 100000 --warmup 0");
        // The test waits until the servers have used the processor for a while, because some rounds
        // are complete then. `ticks` returns a server's processor time.
        let ticks = |server: &Server| {
            let path = format!("/proc/{}/stat", server.process.id());
            let stat = std::fs::read_to_string(path).unwrap();
            let fields: Vec<_> = stat.rsplit(')').next().unwrap().split(' ').collect();
            fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
        };
        let deadline = Instant::now() + PATIENCE;
        while servers.iter().any(|server| ticks(server) < 20) {
            assert!(Instant::now() < deadline, "{pattern}: nothing is done");
            thread::yield_now();
        }
        signal(&child, Signal::SIGINT);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(130), "{pattern}");
        assert_eq!(text(&output.stderr).trim(), "netgauge: interrupted");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = &report["runs"][0];
        assert_eq!(
            (&run["status"], &run["error"]),
            (&"failed".into(), &"interrupted".into())
        );
        let row = &run["rows"][0];
        assert!(row["rounds"].as_u64().unwrap() > 0, "{pattern}: {report}");
        go_on(pattern, &servers);
    }
}

/// A file of a test. The file is removed when this value is dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netgauge-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The error is ignored, because a file that is left behind does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns a coordinator that runs a local shell instead of ssh. The shell gets the host as $0, and
/// the line for the remote shell as $1.
fn by_ssh(hosts: &Scratch, script: &str, arguments: &str) -> Command {
    let mut command = netgauge("-m tcp --interface lo --hostfile");
    command
        .arg(&hosts.0)
        .args(["--ssh", &format!("sh -c '{script}'")]);
    command.args(["--remote-program", env!("CARGO_BIN_EXE_netgauge")]);
    command.args(arguments.split_whitespace());
    command
}

#[test]
fn hosts_are_reached_by_ssh() {
    let hosts = Scratch::new("hosts", "# the rack\nnode0\nnode1 # slow\n\nnode2\n");
    for pattern in ["one-many", "bisection"] {
        let arguments = format!("-x {pattern} -s 64K -c 3 --format json");
        let report: serde_json::Value = report(by_ssh(&hosts, "exec sh -c \"$1\"", &arguments));
        let names = serde_json::json!(["node0", "node1", "node2"]);
        assert_eq!(report["participants"], names);
        assert_eq!(report["runs"][0]["rows"][0]["rounds"], 3);
    }
}

#[test]
fn hosts_that_cannot_be_reached_are_named() {
    let hosts = Scratch::new("absent", "node0\nnode1\n");
    let measure = |script: &str| {
        let output = run(by_ssh(&hosts, script, "-x one-many -s 1 -c 1"));
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let absent = "if [ $0 = node1 ]; then echo no route to $0 >&2; exit 255; fi; exec sh -c \"$1\"";
    let said = measure(absent);
    assert!(
        said.contains("netgauge: node1: no route to node1"),
        "{said}"
    );
    assert!(
        said.contains("node1: ssh, or netgauge there, ended with status 255"),
        "{said}"
    );
    // This script replaces ssh. It reads what the coordinator sends, but never answers.
    let output = run(by_ssh(
        &hosts,
        "exec cat >/dev/null",
        "-x one-many -s 1 -c 1 --wait 1",
    ));
    let said = text(&output.stderr);
    let expected = "node0 does not answer within 1 s: does it ask for a password?";
    assert!(said.contains(expected), "{said}");
    let said = measure("exit 127");
    assert!(said.contains("node0: there is no netgauge there"), "{said}");
    let output = run(netgauge("-x one-many --hostfile /nonexistent"));
    assert!(text(&output.stderr).contains("/nonexistent"));
}

#[test]
fn a_host_that_dies_is_named() {
    let hosts = Scratch::new("dying", "node0\nnode1\nnode2\n");
    // The process on node2 is killed after some messages, during the rounds.
    let script = "if [ $0 = node2 ]; then \
        sh -c \"echo \\$\\$; exec \\$0\" \"$1\" | { read pid; sed -u 12q; kill -9 $pid; }; \
        else exec sh -c \"$1\"; fi";
    let output = run(by_ssh(&hosts, script, "-x all-to-all -s 1-1M -c 2"));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("participant node2 is gone"), "{said}");
}

#[test]
fn wrong_options_are_refused_with_a_remedy() {
    let servers = servers(2, "");
    for (arguments, status, expected) in [
        ("-m udp", 2, "tcp, esp"),
        ("--clients 2", 2, "2 are named"),
        ("-s 1 -c 1 --congestion absent", 1, "modprobe tcp_absent"),
        ("-s 1 -c 1 -m esp", 1, "esp, 1 client: 127.0.0.1"),
    ] {
        let output = run(coordinator(&servers, arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{arguments}: {stderr}");
    }
    let output = run(netgauge("-x one-one --netns a,b"));
    assert!(text(&output.stderr).contains("--connect"));
}

#[test]
fn a_failed_transport_leaves_the_others_measured() {
    let servers = servers(2, "");
    let output = run(coordinator(&servers, "-m esp,tcp -s 1 -c 1 --format json"));
    assert_eq!(output.status.code(), Some(1));
    let report: GroupReport = serde_json::from_slice(&output.stdout).unwrap();
    // esp fails with or without its module, because loopback is not an Ethernet interface.
    assert!(error(&report.runs[0]).contains("127.0.0.1"));
    assert_eq!(report.runs[1].outcome, Outcome::Ok);
}

#[test]
fn transports_that_do_not_work_are_left_out_with_a_reason() {
    let servers = servers(3, "");
    for (pattern, clients) in [("one-many", "--clients 1,2"), ("bisection", "")] {
        let options = format!("-m all -s 1 -c 1 {clients}");
        let json = format!("{options} --format json");
        let output = run(coordinator_of(pattern, &servers, &json));
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{pattern}: {stderr}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let runs = report["runs"].as_array().unwrap();
        for name in ["tcp", "unix"] {
            assert!(runs.iter().any(|run| run["transport"] == name), "{report}");
        }
        assert!(runs.iter().all(|run| run["status"] == "ok"), "{report}");
        // esp is left out with or without its module, because loopback is no Ethernet interface.
        // Whether tipc is left out depends on its module.
        let left_out = report["left_out"].as_array().unwrap();
        let esp = left_out.iter().filter(|out| out["transport"] == "esp");
        assert_eq!(esp.count(), 1, "{report}");
        assert!(
            stderr.starts_with("netgauge: left out: esp: 127.0.0.1"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), left_out.len(), "{stderr}");

        let output = run(coordinator_of(pattern, &servers, &options));
        let table = text(&output.stdout);
        assert!(table.contains("\n  left out: esp: 127.0.0.1"), "{table}");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn esp_params_without_esp_says_what_is_missing_and_draws_nothing() {
    let server = Server::start("");
    let plot = std::env::temp_dir().join(format!("netgauge-{}.svg", std::process::id()));
    let mut command = server.client("-x esp-params -s 1K -c 1 --format json --plot");
    command.arg(&plot);
    let output = run(command);
    assert_eq!(output.status.code(), Some(1));
    let report: ParamsReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.cells.iter().all(|cell| cell.rounds == 0));
    // Without the module, there are no parameters to set. With the module, esp fails because
    // loopback is not an Ethernet interface.
    let stderr = text(&output.stderr);
    let known = ["modprobe enet", "not an Ethernet interface"];
    assert!(known.iter().any(|text| stderr.contains(text)), "{stderr}");
    assert!(!plot.exists());
}

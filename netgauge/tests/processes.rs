// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program: its output, its exit status, and its end when the peer dies.

mod common;

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{finish, netgauge, run, start, succeed, text, Server, PATIENCE};
use netgauge::control::{Control, Message, Open};
use netgauge::report::{Outcome, Report};
use netgauge::transport::SocketOptions;
use netgauge::wire::Endpoint;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

#[test]
fn one_server_serves_client_after_client_in_every_format() {
    let server = Server::start("");
    let options = "-m tcp,udp -x all -s 64,1024 -c 3 --percentiles 75,99.9";

    let json = run(server.client(&format!("{options} --format json")));
    assert!(json.status.success(), "{}", text(&json.stderr));
    let report: Report = serde_json::from_slice(&json.stdout).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.runs.len(), 11);
    // Both ends are on this host, so the record names device lo for both.
    let record = report.record.unwrap();
    let device = |part: &str| {
        record.hosts[part]
            .device
            .as_ref()
            .map(|device| &device.name[..])
    };
    assert_eq!([device("client"), device("server")], [Some("lo"); 2]);
    assert!(
        record.command.contains("--connect 127.0.0.1"),
        "{}",
        record.command
    );
    // Standard error is no terminal, so no progress bar is drawn there. The only line names the
    // transport that was left out.
    let stderr = text(&json.stderr);
    assert!(
        stderr.starts_with("netgauge: left out: udp, setup: "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);

    let csv = run(server.client(&format!("{options} --format csv")));
    let csv = text(&csv.stdout);
    let (comments, lines): (Vec<_>, Vec<_>) = csv.lines().partition(|line| line.starts_with('#'));
    // The average number of lines by pattern, for one transport and one size. For setup, it is 1:
    // tcp has two lines, one for each kind of times, and udp has none, because setup leaves it out.
    let kinds_of_times = [1, 1, 4, 1, 1, 1].map(|kinds| 4 * kinds);
    assert_eq!(lines.len(), 1 + kinds_of_times.iter().sum::<usize>());
    assert_eq!(comments.len(), 3, "{csv}");
    assert!(
        lines[0].contains(",stddev_ns,p75_ns,p99.9_ns,outliers,"),
        "{csv}"
    );

    let table = text(&run(server.client(options)).stdout);
    for expected in [
        "tcp: TCP over IP",
        "Comparison (one-one)",
        "Comparison (bulk)",
        "Comparison (flood)",
        "Left out: udp, setup: setup opens connections of tcp, esp, unix, tipc, not of udp",
    ] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn a_pair_that_cannot_be_measured_is_refused_before_anything_runs() {
    for (options, expected) in [
        (
            "-m tcp,udp -x flood,setup",
            "setup opens connections of tcp, esp, unix, tipc, not of udp",
        ),
        ("--eor", "add -x flood"),
        ("--block 1M", "add -x bulk"),
    ] {
        // The options are refused before the client connects, so no server is needed on this port.
        let line = format!("--connect 127.0.0.1 --port 1 --wait 0 {options}");
        let output = run(netgauge(&line));
        assert_eq!(output.status.code(), Some(2), "{options}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_missing_side_is_answered_with_those_that_users_can_choose() {
    let output = run(netgauge(""));
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("<--server|--connect <HOST>|"), "{stderr}");
    assert!(!stderr.contains("participant"), "{stderr}");
}

#[test]
fn internal_options_are_neither_listed_nor_suggested() {
    for line in [
        "--help",
        "-h",
        "lab --help",
        "--particip",
        "--stdi",
        "--server --stdout",
    ] {
        let output = run(netgauge(line));
        let said = text(&output.stdout) + &text(&output.stderr);
        for option in ["--participant", "--stdio"] {
            assert!(!said.contains(option), "{line}: {said}");
        }
    }
}

#[test]
fn an_address_of_another_host_is_not_blamed_on_the_port() {
    let output = run(netgauge("--server --listen 192.0.2.1 --port 0"));
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("listening on 192.0.2.1") && stderr.contains("--listen"),
        "{stderr}"
    );
    assert!(!stderr.contains("--port"), "{stderr}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = run(netgauge(&format!(
        "--server --listen 127.0.0.1 --port {port}"
    )));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("choose another with --port"), "{stderr}");
}

#[test]
fn completions_into_a_closed_pipe_are_no_error() {
    for shell in ["bash", "zsh", "fish"] {
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        let mut program = netgauge(&format!("completions {shell}"));
        let output = program.stdout(OwnedFd::from(writer)).output().unwrap();
        assert!(output.status.success(), "{shell}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{shell}");
    }
}

#[test]
fn lost_messages_change_no_status_and_lost_help_is_a_failure() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (arguments, wanted) in [
        ("--connect 127.0.0.1 --port 1 --wait 0", 1),
        ("--connect 127.0.0.1 -x nonsense", 2),
        ("--nonsense", 2),
    ] {
        let child = netgauge(arguments).stderr(full()).spawn().unwrap();
        assert_eq!(finish(child).status.code(), Some(wanted), "{arguments}");
    }
    for arguments in ["--help", "--version", "one-one --help", "completions bash"] {
        let mut command = netgauge(arguments);
        command.stdout(full()).stderr(Stdio::piped());
        let ended = finish(command.spawn().unwrap());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("No space left"), "{arguments}: {said}");
    }
}

#[test]
fn a_failed_transport_is_status_1_and_the_others_are_in_the_report() {
    let server = Server::start("");
    let output = run(server.client("-m raw,tcp -s 8 -c 2 --format json"));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("raw, one-one: "),
        "{}",
        text(&output.stderr)
    );
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (report.runs[0].rows.len(), report.runs[1].rows.len()),
        (0, 1)
    );
}

/// On a terminal, standard error appears next to the report, which has the error already.
#[test]
fn errors_in_the_table_are_not_repeated_on_a_terminal() {
    let server = Server::start("");
    let client = server.client("-m raw,tcp -s 8 -c 2");
    let program = client.get_program().to_str().unwrap();
    let arguments = client.get_args().map(|argument| argument.to_str().unwrap());
    let line = shlex::try_join(std::iter::once(program).chain(arguments)).unwrap();
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-e", "-c", &line, "/dev/null"]);
    terminal.stdin(Stdio::null());
    let output = run(terminal);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("FAILED").count(), 1, "{said}");
    assert!(!said.contains("netgauge: raw, one-one"), "{said}");
    // If standard output is no terminal, standard error has the error.
    let output = run(client);
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("netgauge: raw, one-one: "), "{stderr}");
    assert!(text(&output.stdout).contains("FAILED"));
}

#[test]
fn a_server_that_is_killed_is_named_and_the_client_ends() {
    for transport in ["tcp", "udp"] {
        let mut server = Server::start("");
        // The client plans so many tests that it is still measuring when the server is killed.
        let client = start(server.client(&format!(
            "-m {transport},tcp -s 1 -c 2000000000 --format json"
        )));
        // This call returns when the client has connected.
        server.await_client();
        server.process.kill().unwrap();

        let output = finish(client);
        assert_eq!(output.status.code(), Some(1));
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains(&format!("peer 127.0.0.1:{} is gone", server.port)),
            "{stderr}"
        );
    }
}

#[test]
fn a_client_that_is_killed_leaves_the_server_serving() {
    for transport in ["tcp", "udp"] {
        let mut server = Server::start("");
        let mut client = server
            .client(&format!("-m {transport} -s 1 -c 2000000000"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        server.await_client();
        client.kill().unwrap();
        client.wait().unwrap();

        succeed(server.client("-s 1 -c 1"));
    }
}

/// A client connects its transport after the server has named the socket. Here it dies in between.
#[test]
fn a_client_that_dies_before_it_connects_its_transport_keeps_nobody_waiting() {
    // The server would wait longer for the client than the next client waits for the server.
    let mut server = Server::start("--give-up 60");
    let client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut client = Control::new(client, Some(PATIENCE)).unwrap();
    client.hello().unwrap();
    client.greeted().unwrap();
    let open = Open {
        transport: "tcp".to_owned(),
        pattern: "one-one".to_owned(),
        ethertype: 0,
        endpoint: Endpoint::default(),
        options: SocketOptions::default(),
    };
    client.send(&Message::Open(open)).unwrap();
    let answer = client.answer().unwrap();
    assert!(matches!(answer, Message::Endpoint(_)), "{answer:?}");
    server.await_client();
    drop(client);

    succeed(server.client("-m tcp -s 1 -c 1"));
}

#[test]
fn once_ends_the_server_with_its_client() {
    let mut server = Server::start("--once");
    succeed(server.client("-s 1 -c 1"));
    assert!(server.process.wait().unwrap().success());
    let mut rest = String::new();
    server.stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.lines().count(), 1, "{rest}");
}

#[test]
fn no_server_is_answered_with_how_to_start_one() {
    // The listener is closed at once, so nothing listens on its port any more.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let output = run(netgauge(&format!(
        "--connect 127.0.0.1 --port {port} --wait 0"
    )));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("netgauge --server"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_client_waits_for_a_server_that_comes_up_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let client = start(netgauge(&format!(
        "--connect 127.0.0.1 --port {port} --wait 50 -s 1 -c 1"
    )));
    let server = netgauge(&format!("--server --once --listen 127.0.0.1 --port {port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = finish(client);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(finish(server).status.success());
}

#[test]
fn strangers_do_not_bring_the_server_down() {
    let mut server = Server::start("");
    let address = ("127.0.0.1", server.port);
    for greeting in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"{\"Hello\":{\"version\":4000}}\n",
        b"",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(greeting).unwrap();
        server.await_client();
        drop(stream);
        if !greeting.is_empty() {
            let mut line = String::new();
            server.stderr.read_line(&mut line).unwrap();
            assert!(line.contains("control protocol"), "{line}");
        }
    }
    succeed(server.client("-s 1 -c 1"));
}

#[test]
fn a_silent_connection_does_not_block_the_server() {
    let mut server = Server::start("--give-up 1");
    let mute = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    server.await_client();
    let mut line = String::new();
    server.stderr.read_line(&mut line).unwrap();
    assert!(line.contains("it does not answer"), "{line}");
    succeed(server.client("-s 1 -c 1"));
    drop(mute);
}

#[test]
fn a_wrong_command_line_is_status_2() {
    assert_eq!(run(netgauge("")).status.code(), Some(2));
    assert_eq!(
        run(netgauge("--server --format xml")).status.code(),
        Some(2)
    );
    // Errors that the parser does not find. No server is contacted, and no report is printed.
    for (line, expected) in [
        ("--connect h -x ring", "no pattern `ring`"),
        ("--connect h -m tpc", "no transport `tpc`"),
        ("--connect h -s 1G", "lower -s"),
        ("--peers a,b -x ring", "no pattern `ring`"),
        ("--peers a,b -x one-one", "name the server with --connect"),
        ("--peers a,b -x one-many,bulk", "alone"),
        ("--peers a,b -x one-many -m udp", "not for patterns of many"),
        ("--hostfile /nonexistent -x one-many", "/nonexistent"),
        ("--server --nodelay off", "the client's to say"),
        ("lab one-many -m udp", "not for patterns of many"),
    ] {
        let output = run(netgauge(line));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(expected), "{line}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{line}");
    }
    let help = run(netgauge("--help"));
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("Examples:"));
}

#[test]
fn bash_takes_the_completions_and_offers_options_by_prefix() {
    let mut shell = Command::new("bash");
    shell.args(["--norc", "-e"]).stdin(Stdio::piped());
    let mut shell = start(shell);
    let script = succeed(netgauge("completions bash"));
    let mut stdin = shell.stdin.take().unwrap();
    stdin.write_all(&script).unwrap();
    // The call that bash makes if the user presses tab after "netgauge --give-".
    let question = "COMP_WORDS=(netgauge --give-) COMP_CWORD=1\n\
                    _netgauge netgauge --give- netgauge\necho \"${COMPREPLY[@]}\"\n";
    stdin.write_all(question.as_bytes()).unwrap();
    drop(stdin);
    let output = finish(shell);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "--give-up\n");
}

/// In this test, the process is already printing its report when the signal comes, so there is
/// nothing left to interrupt.
#[test]
fn a_signal_while_the_report_is_printed_does_not_print_it_again() {
    let server = Server::start("");
    // The report is longer than the pipe can hold.
    let mut child = start(server.client("-s 1-64K -g 30 -c 1 --warmup 0 --format json"));
    let mut printed = vec![0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut printed)
        .unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    printed.extend(&output.stdout);
    assert!(printed.len() > 1 << 16, "{} bytes", printed.len());
    let report: Report = serde_json::from_slice(&printed).unwrap();
    assert!(report.is_complete());
}

#[test]
fn an_interrupted_client_prints_what_it_has_measured() {
    let server = Server::start("");
    // The first size takes almost no time. The second would take an hour, so the signal comes while
    // it is measured.
    let options = "-x bulk -s 1,1G -c 1000 --warmup 0 --format json";
    let mut pause = Duration::from_millis(50);
    // The duration of the first size is unknown, so the delay grows until that size was measured.
    loop {
        let child = start(server.client(options));
        thread::sleep(pause);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let output = finish(child);
        // A signal before the handler is installed kills the process.
        if output.status.signal() != Some(Signal::SIGINT as i32) {
            assert_eq!(output.status.code(), Some(130));
            assert_eq!(text(&output.stderr).trim(), "netgauge: interrupted");
        }
        if !output.stdout.is_empty() {
            let report: Report = serde_json::from_slice(&output.stdout).unwrap();
            let [run] = &report.runs[..] else {
                panic!("{report:?}")
            };
            assert!(matches!(&run.outcome, Outcome::Failed { error } if error == "interrupted"));
            if let [row] = &run.rows[..] {
                assert_eq!(row.size, 1);
                return;
            }
            assert!(run.rows.is_empty(), "{report:?}");
        }
        pause *= 2;
        assert!(pause < PATIENCE, "nothing was measured");
    }
}

#[test]
fn a_server_is_named_with_its_port() {
    let server = Server::start("");
    let name = server.name();
    succeed(netgauge(&format!("--connect {name} -m tcp -s 64 -c 3")));

    for (line, status, words, advice) in [
        ("--connect localhost:x -m tcp", 2, "HOST:PORT", false),
        (
            "--connect a..b -m tcp",
            1,
            "no IP address is known for a..b",
            false,
        ),
        ("--connect 127.0.0.1:1 --wait 0 -m tcp", 1, "--server", true),
        (
            "--server --interface nope0 --port 0",
            1,
            "no interface `nope0`",
            false,
        ),
    ] {
        let output = run(netgauge(line));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {stderr}");
        assert!(stderr.contains(words), "{line}: {stderr}");
        assert_eq!(
            stderr.contains("start `netgauge"),
            advice,
            "{line}: {stderr}"
        );
    }
    let output = run({
        let mut command = netgauge("--connect");
        command.arg("");
        command
    });
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_silent_server_gets_no_more_time_than_give_up() {
    // The kernel accepts the connection, but no server answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let begin = Instant::now();
    let line = format!("--connect 127.0.0.1 --port {port} --give-up 4 -m tcp");
    let output = run(netgauge(&line));
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    let stderr = text(&output.stderr);
    assert!(stderr.contains("does not answer"), "{stderr}");
}

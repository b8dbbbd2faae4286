// SPDX-License-Identifier: MIT OR Apache-2.0

//! Helpers that run the program, as a process or in the test's process.

// Each test program includes this file, and uses only parts of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use netgauge::cli::Cli;
use netgauge::pair::client;
use netgauge::progress::Progress;
use netgauge::report::Report;
use netgauge::server;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

/// The time limit of every wait. It is far longer than anything in these tests takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the command of the program with these arguments.
pub fn netgauge(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netgauge"));
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

/// A server process on a free port of loopback. The process is killed when the `Server` is dropped.
pub struct Server {
    pub process: Child,
    pub stderr: BufReader<ChildStderr>,
    pub port: u16,
}

impl Server {
    /// Starts a server, and waits until it listens.
    pub fn start(arguments: &str) -> Self {
        let mut process = netgauge("--server --listen 127.0.0.1 --port 0")
            .args(arguments.split_whitespace())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Self {
            process,
            stderr,
            port,
        }
    }

    /// Returns the server's name among participants.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until the server says that it has a client.
    pub fn await_client(&mut self) {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        assert!(line.contains("client 127.0.0.1"), "{line}");
    }

    /// Returns the command of a client of this server.
    pub fn client(&self, arguments: &str) -> Command {
        let mut client = netgauge("--connect 127.0.0.1");
        client
            .args(["--port", &self.port.to_string()])
            .args(arguments.split_whitespace());
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors are ignored because the server may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for a process to end, and kills the process after [`PATIENCE`]. The output is read at the
/// same time, because a full pipe would block the process.
pub fn finish(child: Child) -> Output {
    let pid = Pid::from_raw(child.id() as i32);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            kill(pid, Signal::SIGKILL).unwrap();
            panic!("still running after {PATIENCE:?}: {:?}", receiver.recv());
        }
    }
}

/// Starts a process, and captures its output.
pub fn start(mut command: Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a process to its end.
pub fn run(command: Command) -> Output {
    finish(start(command))
}

/// Runs a process that has to succeed, and returns its output.
pub fn succeed(command: Command) -> Vec<u8> {
    let output = run(command);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output.stdout
}

/// Runs a process, which has to succeed, and parses the report that the process prints as JSON.
pub fn report<R: DeserializeOwned>(command: Command) -> R {
    serde_json::from_slice(&succeed(command)).unwrap()
}

/// Measures on loopback. `server` has the options of the server, which serves one client, and
/// `client` has the options of that client.
pub fn measure_with(server: &str, client: &str, progress: &dyn Progress) -> Report {
    let listener = server::listen(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let cli = parse(&format!("--server --once {server}"));
    let server = thread::spawn(move || server::serve(&listener, &cli.server_options()));
    let cli = parse(&format!("--connect 127.0.0.1 --port {port} {client}"));
    let report = client::run(&cli.client_options("127.0.0.1").unwrap(), progress).unwrap();
    server.join().unwrap().unwrap();
    report
}

/// Parses a command line.
pub fn parse(arguments: &str) -> Cli {
    let words = arguments.split_whitespace();
    Cli::parse_from(["netgauge"].into_iter().chain(words))
}

/// Decodes a process's output.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

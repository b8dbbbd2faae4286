// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes of the program, for the tests that run it.

// Each test program takes in all of this and uses what it needs.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

/// Bounds every wait; far above what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments.
pub fn netgauge(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netgauge"));
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

/// A server process on a free port of loopback; it is killed when dropped.
pub struct Server {
    pub process: Child,
    pub stderr: BufReader<ChildStderr>,
    pub port: u16,
}

impl Server {
    /// Starts it, and waits until it listens.
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

    /// Its name among participants.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until it says that it has a client.
    pub fn await_client(&mut self) {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        assert!(line.contains("client 127.0.0.1"), "{line}");
    }

    /// A client of it, to be run.
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
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for a process to end, killing it when patience is over. What it prints is taken meanwhile: it
/// may be more than a pipe holds.
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

/// Runs a process to its end.
pub fn run(mut command: Command) -> Output {
    finish(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

/// A process's output.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

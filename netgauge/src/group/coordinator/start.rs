// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starts processes as participants: in a network namespace, in this process's own namespace, or on
//! another host by ssh.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::args::Options;
use super::location::Location;
use crate::control::Control;
use crate::messages::tell;

/// The time that a process may take to end after its connection has ended.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which [`Process::wait`] checks whether the process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The exit status of a shell that has not found the program.
const NO_PROGRAM: i32 = 127;

/// Returns the arguments of a participant that uses `interface`.
fn arguments(options: &Options, interface: Option<&str>) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(interface) = interface {
        arguments.extend(["--interface".to_owned(), interface.to_owned()]);
    }
    let (family, give_up) = (sockaddr_en::family(), options.measuring.give_up.as_secs());
    arguments.extend(["--family".to_owned(), family.to_string()]);
    arguments.extend(["--give-up".to_owned(), give_up.to_string()]);
    arguments
}

/// Starts this program as a participant at `location` on this host. The participant uses
/// `interface` unless it has a namespace of its own.
pub(super) fn start(
    location: &Location,
    interface: Option<&str>,
    options: &Options,
) -> Result<(Control, Process)> {
    // This path leads to the file of the running program, even if that file has been replaced
    // since.
    let mut command = Command::new("/proc/self/exe");
    let interface = match location {
        Location::Namespace(namespace) => {
            command.arg(format!("--participant={namespace}"));
            Some(options.interface.as_deref().unwrap_or("eth0"))
        }
        _ => {
            command.arg("--participant");
            interface
        }
    };
    command.args(arguments(options, interface));
    spawn(command, &location.to_string())
}

/// Starts a participant on another host through ssh. The control connection is ssh's standard input
/// and output, which ssh passes to the participant.
pub(super) fn start_remote(host: &str, options: &Options) -> Result<(Control, Process)> {
    let (program, own) = options
        .group
        .hosts
        .ssh
        .0
        .split_first()
        .context("no ssh to use")?;
    let mut line = vec![options.group.hosts.remote_program.clone()];
    line.extend(["--participant".to_owned(), "--stdio".to_owned()]);
    line.extend(arguments(options, options.interface.as_deref()));
    // The words are quoted, because the shell on the other host splits the line again.
    let line = shlex::try_join(line.iter().map(String::as_str))
        .context("a name for another host's shell has a zero byte")?;
    let mut command = Command::new(program);
    command.args(own).arg(host).arg(line);
    command.stderr(Stdio::piped());
    let (control, mut process) =
        spawn(command, host).with_context(|| format!("{program}: name another with --ssh"))?;
    let stderr = process.child.stderr.take();
    process.passing = stderr.map(|stderr| pass_on(host.to_owned(), stderr));
    Ok((control, process))
}

/// Starts a process whose control connection is its standard input and output.
fn spawn(mut command: Command, name: &str) -> Result<(Control, Process)> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    // A process group of its own keeps a terminal's signal away from the process. The coordinator
    // alone handles the signal, and lets the participants end cleanly.
    let child = command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs))
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting a process for {name}"))?;
    // `command` is dropped, because it would keep the process's end of the connection open. The
    // coordinator would then not notice the end of the process.
    drop(command);
    let process = Process {
        child,
        passing: None,
    };
    let control = Control::local_pair(ours, name, None)?;
    Ok((control, process))
}

/// Copies the standard error of ssh to this process's standard error, with the host's name before
/// each line.
fn pass_on(host: String, stderr: ChildStderr) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { return };
            tell(format_args!("{host}: {line}"));
        }
    })
}

/// A process that was started as a participant.
pub(super) struct Process {
    child: Child,
    /// The thread that copies the process's standard error.
    passing: Option<JoinHandle<()>>,
}

impl Process {
    /// Waits for the end of a process whose connection has ended, and kills the process if the wait
    /// takes too long. Also waits until the process's standard error has been copied.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                Ok(None) => break self.kill(),
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        if let Some(passing) = self.passing.take() {
            // The wait is limited, because a process that ssh left behind may keep the pipe open.
            while !passing.is_finished() && Instant::now() < deadline {
                thread::sleep(LOOK);
            }
        }
        status
    }

    /// Kills the process.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        // The error is ignored, because this call fails only if the process has ended already.
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// Waits for the end of a process whose connection has ended. Returns the reason for the end,
    /// or `None` if the process exited with 0.
    pub(super) fn end(&mut self, location: &Location) -> Option<String> {
        let status = self.wait()?;
        match (status.signal(), status.code()) {
            (Some(signal), _) => Some(format!("it was killed by signal {signal}")),
            (_, Some(0) | None) => None,
            (_, Some(NO_PROGRAM)) if matches!(location, Location::Ssh(_)) => Some(
                "there is no netgauge there (status 127): give its path with --remote-program"
                    .to_owned(),
            ),
            (_, Some(code)) if matches!(location, Location::Ssh(_)) => Some(format!(
                "ssh, or netgauge there, ended with status {code}: try the same by hand, and see \
                 --ssh and --remote-program"
            )),
            (_, Some(code)) => Some(format!("it ended with status {code}")),
        }
    }
}

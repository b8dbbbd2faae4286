// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where participants are, and how the coordinator starts those that no server waits for: in a
//! network namespace, here, or on another host by ssh.

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

/// How long a process may take to end once its connection has.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// How often to look whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A shell's exit status when there is no such program.
const NO_PROGRAM: i32 = 127;

/// Arguments of a participant that is to use `interface`.
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

/// Starts this program as a participant at `location` on this host; one that is in no namespace of its
/// own uses `interface`.
pub(super) fn start(
    location: &Location,
    interface: Option<&str>,
    options: &Options,
) -> Result<(Control, Process)> {
    // The program as it was started, also where its file has been replaced meanwhile.
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

/// Starts netgauge as a participant on another host. Its control connection is that program's
/// standard input and output.
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
    // The shell there takes it apart again.
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
    // Of its own group, so that a terminal's signal reaches the coordinator alone, which ends the
    // others in order.
    let child = command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs))
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting a process for {name}"))?;
    // The command has the other end as long as it is there.
    drop(command);
    let process = Process {
        child,
        passing: None,
    };
    let control = Control::local_pair(ours, name, None)?;
    Ok((control, process))
}

/// Has what is said on another host appear here, with its name.
fn pass_on(host: String, stderr: ChildStderr) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { return };
            eprintln!("netgauge: {host}: {line}");
        }
    })
}

/// A process that was started as a participant.
pub(super) struct Process {
    child: Child,
    /// Passes on what it says.
    passing: Option<JoinHandle<()>>,
}

impl Process {
    /// Waits for the end of a process whose connection has ended, and ends it if that takes too
    /// long. Afterwards everything is said that it had to say.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + LAST_BREATH;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
                Ok(None) => break self.kill(),
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        if let Some(passing) = self.passing.take() {
            // Something that ssh has left running may keep it open.
            while !passing.is_finished() && Instant::now() < deadline {
                thread::sleep(LOOK);
            }
        }
        status
    }

    /// Ends it.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        // One that has ended meanwhile cannot be killed, and need not be.
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// How it ended when its connection has, if it was not by itself.
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

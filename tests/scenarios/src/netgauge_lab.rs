// SPDX-License-Identifier: GPL-2.0-only

//! Tests netgauge with many participants: it builds labs, measures in them, and removes them
//! however the run ends. Also tests how netgauge reaches hosts by ssh; a different program stands
//! in for ssh.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use guest::prelude::*;
use guest::switch::Switch;

scenarios! {
    guest netgauge_lab_prints_a_table_and_draws_a_picture = picture, within(300);
    guest netgauge_lab_runs_every_pattern = patterns, within(300);
    guest netgauge_lab_reports_missing_requirements = missing;
    guest netgauge_lab_is_removed_when_interrupted = interrupted, within(120);
    guest netgauge_lab_is_removed_when_its_output_is_closed = unread;
    guest netgauge_lab_names_a_killed_participant = killed, within(120);
    guest netgauge_lab_removes_the_rest_of_a_killed_one = left_behind, within(120);
    guest netgauge_reaches_hosts_by_ssh = by_ssh, within(120);
}

/// A directory for the scenario's files, which is removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("netgauge-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn netgauge(&self, arguments: &str) -> Command {
        let mut command = Command::new("netgauge");
        command
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> Result<Output> {
        self.netgauge(arguments)
            .output()
            .context("starting netgauge")
    }

    fn start(&self, arguments: &str) -> Result<Child> {
        self.netgauge(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting netgauge")
    }

    /// Reads the picture in the file `name`.
    fn picture(&self, name: &str) -> Result<String> {
        let path = self.0.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // An error is ignored: a directory that is left behind is lost when the guest ends.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that netgauge ended with the exit status `status`.
fn ended(output: &Output, status: i32) -> Outcome {
    ensure!(
        output.status.code() == Some(status),
        "it ended with {}, not {status}: {} {}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(())
}

fn ensure_says(said: &str, words: &[&str]) -> Outcome {
    for word in words {
        ensure!(said.contains(word), "nothing about {word:?}: {said}");
    }
    Ok(())
}

/// Checks that no lab is left.
fn nothing_left() -> Outcome {
    for path in [
        "/run/netns/h0",
        "/run/netns/switch",
        "/run/enet-switch.json",
    ] {
        ensure!(!Path::new(path).exists(), "{path} is left");
    }
    Ok(())
}

fn picture() -> Outcome {
    let directory = Directory::new()?;
    let output = directory.run("lab one-many --hosts 8 --rate 1gbit --buffer 128k -m esp,tcp")?;
    ended(&output, 0)?;
    let table = text(&output.stdout);
    ensure_says(&table, &["lab: hosts h0 to h7", "clients", "median Mbit/s"])?;
    // The table has two lines, one for each size, for every pair of a transport and a number of
    // clients.
    for transport in ["esp", "tcp"] {
        for clients in [1, 2, 4, 7] {
            let lines = table.lines().filter(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(transport) && words.next() == Some(&clients.to_string())
            });
            same(lines.count(), 2, &format!("lines of {transport}: {table}"))?;
        }
    }
    let svg = directory.picture("netgauge-one-many.svg")?;
    ensure!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    ensure_says(
        &svg,
        &[
            "one-many",
            "clients",
            "esp, 64 KiB",
            "tcp, 256 KiB",
            "rate of the link",
        ],
    )?;
    nothing_left()
}

fn patterns() -> Outcome {
    let directory = Directory::new()?;
    for (pattern, more) in [
        ("many-one", "-m esp,tcp -c 3 --clients 1-3"),
        ("all-to-all", "-m esp,tcp -c 3"),
        ("bisection", "-m esp,tcp -c 5"),
        ("esp-params", "-c 1 --burst 8,16 --ack 4"),
    ] {
        let size = "-s 64K --give-up 30";
        let line = format!("lab {pattern} --hosts 4 --plot {pattern}.svg {size} {more}");
        let output = directory.run(&line)?;
        ended(&output, 0).context(line)?;
        ensure_says(&text(&output.stdout), &[pattern, "64 KiB"])?;
        ensure_says(&directory.picture(&format!("{pattern}.svg"))?, &["</svg>"])?;
        nothing_left()?;
    }
    Ok(())
}

/// A run without root's rights, or without the address family, fails and leaves no lab behind.
fn missing() -> Outcome {
    let directory = Directory::new()?;
    // The first family number has no module (AF_WANPIPE was never merged). The second family number
    // is AF_PACKET.
    for (family, remedy) in [(25, "modprobe enet"), (17, "--family")] {
        let line = format!("lab one-many -m esp --family {family} --no-plot");
        let output = directory.run(&line)?;
        ended(&output, 1)?;
        ensure_says(&text(&output.stderr), &[remedy])?;
    }
    let mut command = directory.netgauge("lab one-many -m tcp --no-plot");
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let output = command.output().context("starting netgauge as nobody")?;
    ended(&output, 1)?;
    ensure_says(&text(&output.stderr), &["run it as root"])?;
    nothing_left()
}

/// Arguments of a netgauge run over ESP that takes longer than the scenario.
const ENDLESS: &str = "lab all-to-all --hosts 4 -m esp -s 64K -c 2000000000 --give-up 30 --no-plot";

/// Waits until there are connections in the lab.
fn await_traffic(lab: &mut Child) -> Outcome {
    eventually("connections in the lab", || {
        if let Some(status) = lab.try_wait()? {
            anyhow::bail!("the lab ended early with {status}");
        }
        // While the lab is built, the file may exist before the namespace is mounted on it.
        let listed = Netns::open("/run/netns/h0").and_then(|host| host.proc_net("esp"));
        Ok(listed.is_ok_and(|listed| listed.lines().count() > 3))
    })
}

fn signal(process: u32, signal: Signal) -> Outcome {
    kill(Pid::from_raw(process.try_into()?), signal).context("signalling netgauge")
}

/// Returns the number of the process that runs on `host` in the running lab.
fn participant(host: &str) -> Result<u32> {
    let name = format!("--participant={host}\0");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // A process that has ended since the directory was read is not the participant.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if text(&line).contains(&name) {
            return Ok(pid);
        }
    }
    anyhow::bail!("{host} has no process")
}

fn interrupted() -> Outcome {
    let directory = Directory::new()?;
    let mut lab = directory.start(ENDLESS)?;
    await_traffic(&mut lab)?;
    signal(lab.id(), Signal::SIGINT)?;
    let output = lab.wait_with_output()?;
    ended(&output, 130)?;
    ensure_says(
        &text(&output.stdout),
        &["all-to-all", "FAILED: esp: interrupted"],
    )?;
    ensure_says(&text(&output.stderr), &["netgauge: interrupted"])?;
    nothing_left()
}

/// In this test nothing reads netgauge's standard output, because its other end is closed.
fn unread() -> Outcome {
    let directory = Directory::new()?;
    let (reader, writer) = UnixStream::pair()?;
    drop(reader);
    let output = directory
        .netgauge("lab one-many -m tcp -s 1 -c 1 --no-plot")
        .stdout(OwnedFd::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .context("starting netgauge")?
        .wait_with_output()?;
    ended(&output, 1)?;
    ensure_says(&text(&output.stderr), &["netgauge: writing the report"])?;
    nothing_left()
}

fn killed() -> Outcome {
    let directory = Directory::new()?;
    for host in ["h0", "h3"] {
        let mut lab = directory.start(ENDLESS)?;
        await_traffic(&mut lab)?;
        signal(participant(host)?, Signal::SIGKILL)?;
        let output = lab.wait_with_output()?;
        ended(&output, 1)?;
        let gone = format!("participant {host} is gone: ");
        ensure_says(&text(&output.stderr), &[&gone])?;
        nothing_left()?;
    }
    Ok(())
}

fn left_behind() -> Outcome {
    let directory = Directory::new()?;
    let mut lab = directory.start(ENDLESS)?;
    await_traffic(&mut lab)?;
    // netgauge does not touch a lab that is in use.
    let output = directory.run("lab one-many -m tcp -s 1 -c 1 --no-plot")?;
    ended(&output, 1)?;
    ensure_says(&text(&output.stderr), &["a switch is up already"])?;
    signal(lab.id(), Signal::SIGKILL)?;
    lab.wait()?;
    ensure!(
        Path::new("/run/enet-switch.json").exists(),
        "nothing was left behind"
    );
    let output = directory.run("lab one-many -m tcp -s 1 -c 1 --no-plot")?;
    ended(&output, 0)?;
    nothing_left()
}

fn by_ssh() -> Outcome {
    let directory = Directory::new()?;
    let switch = Switch::up(3, &["--rate", "200mbit"])?;
    fs::write(
        directory.0.join("hosts"),
        "# the rack\nh0\nh1\nh2 # the last\n",
    )?;
    fs::write(directory.0.join("lost"), "h0\nabsent\n")?;
    let measure = |hosts: &str| {
        let line =
            format!("-x one-many -m esp,tcp -s 64K -c 2 --interface eth0 --hostfile {hosts}");
        let mut command = directory.netgauge(&line);
        command.args(["--ssh", "sh -c 'exec ip netns exec \"$0\" sh -c \"$1\"'"]);
        command.output().context("starting netgauge")
    };
    let output = measure("hosts")?;
    ended(&output, 0)?;
    ensure_says(&text(&output.stdout), &["esp", "tcp", "64 KiB"])?;
    let output = measure("lost")?;
    ended(&output, 1)?;
    ensure_says(
        &text(&output.stderr),
        &["absent: ssh, or netgauge there, ended with status"],
    )?;
    switch.down()
}

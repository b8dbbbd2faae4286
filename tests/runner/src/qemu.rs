// SPDX-License-Identifier: GPL-2.0-only

//! Boots guests in QEMU and reports what they say, line by line, until they end; none outlives its
//! deadline.
//!
//! A guest's first serial port is the kernel's console, the second carries what programs print, so
//! that neither disturbs the other. See `guest/init` for the lines by which the guest tells the
//! runner how it goes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};
use tempfile::TempDir;

use crate::allowance::Allowance;
use crate::layout::{Layout, Purpose};
use crate::shared::Shared;
use crate::step;

/// How a guest's processors are emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// As fast as the host allows, on this many processors.
    Free(u32),
    /// One processor whose clock advances one nanosecond per instruction, so that time counts
    /// instructions.
    Instructions,
    /// The same, and the plugin of `tests/plugin` counts what it does to memory; that makes it
    /// several times as slow.
    Watched,
}

/// An emulated wire with a virtio-net device at each end: what one sends, the other receives, and
/// nothing is lost on it.
#[derive(Clone, Debug)]
pub enum Wire {
    /// One end; the other one is another guest's.
    End {
        /// Socket that joins the two.
        socket: PathBuf,
        /// This end waits for the other to come.
        waits: bool,
        /// Address of the network device.
        mac: &'static str,
    },
    /// Both ends are this guest's, with these addresses.
    Within([&'static str; 2]),
    /// The same, and another one with cards that the driver igb is for, which have several queues.
    Cards {
        /// Addresses of the virtio-net devices.
        virtio: [&'static str; 2],
        /// Addresses of the cards.
        cards: [&'static str; 2],
    },
}

/// A guest to boot.
#[derive(Debug)]
pub struct Boot<'a> {
    /// Names the guest in messages and its logs.
    pub name: &'a str,
    /// The archive with the guest's file system.
    pub initramfs: &'a Path,
    /// What its init is told to do.
    pub verb: &'a [String],
    /// Its processors.
    pub clock: Clock,
    /// Its network device, if it has one.
    pub wire: Option<Wire>,
    /// Directories that it can mount.
    pub shared: &'a [Shared],
    /// Its console is for a person: the kernel says nothing there but what is wrong.
    pub quiet: bool,
    /// It is ended so long after its kernel has started init, whatever it does, unless it is given
    /// more time. What it waits for the host's processors does not count.
    pub deadline: Duration,
}

/// Something a guest said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A line on the kernel's console.
    Kernel(String),
    /// A line printed by a program.
    Program(String),
    /// The guest is ready for what the runner says.
    Ready,
    /// A command the runner gave has ended with this status.
    Done(i32),
    /// The kernel's taint bits at the end.
    Tainted(u64),
    /// The init's verb ended with this status.
    Exit(i32),
    /// QEMU has ended.
    Off,
}

#[derive(Debug)]
enum Port {
    Console(String),
    Program(String),
    Closed,
}

/// A running guest; ended when dropped.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Child,
    lines: Receiver<Port>,
    to_programs: UnixStream,
    /// Lines that came before somebody asked for them.
    heard: VecDeque<Port>,
    open_ports: u32,
    allowance: Allowance,
    console: PathBuf,
    // Holds the sockets of the second serial port and of the monitor.
    directory: TempDir,
}

impl Guest {
    /// Boots a guest and waits until its kernel has started init.
    ///
    /// # Errors
    /// When QEMU does not start, or the kernel does not get to init at any of some attempts.
    pub fn boot(layout: &Layout, boot: &Boot<'_>) -> Result<Self> {
        for attempt in 1..=BOOTS {
            let mut guest = Self::start(layout, boot)?;
            if guest.comes_up() {
                guest.extend(boot.deadline);
                return Ok(guest);
            }
            guest.end();
            for shared in boot.shared {
                shared.wait()?;
            }
            let kept = guest.console.with_extension(format!("hung-{attempt}.log"));
            fs::rename(&guest.console, &kept)?;
            // Seen on busy machines: emulated time jumps while the kernel measures it, and it waits
            // for ever.
            step::say(&format!(
                "guest {} died or hung before it got to init, at attempt {attempt} of {BOOTS}; its log is {}",
                boot.name,
                kept.display()
            ));
        }
        bail!(
            "guest {} did not boot; what QEMU said is in {}",
            boot.name,
            errors(layout, boot)?.display()
        );
    }

    /// Whether the kernel gets to init. A slow one may take its time, as long as it goes on; what
    /// it says is kept.
    fn comes_up(&mut self) -> bool {
        self.extend(TO_INIT);
        let mut silence = Allowance::new(self.child.id(), SILENCE);
        loop {
            let left = self.allowance.wait().min(silence.wait());
            if left.is_zero() {
                return false;
            }
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return false,
            };
            silence = Allowance::new(self.child.id(), SILENCE);
            let up = match &line {
                Port::Console(text) => text.contains(INIT_STARTS),
                Port::Program(_) => true,
                // It has died. Seen on busy machines: the kernel changes its own code while an
                // emulated processor runs it.
                Port::Closed => return false,
            };
            self.heard.push_back(line);
            if up {
                return true;
            }
        }
    }

    fn start(layout: &Layout, boot: &Boot<'_>) -> Result<Self> {
        let directory = TempDir::with_prefix("guest-").context("a temporary directory")?;
        let port = directory.path().join(PROGRAMS);
        let listener = UnixListener::bind(&port).context("the programs' port")?;
        let console = layout.logs()?.join(format!("{}.console.log", boot.name));
        let errors = errors(layout, boot)?;
        let mut child = command(layout, boot, directory.path())?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?)
            .spawn()
            .context("starting QEMU")?;
        let Some(programs) = accept(&listener, &mut child)? else {
            bail!(
                "QEMU did not start guest {}; the end of {}:\n{}",
                boot.name,
                errors.display(),
                step::tail(&errors, 20)
            );
        };
        let to_programs = programs.try_clone()?;
        let from_console = child.stdout.take().context("QEMU without an output")?;
        let (sender, lines) = mpsc::channel();
        let allowance = Allowance::new(child.id(), boot.deadline);
        let log = File::create(&console).with_context(|| console.display().to_string())?;
        read_lines(from_console, Some(log), sender.clone(), Port::Console);
        read_lines(programs, None, sender, Port::Program);
        Ok(Self {
            name: boot.name.to_owned(),
            child,
            lines,
            to_programs,
            heard: VecDeque::new(),
            open_ports: 2,
            allowance,
            console,
            directory,
        })
    }

    /// Waits for the next thing the guest says; after [`Said::Off`] there is nothing more.
    ///
    /// # Errors
    /// When the guest has not ended by its deadline; it is ended then.
    pub fn next(&mut self) -> Result<Said> {
        while self.open_ports > 0 {
            let left = self.allowance.wait();
            let line = match self.heard.pop_front() {
                Some(line) => Ok(line),
                // A guest that never stops talking would always have a line there.
                None if left.is_zero() => Err(RecvTimeoutError::Timeout),
                None => self.lines.recv_timeout(left),
            };
            match line {
                Ok(Port::Console(line)) => return Ok(Said::Kernel(line)),
                Ok(Port::Program(line)) => return Ok(interpret(line)),
                Ok(Port::Closed) => self.open_ports -= 1,
                Err(RecvTimeoutError::Disconnected) => self.open_ports = 0,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.await_last_words();
                    self.end();
                    bail!(
                        "guest {} did not end in time; the end of {}:\n{}",
                        self.name,
                        self.console.display(),
                        step::tail(&self.console, 15)
                    );
                }
            }
        }
        self.child.wait().context("waiting for QEMU")?;
        Ok(Said::Off)
    }

    /// Sends a line to the guest's init.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        self.to_programs
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("guest {} is gone", self.name))
    }

    /// Gives the guest this long from now on.
    pub fn extend(&mut self, time: Duration) {
        self.allowance = Allowance::new(self.child.id(), time);
    }

    /// Has the guest's init say what hangs, where it listens for that; the console's log has it.
    fn await_last_words(&mut self) {
        if self.tell("").is_ok() {
            thread::sleep(LAST_WORDS);
        }
    }

    /// QEMU's monitor.
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::connect(&self.directory.path().join(MONITOR))
    }

    /// What tells the counts of a guest that is watched, see [`Clock::Watched`].
    ///
    /// # Errors
    /// When the plugin does not answer.
    pub fn counts(&self) -> Result<UnixStream> {
        UnixStream::connect(self.directory.path().join(COUNTS)).context("QEMU's plugin")
    }

    /// Where the kernel's messages are kept.
    pub fn console(&self) -> &Path {
        &self.console
    }

    fn end(&mut self) {
        // It may have ended meanwhile, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// The way to tell QEMU itself something, as a person would at its monitor.
#[derive(Debug)]
pub struct Monitor {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> Result<Self> {
        let to = UnixStream::connect(socket).context("QEMU's monitor")?;
        let from = BufReader::new(to.try_clone()?);
        let mut monitor = Self { to, from };
        monitor.execute(&json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Gives a command that answers with nothing.
    ///
    /// # Errors
    /// When QEMU is gone, or says something, which is an error's text.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let said = self.execute(&json!({
            "execute": "human-monitor-command",
            "arguments": {"command-line": line},
        }))?;
        let text = said.as_str().unwrap_or_default();
        ensure!(text.is_empty(), "QEMU's monitor: {line}: {text}");
        Ok(())
    }

    fn execute(&mut self, command: &Value) -> Result<Value> {
        writeln!(self.to, "{command}")?;
        loop {
            let mut line = String::new();
            ensure!(self.from.read_line(&mut line)? > 0, "QEMU has ended");
            let said: Value = serde_json::from_str(&line).context(line)?;
            // The rest are a greeting and events.
            if let Some(result) = said.get("return") {
                return Ok(result.clone());
            }
            ensure!(said.get("error").is_none(), "QEMU's monitor: {said}");
        }
    }
}

/// Names of a guest's sockets.
const PROGRAMS: &str = "programs";
const MONITOR: &str = "monitor";
const COUNTS: &str = "counts";

/// What the monitor calls a guest's end of its wire.
pub const WIRE: &str = "wire";

/// How long packets on a wire within a guest wait for others before they leave together.
const SENDING: Duration = Duration::from_micros(20);

/// What the kernel says as it starts init.
const INIT_STARTS: &str = "as init process";

/// How long a kernel on its way to init may say nothing. One that goes on has a line each second or
/// two.
const SILENCE: Duration = Duration::from_secs(90);

/// How long QEMU may take to start, and a kernel to get to init; some five seconds on a machine
/// that is not busy. One that hangs and complains about it is not silent.
const TO_INIT: Duration = Duration::from_secs(900);

/// How long a guest that hangs may speak of it.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How often it is tried.
const BOOTS: u32 = 3;

/// What the debug kernel is told: every report of KASAN instead of the first alone, pages checked
/// for writes after their end, leaks with the place of their allocation, and neither an alarm nor
/// another clock where emulation is slow but alive. Slabs that check themselves have no arrays of
/// free objects before them; those arrays keep the addresses of what they gave out, which the
/// search for leaks would take for owners.
const DEBUG_OPTIONS: &str = concat!(
    "kasan_multi_shot page_poison=on slab_debug=F kmemleak.verbose=1 tsc=nowatchdog ",
    "rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60 sysctl.kernel.hung_task_timeout_secs=600 ",
);

/// How many times as long as in the stock kernel things may take; the kernel hands it on to init's
/// environment.
const PATIENCE: &str = "ENET_PATIENCE";

/// The names of the serial ports without their numbers, likewise.
const PORTS: &str = "ENET_PORTS";

/// MiB of a guest whose root is a directory of the host: it runs what it likes.
const ROOMY: &str = "2048";

/// QEMU's command line without serial ports; its process dies with the runner.
///
/// # Errors
/// When the server of a shared directory does not start again.
pub fn machine(layout: &Layout, boot: &Boot<'_>) -> Result<Command> {
    let mut command = Command::new("setpriv");
    let architecture = layout.architecture;
    command.args(["--pdeathsig", "KILL", architecture.qemu()]);
    command.args(architecture.machine());
    if let Some(Wire::Cards { .. }) = boot.wire {
        // They are for PCI Express.
        command.args(["-machine", "q35"]);
    }
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    let (memory, options, without) = match layout.purpose {
        Purpose::Stock | Purpose::Other => ("1024", "", ""),
        // At boot the kernel forgets for a moment that it uses five levels of page tables, while it
        // reads once more what its processor can do. An interrupt just then has KASAN look for its
        // notes where they are not.
        Purpose::Debug => ("2048", DEBUG_OPTIONS, ",-la57"),
    };
    if boot.shared.is_empty() {
        command.args(["-m", memory]);
    } else {
        // Who serves a directory writes what is read into the guest's memory.
        command.args(["-m", ROOMY, "-machine", "memory-backend=memory", "-object"]);
        command.arg(format!(
            "memory-backend-memfd,id=memory,size={ROOMY}M,share=on"
        ));
    }
    let (accelerator, processor, more) = match boot.clock {
        Clock::Free(processors) => {
            command.args(["-smp", &processors.to_string()]);
            ("tcg,thread=multi", architecture.processor(), "")
        }
        Clock::Instructions | Clock::Watched => {
            command.args(["-smp", "1", "-icount", "shift=0,sleep=off"]);
            ("tcg", architecture.counted_processor(), "mitigations=off ")
        }
    };
    command.args(["-accel", accelerator, "-cpu"]);
    command.arg(format!("{processor}{without}"));
    command.arg("-kernel").arg(layout.kernel.join("vmlinuz"));
    command.arg("-initrd").arg(boot.initramfs);
    let verb = boot.verb.join(" ");
    // Caches that are not merged count each protocol's sockets apart from whatever else has their
    // size.
    command.args([
        "-append",
        &format!(
            "console={ports}0 loglevel={} panic=-1 slab_nomerge {}{more}{options}{PATIENCE}={} {PORTS}={ports} -- {verb}",
            if boot.quiet { 3 } else { 7 },
            architecture.kernel_options(),
            layout.patience(),
            ports = architecture.serial_ports(),
        ),
    ]);
    if let Some(wire) = &boot.wire {
        attach(&mut command, wire);
    }
    for shared in boot.shared {
        shared.attach(&mut command)?;
    }
    Ok(command)
}

fn attach(command: &mut Command, wire: &Wire) {
    let mut device = |netdev: &str, kind: &str, id: &str, mac: &str, more: &str| {
        command.args(["-netdev", netdev, "-device"]);
        command.arg(format!("{kind},netdev={id},mac={mac},romfile={more}"));
    };
    let virtio = "virtio-net-pci";
    let mut within = |macs: &[&str; 2]| {
        for (end, mac) in macs.iter().enumerate() {
            let id = format!("{WIRE}{end}");
            let netdev = format!("hubport,id={id},hubid=0");
            // Packets leave by a timer of the guest's clock, which the driver's write to the device
            // starts at once, and not when QEMU's other threads get to it: they are late where
            // other guests run.
            let timer = format!(",ioeventfd=off,tx=timer,x-txtimer={}", SENDING.as_nanos());
            device(&netdev, virtio, &id, mac, &timer);
        }
    };
    match wire {
        Wire::End { socket, waits, mac } => {
            let socket = socket.display();
            let role = if *waits {
                "server=on"
            } else {
                "server=off,reconnect-ms=100"
            };
            let netdev = format!("stream,id={WIRE},addr.type=unix,addr.path={socket},{role}");
            device(&netdev, virtio, WIRE, mac, "");
        }
        Wire::Within(macs) => within(macs),
        Wire::Cards { virtio, cards } => {
            within(virtio);
            for (end, mac) in cards.iter().enumerate() {
                let id = format!("card{end}");
                // A card's virtual functions take slots 16 behind its own.
                let slot = format!(",addr={:#x}", 8 + 4 * end);
                device(&format!("hubport,id={id},hubid=1"), "igb", &id, mac, &slot);
            }
        }
    }
}

fn command(layout: &Layout, boot: &Boot<'_>, directory: &Path) -> Result<Command> {
    let mut command = machine(layout, boot)?;
    let directory = directory.display();
    command.args(["-serial", "stdio", "-chardev"]);
    command.arg(format!(
        "socket,id=programs,path={directory}/{PROGRAMS},server=off"
    ));
    command.args(["-serial", "chardev:programs", "-qmp"]);
    command.arg(format!("unix:{directory}/{MONITOR},server=on,wait=off"));
    if boot.clock == Clock::Watched {
        let plugin = layout.plugin();
        command.arg("-plugin");
        command.arg(format!(
            "file={},socket={directory}/{COUNTS}",
            plugin.display()
        ));
    }
    Ok(command)
}

/// Where what QEMU itself says is kept.
fn errors(layout: &Layout, boot: &Boot<'_>) -> Result<PathBuf> {
    Ok(layout.logs()?.join(format!("{}.qemu.log", boot.name)))
}

/// QEMU's connection to the second port, or none if it ended instead.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<Option<UnixStream>> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + TO_INIT;
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("the programs' port"),
        }
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Passes on lines from a thread of their own, so that no port blocks the other.
fn read_lines(
    from: impl Read + Send + 'static,
    mut log: Option<File>,
    to: Sender<Port>,
    wrap: fn(String) -> Port,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if let Some(log) = &mut log {
                // A full disk shows elsewhere.
                let _ = log.write_all(&line);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']);
            if to.send(wrap(text.to_owned())).is_err() {
                return;
            }
        }
        let _ = to.send(Port::Closed);
    });
}

/// Tells lines for the runner from those for people.
fn interpret(line: String) -> Said {
    let Some(rest) = line.strip_prefix('@') else {
        return Said::Program(line);
    };
    let (word, value) = rest.split_once(' ').unwrap_or((rest, ""));
    match (word, value.parse::<i32>(), value.parse::<u64>()) {
        ("ready", ..) => Said::Ready,
        ("done", Ok(status), _) => Said::Done(status),
        ("exit", Ok(status), _) => Said::Exit(status),
        ("tainted", _, Ok(bits)) => Said::Tainted(bits),
        _ => Said::Program(line),
    }
}

/// The two ends of a wire with its socket in `directory`, which is this wire's own.
pub fn wire(directory: &Path) -> [Wire; 2] {
    let end = |waits, mac| Wire::End {
        socket: directory.join("wire"),
        waits,
        mac,
    };
    [
        end(false, "02:00:00:00:00:01"),
        end(true, "02:00:00:00:00:02"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_that_never_stop_talking_are_ended() {
        let (sender, lines) = mpsc::channel();
        sender.send(Port::Console("no end".to_owned())).unwrap();
        let mut guest = Guest {
            name: "talker".to_owned(),
            child: Command::new("cat").stdin(Stdio::piped()).spawn().unwrap(),
            lines,
            to_programs: UnixStream::pair().unwrap().0,
            heard: VecDeque::new(),
            open_ports: 2,
            allowance: Allowance::new(0, Duration::from_secs(3600)),
            console: PathBuf::new(),
            directory: TempDir::new().unwrap(),
        };
        assert_eq!(guest.next().unwrap(), Said::Kernel("no end".to_owned()));
        sender.send(Port::Console("no end".to_owned())).unwrap();
        guest.extend(Duration::ZERO);
        assert!(guest.next().is_err());
        assert!(guest.child.try_wait().unwrap().is_some());
    }

    #[test]
    fn lines_for_the_runner_are_told_from_others() {
        let say = |line: &str| interpret(line.to_owned());
        assert_eq!(say("@ready"), Said::Ready);
        assert_eq!(say("@exit 3"), Said::Exit(3));
        assert_eq!(say("@done 0"), Said::Done(0));
        assert_eq!(say("@tainted 12288"), Said::Tainted(12288));
        for other in ["ok a_scenario", "@exit soon", "@nonsense", ""] {
            assert_eq!(say(other), Said::Program(other.to_owned()));
        }
    }
}

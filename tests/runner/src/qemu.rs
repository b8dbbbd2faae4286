// SPDX-License-Identifier: GPL-2.0-only

//! Boots guests in QEMU and reports their output line by line until they end. A guest is ended at
//! its deadline at the latest.
//!
//! A guest's first serial port is the kernel's console. The second port carries the output of
//! programs, so that console and programs do not disturb each other. `guest/init` describes the
//! lines by which the guest reports to the runner.

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
    /// Real time, on this number of processors.
    Free(u32),
    /// One processor whose clock advances one nanosecond per instruction, so that time counts
    /// instructions.
    Instructions,
    /// Like `Instructions`, but the plugin of `tests/plugin` also counts memory accesses. This
    /// makes the guest several times slower.
    Watched,
}

/// An emulated wire with a virtio-net device at each end. It delivers every packet from one end to
/// the other.
#[derive(Clone, Debug)]
pub enum Wire {
    /// One end, while the other end belongs to another guest.
    End {
        /// The path of the socket that connects the two ends.
        socket: PathBuf,
        /// Whether this end waits for the other end to connect.
        waits: bool,
        /// Address of the network device.
        mac: &'static str,
    },
    /// Both ends belong to this guest, with these addresses.
    Within([&'static str; 2]),
    /// Like `Within`, but with a second wire. Its ends are cards for the driver igb, and each card
    /// has several queues.
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
    /// The guest's name in messages and logs.
    pub name: &'a str,
    /// The archive with the guest's file system.
    pub initramfs: &'a Path,
    /// The arguments of the guest's init.
    pub verb: &'a [String],
    /// The guest's processors and their clock.
    pub clock: Clock,
    /// Options of the guest's kernel besides the usual ones; empty, or with a space at the end.
    pub options: &'a str,
    /// The guest's end or ends of a wire, if it has network devices.
    pub wire: Option<Wire>,
    /// Directories that the guest can mount.
    pub shared: &'a [Shared],
    /// Whether a person uses the guest's console; the kernel then prints only errors there.
    pub quiet: bool,
    /// Time from the start of init after which the guest is ended, unless the deadline is extended.
    /// The time in which the guest waits for the host's processors does not count.
    pub deadline: Duration,
}

/// A line or an event of a guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A line on the kernel's console.
    Kernel(String),
    /// A line printed by a program.
    Program(String),
    /// The guest is ready for the runner's commands.
    Ready,
    /// The runner's command has ended with this status.
    Done(i32),
    /// The kernel's taint bits at the guest's end.
    Tainted(u64),
    /// Init has ended with this status.
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

/// A running guest, ended on drop.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Child,
    lines: Receiver<Port>,
    to_programs: UnixStream,
    /// Lines that were read while the guest came up. [`Guest::next`] has not returned them yet.
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
    /// If QEMU does not start, or the kernel does not start init in any of `BOOTS` attempts.
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
            // This happens on busy machines: emulated time jumps while the kernel measures it, and
            // the kernel then waits for ever.
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

    /// Waits until the kernel starts init and returns whether it did. A slow kernel gets more time
    /// as long as it makes progress. The kernel's output is kept for [`Guest::next`].
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
                // The guest has died. This happens on busy machines if the kernel patches its own
                // code while an emulated processor executes that code.
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

    /// Waits for the next line or event of the guest; [`Said::Off`] is the last event.
    ///
    /// # Errors
    /// If the guest has not ended by its deadline; it is then ended.
    pub fn next(&mut self) -> Result<Said> {
        while self.open_ports > 0 {
            let left = self.allowance.wait();
            let line = match self.heard.pop_front() {
                Some(line) => Ok(line),
                // The deadline is checked before a line is received. Otherwise a guest that prints
                // without end would never reach it.
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
    /// If the guest has ended.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        self.to_programs
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("guest {} is gone", self.name))
    }

    /// Sets the guest's deadline to `time` from now.
    pub fn extend(&mut self, time: Duration) {
        self.allowance = Allowance::new(self.child.id(), time);
    }

    /// Asks the guest's init to print the hanging tasks to the console's log, and waits for
    /// [`LAST_WORDS`]. Has no effect if init does not listen.
    fn await_last_words(&mut self) {
        if self.send_line("").is_ok() {
            thread::sleep(LAST_WORDS);
        }
    }

    /// Connects to QEMU's monitor.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::connect(&self.directory.path().join(MONITOR))
    }

    /// Connects to the plugin that counts memory accesses, in a guest with [`Clock::Watched`].
    ///
    /// # Errors
    /// If the plugin does not answer.
    pub fn counts(&self) -> Result<UnixStream> {
        UnixStream::connect(self.directory.path().join(COUNTS)).context("QEMU's plugin")
    }

    /// Returns the path of the kernel's log.
    pub fn console(&self) -> &Path {
        &self.console
    }

    fn end(&mut self) {
        // Errors are ignored, because both calls fail only if QEMU has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection to QEMU's monitor.
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

    /// Gives QEMU a command that prints nothing if it succeeds.
    ///
    /// # Errors
    /// If QEMU has ended, or if it prints anything, which is then an error message.
    pub fn command(&mut self, line: &str) -> Result<()> {
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
            // QEMU's greeting and events have neither "return" nor "error". They are skipped.
            if let Some(result) = said.get("return") {
                return Ok(result.clone());
            }
            ensure!(said.get("error").is_none(), "QEMU's monitor: {said}");
        }
    }
}

/// File names of a guest's sockets.
const PROGRAMS: &str = "programs";
const MONITOR: &str = "monitor";
const COUNTS: &str = "counts";

/// The monitor's name for this guest's end of a wire.
pub const WIRE: &str = "wire";

/// Packets on a wire within a guest are held for this time, so that several are sent together.
const SENDING: Duration = Duration::from_micros(20);

/// The message that the kernel prints when it starts init.
const INIT_STARTS: &str = "as init process";

/// A kernel that prints nothing for this long before it starts init counts as hanging. A kernel
/// that makes progress prints a line every second or two.
const SILENCE: Duration = Duration::from_secs(90);

/// Time limit for QEMU to start, and again for the guest's kernel to start init. On an idle
/// machine, both together take some five seconds. The limit also ends a kernel that hangs but keeps
/// printing.
const TO_INIT: Duration = Duration::from_secs(900);

/// A hanging guest has this time to print its hanging tasks.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Number of attempts to boot a guest.
const BOOTS: u32 = 3;

/// Options of the debug kernel. With them, the kernel prints every report of KASAN instead of only
/// the first one, checks freed pages for writes, and reports where leaked memory was allocated. The
/// options also keep slow emulation from raising an alarm and from changing the clock source.
/// `slab_debug=F` checks slabs, because only slabs without checks have arrays of free objects. Such
/// an array may still hold the address of an object that is in use again, and kmemleak would take
/// this address for a reference.
const DEBUG_OPTIONS: &str = concat!(
    "kasan_multi_shot page_poison=on slab_debug=F kmemleak.verbose=1 tsc=nowatchdog ",
    "rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60 sysctl.kernel.hung_task_timeout_secs=600 ",
);

/// The environment variable with the factor by which timeouts are longer than with the stock
/// kernel. The kernel passes it to init.
const PATIENCE: &str = "ENET_PATIENCE";

/// The environment variable with the name of the guest's serial ports, without their numbers. The
/// kernel passes it to init.
const PORTS: &str = "ENET_PORTS";

/// MiB of memory of a guest whose root is a directory of the host, because this guest may run any
/// program.
const ROOMY: &str = "2048";

/// Returns QEMU's command line without serial ports. QEMU is killed when the runner ends.
///
/// # Errors
/// If the process that serves a shared directory cannot be restarted.
pub fn machine(layout: &Layout, boot: &Boot<'_>) -> Result<Command> {
    let mut command = Command::new("setpriv");
    let architecture = layout.architecture;
    command.args(["--pdeathsig", "KILL", architecture.qemu()]);
    command.args(architecture.machine());
    if let Some(Wire::Cards { .. }) = boot.wire {
        // The igb cards need PCI Express.
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
        // With five levels of page tables, KASAN may fail. During boot, while the kernel reads the
        // processor's features again, the kernel briefly forgets the fifth level. If an interrupt
        // then runs a check of KASAN, the check reads its shadow at the wrong address.
        Purpose::Debug => ("2048", DEBUG_OPTIONS, ",-la57"),
    };
    if boot.shared.is_empty() {
        command.args(["-m", memory]);
    } else {
        // The process that serves a directory writes the data into the guest's memory. QEMU must
        // therefore share this memory with the process.
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
    // `slab_nomerge` keeps caches unmerged, so that they count each protocol's sockets separately
    // from other objects of the same size.
    command.args([
        "-append",
        &format!(
            "console={ports}0 loglevel={} panic=-1 slab_nomerge {}{more}{options}{}{PATIENCE}={} {PORTS}={ports} -- {verb}",
            if boot.quiet { 3 } else { 7 },
            architecture.kernel_options(),
            boot.options,
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
            // Packets are sent on a timer of the guest's clock. The driver's write to the device
            // starts this timer at once. Without the timer, QEMU's other threads would send the
            // packets, and would send them late while other guests run.
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
                // A card's virtual functions take PCI slots that are 16 above the card's own slot.
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

/// Returns the path of the log with QEMU's own messages.
fn errors(layout: &Layout, boot: &Boot<'_>) -> Result<PathBuf> {
    Ok(layout.logs()?.join(format!("{}.qemu.log", boot.name)))
}

/// Accepts QEMU's connection to the second serial port. Returns `None` if QEMU ended instead.
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

/// Reads lines in a separate thread per port, so that no port blocks the other.
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
                // An error is ignored, because other writes report a full disk.
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

/// Parses a program's line. Lines that begin with "@" are for the runner.
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

/// Returns the two ends of a wire. The wire's socket is in `directory`, which no other wire may
/// use.
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

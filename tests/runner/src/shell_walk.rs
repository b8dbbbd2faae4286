// SPDX-License-Identifier: GPL-2.0-only

//! `make shell-walk`: types the commands of README and docs/using.md in the guest of `make shell`,
//! character by character, and compares their output with the documents.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use alarms::alarm;
use anyhow::{bail, ensure, Context, Result};

use crate::judge::Part;
use crate::layout::Layout;

/// Time limit for booting the guest, and for a command, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// Beginnings of lines in README that are meant for the machine on which the project is built.
/// These lines are not typed, because they have been run already to make the guest.
const TYPED_BEFORE: [&str; 3] = ["make ", "apt ", "echo 'deb "];

/// The mark of a command in README that runs on one host until it is interrupted.
const SERVES: &str = "# on one host";

/// The command in README that prints which protocol has carried its connections.
const CARRIERS: &str = "enet stats | grep Mapped";

/// Commands that are not in the documents, but must succeed in the shell.
const ALSO: &[&str] = &[
    "man -P cat enet.7 | grep PF_ENET",
    "man -P cat ip >/dev/null",
    "ping -c 1 10.0.0.2",
    "b ping -c 1 a",
    "curl --version",
    "enet stats --json | jq length",
    "echo '#include <en_address.h>' | gcc -Wall -Werror -fsyntax-only -x c -",
    "pkg-config --modversion --cflags sockaddr_en",
    "python3 -c 'import sockaddr_en; print(sockaddr_en.Address.parse(\"*%eth0:1\"))'",
    "tshark -G protocols 2>/dev/null | grep enet_esp",
    // `mk/shell` has built the program `/share/hello`, used below, from a copy like this one.
    "(cp -r /usr/local/src/hello /tmp && cd /tmp/hello && cargo tree --offline --locked --all-features)",
    "(b socat SOCKET-LISTEN:28:0:x0af6000000000000000000000000 PIPE &)",
    "until b enet ss -l | grep -q :2806; do sleep 0.2; done",
    "/share/hello b 2806 | grep -x hello",
    "b sh -c 'echo 1 >/proc/sys/esp/selective'",
    "b sysctl -n esp.selective | grep -x 1",
    "sysctl -n esp.selective | grep -x 2",
    "sysctl -n esp.mapped_wait | grep -x 100000",
    "b sysctl -n esp.mapped_wait | grep -x 100000",
    "enet run --by bpf --require -- true",
    "b enet run --by bpf --require -- true",
    "ip netns exec b enet run --by bpf --require -- true",
    "enet run --by preload --require -- true",
    "test -d /sys/kernel/tracing/events/enet",
    "netgauge completions bash | grep -q complete",
    "test -e /usr/local/share/bash-completion/completions/enet",
];

/// A line to type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    /// Whether the command is typed on host b, rather than on host a.
    on_b: bool,
    command: String,
    /// Whether the command is a server that runs until it is interrupted.
    serves: bool,
    /// Lines that the command prints according to the document.
    prints: Vec<String>,
}

/// Returns the shell code blocks in `text`, each as its lines.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```sh" {
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            found.push(block.collect());
        }
    }
    found
}

/// Returns the steps of README: every line of every block.
fn readme_steps(text: &str) -> Vec<Vec<Step>> {
    let step = |line: &&str| {
        let typed_before = TYPED_BEFORE.iter().any(|word| line.starts_with(word));
        let serves = line.contains(SERVES);
        (!typed_before && !line.trim().is_empty()).then(|| Step {
            on_b: serves,
            command: (*line).to_owned(),
            serves,
            prints: Vec::new(),
        })
    };
    blocks(text)
        .iter()
        .map(|block| block.iter().filter_map(step).collect())
        .collect()
}

/// Returns the steps of one section of a document. In the section's blocks, each command follows
/// the prompt of its host, `a$` or `b$`. A line without a prompt is output of the preceding
/// command.
fn prompted_steps(page: &str, section: &str) -> Result<Vec<Step>> {
    let heading = format!("### {section}\n");
    let (_, text) = page
        .split_once(&heading)
        .with_context(|| format!("no section {section}"))?;
    let text = text.split("\n## ").next().unwrap_or(text);
    let text = text.split("\n### ").next().unwrap_or(text);
    let mut steps: Vec<Step> = Vec::new();
    for line in blocks(text).concat() {
        match (line.strip_prefix("a$ "), line.strip_prefix("b$ ")) {
            (None, None) => {
                let step = steps.last_mut();
                let step = step.with_context(|| format!("no command prints {line:?}"))?;
                step.prints.push(line.to_owned());
            }
            (on_a, on_b) => steps.push(Step {
                on_b: on_b.is_some(),
                command: on_a.or(on_b).unwrap_or_default().to_owned(),
                serves: false,
                prints: Vec::new(),
            }),
        }
    }
    Ok(steps)
}

/// A shell on a host.
struct Terminal {
    /// The start of the prompt.
    host: &'static str,
    to: Box<dyn Write>,
    from: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Terminal {
    fn new(
        host: &'static str,
        to: impl Write + 'static,
        mut from: impl Read + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            host,
            to: Box::new(to),
            from: receiver,
            bytes: Vec::new(),
        }
    }

    fn type_text(&mut self, text: &str) -> Result<()> {
        self.bytes.clear();
        self.to.write_all(text.as_bytes())?;
        Ok(self.to.flush()?)
    }

    /// Waits for the shell's prompt, and returns the output since the last command was typed.
    fn await_prompt(&mut self) -> Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = plain(&self.bytes);
            if let Some(line) = text.lines().find_map(alarm) {
                bail!("the kernel: {line}");
            }
            if let Some(printed) = before_prompt(&text, self.host) {
                return Ok(printed.to_owned());
            }
            let left = end.saturating_duration_since(Instant::now());
            let more = self.from.recv_timeout(left);
            let more = more.with_context(|| format!("no prompt of {}:\n{text}", self.host))?;
            self.bytes.extend(more);
        }
    }

    /// Types a command, waits for the next prompt, and returns the command's echo and output.
    fn run(&mut self, command: &str) -> Result<String> {
        self.type_text(&format!("{command}\n"))?;
        let printed = self.await_prompt()?;
        println!("{printed}");
        self.type_text(" echo \"@$?\"\n")?;
        let status = self.await_prompt()?;
        ensure!(
            status.lines().any(|line| line.trim() == "@0"),
            "{}: {command}: {}\n{printed}",
            self.host,
            status.lines().last().unwrap_or_default()
        );
        Ok(printed)
    }
}

/// Returns the text that a terminal would show for `bytes`, without colours and other control
/// sequences.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.peek() == Some(&'[') => {
                letters.next();
                while letters
                    .next()
                    .is_some_and(|letter| !('@'..='~').contains(&letter))
                {}
            }
            '\u{1b}' if letters.peek() == Some(&']') => {
                while letters.next().is_some_and(|letter| letter != '\u{7}') {}
            }
            '\u{1b}' => drop(letters.next()),
            '\r' => {}
            letter => shown.push(letter),
        }
    }
    shown
}

/// Returns the text before the prompt of `host`; `None` if `text` does not end with that prompt.
fn before_prompt<'a>(text: &'a str, host: &str) -> Option<&'a str> {
    let (printed, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let is_prompt = last.starts_with(&format!("{host} 02:")) && last.ends_with("# ");
    is_prompt.then_some(printed)
}

/// Checks that `printed` has each line of `wanted`, apart from differences in white space.
fn prints(printed: &str, wanted: &[String]) -> Result<()> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = printed.lines().map(words).collect();
    for line in wanted {
        ensure!(
            lines.contains(&words(line)),
            "the page says that it prints {line:?}, and it prints:\n{printed}"
        );
    }
    Ok(())
}

/// Checks the counters that [`CARRIERS`] prints: ESP carried all connections of mapped sockets, the
/// first one included.
fn carried_by_esp(printed: &str) -> Result<()> {
    // each line has a count, a name and an explanation
    let names = printed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    let counted = |prefix: &str| names.clone().any(|name| name.starts_with(prefix));
    ensure!(
        counted("MappedActiveOpens") && !counted("MappedTcp"),
        "ESP has not carried each connection:\n{printed}"
    );
    Ok(())
}

/// A running guest, ended on drop.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Errors are ignored, because both calls fail only if the guest has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The two hosts' shells.
struct Hosts {
    a: Terminal,
    b: Terminal,
}

impl Hosts {
    fn of(&mut self, step: &Step) -> &mut Terminal {
        if step.on_b {
            &mut self.b
        } else {
            &mut self.a
        }
    }

    /// Types the commands of `steps`. Afterwards, even if a step failed, interrupts a server that
    /// still runs.
    fn walk(&mut self, steps: &[Step]) -> Result<()> {
        let mut serving = false;
        let walked = self.walk_steps(steps, &mut serving);
        let interrupted = if serving { self.interrupt() } else { Ok(()) };
        walked.and(interrupted)
    }

    /// Types the commands of `steps`, until one fails. Sets `serving` while a server runs on host
    /// b.
    fn walk_steps(&mut self, steps: &[Step], serving: &mut bool) -> Result<()> {
        for step in steps {
            println!(
                "--- {}: {}",
                if step.on_b { "b" } else { "a" },
                step.command
            );
            if *serving && step.serves {
                *serving = false;
                self.interrupt()?;
            }
            if step.serves {
                self.b.type_text(&format!("{}\n", step.command))?;
                *serving = true;
                self.await_server()?;
                continue;
            }
            let printed = self.of(step).run(&step.command)?;
            prints(&printed, &step.prints).with_context(|| step.command.clone())?;
            if step.command.contains(CARRIERS) {
                carried_by_esp(&printed)?;
            }
        }
        Ok(())
    }

    /// Waits until a program listens on host b.
    fn await_server(&mut self) -> Result<()> {
        self.a
            .run("until b ss -Hltn | grep -q .; do sleep 0.2; done")
            .map(drop)
    }

    /// Types Ctrl-C on host b.
    fn interrupt(&mut self) -> Result<()> {
        self.b.type_text("\u{3}")?;
        let printed = self.b.await_prompt()?;
        println!("{printed}");
        Ok(())
    }
}

/// Boots the guest by the command `machine`, and types the documents' commands. The guest's second
/// serial port is the socket `second`.
///
/// # Errors
/// If the guest does not boot, or a document cannot be read.
pub fn run(layout: &Layout, mut machine: Command, second: &Path) -> Result<Part> {
    let read =
        |page: &str| fs::read_to_string(layout.project.join(page)).with_context(|| page.to_owned());
    let readme = readme_steps(&read("README.md")?);
    let first = prompted_steps(&read("docs/using.md")?, "First connection")?;
    ensure!(
        readme.iter().flatten().count() >= 8 && first.len() >= 8,
        "the pages have few commands: {readme:?}, {first:?}"
    );
    let started = Instant::now();
    let mut guest = machine
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting QEMU")?;
    let to = guest.stdin.take().context("QEMU without an input")?;
    let from = guest.stdout.take().context("QEMU without an output")?;
    let _guest = Machine(guest);
    let a = Terminal::new("a", to, from);
    let socket = loop {
        match UnixStream::connect(second) {
            Ok(socket) => break socket,
            Err(error) if started.elapsed() > PATIENCE => return Err(error).context("host b"),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    };
    let b = Terminal::new("b", socket.try_clone()?, socket);
    let mut hosts = Hosts { a, b };
    let mut part = Part::new("shell");
    let greeting = hosts.a.await_prompt()?;
    println!("{greeting}");
    println!("the prompt came after {} s", started.elapsed().as_secs());
    hosts.b.await_prompt()?;
    part.take("boots", boots_quietly(&greeting));
    part.take("First connection", hosts.walk(&first));
    for (number, block) in readme
        .iter()
        .enumerate()
        .filter(|(_, block)| !block.is_empty())
    {
        part.take(&format!("README, block {}", number + 1), hosts.walk(block));
    }
    for command in ALSO {
        println!("--- a: {command}");
        part.take(command, hosts.a.run(command));
    }
    Ok(part)
}

/// Checks that nothing is printed before the shell's greeting.
fn boots_quietly(greeting: &str) -> Result<()> {
    let before = greeting.split("Two hosts are joined").next();
    let before = before.unwrap_or_default().trim();
    ensure!(
        greeting.contains("Two hosts") && before.is_empty(),
        "it says {before:?} first"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_from_the_sections_shell_blocks() {
        let page = "\
### Elsewhere
```sh
a$ no
```
### First connection
```sh
b$ ip link
eth0  UP
b$ socat &
```
```c
a$ no
```
```sh
a$ enet ping
```
## Behind
```sh
a$ no
```
";
        let steps = prompted_steps(page, "First connection").unwrap();
        let found: Vec<_> = steps
            .iter()
            .map(|step| (step.on_b, &step.command[..], step.prints.len()))
            .collect();
        let wanted = [
            (true, "ip link", 1),
            (true, "socat &", 0),
            (false, "enet ping", 0),
        ];
        assert_eq!(found, wanted);
        assert!(prompted_steps(page, "Last connection").is_err());
        let readme = "```sh\nmake demo\nserver  # on one host\nclient\n```\n";
        let steps = readme_steps(readme).concat();
        let found: Vec<_> = steps.iter().map(|step| (step.on_b, step.serves)).collect();
        assert_eq!(found, [(true, true), (false, false)]);
    }

    #[test]
    fn prompts_are_found_behind_orders_to_the_terminal() {
        let text = plain(b"\x1b[?2004ha 02:..\x1b[1m~# \r\x1b]0;title\x07x");
        assert_eq!(text, "a 02:..~# x");
        assert_eq!(before_prompt("ls\nfile\na 02:x ~# ", "a"), Some("ls\nfile"));
        assert_eq!(before_prompt("a 02:x ~# ", "a"), Some(""));
        assert_eq!(before_prompt("ls\nfile\na 02:x ~# ls", "a"), None);
        assert_eq!(before_prompt("ls\nb 02:x ~# ", "a"), None);
    }

    #[test]
    fn connections_that_tcp_carried_are_told() {
        let by_esp = "enet stats | grep Mapped  # what carried them\n 2  MappedActiveOpens  Mapped sockets connected\n 1  MappedWaits  not MappedTcpUnknown";
        carried_by_esp(by_esp).unwrap();
        carried_by_esp(&format!("{by_esp}\n 1  MappedTcpUnknown  the first")).unwrap_err();
        carried_by_esp("enet stats | grep Mapped").unwrap_err();
        let readme = include_str!("../../../README.md");
        assert!(readme.lines().any(|line| line.starts_with(CARRIERS)));
    }

    #[test]
    fn a_line_that_is_missing_is_told() {
        prints("x\neth0   UP  02\n", &["eth0 UP 02".to_owned()]).unwrap();
        prints("eth0@if2 UP 02\n", &["eth0 UP 02".to_owned()]).unwrap_err();
    }
}

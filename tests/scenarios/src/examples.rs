// SPDX-License-Identifier: GPL-2.0-only

//! Tests that the library's examples and socat work: programs that were not written for the
//! scenarios.

use std::io::{Read, Write};
use std::process::Child;

use super::enet_tool::give_addresses;
use guest::prelude::*;
use guest::program::{socat_address, start, wait_for_word};

scenarios! {
    direct example_nc_ends_its_halves_one_by_one = nc;
    direct example_tokio_echo_on_100_connections = tokio_echo;
    direct example_tokio_records_on_50_connections = tokio_records, within(180);
    direct lookup_finds_hosts_in_rust_c_and_python_alike = lookups, within(180);
    direct example_uring_echo_on_100_connections = uring_echo;
    direct example_epoll_echo_on_100_connections = epoll_echo;
    direct example_edp_ask_asks_until_it_is_answered = edp_ask;
    direct python_asyncio_echo_on_50_connections = asyncio_echo, within(180);
    direct python_sockets_streams_and_datagrams = python_sockets, within(180);
    direct edp_through_socat_both_ways = socat_datagrams;
}

/// A server program. Dropping this value ends it.
struct Server {
    child: Child,
    said: Option<thread::JoinHandle<String>>,
}

impl Server {
    /// Starts the program and waits until its standard error contains `word`.
    fn start(host: &Host, command: Command, word: &str) -> Result<Self> {
        let mut child = start((host, command), Stdio::piped(), Stdio::piped())?;
        let said = Some(wait_for_word(&mut child, word)?);
        Ok(Self { child, said })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error of `kill` is ignored, because the program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(Ok(said)) = self.said.take().map(thread::JoinHandle::join) {
            note(&said);
        }
    }
}

fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

/// Returns the address of `port` of host b as seen from host a, in the library's notation.
fn there(lab: &Lab, port: u16) -> String {
    format!("{}%{DEVICE}:{port}", print_mac(lab.b.mac))
}

fn here(port: u16) -> String {
    format!("*%{DEVICE}:{port}")
}

/// Writes `bytes` to a child's standard input and closes that input, in a thread of its own.
fn feed(child: &mut Child, bytes: Vec<u8>) -> Result<thread::JoinHandle<std::io::Result<()>>> {
    let mut input = child.stdin.take().context("no input")?;
    Ok(thread::spawn(move || input.write_all(&bytes)))
}

fn nc(lab: &Lab) -> Outcome {
    let (question, answer) = (random(1 << 20, 1), random(300_001, 2));
    let mut server = Server::start(&lab.b, program("esp_nc", &["-l", &here(2820)]), "listening")?;
    let command = program("esp_nc", &[&there(lab, 2820)]);
    let mut client = start((&lab.a, command), Stdio::piped(), Stdio::piped())?;
    // The client's half ends first. The server's half is still open, and carries the answer.
    let asked = feed(&mut client, question.clone())?;
    let mut got = vec![0; question.len()];
    let output = server.child.stdout.as_mut().context("no output")?;
    output
        .read_exact(&mut got)
        .context("reading the question")?;
    asked.join().map_err(|_| anyhow!("the feeder panicked"))??;
    ensure!(got == question, "the question changed on the way");
    let answered = feed(&mut server.child, answer.clone())?;
    let mut got = Vec::new();
    let mut output = client.stdout.take().context("no output")?;
    output.read_to_end(&mut got).context("reading the answer")?;
    answered
        .join()
        .map_err(|_| anyhow!("the feeder panicked"))??;
    ensure!(got == answer, "{} bytes of an answer came", got.len());
    for (name, child) in [("client", &mut client), ("server", &mut server.child)] {
        let status = child.wait()?;
        ensure!(status.success(), "the {name} ended with {status}");
    }
    Ok(())
}

/// Runs an echo server on b and its client on a. The client compares the bytes itself, and prints
/// `word` if they match.
fn echo(lab: &Lab, name: &str, port: u16, amount: &str, word: &str) -> Outcome {
    let server = program(name, &["serve", &here(port)]);
    let _server = Server::start(&lab.b, server, "listening")?;
    asks(lab, &[name, "ask", &there(lab, port), "100", amount], word)
}

/// Runs a client on a, and checks that it succeeds and prints `word`.
fn asks(lab: &Lab, line: &[&str], word: &str) -> Outcome {
    let client = program(line[0], &line[1..]);
    let client = start((&lab.a, client), Stdio::null(), Stdio::piped())?;
    let ended = client.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let complaint = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success() && said.contains(word),
        "the client ended with {}: {said} {complaint}",
        ended.status
    );
    Ok(())
}

fn tokio_echo(lab: &Lab) -> Outcome {
    let word = "100 connections echoed 50000 bytes each";
    echo(lab, "esp_tokio_echo", 2821, "50000", word)
}

/// The client names the server by its IP address.
fn tokio_records(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    const NAME: &str = "esp_tokio_records";
    let _server = Server::start(&lab.b, program(NAME, &["serve", &here(2827)]), "listening")?;
    let word = "50 connections exchanged 40 records each";
    asks(lab, &[NAME, "ask", "10.0.0.2", "2827", "50", "40"], word)
}

/// The libraries for Python, Rust and C find the same address of a host, or fail with the same
/// error number.
fn lookups(lab: &Lab) -> Outcome {
    give_addresses(lab)?;
    for host in [&lab.a, &lab.b] {
        host.namespace.ip(&format!(
            "address add fd00::{}/64 dev {DEVICE} nodad\n",
            host.mac[5]
        ))?;
    }
    // Look up addresses behind a router, too.
    lab.a.namespace.ip("route add 10.9.0.0/16 via 10.0.0.2\n")?;
    let peer = format!("{}%{DEVICE}:2805", print_mac(lab.b.mac));
    let own = format!("{}%{DEVICE}:2805", print_mac(lab.a.mac));
    let fails = |number: i32| format!("-1 {number}");
    // The first name fits into the requests of netdevice(7). The second one has the greatest length
    // that the kernel allows.
    let names = ["short0".to_owned(), "n".repeat(127)];
    for name in &names {
        let add = format!("link property add dev {DEVICE} altname {name}\n");
        lab.a.namespace.ip(&add)?;
    }
    let hosts = [
        (format!("10.0.0.2%{}", names[0]), peer.clone()),
        (format!("02:00:00:00:00:02%{}", names[1]), peer.clone()),
        ("::ffff:10.0.0.2".to_owned(), peer.clone()),
        (format!("10.0.0.2%{}", "o".repeat(127)), fails(libc::ENODEV)),
        ("10.0.0.2%4711".to_owned(), fails(libc::ENODEV)),
        ("10.0.0.255".to_owned(), fails(libc::EINVAL)),
        ("255.255.255.255".to_owned(), fails(libc::EINVAL)),
        ("224.0.0.1".to_owned(), fails(libc::EINVAL)),
        ("0.0.0.0".to_owned(), fails(libc::EINVAL)),
        ("::".to_owned(), fails(libc::EINVAL)),
        (format!("ff02::1%{DEVICE}"), fails(libc::EINVAL)),
        ("fe80::1:2:3:4".to_owned(), fails(libc::EINVAL)),
        ("127.0.0.2".to_owned(), fails(libc::ENODEV)),
        (format!("02-00-00-00-00-02%{DEVICE}"), "0 0".to_owned()),
        (format!("0200.0000.0002%{DEVICE}"), "0 0".to_owned()),
        ("10.0.0.2".to_owned(), peer.clone()),
        ("10.0.0.2".to_owned(), peer.clone()),
        (format!("10.0.0.2%{DEVICE}"), peer.clone()),
        ("fd00::2".to_owned(), peer.clone()),
        (format!("02:00:00:00:00:02%{DEVICE}"), peer),
        ("10.0.0.1".to_owned(), own.clone()),
        ("fd00::1".to_owned(), own),
        ("127.0.0.1".to_owned(), fails(libc::ENODEV)),
        ("10.0.0.2%nope0".to_owned(), fails(libc::ENODEV)),
        ("10.0.0.77".to_owned(), fails(libc::EHOSTUNREACH)),
        ("10.9.0.1".to_owned(), fails(libc::ENETUNREACH)),
        ("192.0.2.1".to_owned(), fails(libc::ENETUNREACH)),
        ("02:00:00:00:00:02".to_owned(), "0 0".to_owned()),
        ("no.such.name".to_owned(), "0 0".to_owned()),
    ];
    // Python looks up all hosts in one run, because it takes longer to start than to look up a
    // host.
    let names = hosts.iter().map(|(host, _)| &host[..]);
    let arguments: Vec<_> = ["-c", BY_PYTHON].into_iter().chain(names).collect();
    let said = lab.a.namespace.run("python3", &arguments)?;
    ensure!(said.lines().count() == hosts.len(), "Python: {said}");
    for ((host, wanted), by_python) in hosts.iter().zip(said.lines()) {
        same(by_python, wanted, &format!("Python, {host}"))?;
        let rust = lab.a.namespace.within(|| by_the_crate(host))?;
        same(&rust, wanted, &format!("the crate, {host}"))?;
        let said = lab.a.namespace.run("en_lookup", &[host])?;
        same(said.trim(), wanted, &format!("C, {host}"))?;
    }
    Ok(())
}

const BY_PYTHON: &str = "
import socket, sys, sockaddr_en
for host in sys.argv[1:]:
    try:
        print(sockaddr_en.lookup(host, 2805))
    except (ValueError, socket.gaierror):
        print('0 0')
    except OSError as error:
        print(f'-1 {error.errno}')
";

fn by_the_crate(host: &str) -> String {
    match sockaddr_en::lookup(host, 2805) {
        Ok(address) => address.to_string(),
        Err(error) => match error.raw_os_error() {
            Some(number) => format!("-1 {number}"),
            None => "0 0".to_owned(),
        },
    }
}

fn uring_echo(lab: &Lab) -> Outcome {
    let word = "100 connections exchanged 20 messages each";
    echo(lab, "esp_uring_echo", 2822, "20", word)
}

/// The server is a C program, and the client is the example for tokio.
fn epoll_echo(lab: &Lab) -> Outcome {
    let _server = Server::start(
        &lab.b,
        program("esp_epoll_echo", &[&here(2824)]),
        "listening",
    )?;
    let word = "100 connections echoed 50000 bytes each";
    asks(
        lab,
        &["esp_tokio_echo", "ask", &there(lab, 2824), "100", "50000"],
        word,
    )
}

/// The server does not answer the first two questions. It answers the third one, but first sends an
/// answer to a different question.
fn edp_ask(lab: &Lab) -> Outcome {
    let server = lab.b.edp_bound(2825)?;
    let client = program("edp_ask", &[&there(lab, 2825), "how many?"]);
    let client = start((&lab.a, client), Stdio::piped(), Stdio::piped())?;
    let mut numbers = Vec::new();
    for _ in 1..=3 {
        let mut question = [0; 100];
        let (length, sender) = server.receive_from(&mut question, 0)?;
        let (number, text) = question[..length].split_at(4);
        ensure!(text == b"how many?", "asked {text:?}");
        numbers.push((number.to_vec(), sender));
    }
    let (number, sender) = &numbers[0];
    ensure!(
        numbers.iter().all(|(other, _)| other == number),
        "the question's number changed: {numbers:?}"
    );
    server.send_to_bytes(b"\0\0\0\0none", 0, sender)?;
    server.send_to_bytes(&[number, &b"three"[..]].concat(), 0, sender)?;
    let ended = client.wait_with_output()?;
    let (said, told) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    // On a busy machine the client may send its question once more before the answer arrives.
    let mut attempts = numbers.len();
    while server.receive(&mut [0; 100], libc::MSG_DONTWAIT).is_ok() {
        attempts += 1;
    }
    let attempts = format!("answered at attempt {attempts}\n");
    ensure!(
        ended.status.success() && said == "three\n" && told == attempts,
        "the client ended with {}: {said} {told}",
        ended.status
    );
    Ok(())
}

/// The Python server serves the Rust client and the Python client.
fn asyncio_echo(lab: &Lab) -> Outcome {
    const SCRIPT: &str = "/usr/share/python/esp_asyncio_echo.py";
    let word = "50 connections echoed 20000 bytes each";
    let _server = Server::start(
        &lab.b,
        program("python3", &[SCRIPT, "serve", &here(2826)]),
        "listening",
    )?;
    let there = there(lab, 2826);
    asks(lab, &["esp_tokio_echo", "ask", &there, "50", "20000"], word)?;
    asks(
        lab,
        &["python3", SCRIPT, "ask", &there, "50", "20000"],
        word,
    )
}

fn python_sockets(lab: &Lab) -> Outcome {
    let mut tests = program("python3", &["/usr/share/python/guest_sockets.py"]);
    tests.env("ENET_INTERFACE", DEVICE);
    tests.env("ENET_MAC", print_mac(lab.a.mac));
    let ended = start((&lab.a, tests), Stdio::null(), Stdio::piped())?.wait_with_output()?;
    let told = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success() && told.contains("OK"),
        "{}: {told}",
        ended.status
    );
    Ok(())
}

fn socat_datagrams(lab: &Lab) -> Outcome {
    let ready = "starting data transfer loop";
    let peer = |from: &Host, to: &Host| {
        let address = socat_address("SOCKET-DATAGRAM:28:2:0", from.to(to, 2823));
        let own = socat_address("", from.here(2823));
        let address = format!("{address},bind={}", own.trim_start_matches(':'));
        let command = program("socat", &["-d", "-d", "STDIO", &address]);
        Server::start(from, command, ready)
    };
    let mut ends = [peer(&lab.a, &lab.b)?, peer(&lab.b, &lab.a)?];
    for round in 0..40 {
        let datagram = random(1000 + round, round as u64);
        let [from, to] = &mut ends;
        let input = from.child.stdin.as_mut().context("no input")?;
        input.write_all(&datagram)?;
        let mut got = vec![0; datagram.len()];
        let output = to.child.stdout.as_mut().context("no output")?;
        output.read_exact(&mut got)?;
        ensure!(got == datagram, "round {round}: the bytes changed");
        ends.swap(0, 1);
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Runs programs on the hosts, feeds them, reads their output and waits for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use fastrand::Rng;
use sha2::{Digest, Sha256};

use crate::prelude::*;

/// Runs two programs, feeds `total` random bytes to the sender and compares them with the
/// receiver's output.
///
/// The receiver prints "listening" on standard error when the sender may start.
///
/// # Errors
/// If a program cannot be started, fails, or the bytes differ.
pub fn pipe_through(
    receiver: (&Host, Command),
    sender: (&Host, Command),
    total: usize,
) -> Result<()> {
    let mut receiving = start(receiver, Stdio::null(), Stdio::piped())?;
    let listening = wait_for_word(&mut receiving, "listening")?;
    let mut sending = start(sender, Stdio::piped(), Stdio::null())?;
    let sent = feed(&mut sending, total)?;
    let mut output = receiving.stdout.take().context("no output")?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match output.read(&mut buffer)? {
            0 => break,
            got => {
                hash.update(&buffer[..got]);
                length += got;
            }
        }
    }
    let sent = sent.join().map_err(|_| anyhow!("the feeder panicked"))??;
    let mut complaints = String::new();
    if let Some(mut stderr) = sending.stderr.take() {
        stderr.read_to_string(&mut complaints)?;
    }
    for (name, mut child) in [("sender", sending), ("receiver", receiving)] {
        let status = child.wait()?;
        ensure!(
            status.success(),
            "the {name} ended with {status}: {complaints}"
        );
    }
    let words = listening
        .join()
        .map_err(|_| anyhow!("the listener panicked"))?;
    note(&words);
    ensure!(length == total, "{length} of {total} bytes arrived");
    ensure!(
        sent == <[u8; 32]>::from(hash.finalize()),
        "the checksums differ"
    );
    Ok(())
}

/// Starts a program on a host, with a pipe for the program's standard error.
///
/// # Errors
/// If it cannot be started.
pub fn start((host, mut command): (&Host, Command), input: Stdio, output: Stdio) -> Result<Child> {
    command.stdin(input).stdout(output).stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    host.namespace
        .within(|| command.spawn())?
        .with_context(|| format!("starting {program}"))
}

/// Waits for a line with `word` on the child's standard error, and collects the later output in a
/// thread.
///
/// # Errors
/// If the child ends before it prints `word`.
pub fn wait_for_word(child: &mut Child, word: &str) -> Result<thread::JoinHandle<String>> {
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let length = lines.read_line(&mut line)?;
        ensure!(length > 0, "the receiver ended early: {said}");
        said.push_str(&line);
        if line.contains(word) {
            return Ok(thread::spawn(move || {
                // An error is ignored: the unreadable output is then missing from the remarks, and
                // nothing else depends on it.
                let _ = lines.read_to_string(&mut said);
                said
            }));
        }
    }
}

/// Writes `total` random bytes to the child's standard input from a thread; the thread returns
/// their checksum.
fn feed(child: &mut Child, total: usize) -> Result<thread::JoinHandle<Result<[u8; 32]>>> {
    let mut input = child.stdin.take().context("no input")?;
    Ok(thread::spawn(move || {
        let (mut rng, mut hash) = (Rng::with_seed(64), Sha256::new());
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..total / buffer.len() {
            rng.fill(&mut buffer);
            hash.update(&buffer);
            input.write_all(&buffer).context("feeding the sender")?;
        }
        Ok(hash.finalize().into())
    }))
}

/// Formats a generic address of socat. It consists of `kind`, such as `SOCKET-CONNECT:28:0`, and
/// the bytes of `address` after the family, in hexadecimal.
pub fn socat_address(kind: &str, address: Address) -> String {
    let data: Vec<_> = address.to_bytes()[2..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{kind}:x{}", data.concat())
}

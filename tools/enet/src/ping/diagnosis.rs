// SPDX-License-Identifier: MIT OR Apache-2.0

//! Collects the evidence for a diagnosis: the interface's counters, whether the host's module
//! answers ESP, and whether the host responds at all.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use sockaddr_en::{poke, Address, EspStream, Neighbour};

use super::echo::Tally;
use super::target::Target;
use super::verdict::{Evidence, Life};
use crate::interfaces::Frames;

/// The discard port, on which few hosts have a service.
const DISCARD: u16 = 9;

/// Maximum time to wait for the answer to ESP's SYN.
const ESP: Duration = Duration::from_millis(1500);

/// Maximum time to wait until the device has counted the frames that it sent. Some devices count
/// late.
const COUNTING: Duration = Duration::from_millis(1500);

/// Maximum time to wait for the host's answer to a probe of its neighbour entry. The kernel probes
/// three times, once a second.
const PROBED: Duration = Duration::from_secs(4);

/// Maximum time to wait for the host's answer if this process is not allowed to request a probe.
/// The kernel then waits five seconds for other evidence that the host is reachable, before it
/// probes the host itself.
const UNPROBED: Duration = Duration::from_secs(9);

/// Maximum time to wait for the host's report that a UDP port is closed. This time applies if the
/// kernel will not probe the host, for example because an administrator made the neighbour entry.
/// The report is then the only sign that the host responds.
const REFUSED: Duration = Duration::from_secs(1);

/// Finds out why `target` has not answered. `before` holds the interface's counters from the start
/// of the ping.
pub fn examine(target: &Target, tally: &Tally, before: Option<Frames>) -> Evidence {
    // Frames to the host's own address do not go through the interface.
    let before = before.filter(|_| target.interface.mac != Some(target.mac));
    let frames = before.and_then(|before| frames_since(target, tally, before));
    let mut evidence = Evidence {
        host: target.to_string(),
        interface: target.interface.present_name(),
        sent: tally.sent,
        refused: tally.refused,
        frames,
        esp: false,
        life: Life::Unknown,
    };
    // If the fault is in this host, no evidence from the other host is needed.
    if !evidence.verdict().is_here() {
        evidence.esp = answers_esp(target);
        if !evidence.esp {
            evidence.life = target.ip.map_or(Life::Unknown, |ip| life(target, ip));
        }
    }
    evidence
}

fn frames_since(target: &Target, tally: &Tally, before: Frames) -> Option<Frames> {
    let end = Instant::now() + COUNTING;
    loop {
        let frames = Frames::of(&target.interface.present_name())?.since(before);
        if frames.sent >= u64::from(tally.sent) || Instant::now() >= end {
            return Some(frames);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether the host answers ESP. A host with the module accepts or resets a connection,
/// whether or not a socket listens.
fn answers_esp(target: &Target) -> bool {
    let address = Address::new(target.mac, target.interface.index, DISCARD);
    match EspStream::connect_timeout(&address, ESP) {
        Ok(_) => true,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
        ),
    }
}

/// Tests whether the host responds, with or without the module. Makes the kernel confirm the
/// neighbour entry, and sends a datagram to a UDP port that is probably closed.
fn life(target: &Target, ip: IpAddr) -> Life {
    let index = target.interface.index;
    let find = || {
        let mut known = sockaddr_en::neighbours().unwrap_or_default().into_iter();
        known.find(|entry| entry.ip == ip && entry.interface == index)
    };
    let entry = find();
    let doubted = entry
        .as_ref()
        .filter(|entry: &&Neighbour| entry.is_doubted());
    let patience = match doubted {
        Some(entry) if entry.probe().is_ok() => PROBED,
        Some(_) => UNPROBED,
        None => REFUSED,
    };
    let doubted = doubted.is_some();
    let socket = poke(ip, Some(index)).ok();
    let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
    let refused = || {
        let socket = socket.as_ref()?;
        let error = socket.recv(&mut [0]).err()?;
        Some(error.kind() == ErrorKind::ConnectionRefused)
    };
    let end = Instant::now() + patience;
    loop {
        if refused() == Some(true) {
            return Life::Answers(ip);
        }
        let entry = find();
        if doubted && entry.as_ref().is_some_and(|entry| entry.is_confirmed()) {
            return Life::Answers(ip);
        }
        if entry.is_none_or(|entry| entry.has_failed()) {
            return Life::Silent(ip);
        }
        if Instant::now() >= end {
            return if doubted {
                Life::Silent(ip)
            } else {
                Life::Mute(ip)
            };
        }
        thread::sleep(Duration::from_millis(50));
    }
}

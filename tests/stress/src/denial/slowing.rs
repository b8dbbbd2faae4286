// SPDX-License-Identifier: GPL-2.0-only

//! Attacks by forged packets on a stream that is sending. Each attack measures a share: the
//! stream's goodput during the attack, divided by its goodput during an equal flood to another
//! station. The attacker guesses the sequence number and the acknowledgement number of each packet.
//! Over the packets, both numbers run through all of their values.

use super::flood::{during_at, wire};
use super::victim::{goodput, stream};
use guest::prelude::*;

/// Number of forged frames that an attack sends per second.
pub const RATE: u64 = 20_000;
/// The smallest share of a stream's goodput that must remain.
pub const LEAST: f64 = 0.9;

/// An attack that tries to slow a stream down by forged packets.
#[derive(Clone, Copy, Debug)]
pub struct Slowing {
    /// The attack's name in the printed table.
    pub what: &'static str,
    flags: u8,
    /// The value of the length field, and the length of the payload.
    length: [u16; 2],
    /// Whether the packets go to the sending host in the receiver's name. Otherwise they go to the
    /// receiving host in the sender's name.
    to_sender: bool,
}

const fn to_receiver(what: &'static str, flags: u8, payload: u16) -> Slowing {
    Slowing {
        what,
        flags,
        length: [payload, payload],
        to_sender: false,
    }
}

const fn to_sender(what: &'static str, flags: u8, length: u16) -> Slowing {
    Slowing {
        what,
        flags,
        length: [length, 0],
        to_sender: true,
    }
}

/// All attacks, in the order of the table.
pub const ALL: &[Slowing] = &[
    to_receiver("data without ACK", 0, 100),
    to_receiver("data", flag::ACK, 100),
    to_receiver("announcements", flag::ACK | flag::TXS, 100),
    to_receiver("resets", flag::RST | flag::ACK, 0),
    to_receiver("SYNs", flag::SYN, 0),
    to_receiver("empty packets", flag::ACK, 0),
    to_sender("acknowledgements", flag::ACK, 0),
    to_sender("holds", flag::ACK | flag::TXS, 0),
    to_sender("requests", flag::ACK | flag::RRQ, 0),
    to_sender("grants of little", flag::GRANT, 0x0101),
    to_sender("resets for the sender", flag::RST | flag::ACK, 0),
    to_sender("SYNs for the sender", flag::SYN, 0),
];

/// Number of transfers in one measurement, and number of pairs of measurements. In each pair, one
/// runs during a flood to another station, and the other during the attack.
const TRANSFERS: usize = 2;
const TURNS: usize = 5;
/// A stream that makes no progress for this long counts as broken.
const STALLED: Duration = Duration::from_secs(1);

impl Slowing {
    /// Measures the share of the stream's goodput that remains.
    ///
    /// # Errors
    /// If a call fails for a reason other than the attack.
    pub fn share(&self, lab: &Lab) -> Result<f64> {
        // One guess in 2^16 may be right and end the connection, so a second try is allowed.
        let first = self.try_share(lab)?;
        match first {
            Some(share) => Ok(share),
            None => Ok(self.try_share(lab)?.unwrap_or(0.0)),
        }
    }

    /// Measures the share once; returns `None` if the stream breaks or stalls.
    fn try_share(&self, lab: &Lab) -> Result<Option<f64>> {
        const PORT: u16 = 2980;
        let (from, to, _listener) = stream(lab, PORT, 4)?;
        from.set_timeout(libc::SO_SNDTIMEO, STALLED)?;
        to.set_timeout(libc::SO_RCVTIMEO, STALLED)?;
        goodput(&from, &to)?;
        let (a, b) = (&lab.a, &lab.b);
        let port = from.local_address()?.port;
        let (wire, source, target, ports) = if self.to_sender {
            let wire = PacketSocket::open(&a.namespace, DEVICE, 0)?;
            (wire, a.mac, b.mac, [PORT, port])
        } else {
            (wire(lab)?, b.mac, a.mac, [port, PORT])
        };
        let frame = |target, number: u64| {
            let [length, payload] = self.length;
            let header = EspHeader {
                length,
                sequence: (number as u16).wrapping_mul(40_503),
                acknowledgement: (number as u16).wrapping_mul(30_011) ^ 0x5555,
                ..EspHeader::new(ports[0], ports[1], self.flags)
            };
            let packet = header.packet(&vec![0x21; payload.into()]);
            ethernet(target, source, ETH_P_ESP, &packet)
        };
        let time = || -> Result<f64> {
            (0..TRANSFERS)
                .map(|_| goodput(&from, &to).map(|rate| 1.0 / rate))
                .sum()
        };
        let elsewhere = [2, 0, 0, 0, 0, 0x77];
        let mut sent = 0;
        let mut shares = Vec::new();
        for _ in 0..TURNS {
            let (_, alone) = during_at(RATE, &wire, &mut |number| frame(elsewhere, number), time)?;
            let mut make = |number| frame(target, sent + number);
            match during_at(RATE, &wire, &mut make, || Ok(time())) {
                Ok((count, Ok(beside))) => {
                    sent += count;
                    shares.push(alone / beside);
                }
                Ok((count, Err(error))) => {
                    note(&format!(
                        "{}: after {} frames: {error:#}",
                        self.what,
                        sent + count
                    ));
                    for socket in [&from, &to] {
                        socket.set_linger(Some(0))?;
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        ensure!(sent > 500, "only {sent} frames came meanwhile");
        shares.sort_unstable_by(f64::total_cmp);
        Ok(Some(shares[TURNS / 2]))
    }

    /// Checks that the stream keeps at least [`LEAST`] of its goodput.
    ///
    /// # Errors
    /// If it does not.
    pub fn judge(&self, share: f64) -> Result<()> {
        ensure!(
            share >= LEAST,
            "beside {RATE} forged {} per second a stream keeps {share:.2} of its goodput, less than {LEAST}",
            self.what
        );
        Ok(())
    }
}

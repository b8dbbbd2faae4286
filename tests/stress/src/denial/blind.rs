// SPDX-License-Identifier: GPL-2.0-only

//! Blind attacks: the attacker knows the addresses and ports of a connection, but neither the
//! sequence nor the acknowledgement number.
//!
//! A host accepts a forged packet if both numbers are in the ranges that it accepts. The tests
//! count the accepted values of each number while the other one is right. The product of the two
//! counts, divided by 2^32, is the probability that a packet with guessed numbers is accepted. The
//! inverse of this probability is the largest number of frames that an attack needs if it tries all
//! pairs of numbers. On average it needs half as many.

use std::cell::RefCell;
use std::fmt;

use super::dialer::Dialed;
use guest::calls::send_many;
use guest::frame::{edp, ETH_P_ALL};
use guest::lab::ESP_MSS;
use guest::prelude::*;

/// The number of values of a 16-bit number.
const ALL_VALUES: u32 = 1 << 16;

/// The goal of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To end the connection.
    Reset,
    /// To make the program receive bytes that its peer never sent.
    Inject,
    /// To make the host free bytes that its peer has not received.
    Free,
}

/// One of the two numbers of a packet that the attacker has to guess.
#[derive(Clone, Copy)]
enum Number {
    Sequence,
    Acknowledgement,
}

/// An attack by packets whose sequence and acknowledgement numbers are guessed.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// The attack's name in the printed table.
    pub what: &'static str,
    aim: Aim,
    flags: u8,
    /// Whether both ends are sending.
    busy: bool,
    /// How many values of the sequence number, and how many values of the acknowledgement number,
    /// the protocol accepts.
    expected: [u32; 2],
}

/// How many values of the sequence number, and how many values of the acknowledgement number, the
/// host accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted(pub [u32; 2]);

impl Accepted {
    /// Returns how many packets an attacker sends, on average, until the host accepts one, if the
    /// numbers in each packet are chosen at random.
    pub fn frames(self) -> f64 {
        let Self([sequence, acknowledgement]) = self;
        (f64::from(ALL_VALUES) / f64::from(sequence))
            * (f64::from(ALL_VALUES) / f64::from(acknowledgement))
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value| match value {
            ALL_VALUES => "any".to_owned(),
            value => value.to_string(),
        };
        let Self([sequence, acknowledgement]) = *self;
        write!(out, "{} x {}", number(sequence), number(acknowledgement))
    }
}

/// How many acknowledgement numbers the host accepts in the busy connection: one for each packet in
/// flight, and the number after the last of these packets.
const IN_FLIGHT: u32 = WINDOW as u32 + 1;
/// The number of plausible sequence numbers in an empty packet. These are the expected number, the
/// numbers that differ from it by at most twice the largest window in either direction, and one
/// more number for a probe.
const PLAUSIBLE: u32 = 4 * LARGEST_WINDOW + 2;
/// The counts for data without ACK. The host drops such data with any sequence number, so the first
/// count is 0. The host does not check the acknowledgement number, so the second count includes all
/// values.
const NEVER: [u32; 2] = [0, ALL_VALUES];

/// All attacks, in the order of the table. A reset without ACK is accepted with one more
/// acknowledgement number, since such a reset may answer a probe.
pub const ALL: &[Guess] = &[
    guess("reset", Aim::Reset, flag::RST | flag::ACK, IDLE, [1, 1]),
    guess(
        "reset",
        Aim::Reset,
        flag::RST | flag::ACK,
        BUSY,
        [1, IN_FLIGHT],
    ),
    guess("reset without ACK", Aim::Reset, flag::RST, IDLE, [1, 2]),
    guess(
        "reset without ACK",
        Aim::Reset,
        flag::RST,
        BUSY,
        [1, IN_FLIGHT + 1],
    ),
    guess("data", Aim::Inject, flag::ACK, IDLE, [1, 1]),
    guess("data", Aim::Inject, flag::ACK, BUSY, [1, IN_FLIGHT]),
    guess("data without ACK", Aim::Inject, 0, IDLE, NEVER),
    guess("data without ACK", Aim::Inject, 0, BUSY, NEVER),
    guess(
        "acknowledgement",
        Aim::Free,
        flag::ACK,
        BUSY,
        [PLAUSIBLE, WINDOW as u32],
    ),
];

const IDLE: bool = false;
const BUSY: bool = true;

const fn guess(what: &'static str, aim: Aim, flags: u8, busy: bool, expected: [u32; 2]) -> Guess {
    Guess {
        what,
        aim,
        flags,
        busy,
        expected,
    }
}

const PORT: u16 = 2990;
/// Options of a host with the module's defaults: version 1, capabilities, largest payload, windows,
/// and the acceptance of grants of any size.
const OPTIONS: [u8; 20] = [
    1, 1, 1, 2, 2, 0, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 21, 0, 1, 7, 1, 255,
];
/// The number of packets that the host has in flight in the busy connection. The test opens a new
/// connection for each accepted number, so with the largest grant it would take longer.
const WINDOW: u8 = 64;
/// The largest window that can be granted to a connection without masks, such as these.
const LARGEST_WINDOW: u32 = 255;

/// The hosts of the connections, and the attacker's socket.
struct Stage<'a> {
    lab: &'a Lab,
    listener: Socket,
    wire: PacketSocket,
    /// The number of connections opened so far.
    opened: u64,
    echo: u8,
}

/// A connection under attack.
struct Victim {
    socket: Socket,
    peer: Dialed,
    /// Two numbers of bytes: the bytes that the program has yet to read, and the bytes that the
    /// peer has yet to acknowledge.
    queued: [i32; 2],
}

impl Drop for Victim {
    fn drop(&mut self) {
        // A failure is ignored, because the test is over. With a linger time of 0 the connection
        // ends at once; otherwise it would wait for its peer, which never answers a FIN.
        let _ = self.socket.set_linger(Some(0));
    }
}

fn queued(socket: &Socket) -> Result<[i32; 2]> {
    Ok([
        socket.queued(libc::FIONREAD)?,
        socket.queued(libc::TIOCOUTQ)?,
    ])
}

impl<'a> Stage<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        send_single_packets(&lab.a.namespace)?;
        Ok(Self {
            lab,
            listener: lab.a.esp_listener(PORT, 16)?,
            wire: lab.b.packets(ETH_P_ALL)?,
            opened: 0,
            echo: 0,
        })
    }

    fn open(&mut self, busy: bool) -> Result<Victim> {
        self.opened += 1;
        let peer = Dialed::open_telling(self.lab, &self.wire, self.opened, PORT, &OPTIONS)?;
        let (socket, _) = self.listener.accept(0)?;
        let mut victim = Victim {
            socket,
            peer,
            queued: [0; 2],
        };
        if busy {
            self.make_busy(&mut victim)?;
        }
        self.all_is_taken(&victim.peer)?;
        victim.queued = queued(&victim.socket)?;
        Ok(victim)
    }

    /// Makes each end announce a transmission, and grants the host a window, which the host then
    /// fills.
    fn make_busy(&mut self, victim: &mut Victim) -> Result<()> {
        let (socket, peer) = (&victim.socket, &mut victim.peer);
        self.wire.send(&peer.data(flag::TXS, &[1]))?;
        for _ in 0..30 {
            self.wire.send(&peer.data(0, &[1]))?;
        }
        socket.set_so(libc::SO_SNDBUFFORCE, 1 << 20)?;
        socket.send(&vec![1; 100 * ESP_MSS], libc::MSG_NOSIGNAL)?;
        peer.expected = self.sent(peer)?;
        let all = u16::from_be_bytes([30, WINDOW]);
        self.wire
            .send(&peer.frame_of(&peer.header(flag::GRANT, all), &[]))?;
        let behind = self.sent(peer)?;
        let in_flight = behind.wrapping_sub(peer.expected);
        ensure!(
            in_flight == u16::from(WINDOW),
            "{in_flight} packets are in flight"
        );
        peer.expected = behind;
        Ok(())
    }

    /// Returns the sequence number that follows the last packet that the host has sent.
    fn sent(&mut self, peer: &Dialed) -> Result<u16> {
        let mut behind = peer.expected;
        for header in self.all_is_taken(peer)? {
            if header.length > 0 && !header.is_grant() && header.sequence == behind {
                behind = behind.wrapping_add(1);
            }
        }
        Ok(behind)
    }

    /// Waits until the host has processed all frames sent so far, by sending an echo request after
    /// them. Returns the packets that the host sent to `peer` before the echo reply.
    fn all_is_taken(&mut self, peer: &Dialed) -> Result<Vec<EspHeader>> {
        self.echo = self.echo.wrapping_add(1);
        let request = edp(peer.port, 0, 2, &[1, self.echo]);
        self.wire.send_edp(self.lab.a.mac, peer.mac, &request)?;
        let reply = edp(0, peer.port, 2, &[2, self.echo]);
        let headers = RefCell::new(Vec::new());
        self.wire.wait_for(patience(), |frame| {
            let ours = frame[..6] == peer.mac;
            let header = EspHeader::of_frame(frame).filter(|_| ours);
            headers.borrow_mut().extend(header);
            ours && frame.get(14..22) == Some(&reply[..])
        })?;
        Ok(headers.into_inner())
    }

    /// Sends forged packets. In each, `which` differs from the right number by one of `offsets`.
    /// Returns whether the host accepted one of the packets; in that case replaces `victim` by a
    /// new connection.
    fn believed(
        &mut self,
        guess: &Guess,
        victim: &mut Victim,
        which: Number,
        offsets: &[u16],
    ) -> Result<bool> {
        let payload: &[u8] = match guess.aim {
            Aim::Inject => b"!",
            Aim::Reset | Aim::Free => &[],
        };
        let frames: Vec<_> = offsets
            .iter()
            .map(|offset| {
                let mut header = victim.peer.header(guess.flags, payload.len() as u16);
                let number = match which {
                    Number::Sequence => &mut header.sequence,
                    Number::Acknowledgement => &mut header.acknowledgement,
                };
                *number = number.wrapping_add(*offset);
                victim.peer.frame_of(&header, payload)
            })
            .collect();
        let mut left: &[Vec<u8>] = &frames;
        while !left.is_empty() {
            let pieces: Vec<_> = left.iter().map(|frame| Piece::Good(frame)).collect();
            left = &left[send_many(self.wire.socket(), &pieces, 0)?..];
        }
        self.all_is_taken(&victim.peer)?;
        let ended = victim.socket.events()? & (libc::POLLERR | libc::POLLHUP) != 0;
        let [unread, unsent] = queued(&victim.socket)?;
        let believed = match guess.aim {
            Aim::Reset => ended,
            _ if ended => bail!("the connection ended"),
            Aim::Inject => unread > victim.queued[0],
            Aim::Free => unsent < victim.queued[1],
        };
        if believed {
            *victim = self.open(guess.busy)?;
        }
        Ok(believed)
    }

    /// Returns how many values of `which` the host accepts while the other number is right.
    fn accepted(&mut self, guess: &Guess, which: Number) -> Result<u32> {
        const SAMPLES: u16 = 32;
        const BLOCK: usize = 512;
        let mut victim = self.open(guess.busy)?;
        // If the host accepts all samples, it ignores this number, so there is no need to try all
        // values.
        let mut samples = (0..SAMPLES).map(|number| number.wrapping_mul(40_503) ^ 0x2000);
        if samples.try_fold(true, |all, offset| -> Result<_> {
            Ok(all && self.believed(guess, &mut victim, which, &[offset])?)
        })? {
            return Ok(ALL_VALUES);
        }
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut count = 0;
        for block in all.chunks(BLOCK) {
            if self.believed(guess, &mut victim, which, block)? {
                for offset in block {
                    let one = self.believed(guess, &mut victim, which, &[*offset])?;
                    count += u32::from(one);
                }
            }
        }
        Ok(count)
    }
}

impl Guess {
    /// Returns the attack's name in the printed table, with the state of the connection, busy or
    /// idle.
    pub fn name(&self) -> String {
        let of = if self.busy { "a busy" } else { "an idle" };
        format!("{}, {of} connection", self.what)
    }

    /// Returns the goal of the attack.
    pub fn aim(&self) -> Aim {
        self.aim
    }

    /// Returns how many values of each number the host accepts.
    ///
    /// # Errors
    /// If a call fails, or the host misbehaves.
    pub fn make(&self, lab: &Lab) -> Result<Accepted> {
        let mut stage = Stage::new(lab)?;
        let sequence = stage.accepted(self, Number::Sequence)?;
        // Data without ACK are invalid, so the host ignores their acknowledgement number.
        let acknowledgement = if self.flags == 0 || sequence == 0 {
            ALL_VALUES
        } else {
            stage.accepted(self, Number::Acknowledgement)?
        };
        Ok(Accepted([sequence, acknowledgement]))
    }

    /// Returns how many values of each number the protocol accepts.
    pub fn expected(&self) -> Accepted {
        Accepted(self.expected)
    }

    /// Checks that the host accepts no more pairs of values than expected.
    ///
    /// # Errors
    /// If it accepts more.
    pub fn judge(&self, accepted: Accepted) -> Result<()> {
        let expected = self.expected();
        ensure!(
            accepted.frames() >= expected.frames(),
            "{}: {accepted} values are accepted, {:.0} frames, and not {expected}",
            self.name(),
            accepted.frames()
        );
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0

//! SYN cookies. With a cookie, a listener keeps no state of a SYN, and still recognises the answer
//! to its SYN|ACK.
//!
//! The SYN|ACK's number is a hash of the connection's ends, the client's first number, a secret and
//! the time. The client's next packet carries the client's first number and acknowledges the hash.
//! Together, these two numbers are all the state that the listener would have kept. Every SYN|ACK
//! of a listener has such a number, so the listener need not know in advance which connections it
//! will forget.
//!
//! The options of the SYN are forgotten. So a client gets a cookie only if it speaks this version,
//! accepts skips, and has a window of at most [`MOST_WINDOW`]. These facts hold for each connection
//! made from a cookie.
//!
//! Numbers and hash have 16 bits each. On average, one in 2^15 forged packets with data is taken
//! for an answer, and one in 2^14 forged empty packets. A packet says neither when the cookie was
//! made nor how many packets precede this packet. So the listener tries several values of both.

use super::options::Options;
use super::seq::Seq;
use super::timers::Nanos;
use super::wire::{flags, Header};

/// An epoch lasts for 2 to this power nanoseconds: 69 s. The epoch is part of a cookie's hash.
const EPOCH: u32 = 36;

/// If at most this many packets after a cookie are lost, the next packet is still recognised.
const MOST_BEHIND: u16 = 32;

/// Number of initial sequence numbers (ISNs) in a block. The ISNs of a block are consecutive and
/// share a hash. The ISNs that are tried for a packet are in at most two blocks and in two epochs,
/// so a forged packet costs four hashes.
const BLOCK: u16 = 32;

/// Number of entries in the caller's table of [marks](Client::mark). If a thousand connections per
/// second are made from cookies, each entry stays for four seconds on average.
pub const MARKS: usize = 4096;

/// A mark and a cookie are both hashes. The input of a cookie's hash contains the epoch; the input
/// of a mark's hash contains this bit instead. Every epoch is lower than this bit, so the inputs
/// always differ.
const MARK: u64 = 1 << 62;

/// A client's packet that acknowledges a cookie: the first packet after the SYN, or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first packet. The header is that of the client's SYN, as reconstructed from this packet.
    First(Header),
    /// A later packet. The client's first packets have not arrived.
    Later,
}

/// The answer to a cookie is accepted until the cookie has this age, in nanoseconds.
pub const LIFE: Nanos = 2 << EPOCH;

/// The largest window, in packets, of a client that gets a cookie.
pub const MOST_WINDOW: u16 = 256;

/// Returns whether a SYN with these options may be answered with a cookie.
pub fn suits(options: &Options) -> bool {
    let window = options.window.map(|window| window.burst_length);
    options.version.is_some()
        && options.takes_skips
        && window.is_some_and(|window| window <= MOST_WINDOW)
}

/// The host of a client, as the listener sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The client's Ethernet address, 48 bits.
    pub mac: u64,
    /// The index of the interface that leads to the client.
    pub ifindex: u32,
}

/// The mark of a cookie that a listener has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The index of the mark in a table of [`MARKS`] entries.
    pub index: usize,
    /// The value of the table's entry, which is not 0.
    pub tag: u32,
}

impl Client {
    /// Returns the number of the SYN|ACK for `syn`. `hash` is keyed with a secret.
    pub fn cookie(&self, syn: &Header, now: Nanos, hash: impl Fn([u64; 3]) -> u64) -> Seq {
        self.number(syn, now >> EPOCH, &hash)
    }

    fn number(&self, syn: &Header, epoch: u64, hash: &impl Fn([u64; 3]) -> u64) -> Seq {
        one_of(self.block(syn, syn.seq, epoch, hash), syn.seq)
    }

    /// Returns the hash that all ISNs in the block of `isn` share.
    fn block(&self, packet: &Header, isn: Seq, epoch: u64, hash: &impl Fn([u64; 3]) -> u64) -> u64 {
        let [client, here] = self.ends(packet, isn.0 / BLOCK);
        hash([client, here, epoch])
    }

    /// Returns the ends of a connection and a number, as input for the hash.
    fn ends(&self, packet: &Header, number: u16) -> [u64; 2] {
        let client = (self.mac << 16) | u64::from(packet.src);
        let here =
            (u64::from(self.ifindex) << 32) | (u64::from(packet.dst) << 16) | u64::from(number);
        [client, here]
    }

    /// Returns how `packet` follows the [`cookie`](Self::cookie) that it acknowledges. Returns
    /// `None` if there was no such cookie in this epoch or in the previous one.
    pub fn answered(
        &self,
        packet: &Header,
        now: Nanos,
        hash: impl Fn([u64; 3]) -> u64,
    ) -> Option<Answer> {
        if !packet.has(flags::ACK) || packet.has(flags::SYN | flags::RST) || packet.is_malformed() {
            return None;
        }
        let epoch = now >> EPOCH;
        let epochs = [epoch, epoch.wrapping_sub(1)];
        let (newest, oldest) = (packet.seq, packet.seq.sub(MOST_BEHIND));
        let hashes =
            epochs.map(|epoch| [newest, oldest].map(|isn| self.block(packet, isn, epoch, &hash)));
        let names = |steps: &u16| {
            let isn = packet.seq.sub(*steps);
            hashes.iter().any(|[new, old]| {
                let hash = if isn.0 / BLOCK == newest.0 / BLOCK {
                    new
                } else {
                    old
                };
                one_of(*hash, isn).add(1) == packet.ack
            })
        };
        // The first packet's number is one more than the SYN's number. A probe has the SYN's
        // number.
        let probe = packet.len == 0 && packet.flags == flags::ACK;
        let mut first = [1, 0].into_iter().take(if probe { 2 } else { 1 });
        if let Some(steps) = first.find(&names) {
            return Some(Answer::First(Header {
                src: packet.src,
                dst: packet.dst,
                len: 0,
                seq: packet.seq.sub(steps),
                ack: Seq(0),
                flags: flags::SYN,
            }));
        }
        let later = (2..=MOST_BEHIND).any(|steps| names(&steps));
        later.then_some(Answer::Later)
    }

    /// Returns the mark of the cookie with which a listener answered `syn`: `cookie`, the number of
    /// its SYN|ACK. The caller stores the mark once there is a connection, so that the cookie makes
    /// no second one.
    pub fn mark(&self, syn: &Header, cookie: Seq, hash: impl Fn([u64; 3]) -> u64) -> Mark {
        let [client, here] = self.ends(syn, syn.seq.0);
        let bits = hash([client, here, MARK | u64::from(cookie.0)]);
        Mark {
            index: bits as usize % MARKS,
            tag: (bits >> 32) as u32 | 1,
        }
    }
}

/// Returns the cookie for the client's ISN `isn`. `hash` is the hash of the block of `isn`. Each
/// ISN of a block selects different bits of the hash.
fn one_of(hash: u64, isn: Seq) -> Seq {
    let factor = u64::from(isn.0 % BLOCK) * 2 + 1;
    Seq((hash.wrapping_mul(factor) >> 48) as u16)
}

/// Returns the SYN|ACK with the number `isn` that answers `syn`.
pub fn answer_to(syn: &Header, isn: Seq) -> Header {
    Header {
        src: syn.dst,
        dst: syn.src,
        len: 0,
        seq: isn,
        ack: syn.seq.add(1),
        flags: flags::SYN | flags::ACK,
    }
}

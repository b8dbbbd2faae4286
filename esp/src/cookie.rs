// SPDX-License-Identifier: GPL-2.0

//! SYN cookies: a listener that keeps nothing of a SYN can tell a packet that
//! answers its SYN|ACK.
//!
//! The SYN|ACK's number is a hash of the connection's ends, the client's first
//! number, a secret and the time. The client's next packet has the first number and
//! acknowledges the hash: all that the listener would have kept. A listener gives
//! every SYN|ACK such a number, so that it need not know beforehand which ones it
//! will forget.
//!
//! What the SYN told is forgotten. So only a client gets a cookie that speaks this version, takes
//! skips, and whose window is no larger than [`MOST_WINDOW`]: of a connection that a cookie made
//! that much is known.
//!
//! Numbers have 16 bits, and so has the hash. A packet with data that was made up is
//! taken for an answer once in 2^15 times, an empty one once in 2^14: the time and
//! the number of the last packet are not in it and are tried.

use super::options::Options;
use super::seq::Seq;
use super::timers::Nanos;
use super::wire::{flags, Header};

/// For how long a cookie stays the same, as a power of two of nanoseconds: 69 s.
const EPOCH: u32 = 36;

/// So many packets may be lost behind a cookie, and the next one is known for a client's
/// nevertheless.
const MOST_BEHIND: u16 = 32;

/// First numbers that share a hash: those of [`MOST_BEHIND`] packets lie in two blocks at most, so
/// that a packet that was made up costs four hashes.
const BLOCK: u16 = 32;

/// Places for marks: at a thousand connections by cookies in a second each stays for four seconds
/// on average.
pub const MARKS: usize = 4096;

/// Tells the hash of a mark from that of a cookie: no epoch is so large.
const MARK: u64 = 1 << 62;

/// The place of a packet behind a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first one: it names the SYN.
    First(Header),
    /// A later one of a client whose first packets have not arrived.
    Later,
}

/// For how long at most an answer to a cookie is taken.
pub const LIFE: Nanos = 2 << EPOCH;

/// The largest window of a client that gets a cookie.
pub const MOST_WINDOW: u16 = 256;

/// Whether the sender of a SYN with these options may be answered by a cookie.
pub fn suits(options: &Options) -> bool {
    let window = options.window.map(|window| window.burst_length);
    options.version.is_some()
        && options.takes_skips
        && window.is_some_and(|window| window <= MOST_WINDOW)
}

/// The client that a packet comes from, beside its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its Ethernet address, 48 bits.
    pub mac: u64,
    /// The interface that leads there.
    pub ifindex: u32,
}

impl Client {
    /// The number of the answer to `syn`. `hash` is keyed with a secret.
    pub fn cookie(&self, syn: &Header, now: Nanos, hash: impl Fn([u64; 3]) -> u64) -> Seq {
        self.number(syn, now >> EPOCH, &hash)
    }

    fn number(&self, syn: &Header, epoch: u64, hash: &impl Fn([u64; 3]) -> u64) -> Seq {
        one_of(self.block(syn, syn.seq, epoch, hash), syn.seq)
    }

    /// The hash of all first numbers in the block of `isn`.
    fn block(&self, packet: &Header, isn: Seq, epoch: u64, hash: &impl Fn([u64; 3]) -> u64) -> u64 {
        let [client, here] = self.ends(packet, isn.0 / BLOCK);
        hash([client, here, epoch])
    }

    /// The ends of a connection, and a number of its.
    fn ends(&self, packet: &Header, number: u16) -> [u64; 2] {
        let client = (self.mac << 16) | u64::from(packet.src);
        let here =
            (u64::from(self.ifindex) << 32) | (u64::from(packet.dst) << 16) | u64::from(number);
        [client, here]
    }

    /// The place of `packet` behind a [`cookie`](Self::cookie) of this or the last epoch that it
    /// acknowledges. `None` if there was no such cookie.
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
        // The first packet has the number behind the SYN's; a probe has an earlier one.
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

    /// The mark of the cookie that the first packet `packet` of a client acknowledges, whose SYN
    /// was `syn`: a place in a table of [`MARKS`], and a tag that is not 0. A cookie that has made
    /// a connection leaves its mark, and makes no other one.
    pub fn mark(
        &self,
        syn: &Header,
        packet: &Header,
        hash: impl Fn([u64; 3]) -> u64,
    ) -> (usize, u32) {
        let [client, here] = self.ends(packet, syn.seq.0);
        let bits = hash([client, here, MARK | u64::from(packet.ack.0)]);
        (bits as usize % MARKS, (bits >> 32) as u32 | 1)
    }
}

/// The cookie for a first number of the block whose hash this is. Each has bits of its own.
fn one_of(hash: u64, isn: Seq) -> Seq {
    let factor = u64::from(isn.0 % BLOCK) * 2 + 1;
    Seq((hash.wrapping_mul(factor) >> 48) as u16)
}

/// The SYN|ACK with the number `isn` that answers `syn`.
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

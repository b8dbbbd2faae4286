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
//! What the SYN told is forgotten. So only a client that speaks this version gets a cookie, whose window
//! is no larger than [`MOST_WINDOW`]: of a connection that a cookie made that much is known.
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

/// For how long at most an answer to a cookie is taken.
pub const LIFE: Nanos = 2 << EPOCH;

/// The largest window of a client that gets a cookie.
pub const MOST_WINDOW: u16 = 256;

/// Whether the sender of a SYN with these options may be answered by a cookie.
pub fn suits(options: &Options) -> bool {
    let window = options.window.map(|window| window.burst_length);
    options.version.is_some() && window.is_some_and(|window| window <= MOST_WINDOW)
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
        let client = (self.mac << 16) | u64::from(syn.src);
        let here =
            (u64::from(self.ifindex) << 32) | (u64::from(syn.dst) << 16) | u64::from(syn.seq.0);
        Seq(hash([client, here, epoch]) as u16)
    }

    /// The SYN whose answer `packet` acknowledges, if that was a [`cookie`](Self::cookie)
    /// of this or the last epoch.
    pub fn answered(
        &self,
        packet: &Header,
        now: Nanos,
        hash: impl Fn([u64; 3]) -> u64,
    ) -> Option<Header> {
        if !packet.has(flags::ACK) || packet.has(flags::SYN | flags::RST) || packet.is_malformed() {
            return None;
        }
        let epoch = now >> EPOCH;
        // The first packet has the number behind the SYN's; a probe has an earlier one.
        let probe = packet.len == 0 && packet.flags == flags::ACK;
        let behind = [1, 0].into_iter().take(if probe { 2 } else { 1 });
        behind
            .map(|steps| Header {
                src: packet.src,
                dst: packet.dst,
                len: 0,
                seq: packet.seq.sub(steps),
                ack: Seq(0),
                flags: flags::SYN,
            })
            .find(|syn| {
                [epoch, epoch.wrapping_sub(1)]
                    .into_iter()
                    .any(|epoch| self.number(syn, epoch, &hash).add(1) == packet.ack)
            })
    }
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

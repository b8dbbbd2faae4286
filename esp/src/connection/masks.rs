// SPDX-License-Identifier: GPL-2.0

//! The [masks](super::super::masks) of a connection's sums.

use super::super::masks::Wraps;
use super::super::state::State;
use super::super::wire::{flags, Header};
use super::{Connection, Handshake};

impl Connection {
    /// The SYN or SYN|ACK tells the random number `nonce`: to be called before it leaves, and
    /// before [`take_options`](Self::take_options).
    pub fn use_nonce(&mut self, nonce: u32) {
        self.masks.use_nonce(nonce);
    }

    /// The nonce that a SYN or SYN|ACK which is sent now tells. A SYN|ACK tells one if the SYN did.
    pub fn nonce(&self) -> Option<u32> {
        let tells = self.state == State::SynSent || self.masks.are_enabled();
        self.masks.own().filter(|_| tells)
    }

    /// Whether the sums of packets have masks: both sides have told a nonce.
    #[inline]
    pub fn has_masks(&self) -> bool {
        self.masks.are_enabled()
    }

    /// The mask of the sum of a packet, or of each packet of a run, that
    /// [`poll_transmit`](Self::poll_transmit) or [`abort`](Self::abort) has just given out.
    #[inline]
    pub fn mask(&self, header: &Header) -> u32 {
        self.masks.tx_mask(header, || Wraps {
            seq: self.sender.wraps_at(header.seq),
            ack: self.receiver.wraps_at(header.ack),
        })
    }

    /// Whether a packet with `header` whose sum has this `mask` may be one of the connection.
    /// Others have failed their sum. To be called before [`on_packets`](Self::on_packets), of each
    /// packet with a sum.
    #[inline]
    pub fn takes_mask(&mut self, header: &Header, mask: u32) -> bool {
        if header.is_stateless_reset() {
            return self.was_sent_with(header, mask);
        }
        let expected = self.masks.rx_mask(header, || Wraps {
            seq: self.receiver.wraps_at(header.seq),
            ack: self.sender.wraps_at(header.ack),
        });
        mask == expected || self.takes_other_mask(header, mask)
    }

    /// Whether a packet was sent with this `mask` that the RST `header` answers: a SYN, one with
    /// the number that it acknowledges, or one with the number before, which the packet takes.
    #[cold]
    fn was_sent_with(&self, header: &Header, mask: u32) -> bool {
        let sent = |seq| {
            self.masks.of_sent(Wraps {
                seq: self.sender.wraps_at(seq),
                ack: self.receiver.wraps_at(header.seq),
            })
        };
        let syn = mask == 0 && !self.sender.is_open();
        syn || mask == sent(header.ack) || mask == sent(header.ack.sub(1))
    }

    #[cold]
    fn takes_other_mask(&mut self, header: &Header, mask: u32) -> bool {
        if self.state == State::SynSent {
            // Of a connection that our side has forgotten, with its nonce: nothing is taken from
            // the packet, and it is answered with RST.
            let answered = !header.has(flags::SYN | flags::RST);
            if answered {
                self.masks.note_other(mask);
            }
            return answered;
        }
        // A client that a cookie has answered before our SYN|ACK knows no nonce of ours.
        let forgotten = mask == 0
            && !self.sender.is_open()
            && self.handshake == Handshake::Usual
            && header.has(flags::ACK)
            && !header.has(flags::SYN | flags::RST)
            && self.sender.is_acceptable(header.ack);
        if forgotten {
            self.masks.end();
        }
        forgotten
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The [masks](super::super::masks) of a connection's checksums.

use super::super::masks::Wraps;
use super::super::state::State;
use super::super::wire::{flags, Header};
use super::{Connection, Handshake, PendingReset};

impl Connection {
    /// Sets the random nonce of our SYN or SYN|ACK. Call this before that packet is sent, and
    /// before [`take_options`](Self::take_options).
    pub fn use_nonce(&mut self, nonce: u32) {
        self.masks.use_nonce(nonce);
    }

    /// Returns the nonce to send in a SYN or SYN|ACK; `None` if the packet has no nonce option. A
    /// SYN|ACK has this option if the SYN had it.
    pub fn nonce(&self) -> Option<u32> {
        let tells = self.state == State::SynSent || self.masks.are_enabled();
        self.masks.own().filter(|_| tells)
    }

    /// Notes that this end sends checksums from now on, and drops packets without.
    #[cold]
    pub fn use_checksums(&mut self) {
        self.has_checksums = true;
        self.note_masks();
    }

    /// Gives the RST that is due a checksum, if the packet that has just arrived belongs to a
    /// connection that our side has forgotten. Call this after each packet with a checksum.
    #[inline]
    pub fn sum_challenged(&mut self) {
        if let PendingReset::Challenged(header) = &mut self.reset {
            *header = header.with_checksum(true);
        }
    }

    /// Returns whether a forger would have to guess the masks of checksums.
    pub(super) fn is_masked(&self) -> bool {
        self.has_checksums && self.masks.are_enabled()
    }

    /// Tells both halves whether a forger would have to guess the masks of checksums. If not, no
    /// window is larger than 255 packets, and requests may not name packets.
    pub(super) fn note_masks(&mut self) {
        let safe = self.is_masked();
        self.sender.set_safe(safe);
        self.receiver.set_safe(safe);
        self.negotiate_selective();
    }

    /// Returns whether checksums have masks, because both sides sent a nonce.
    #[inline]
    pub fn has_masks(&self) -> bool {
        self.masks.are_enabled()
    }

    /// Returns the checksum mask of the packet, or of each packet of the run, that
    /// [`poll_transmit`](Self::poll_transmit) or [`abort`](Self::abort) has just returned.
    #[inline]
    pub fn mask(&self, header: &Header) -> u32 {
        self.masks.tx_mask(header, || Wraps {
            seq: self.sender.wraps_at(header.seq),
            ack: self.receiver.wraps_at(header.ack),
        })
    }

    /// Returns whether a packet with `header` and this checksum `mask` may belong to the
    /// connection. If not, the packet's checksum is wrong. Call this before
    /// [`on_packets`](Self::on_packets), for each packet with a checksum.
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

    /// Returns whether the RST `header` may answer a packet that we sent with this `mask`. Such a
    /// packet is a SYN, an empty packet whose number the RST acknowledges, or a packet that takes
    /// the number before the acknowledged one.
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
            // The packet belongs to a connection that our side has forgotten, together with its
            // nonce. The packet is answered with RST and otherwise ignored.
            let answered = !header.has(flags::SYN | flags::RST);
            if answered {
                self.masks.note_other(mask);
            }
            return answered;
        }
        // A client that got a cookie before our SYN|ACK does not know our nonce, so its packets
        // have the mask 0.
        let forgotten = mask == 0
            && !self.sender.is_open()
            && self.handshake == Handshake::Usual
            && header.has(flags::ACK)
            && !header.has(flags::SYN | flags::RST)
            && self.sender.is_acceptable(header.ack);
        if forgotten {
            self.masks.end();
            self.note_masks();
        }
        forgotten
    }
}

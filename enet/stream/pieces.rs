// SPDX-License-Identifier: GPL-2.0

//! Queues the pieces of records for the reader.

use super::sock::LockedEsp;
use crate::{
    esp::records::Part,
    net::{allocation::Context, skb::Skb},
    skb_cb::{Piece, Unread},
};

/// A part of a record is copied if its buffer takes more memory than this multiple of the part's
/// length. This limits the memory that a record of a given length can take.
const MOST_WASTE: u32 = 4;

/// Capacity of the buffer for copied parts, in bytes.
const COLLECTED: usize = 2_048;

/// Queues a part of a record, `bytes` of `skb`. If the record ends with it, wakes the reader.
pub(super) fn queue_part(esp: &mut LockedEsp<'_>, skb: Skb, bytes: Unread, part: Part) {
    let sock = esp.sock();
    let ends = matches!(part, Part::Last(_));
    queue_piece(esp, skb, Piece { bytes, ends });
    if let Part::Last(length) = part {
        sock.shared().unread.add(length as usize);
        sock.data_ready();
    }
}

/// Queues a piece of a record. Queues a copy if the piece's buffer takes much more memory than the
/// piece has bytes.
fn queue_piece(esp: &mut LockedEsp<'_>, mut skb: Skb, piece: Piece) {
    let Piece { bytes, ends } = piece;
    let (start, len) = (bytes.start as usize, bytes.len());
    if skb.truesize() > MOST_WASTE.saturating_mul(len as u32) {
        if let Some(last) = esp.receive_queue().last_mut() {
            let Piece {
                bytes: there,
                ends: ended,
            } = last.note();
            let fits = !ended && there.end as usize == last.len();
            if fits && last.put_copy(&skb, start, len) {
                let end = last.len() as u32;
                let bytes = Unread { end, ..there };
                last.set_note(Piece { bytes, ends });
                return skb.consume();
            }
            if !ended {
                if let Some(mut copy) = collected(&skb, start, len) {
                    skb.consume();
                    let bytes = Unread {
                        start: 0,
                        end: len as u32,
                    };
                    copy.set_note(Piece { bytes, ends });
                    return esp.queue_received(copy);
                }
            }
        }
    }
    skb.set_note(piece);
    esp.queue_received(skb);
}

/// Copies a part of `skb` into a new buffer that also has room for later parts.
fn collected(skb: &Skb, start: usize, len: usize) -> Option<Skb> {
    let mut copy = Skb::alloc_slab(0, len.max(COLLECTED), Context::Softirq)?;
    copy.put_copy(skb, start, len).then_some(copy)
}

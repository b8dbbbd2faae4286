// SPDX-License-Identifier: GPL-2.0

//! Runs of ESP packets in one buffer. A run is segmented for devices that take single packets;
//! received packets are merged into runs.

use crate::{
    esp::{Header, HEADER_LEN},
    net::{
        gro::{Held, More},
        offload::{Packets, Part},
    },
};

/// The rules by which ESP packets are merged into runs, and runs are segmented.
pub(crate) struct Runs;

/// Writes `header` to `to`, which has the bytes of a header.
fn write(header: &Header, to: &mut [u8]) {
    for (to, byte) in to.iter_mut().zip(header.emit()) {
        *to = byte;
    }
}

impl Packets for Runs {
    const HEADER_LEN: usize = HEADER_LEN;
    // The length in bytes of the ports at the start of a header.
    const FLOW_LEN: usize = 4;

    #[inline]
    fn has_checksum(header: &[u8]) -> bool {
        Header::parse(header).is_some_and(|header| header.has_checksum())
    }

    fn cut(header: &mut [u8], part: Part) {
        if let Some(whole) = Header::parse(header) {
            write(&whole.of_run(part.index, part.len, part.last), header);
        }
    }

    fn begins(header: &[u8], len: usize) -> bool {
        Header::parse(header).is_some_and(|header| header.begins_run(len))
    }

    fn join(whole: &mut [u8], header: &[u8], held: Held, len: usize) -> Option<More> {
        let first = Header::parse(whole)?;
        let next = Header::parse(header)?;
        let all = first.joined(held.count, held.size, &next, len)?;
        write(&all, whole);
        // A run ends with the last packet of a transmission, or with a packet that is not full.
        let may = all.begins_run(all.len.into()) && next.len == held.size;
        Some(if may { More::May } else { More::MayNot })
    }
}

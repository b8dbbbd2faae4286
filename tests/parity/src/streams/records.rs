// SPDX-License-Identifier: GPL-2.0-only

//! Compares how TCP and ESP keep records apart: after a call with `MSG_EOR`, the bytes of the next
//! call start a new packet.

use super::super::Family;
use crate::prelude::*;

behaviours! {
    stream stream_record_is_not_joined_by_the_next;
    stream stream_record_in_several_calls;
    stream stream_record_of_0_bytes;
}

const MORE: i32 = libc::MSG_MORE;
const EOR: i32 = libc::MSG_EOR;

/// The offset of `tcpi_data_segs_out` in `struct tcp_info` (`linux/tcp.h`).
const DATA_SEGS_OUT: usize = 156;

/// Returns how many data packets `socket` has sent so far. For ESP this is the number of all
/// packets. Both numbers are equal here, since a socket that only receives acknowledgements sends
/// nothing besides its data.
fn packets(side: &Side<'_>, socket: &Socket) -> anyhow::Result<u32> {
    match side.family {
        Family::Mapped if socket.counters(1).is_ok() => Ok(socket.counters(1)?[0]),
        Family::Inet | Family::Mapped => {
            let room = DATA_SEGS_OUT + 4;
            let info = socket.option(libc::IPPROTO_TCP, libc::TCP_INFO, room, room as i32)?;
            let field = info.get(DATA_SEGS_OUT..).and_then(<[u8]>::first_chunk);
            Ok(u32::from_ne_bytes(
                *field.context("a shorter struct tcp_info")?,
            ))
        }
        Family::Enet => Ok(socket.counters(1)?[0]),
    }
}

/// Returns the number of packets that carry the bytes of `calls`. All calls but the last have
/// `MSG_MORE`, so that their bytes share a packet where they may. Bytes are held back for a limited
/// time only, and a pause between two calls may be longer. So the function returns the smallest
/// number of several tries.
fn packets_of(side: &Side<'_>, port: u16, calls: &[(&[u8], i32)]) -> anyhow::Result<u32> {
    let (client, server) = side.stream(port)?;
    let length = calls.iter().map(|(bytes, _)| bytes.len()).sum();
    let mut least = u32::MAX;
    for _ in 0..10 {
        let before = packets(side, &client)?;
        for (bytes, flags) in calls {
            client.send(bytes, *flags)?;
        }
        acknowledged(&client)?;
        least = least.min(packets(side, &client)? - before);
        server.receive_exact(&mut vec![0; length])?;
    }
    Ok(least)
}

fn stream_record_is_not_joined_by_the_next(side: &Side<'_>, trace: &Trace) -> Outcome {
    let plain = packets_of(side, 7, &[(b"a", MORE), (b"b", 0)])?;
    trace.see("packets without a record", plain);
    let record = packets_of(side, 8, &[(b"a", MORE | EOR), (b"b", 0)])?;
    trace.see("packets with one", record);
    let last = packets_of(side, 9, &[(b"a", MORE), (b"b", EOR)])?;
    trace.see("packets with one at the end", last);
    Ok(())
}

fn stream_record_in_several_calls(side: &Side<'_>, trace: &Trace) -> Outcome {
    let calls: &[(&[u8], i32)] = &[
        (b"a", MORE),
        (b"b", MORE | EOR),
        (b"c", MORE),
        (b"d", MORE | EOR),
        (b"e", 0),
    ];
    trace.see("packets", packets_of(side, 7, calls)?);
    Ok(())
}

/// A call without bytes has no last packet that `MSG_EOR` could close.
fn stream_record_of_0_bytes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let calls: &[(&[u8], i32)] = &[(b"a", MORE), (b"", MORE | EOR), (b"b", 0)];
    trace.see("packets", packets_of(side, 7, calls)?);
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0

//! Channels: connections whose records are [messages](crate::esp::messages).
//!
//! A socket becomes a channel by `EP_SO_DOMAIN`, which names a descriptor. The regions of this
//! descriptor, its *domain*, are the memory to which puts on the channel go. The connections that a
//! listener accepts belong to the listener's domain. A domain ends with the descriptor that it was
//! made for.

use super::{
    domain::{place_at, Domain, Rest},
    pieces::queue_part,
    ring::count_as_read,
    sock::{parts, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    esp::{
        messages::{Place, Put, MESSAGE_LEN},
        records::Part,
        Outcome,
    },
    net::{
        allocation::Context,
        family::with_descriptor,
        options::StructArgument,
        region::Regions,
        skb::Skb,
        sock::{Sock, TcpState},
    },
    skb_cb::Unread,
    statistics::Statistic,
};
use core::ptr;
use kernel::sync::Arc;

/// Number of the `ioctl` `EP_IOC_REGION`, in the range of protocols.
const REGION: u32 = 0;
/// Number of the `ioctl` `EP_IOC_END_REGION`.
const END_REGION: u32 = 1;

/// Serves `setsockopt` of `EP_SO_DOMAIN`: makes the socket a channel of the domain of `descriptor`.
/// If this is the socket's own descriptor, makes the domain, too.
///
/// # Errors
///
/// `EOPNOTSUPP` for streams, `EISCONN` if the socket has a connection or listens, `EBUSY` if it is
/// a channel already, `EINVAL` if `descriptor` has no domain, `EBADF` if its domain has ended, the
/// errors of [`with_descriptor`], and `ENOMEM`.
pub(super) fn join(sock: &Sock<Esp>, descriptor: i32) -> Result {
    if !sock.keeps_records() {
        return Err(EOPNOTSUPP);
    }
    let domain = with_descriptor::<Esp, _>(descriptor, |other| {
        if let Some(domain) = other.shared().domain() {
            let ended = domain.regions.has_ended();
            return if ended {
                Err(EBADF)
            } else {
                Ok(domain.share())
            };
        }
        if !ptr::eq(other, sock) {
            return Err(EINVAL);
        }
        Ok(Domain {
            regions: Arc::new(Regions::new()?, GFP_KERNEL_ACCOUNT)?,
            is_own: true,
        })
    })??;
    let _guard = sock.lock();
    if sock.tcp_state() != TcpState::Close as u8 {
        return Err(EISCONN);
    }
    if !sock.shared().set_domain(domain) {
        return Err(EBUSY);
    }
    Ok(())
}

/// Ends the domain that was made for the socket's descriptor, if there is one. May sleep.
pub(super) fn end(sock: &Sock<Esp>) {
    if let Some(domain) = sock.shared().domain().filter(|domain| domain.is_own) {
        domain.regions.end();
    }
}

/// Serves the `ioctl` calls of channels. A region is `[address, length, key]`.
///
/// # Errors
///
/// `ENOIOCTLCMD` for a stream, `EOPNOTSUPP` if the socket is no channel, and the errors of
/// [`Regions::add`] and [`Regions::remove`].
pub(super) fn exchange(sock: &Sock<Esp>, number: u32, argument: StructArgument) -> Result {
    if !sock.keeps_records() || !matches!(number, REGION | END_REGION) {
        return Err(ENOIOCTLCMD);
    }
    let domain = sock.shared().domain().ok_or(EOPNOTSUPP)?;
    let [address, length, key] = argument.read()?;
    if number == END_REGION {
        return domain.regions.remove(key);
    }
    let key = domain.regions.add(address, length)?;
    argument.write(&[address, length, key]).inspect_err(|_| {
        // The program cannot name the region. Nothing else ends one with this key.
        let _ = domain.regions.remove(key);
    })
}

/// Takes a part of a message: `bytes` of `skb`, which are next in order. Queues them, or copies
/// them to their region. Ends the connection if the message breaks the rules.
// Out of line, so that connections without channels only pay for a branch.
#[cold]
#[inline(never)]
pub(super) fn take(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    bytes: Unread,
    part: Part,
    outcome: &mut Outcome,
) {
    let Some((_, connection)) = parts(esp) else {
        return;
    };
    let begun = connection.receiving.message.take();
    let is_first = begun.is_none();
    let Some(Rest { place, header }) = begun.or_else(|| begin(&skb, bytes)) else {
        return refuse(esp, outcome);
    };
    let Place::Region(put) = place else {
        queue_part(esp, skb, bytes, part);
        return keep(esp, Rest { place, header }, part);
    };
    let data = bytes.after(if is_first { MESSAGE_LEN } else { 0 });
    if !copy(esp.sock(), put, &skb, data) {
        return refuse(esp, outcome);
    }
    let header = if is_first && put.tells {
        Some(header_of(skb, bytes))
    } else {
        let header = header.map(|header| header.with_time_of(&skb));
        skb.consume();
        header
    };
    if part == Part::More {
        let place = Place::Region(put.after(data.len()));
        keep(esp, Rest { place, header }, part);
    } else {
        complete(esp, header);
    }
    // The copied bytes take no room, though the packet did when the engine processed it.
    count_as_read(esp);
}

/// Reads the header of a message, which begins with `bytes` of `skb`. Returns `None` if the header
/// breaks the rules.
fn begin(skb: &Skb, bytes: Unread) -> Option<Rest> {
    if bytes.len() < MESSAGE_LEN {
        return None;
    }
    Some(Rest {
        place: place_at(skb, bytes.start as usize)?,
        header: None,
    })
}

/// Keeps the rest of a message for its next part, if there is one.
fn keep(esp: &mut LockedEsp<'_>, rest: Rest, part: Part) {
    if part != Part::More {
        return;
    }
    if let Some((_, connection)) = parts(esp) {
        connection.receiving.message = Some(rest);
    }
}

/// Ends the connection because a message breaks the rules.
fn refuse(esp: &mut LockedEsp<'_>, outcome: &mut Outcome) {
    if let Some((_, connection)) = parts(esp) {
        let statistics = connection.queue_entry.statistics();
        statistics.count(Statistic::EspInMessagesRefused);
        connection.engine.refuse_message(outcome);
    }
}

/// Copies `bytes` of `skb` to the place of a put. Returns `false` if the region does not exist or
/// is too short.
fn copy(sock: &Sock<Esp>, put: Put, skb: &Skb, bytes: Unread) -> bool {
    sock.shared().domain().is_some_and(|domain| {
        let (start, len) = (bytes.start as usize, bytes.len());
        (domain.regions).put(put.key, put.offset, skb, start, len)
    })
}

/// Returns a buffer to be queued for the program that has only the header of a message, which
/// begins with `bytes` of `skb`.
fn header_of(skb: Skb, bytes: Unread) -> Skb {
    let copied = Skb::alloc_slab(0, MESSAGE_LEN, Context::Softirq).and_then(|mut copy| {
        (copy.put_copy(&skb, bytes.start as usize, MESSAGE_LEN)).then_some(copy)
    });
    let (mut header, start) = match copied {
        Some(copy) => {
            let copy = copy.with_time_of(&skb);
            skb.consume();
            (copy, 0)
        }
        // Without memory, the header stays where it is.
        None => (skb, bytes.start),
    };
    header.set_note(Unread {
        start,
        end: start.saturating_add(MESSAGE_LEN as u32),
    });
    header
}

/// Completes a put, whose bytes are all in their place. Queues its header for the program, if there
/// is one.
fn complete(esp: &mut LockedEsp<'_>, header: Option<Skb>) {
    if let Some((_, connection)) = parts(esp) {
        let statistics = connection.queue_entry.statistics();
        statistics.count(Statistic::EspInPuts);
        if header.is_none() {
            // No reader will sleep or answer.
            connection.engine.flush_ack();
        }
    }
    if let Some(header) = header {
        let bytes = header.note();
        queue_part(esp, header, bytes, Part::Last(MESSAGE_LEN as u32));
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Makes ESP connections react to changes of their device and of their peer's limits.

use super::{
    outcome::{self, cut},
    output::{push, send_farewell},
    sock::{parts, Deferred, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    esp::{Options, Outcome, Seq},
    net::{
        device::Device,
        namespace::PerNet,
        rcu,
        sock::{Sock, SockRef, TcpState},
        softirq, timer,
    },
    pernet::NetState,
};
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Makes the connections through device `ifindex` examine the device again. Does not wait for tasks
/// that own a socket, since an access to user memory may delay them indefinitely. Such a task
/// examines the device when it releases the socket. Only a device with an ACK queue has had
/// connections, so the search is skipped for other devices.
pub(crate) fn tell(net_state: &NetState, ifindex: u32) {
    // A processor that reads the incremented number also sees the change of the device.
    let change = net_state
        .device_changes
        .fetch_add(1, AcqRel)
        .wrapping_add(1);
    if !net_state.esp_queues.has(ifindex) {
        return;
    }
    let is_new = |sock: &Sock<Esp>| {
        let shared = sock.shared();
        shared.peer().ifindex == ifindex && shared.told() != change
    };
    let tell = |sock: SockRef<Esp>| {
        softirq::disabled(|softirq| {
            let mut guard = sock.lock_bh(softirq);
            sock.shared().set_told(change);
            match guard.locked() {
                Some(mut esp) => look(&mut esp),
                None => sock.shared().defer(Deferred::Device),
            }
        });
    };
    // Repeats until a walk finds no connection that must still be informed, because a walk may miss
    // some. The loop ends because connections created from now on already count as informed: see
    // `begin`. A connection may be listed during the walk. Then either the walk finds it, or the
    // connection sees the new state when it examines the device. The fences that guarantee this are
    // in `Map`.
    while net_state.esp_connections.for_each_held(is_new, tell) {}
}

/// Marks a connection as informed of the changes so far. Call it after asking for the ACK queue,
/// and before the connection is listed and its device is examined.
pub(super) fn begin(sock: &Sock<Esp>) {
    let changes = NetState::of(sock.net()).device_changes.load(Acquire);
    sock.shared().set_told(changes);
}

/// Examines the connection's device after a change. The caller has disabled bottom halves.
pub(super) fn look(esp: &mut LockedEsp<'_>) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    if sock.tcp_state() == TcpState::Close as u8 {
        return;
    }
    let section = rcu::Read::enter();
    let device = Device::find(sock.net(), sock.shared().peer().ifindex, &section)
        .filter(|device| device.is_ethernet());
    let Some(device) = device else {
        outcome::fail_for_good(esp, ENETDOWN);
        return;
    };
    if connection.local != device.address() {
        readdressed(esp, device);
    } else {
        resized(esp, device.mtu());
    }
}

/// Handles a new address of the device. The peer knows this end by the old address, so the
/// connection ends for both.
fn readdressed(esp: &mut LockedEsp<'_>, device: &Device) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    if sock.tcp_state() == TcpState::SynSent as u8 {
        // The peer has not answered yet. It will know this end by the address of the next SYN,
        // which is the new address.
        connection.local = device.address();
        return;
    }
    if let Some(reset) = connection.engine.abort() {
        let (reset, mask) = connection.sums(reset);
        send_farewell(sock, device, connection.local, &reset, mask);
    }
    outcome::fail_for_good(esp, ECONNABORTED);
}

/// Handles a new MTU of the device, in bytes.
fn resized(esp: &mut LockedEsp<'_>, mtu: u32) {
    let Some((_, connection)) = parts(esp) else {
        return;
    };
    let oversized = connection.sending.resize(mtu);
    let now = timer::now();
    if refit(esp, oversized, now) {
        push(esp, now);
    }
}

/// Applies the options in the peer's answer to a SYN: the peer's limits, and whether the peer's
/// socket carries records. The caller must transmit afterwards.
#[cold]
#[inline(never)]
pub(super) fn answered(
    esp: &mut LockedEsp<'_>,
    options: &Options,
    outcome: &mut Outcome,
    now: u64,
) {
    if let Some((_, connection)) = parts(esp) {
        connection.engine.take_answer(options, outcome);
    }
    fit(esp, options, now);
}

/// Applies the peer's options. The caller must transmit afterwards.
#[cold]
#[inline(never)]
pub(super) fn limited(esp: &mut LockedEsp<'_>, options: &Options, now: u64) {
    if let Some((_, connection)) = parts(esp) {
        connection.engine.take_options(options);
    }
    fit(esp, options, now);
}

/// Fits the packets to the peer's limit.
fn fit(esp: &mut LockedEsp<'_>, options: &Options, now: u64) {
    let Some((_, connection)) = parts(esp) else {
        return;
    };
    if let Some(payload) = options.largest_payload {
        let oversized = connection.sending.limit(payload);
        connection.receiving.begin(connection.sending.mss());
        refit(esp, oversized, now);
    }
}

/// Adds a checksum to each later packet. The caller must transmit afterwards.
#[cold]
#[inline(never)]
pub(crate) fn sum(esp: &mut LockedEsp<'_>, now: u64) {
    if let Some((_, connection)) = parts(esp) {
        let oversized = connection.sending.sum();
        connection.engine.use_checksums();
        refit(esp, oversized, now);
    }
}

/// Handles a new packet size. From `oversized` on, queued packets may be too large. Returns whether
/// there may be something new to transmit.
fn refit(esp: &mut LockedEsp<'_>, oversized: Option<Seq>, now: u64) -> bool {
    let Some((_, connection)) = parts(esp) else {
        return false;
    };
    connection.receiving.resize(connection.sending.mss());
    let Some(from) = oversized.filter(|_| !connection.engine.is_paused()) else {
        return false;
    };
    if connection.engine.is_unsent(from) {
        cut(esp, from);
    } else {
        connection.engine.pause(now);
    }
    true
}

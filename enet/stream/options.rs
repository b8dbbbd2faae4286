// SPDX-License-Identifier: GPL-2.0

//! Socket options of ESP, level `SOL_EP`.

use super::{
    channel, outcome,
    output::push,
    ring,
    sock::{tie, Esp},
};
use crate::net::errno::prelude::*;
use crate::{
    device::mtu,
    esp,
    net::{
        namespace::PerNet,
        options::{OptionBuffer, OptionValue},
        sock::{Sock, TcpState},
        softirq, timer,
    },
    pernet::NetState,
    sysctl::USER_TIMEOUT,
    uapi::{EP_SO_DOMAIN, EP_SO_RECEIVE_RING, EP_SO_ZEROCOPY},
};

const ESP_SO_MTU: i32 = 1;
const ESP_SO_STATS: i32 = 2;
const ESP_SO_USER_TIMEOUT: i32 = 3;
const ESP_SO_CHECKSUM: i32 = 4;

/// Serves `getsockopt`.
pub(super) fn get(sock: &Sock<Esp>, name: i32, value: OptionBuffer) -> Result {
    match name {
        ESP_SO_MTU => value.write_u32(payload(sock)?),
        ESP_SO_STATS => value.write_numbers(statistics(sock)),
        ESP_SO_USER_TIMEOUT => {
            let millis = sock.lock().locked().state.chosen.user_timeout;
            value.write_u32(millis)
        }
        ESP_SO_CHECKSUM => value.write_u32(has_checksum(sock).into()),
        EP_SO_ZEROCOPY => value.write_u32(sock.sends_in_place().into()),
        EP_SO_RECEIVE_RING => value.write_u32(ring::size(sock)),
        EP_SO_DOMAIN => value.write_u32(sock.shared().domain().is_some().into()),
        _ => Err(ENOPROTOOPT),
    }
}

/// Serves `setsockopt`.
pub(super) fn set(sock: &Sock<Esp>, name: i32, value: OptionValue) -> Result {
    match name {
        ESP_SO_USER_TIMEOUT => set_user_timeout(sock, value.read_u32()?),
        ESP_SO_CHECKSUM => set_checksum(sock, value.read_bool()?),
        EP_SO_ZEROCOPY if sock.keeps_records() => Err(EOPNOTSUPP),
        EP_SO_ZEROCOPY => {
            sock.set_sends_in_place(value.read_bool()?);
            Ok(())
        }
        EP_SO_RECEIVE_RING => ring::make(sock, value.read_u32()?),
        EP_SO_DOMAIN => channel::join(sock, value.read_u32()? as i32),
        _ => Err(ENOPROTOOPT),
    }
}

/// Returns `ESP_SO_MTU`: the payload bytes of a packet.
fn payload(sock: &Sock<Esp>) -> Result<u32> {
    let mtu = mtu(sock.net(), tie(sock))?;
    let mut guard = sock.lock();
    Ok(match guard.locked().state.connection() {
        Some(connection) => connection.sending.payload_with(mtu),
        None => esp::mss(mtu),
    })
}

/// Returns `ESP_SO_STATS`.
fn statistics(sock: &Sock<Esp>) -> [u32; 8] {
    let mut guard = sock.lock();
    let connection = guard.locked().state.connection();
    let stats = connection.map(|c| c.engine.stats).unwrap_or_default();
    drop(guard);
    let backlog_drops = sock.shared().backlog_drops.get();
    [
        stats.pkt_tx,
        stats.pkt_rtx,
        stats.tx_err,
        stats.pkt_rx,
        stats.pkt_rx_oos,
        stats.pkt_rx_drop.wrapping_add(backlog_drops),
        stats.seq_lost,
        stats.arq_tx,
    ]
}

/// Returns `ESP_SO_CHECKSUM`: whether the ends of an open connection agreed on checksums, or
/// whether the next connection asks for them.
fn has_checksum(sock: &Sock<Esp>) -> bool {
    let mut guard = sock.lock();
    let esp = guard.locked();
    let chosen = esp.state.chosen;
    match esp.state.connection() {
        Some(connection) => connection.sending.has_checksum(),
        None => chosen.sums(&NetState::of(sock.net()).sysctl),
    }
}

/// Sets `ESP_SO_USER_TIMEOUT`.
fn set_user_timeout(sock: &Sock<Esp>, millis: u32) -> Result {
    if millis != 0 && !USER_TIMEOUT.contains(&millis) {
        return Err(EINVAL);
    }
    apply_user_timeout(sock, millis);
    Ok(())
}

/// Sets `ESP_SO_USER_TIMEOUT` for a mapped socket. The program may ask for any time, and gets the
/// nearest valid one.
pub(crate) fn adopt_user_timeout(sock: &Sock<Esp>, millis: u32) {
    let millis = match millis {
        0 => 0,
        _ => millis.clamp(*USER_TIMEOUT.start(), *USER_TIMEOUT.end()),
    };
    apply_user_timeout(sock, millis);
}

/// Sets `TCP_NOTSENT_LOWAT`, and wakes the writers that the new limit admits.
pub(crate) fn adopt_unsent_limit(sock: &Sock<Esp>, bytes: u32) {
    let mut guard = sock.lock();
    let mut esp = guard.locked();
    sock.shared().unsent_limit.set(bytes);
    outcome::wake_writers(&mut esp);
}

fn apply_user_timeout(sock: &Sock<Esp>, millis: u32) {
    let mut guard = sock.lock();
    let mut esp = guard.locked();
    if esp.state.chosen.user_timeout == millis {
        return;
    }
    esp.state.chosen.user_timeout = millis;
    if let Some(connection) = esp.state.connection() {
        let config = NetState::of(sock.net()).sysctl.config();
        connection.engine.set_user_timeout(millis, config);
        // With the new timeout, the timer may be due earlier.
        softirq::disabled(|_| push(&mut esp, timer::now()));
    }
}

/// Sets `ESP_SO_CHECKSUM`: whether the next connection asks for checksums. The ends of an open
/// connection have already agreed.
fn set_checksum(sock: &Sock<Esp>, on: bool) -> Result {
    let mut guard = sock.lock();
    let esp = guard.locked();
    let state = sock.tcp_state();
    if state != TcpState::Close as u8 && state != TcpState::Listen as u8 {
        return Err(EISCONN);
    }
    esp.state.chosen.checksum = Some(on);
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Requests and reads the kernel's reports on the times at which data were sent
//! (`SO_TIMESTAMPING`).

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::SOL_SOCKET;

use crate::control::{receive_with_control, Control};
use crate::prelude::*;

/// `SOF_TIMESTAMPING_TX_HARDWARE`: report when the device has sent the packet.
pub const TX_HARDWARE: u32 = 1 << 0;
/// `SOF_TIMESTAMPING_TX_SOFTWARE`: report when the driver gets the packet.
pub const TX_SOFTWARE: u32 = 1 << 1;
/// `SOF_TIMESTAMPING_SOFTWARE`: reports have the time of the kernel.
pub const SOFTWARE: u32 = 1 << 4;
/// `SOF_TIMESTAMPING_RAW_HARDWARE`: reports have the time of the device's clock.
pub const RAW_HARDWARE: u32 = 1 << 6;
/// `SOF_TIMESTAMPING_OPT_ID`: reports have a number.
pub const OPT_ID: u32 = 1 << 7;
/// `SOF_TIMESTAMPING_TX_SCHED`: report when the packet enters the queueing discipline.
pub const TX_SCHED: u32 = 1 << 8;
/// `SOF_TIMESTAMPING_TX_ACK`: report when the peer has acknowledged all bytes.
pub const TX_ACK: u32 = 1 << 9;
/// `SOF_TIMESTAMPING_OPT_CMSG`: reports have control messages.
pub const OPT_CMSG: u32 = 1 << 10;
/// `SOF_TIMESTAMPING_OPT_TSONLY`: reports come without the packet.
pub const OPT_TSONLY: u32 = 1 << 11;
/// `SOF_TIMESTAMPING_OPT_STATS`: reports have the connection's statistics.
pub const OPT_STATS: u32 = 1 << 12;
/// `SOF_TIMESTAMPING_OPT_ID_TCP`: numbers count from the first byte that is not sent yet.
pub const OPT_ID_TCP: u32 = 1 << 16;

/// `SO_EE_ORIGIN_TIMESTAMPING`.
const ORIGIN: u8 = 4;
/// `EP_RECVERR`.
const EP_RECVERR: i32 = 3;

/// Sets `SO_TIMESTAMPING`.
///
/// # Errors
/// The call's errno.
pub fn set(socket: &Socket, flags: u32) -> std::io::Result<()> {
    socket.set_so(libc::SO_TIMESTAMPING, flags as i32)
}

/// A time stamp report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The event that the report is about: "sent", "scheduled" or "acknowledged".
    pub stage: &'static str,
    /// The number that tells which of the sent data the report is about.
    pub number: u32,
    /// For each of the three times of `struct scm_timestamping`, whether it is set and is recent.
    pub times: [bool; 3],
    /// Number of bytes of the sent packet that came with the report.
    pub length: usize,
    /// Number of bytes of the offender's address (`SO_EE_OFFENDER`), and whether any of them is not
    /// 0.
    pub offender: (usize, bool),
    /// `msg_flags` of the call that received the report.
    pub flags: i32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = if self.length > 0 { "with" } else { "without" };
        let Self {
            stage,
            number,
            times,
            flags,
            ..
        } = self;
        write!(
            f,
            "{stage} {number} at {times:?}, {data} data, flags {flags:#x}"
        )
    }
}

/// Returns the next report, or `None` if none comes within `time`.
///
/// # Errors
/// If the error queue has something else, or a malformed report.
pub fn report(socket: &Socket, time: Duration) -> Result<Option<Report>> {
    if socket.poll(0, time)? & libc::POLLERR == 0 {
        return Ok(None);
    }
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let (length, flags, control) = match receive_with_control(socket, flags, 512) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
        other => other?,
    };
    let kind = match socket.so(libc::SO_DOMAIN)? {
        AF_ENET => (SOL_EP, EP_RECVERR),
        libc::AF_INET6 => (libc::SOL_IPV6, libc::IPV6_RECVERR),
        _ => (libc::SOL_IP, libc::IP_RECVERR),
    };
    let [times, about] = &control[..] else {
        bail!("control messages {control:?}");
    };
    let kind_of = |control: &Control| (control.level, control.kind);
    let wanted = [(SOL_SOCKET, libc::SO_TIMESTAMPING), kind];
    same([kind_of(times), kind_of(about)], wanted, "control messages")?;
    // struct sock_extended_err: errno (4 bytes); origin, type, code and padding (1 byte each); info
    // and data (4 bytes each).
    let (about, offender) = about.data.split_first_chunk::<16>().context("too short")?;
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| about[at + i]));
    ensure!(
        word(0) == libc::ENOMSG as u32 && about[4] == ORIGIN && about[5..8] == [0; 3],
        "{about:?}"
    );
    let stages = ["sent", "scheduled", "acknowledged"];
    Ok(Some(Report {
        stage: stages.get(word(8) as usize).context("a stage")?,
        number: word(12),
        times: of_now(&times.data),
        length,
        offender: (offender.len(), offender.iter().any(|byte| *byte != 0)),
        flags,
    }))
}

/// Waits for the next report, and checks its stage and number.
///
/// # Errors
/// If the report differs, or none comes.
pub fn reports(socket: &Socket, stage: &str, number: u32) -> Outcome {
    let found = report(socket, patience())?.with_context(|| format!("no report of {number}"))?;
    same((found.stage, found.number), (stage, number), "a report")
}

fn of_now(data: &[u8]) -> [bool; 3] {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    [0, 16, 32].map(|at| {
        data.get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| i64::from_ne_bytes(*bytes).unsigned_abs())
            .is_some_and(|then| then.abs_diff(now.as_secs()) < 300)
    })
}

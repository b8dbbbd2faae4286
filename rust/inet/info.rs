// SPDX-License-Identifier: GPL-2.0

//! Answers `TCP_INFO` for the connection of a companion, which shares the descriptor of a TCP
//! socket.
//!
//! C header: [`include/uapi/linux/tcp.h`](srctree/include/uapi/linux/tcp.h)

use super::*;
use crate::net::sock::TcpState;

/// The information that programs get about a connection. The packet counters wrap around.
#[derive(Default)]
pub(crate) struct StreamInfo {
    /// The connection's [state](super::super::sock::TcpState).
    pub(crate) state: u8,
    /// Payload bytes of a full packet, the same in both directions.
    pub(crate) mss: u32,
    /// The device's MTU, in bytes.
    pub(crate) mtu: u32,
    /// The sender's window, in packets.
    pub(crate) window: u32,
    /// Number of packets in flight, that is, sent and not acknowledged.
    pub(crate) unacknowledged: u32,
    /// Queued payload bytes that were never sent.
    pub(crate) unsent: u32,
    /// The smoothed round-trip time in microseconds; 0 before the first measurement.
    pub(crate) round_trip: u32,
    /// The retransmission timeout, in microseconds.
    pub(crate) timeout: u32,
    /// Number of packets sent.
    pub(crate) sent: u32,
    /// Number of packets received.
    pub(crate) received: u32,
    /// Number of packets retransmitted.
    pub(crate) resent: u32,
}

impl StreamInfo {
    /// Returns the information about a connection that the peer has not answered.
    pub(super) fn of_attempt() -> Self {
        Self {
            state: TcpState::SynSent as u8,
            ..Self::default()
        }
    }

    /// Returns whether there is a connection that the peer has answered.
    pub(super) fn is_connected(&self) -> bool {
        const NOT: [u8; 4] = [
            0,
            TcpState::Close as u8,
            TcpState::SynSent as u8,
            TcpState::SynRecv as u8,
        ];
        !NOT.contains(&self.state)
    }

    /// Writes a `struct tcp_info`. Fields without an equivalent in ESP are 0.
    ///
    /// # Errors
    ///
    /// The errors of [`OptionBuffer::write`].
    pub(super) fn write(&self, value: OptionBuffer) -> Result {
        let mut info = mem::MaybeUninit::<bindings::tcp_info>::zeroed();
        // SAFETY: The structure consists of integers, so all-zero bytes are a valid value.
        let fields = unsafe { info.assume_init_mut() };
        fields.tcpi_state = self.state;
        fields.tcpi_rto = self.timeout;
        fields.tcpi_snd_mss = self.mss;
        fields.tcpi_rcv_mss = self.mss;
        fields.tcpi_advmss = self.mss;
        fields.tcpi_pmtu = self.mtu;
        fields.tcpi_snd_cwnd = self.window;
        fields.tcpi_unacked = self.unacknowledged;
        fields.tcpi_notsent_bytes = self.unsent;
        fields.tcpi_rtt = self.round_trip;
        fields.tcpi_segs_out = self.sent;
        fields.tcpi_segs_in = self.received;
        fields.tcpi_total_retrans = self.resent;
        // SAFETY: All bytes of `info`, including padding, were zeroed before the fields were
        // written.
        let bytes = unsafe {
            core::slice::from_raw_parts(
                info.as_ptr().cast::<u8>(),
                mem::size_of::<bindings::tcp_info>(),
            )
        };
        value.write(bytes)
    }
}

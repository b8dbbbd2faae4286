// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads how many packets a stream has sent, from the kernel's counters.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use sockaddr_en::EspStats;

/// How many packets one side of a connection has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Number of packets sent, including retransmitted ones.
    pub sent: u64,
    /// Number of packets retransmitted.
    pub resent: u64,
}

impl Packets {
    /// Returns how many packets were sent since `before`. The kernel's counters have 32 bits, and
    /// wrap.
    pub fn since(self, before: Self) -> Self {
        let since = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        Self {
            sent: since(self.sent, before.sent),
            resent: since(self.resent, before.resent),
        }
    }
}

/// The beginning of `struct tcp_info` (`linux/tcp.h`), up to the last field that is used.
#[repr(C)]
#[derive(Default)]
struct TcpInfo {
    _state_and_options: [u8; 8],
    _times_and_sizes: [u32; 23],
    total_retrans: u32,
    _rates_and_bytes: [u64; 4],
    segs_out: u32,
}

/// Returns how many packets a TCP connection has sent, if the kernel reports it.
pub(super) fn of_tcp(stream: &impl AsFd) -> io::Result<Option<Packets>> {
    let mut info = TcpInfo::default();
    let whole = size_of::<TcpInfo>() as libc::socklen_t;
    let mut length = whole;
    // SAFETY: The descriptor is open. The kernel writes at most `length` bytes, the size of `info`,
    // and every bit pattern is a valid `TcpInfo`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // An older kernel's structure ends before the counters.
    Ok((length == whole).then(|| Packets {
        sent: info.segs_out.into(),
        resent: info.total_retrans.into(),
    }))
}

impl From<EspStats> for Packets {
    fn from(stats: EspStats) -> Self {
        Self {
            sent: stats.pkt_tx.into(),
            resent: stats.pkt_rtx.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn tcp_counts_a_packet_for_each_message_that_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut two, _) = listener.accept().unwrap();
        let before = of_tcp(&one).unwrap().unwrap();
        for _ in 0..10 {
            one.write_all(b"?").unwrap();
            two.read_exact(&mut [0]).unwrap();
            two.write_all(b"!").unwrap();
            one.read_exact(&mut [0]).unwrap();
        }
        let sent = of_tcp(&one).unwrap().unwrap().since(before).sent;
        // `one` sent ten messages. TCP may also send packets that carry only an acknowledgement, so
        // this test allows up to 30 packets.
        assert!((10..=30).contains(&sent), "{sent}");
    }

    #[test]
    fn counters_may_wrap() {
        let before = Packets {
            sent: u64::from(u32::MAX),
            resent: 7,
        };
        let after = Packets { sent: 2, resent: 7 };
        assert_eq!(after.since(before), Packets { sent: 3, resent: 0 });
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Options of TCP and IP on a descriptor that a TCP socket and its companion share. The options are
//! set on the TCP socket. This file applies them to the companion, rejects those that only TCP
//! supports, and reports the values that belong to the companion's connection.
//!
//! C header: [`include/linux/tcp.h`](srctree/include/linux/tcp.h)

use super::*;

const SOL_IP: c_int = bindings::SOL_IP as c_int;

/// Returns whether an option would replace the descriptor's function table, and so also the module
/// that the descriptor holds.
pub(super) fn exchanges_table(level: c_int, name: c_int) -> bool {
    const TCP_ULP: (c_int, c_int) = (SOL_TCP, bindings::TCP_ULP as c_int);
    const IPV6_ADDRFORM: (c_int, c_int) = (
        bindings::SOL_IPV6 as c_int,
        bindings::IPV6_ADDRFORM as c_int,
    );
    (level, name) == TCP_ULP || (level, name) == IPV6_ADDRFORM
}

/// Returns the error for an option that is rejected while the companion has the connection or may
/// get it. Some of these options are supported only by TCP: see [`StreamCall::needs_tcp`]. The
/// others are accepted only by an unbound or closed socket, as TCP's is even if the companion has a
/// connection.
pub(super) fn refusal(level: c_int, name: c_int, is_v6: bool) -> Option<Error> {
    const SOL_IPV6: c_int = bindings::SOL_IPV6 as c_int;
    match (level, name as c_uint) {
        (SOL_SOCKET, bindings::SO_ATTACH_FILTER | bindings::SO_ATTACH_BPF) => Some(EOPNOTSUPP),
        (
            SOL_TCP,
            bindings::TCP_MD5SIG
            | bindings::TCP_MD5SIG_EXT
            | bindings::TCP_AO_ADD_KEY
            | bindings::TCP_MAXSEG
            | bindings::TCP_REPAIR,
        ) => Some(EOPNOTSUPP),
        (SOL_TCP, bindings::TCP_FASTOPEN | bindings::TCP_FASTOPEN_CONNECT) => Some(EINVAL),
        (SOL_IPV6, bindings::IPV6_V6ONLY) if is_v6 => Some(EINVAL),
        _ => None,
    }
}

/// Returns a function that gets an option's value from the companion's [`StreamInfo`]. TCP and IP
/// cannot report these values: TCP's socket has no connection while the companion has one. Returns
/// `None` for any other option.
pub(super) fn of_connection(
    level: c_int,
    name: c_int,
    is_v6: bool,
) -> Option<fn(&StreamInfo) -> u32> {
    const SOL_IPV6: c_int = bindings::SOL_IPV6 as c_int;
    match (level, name as c_uint) {
        (SOL_TCP, bindings::TCP_MAXSEG) => Some(|info| info.mss),
        (SOL_IP, bindings::IP_MTU) => Some(|info| info.mtu),
        (SOL_IPV6, bindings::IPV6_MTU) if is_v6 => Some(|info| info.mtu),
        (SOL_IPV6, bindings::IPV6_ADDRFORM) if is_v6 => Some(|_| AF_INET6.into()),
        _ => None,
    }
}

impl<M: Streams> StreamCall<'_, M> {
    /// Applies an option of TCP or IP, which TCP's socket has accepted, to the companion.
    pub(super) fn apply(&self, companion: &Companion<M>, level: c_int, name: c_int) {
        match (level, name as c_uint) {
            (SOL_TCP, bindings::TCP_USER_TIMEOUT) => self.adopt_user_timeout(companion),
            (SOL_TCP, bindings::TCP_NOTSENT_LOWAT) => self.adopt_unsent_limit(companion),
            // Setting `IP_TOS` also changes the priority of the socket's packets, which `adopt`
            // copies to the companion.
            (SOL_IP, bindings::IP_TOS) => self.adopt(companion),
            (SOL_TCP, bindings::TCP_CORK) if !self.is_corked() => {
                M::Protocol::no_more(&companion.sock);
            }
            // In TCP, setting `TCP_NODELAY` sends the held data even of a corked socket.
            (SOL_TCP, bindings::TCP_NODELAY) if self.is_nodelay() => {
                M::Protocol::no_more(&companion.sock);
            }
            _ => {}
        }
    }

    /// Returns whether `TCP_CORK` is set. Kernel code clears the option by a function that sends
    /// what TCP's socket has, and does not call the module. So the option has no effect on its
    /// sockets.
    #[inline]
    pub(super) fn is_corked(&self) -> bool {
        // SAFETY: The socket is TCP's, and the function makes a single load of a byte.
        unsafe { bindings::tcp_is_corked(self.sock().as_ptr()) && !self.is_kernels() }
    }

    fn is_nodelay(&self) -> bool {
        // SAFETY: The socket is TCP's, and the function makes a single load of a byte.
        unsafe { bindings::tcp_is_nodelay(self.sock().as_ptr()) }
    }

    /// Delivers the number of bytes that are left to read, if the user asked for it (`TCP_INQ`). As
    /// in TCP, the number is at least 1 once the peer has ended the stream, so that the user reads
    /// on.
    #[inline]
    pub(super) fn tell_unread(&self, companion: &Companion<M>, message: &mut Message<'_>) {
        // SAFETY: The socket is TCP's, and the function makes a single load of a bit.
        if !unsafe { bindings::tcp_tells_unread(self.sock().as_ptr()) } {
            return;
        }
        let unread = M::Protocol::ioctl(&companion.sock, uapi::SIOCINQ).unwrap_or(0);
        let is_over = companion.sock.shutdown() & uapi::RCV_SHUTDOWN != 0;
        let left = unread.max(is_over.into());
        message.put_u32(SOL_TCP, bindings::TCP_CM_INQ as c_int, left);
    }
}

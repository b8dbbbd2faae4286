// SPDX-License-Identifier: GPL-2.0

//! Decides whether a companion, a socket of the module's own protocol, may carry a TCP socket's
//! connection. Some mechanisms decide about TCP connections by their packets or by the calls on
//! their descriptors, and so do not see a companion's connections. Where such a mechanism is
//! active, TCP carries the connection, so the mechanism applies.
//!
//! This is checked when a connection opens, at both ends. A mechanism set up later applies to later
//! connections.
//!
//! C headers: [`include/net/xfrm.h`](srctree/include/net/xfrm.h),
//! [`include/net/sock_reuseport.h`](srctree/include/net/sock_reuseport.h),
//! [`include/net/l3mdev.h`](srctree/include/net/l3mdev.h)

use super::*;
use crate::net::{device::Device, rcu};

/// Why TCP has to carry a connection.
#[derive(Clone, Copy)]
pub(crate) enum Objection {
    /// An option that only TCP supports is set.
    Option,
    /// BPF programs that see IP packets, or calls on IP sockets, are attached to the control group.
    Group,
    /// The namespace or the socket has IPsec policies.
    Policy,
    /// Kernel code, such as a sockmap, has attached to the socket.
    User,
}

/// The direction of the packets that an IPsec policy applies to.
#[derive(Clone, Copy)]
enum Direction {
    In = bindings::XFRM_POLICY_IN as isize,
    Out = bindings::XFRM_POLICY_OUT as isize,
}

/// Returns whether an option is set that only TCP supports. These options are a key for the
/// signatures of segments (`TCP_MD5SIG`, TCP-AO), a segment size (`TCP_MAXSEG`), and repair
/// (`TCP_REPAIR`). A socket filter counts as well, since it expects TCP headers.
///
/// # Safety
///
/// The socket is TCP's.
unsafe fn has_option_of_tcp(sock: &RawSock) -> bool {
    // SAFETY: By the caller's promise, the socket is TCP's. The function makes single loads and
    // does not dereference the pointers that it loads.
    sock.has_filter() || unsafe { bindings::tcp_is_special(sock.as_ptr()) }
}

/// Returns whether IPsec may have a policy for the socket's packets in one direction. Any policy
/// counts, since the core can find the policy for an address only with an IP packet.
fn has_policy(sock: &RawSock, direction: Direction) -> bool {
    let direction = direction as c_int;
    // SAFETY: By the invariant of `RawSock`, the socket is valid and holds its namespace. Policies
    // are counted by `direction`. The functions make single loads and do not dereference the
    // pointers that they load.
    unsafe {
        bindings::sk_has_xfrm(sock.as_ptr(), direction)
            || bindings::net_has_xfrm(bindings::sock_net(sock.as_ptr()), direction)
    }
}

/// Returns the reason why a companion must not carry a connection that a TCP socket opens or
/// accepts, if any. Ignores IPsec policies for outgoing packets, because `connect` finds them with
/// the route. If `is_told`, a bell tells the attached kernel code of the companion's connections,
/// so that code is no reason.
///
/// # Safety
///
/// The socket is TCP's.
unsafe fn objection(sock: &RawSock, is_told: bool) -> Option<Objection> {
    // SAFETY: By the caller's promise, the socket is TCP's.
    if unsafe { has_option_of_tcp(sock) } {
        return Some(Objection::Option);
    }
    // SAFETY: The socket is valid, and the function makes a single load.
    if !is_told && unsafe { bindings::sk_has_user(sock.as_ptr()) } {
        return Some(Objection::User);
    }
    if sock.is_filtered_by_group() {
        return Some(Objection::Group);
    }
    has_policy(sock, Direction::In).then_some(Objection::Policy)
}

impl<M: Streams> StreamCall<'_, M> {
    /// Returns whether an option is set that only TCP supports.
    pub(crate) fn needs_tcp(&self) -> bool {
        // SAFETY: A descriptor's socket is TCP's.
        unsafe { has_option_of_tcp(self.sock()) }
    }

    /// Returns the reason why a companion must not carry a connection that the descriptor opens, if
    /// any.
    pub(crate) fn objection(&self) -> Option<Objection> {
        // SAFETY: A descriptor's socket is TCP's.
        unsafe { objection(self.sock(), false) }
    }
}

impl<P: Operations> Sock<P> {
    /// Returns whether this companion may accept a connection that opens on `device`, in place of
    /// the TCP listener in front of it. This requires that the listener itself could accept the
    /// connection, given its device, VRFs (`net.ipv4.tcp_l3mdev_accept`) and BPF programs. It also
    /// requires that nothing objects to a companion. IPsec policies count for both directions,
    /// since no route back has been looked up.
    ///
    /// A listener whose callbacks kernel code has replaced is left to TCP: see
    /// [`has_callbacks_in_front`](Self::has_callbacks_in_front).
    ///
    /// `bell` is the bell of a listener that kernel code has made. Its callback `sk_state_change`
    /// is called for the companion's connections.
    pub(crate) fn may_take_for_front(
        &self,
        bell: Option<&Bell<P>>,
        device: &Device,
        _section: &rcu::Read,
    ) -> bool {
        let Some(front) = self.tcp_front() else {
            return false;
        };
        // SAFETY: The socket in front of a companion is TCP's, and holds its namespace. The device
        // is valid, and the caller is in a read section.
        unsafe {
            !self.has_callbacks_in_front()
                && bindings::sk_accepts_device(front.as_ptr(), device.as_ptr())
                && !bindings::sk_group_has_program(front.as_ptr())
                && !bindings::net_looks_up_by_program(bindings::sock_net(front.as_ptr()))
                && objection(front, bell.is_some()).is_none()
                && !has_policy(front, Direction::Out)
        }
    }
}

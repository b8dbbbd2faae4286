// SPDX-License-Identifier: GPL-2.0

//! Whether a companion may carry a connection of a socket of TCP's. What decides about connections
//! of TCP's by their packets, or by their descriptors' calls, does not see those of a companion's:
//! where there is such a thing, TCP has the connection, and asks.
//!
//! That is looked at when a connection opens, at both ends. What is set up later holds for later
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
    /// An option that TCP alone honours.
    Option,
    /// Programs of the control group look at packets or calls of IP.
    Group,
    /// There are policies of IPsec, of the namespace or of the socket.
    Policy,
}

/// Which packets a policy of IPsec is for.
#[derive(Clone, Copy)]
enum Direction {
    In = bindings::XFRM_POLICY_IN as isize,
    Out = bindings::XFRM_POLICY_OUT as isize,
}

/// Whether an option is set that TCP alone honours: a filter, which expects headers of TCP; a key
/// that signs segments (`TCP_MD5SIG`, TCP-AO); the segments' size (`TCP_MAXSEG`); or repair
/// (`TCP_REPAIR`).
///
/// # Safety
///
/// The socket is TCP's.
unsafe fn has_option_of_tcp(sock: &RawSock) -> bool {
    // SAFETY: The caller's promise; single loads, of pointers that are not followed.
    sock.has_filter() || unsafe { bindings::tcp_is_special(sock.as_ptr()) }
}

/// Whether IPsec would look for a policy for packets of the socket in one direction. No function of
/// the core tells which policy selects an address without a packet of IP.
fn has_policy(sock: &RawSock, direction: Direction) -> bool {
    let direction = direction as c_int;
    // SAFETY: The socket is valid and holds its namespace, the direction is one that policies are
    // counted by; single loads, of pointers that are not followed.
    unsafe {
        bindings::sk_has_xfrm(sock.as_ptr(), direction)
            || bindings::net_has_xfrm(bindings::sock_net(sock.as_ptr()), direction)
    }
}

/// Why a companion must not carry a connection that a socket of TCP's opens or takes. Policies for
/// the packets that the socket sends are left out: `connect` asks the route, which knows them.
///
/// # Safety
///
/// The socket is TCP's.
unsafe fn objection(sock: &RawSock) -> Option<Objection> {
    // SAFETY: The caller's promise.
    if unsafe { has_option_of_tcp(sock) } {
        return Some(Objection::Option);
    }
    if sock.is_filtered_by_group() {
        return Some(Objection::Group);
    }
    has_policy(sock, Direction::In).then_some(Objection::Policy)
}

impl<M: Streams> StreamCall<'_, M> {
    /// Whether an option is set that TCP alone honours.
    pub(crate) fn needs_tcp(&self) -> bool {
        // SAFETY: A descriptor's socket is TCP's.
        unsafe { has_option_of_tcp(self.sock()) }
    }

    /// Why a companion must not carry a connection that the descriptor opens.
    pub(crate) fn objection(&self) -> Option<Objection> {
        // SAFETY: A descriptor's socket is TCP's.
        unsafe { objection(self.sock()) }
    }
}

impl<P: Operations> Sock<P> {
    /// Whether this companion may take a connection that opens by `device`, for the listener of
    /// TCP's in front of it: that one would get it, as far as devices, VRFs
    /// (`net.ipv4.tcp_l3mdev_accept`) and BPF programs choose, and nothing speaks against a
    /// companion. IPsec counts for both directions, since nobody has asked for a route back.
    pub(crate) fn may_take_for_front(&self, device: &Device, _section: &rcu::Read) -> bool {
        let Some(front) = self.tcp_front() else {
            return false;
        };
        // SAFETY: What is in front of a companion is TCP's, which holds its namespace. The device
        // is valid, and in a read section.
        unsafe {
            bindings::sk_hears_device(front.as_ptr(), device.as_ptr())
                && !bindings::sk_group_has_program(front.as_ptr())
                && !bindings::net_looks_up_by_program(bindings::sock_net(front.as_ptr()))
                && objection(front).is_none()
                && !has_policy(front, Direction::Out)
        }
    }
}

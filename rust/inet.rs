// SPDX-License-Identifier: GPL-2.0

//! Stream sockets of the Internet families under a protocol number of the module's own.
//!
//! The kernel makes such a socket as it makes one of TCP, and TCP's it then is: `struct sock` is TCP's in
//! every respect, and its connection may outlive this module. Only the descriptor's table of functions is
//! the module's, a copy of TCP's.
//!
//! C headers: [`include/net/protocol.h`](srctree/include/net/protocol.h),
//! [`include/net/inet_common.h`](srctree/include/net/inet_common.h)

use super::bindings;
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    mem, ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use kernel::ffi::{c_int, c_uint};

const AF_INET: c_int = bindings::AF_INET as c_int;
const AF_INET6: c_int = bindings::AF_INET6 as c_int;
const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;
const IPPROTO_TCP: u32 = bindings::IPPROTO_TCP;

/// What the kernel has for one of the two families, complete before it is registered.
struct Table {
    /// TCP's own.
    tcp: *mut bindings::proto,
    /// TCP's, but for `init`. Sockets are allocated by it, and have TCP's own from then on.
    proto: bindings::proto,
    /// TCP's own.
    tcp_ops: *const bindings::proto_ops,
    /// TCP's, but for the owner and `setsockopt`.
    ops: bindings::proto_ops,
    switch: bindings::inet_protosw,
}

/// A place for a [`Table`].
struct Place(UnsafeCell<Table>);

// SAFETY: A place is written by the one registration, before the kernel learns of it, and read after.
unsafe impl Sync for Place {}

impl Place {
    const fn new() -> Self {
        // SAFETY: Pointers, numbers and functions that may be missing: zeroes are values of each.
        Place(UnsafeCell::new(unsafe { mem::zeroed() }))
    }
}

static INET: Place = Place::new();
static INET6: Place = Place::new();
/// There is, or was, a registration.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The table of a family.
fn place(family: c_int) -> *mut Table {
    match family {
        AF_INET6 => INET6.0.get(),
        _ => INET.0.get(),
    }
}

/// Copies TCP's tables for `family`.
///
/// # Errors
///
/// `EAFNOSUPPORT` if the kernel has no such family, `ENOMEM` and the like without memory.
///
/// # Safety
///
/// For the one registration, before the kernel learns of the table.
unsafe fn fill(family: c_int, protocol: u16, module: &'static ThisModule) -> Result {
    let mut socket: *mut bindings::socket = ptr::null_mut();
    // SAFETY: The first namespace is always there; `socket` is written if the function succeeds.
    to_result(unsafe {
        bindings::sock_create_kern(
            &raw mut bindings::init_net,
            family,
            SOCK_STREAM as c_int,
            IPPROTO_TCP as c_int,
            &mut socket,
        )
    })?;
    let table = place(family);
    // SAFETY: The socket is ours until it is released, and TCP's tables, which it names, are static: TCP is
    // no module. They consist of numbers and pointers to what is static too. Nobody else looks at `table`,
    // by the caller's promise.
    unsafe {
        (*table).tcp = (*(*socket).sk).__sk_common.skc_prot;
        (*table).proto = ptr::read((*table).tcp);
        (*table).proto.init = Some(init);
        (*table).tcp_ops = (*socket).ops;
        (*table).ops = ptr::read((*table).tcp_ops);
        bindings::sock_release(socket);
        (*table).ops.owner = module.as_ptr().cast();
        (*table).ops.setsockopt = Some(setsockopt);
        let switch = &raw mut (*table).switch;
        (*switch).type_ = SOCK_STREAM as u16;
        (*switch).protocol = protocol;
        (*switch).prot = &raw mut (*table).proto;
        (*switch).ops = &raw const (*table).ops;
        (*switch).flags = bindings::INET_PROTOSW_ICSK as u8;
    }
    Ok(())
}

/// The protocol number, registered for both families; given back when dropped.
pub(crate) struct Registration {
    has_inet6: bool,
}

impl Registration {
    /// Registers `protocol` for streams of `AF_INET` and, if the kernel has it, `AF_INET6`, once.
    ///
    /// # Errors
    ///
    /// `EEXIST` if that was done before, or the number is the kernel's; those of making a socket.
    pub(crate) fn new(protocol: u16, module: &'static ThisModule) -> Result<Self> {
        if TAKEN.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        // SAFETY: This is the only registration there ever is.
        unsafe { fill(AF_INET, protocol, module)? };
        // SAFETY: As above.
        let has_inet6 = match unsafe { fill(AF_INET6, protocol, module) } {
            Ok(()) => true,
            Err(error) if error == EAFNOSUPPORT => false,
            Err(error) => return Err(error),
        };
        // SAFETY: The table is complete, and static.
        unsafe {
            let switch = &raw mut (*place(AF_INET)).switch;
            bindings::inet_register_protosw(switch);
            // The function only logs that it has refused.
            if (*switch).list.next.is_null() {
                return Err(EEXIST);
            }
        }
        let mut registration = Registration { has_inet6: false };
        if has_inet6 {
            // SAFETY: As above.
            let result =
                to_result(unsafe { bindings::inet6_register(&raw mut (*place(AF_INET6)).switch) });
            match result {
                Ok(()) => registration.has_inet6 = true,
                Err(error) if error == EAFNOSUPPORT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`. Both functions wait for those that look for a protocol. What exists is
        // TCP's, and has no descriptor any more, since that would hold the module.
        unsafe {
            if self.has_inet6 {
                bindings::inet6_unregister(&raw mut (*place(AF_INET6)).switch);
            }
            bindings::inet_unregister_protosw(&raw mut (*place(AF_INET)).switch);
        }
    }
}

/// Makes a new socket TCP's.
///
/// # Safety
///
/// Called by the core, with a new socket that was allocated by our copy of TCP's table.
unsafe extern "C" fn init(sk: *mut bindings::sock) -> c_int {
    // SAFETY: Nobody else has the socket yet. It was allocated as TCP's are, from the same memory and with
    // the same count of references to the module that owns the table, none; so it may be TCP's from here on,
    // and be freed as such. The tables are complete, since they are registered.
    unsafe {
        let tcp = (*place((*sk).__sk_common.skc_family.into())).tcp;
        (*sk).sk_protocol = IPPROTO_TCP as u16;
        (*sk).__sk_common.skc_prot = tcp;
        (*sk).sk_prot_creator = tcp;
        match (*tcp).init {
            Some(init) => init(sk),
            None => 0,
        }
    }
}

/// Whether an option would exchange the descriptor's table of functions for another one, and with it the
/// module that the descriptor holds.
fn exchanges_table(level: c_int, name: c_int) -> bool {
    const TCP_ULP: (c_int, c_int) = (bindings::SOL_TCP as c_int, bindings::TCP_ULP as c_int);
    const IPV6_ADDRFORM: (c_int, c_int) =
        (bindings::SOL_IPV6 as c_int, bindings::IPV6_ADDRFORM as c_int);
    (level, name) == TCP_ULP || (level, name) == IPV6_ADDRFORM
}

/// # Safety
///
/// Called by the core, in a `setsockopt` call on one of our sockets; `value` is the user's, or kernel memory
/// of `len` bytes.
unsafe extern "C" fn setsockopt(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: bindings::sockptr_t,
    len: c_uint,
) -> c_int {
    if exchanges_table(level, name) {
        // What a kernel without TLS says: libraries go on without it.
        return ENOENT.to_errno();
    }
    // SAFETY: The socket is TCP's, of the family that it was made for, and so is the function.
    unsafe {
        let tcp_ops = (*place((*(*socket).sk).__sk_common.skc_family.into())).tcp_ops;
        match (*tcp_ops).setsockopt {
            Some(call) => call(socket, level, name, value, len),
            None => EOPNOTSUPP.to_errno(),
        }
    }
}

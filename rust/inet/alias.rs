// SPDX-License-Identifier: GPL-2.0

//! A second family number for the streams of `AF_INET`, for users that choose a carrier by its
//! socket family, as DRBD does.
//!
//! A socket of the second family is a stream of `AF_INET` under the module's protocol number. Only
//! its addresses differ: they are a `struct sockaddr_in` with the second number as family. The
//! descriptor's table of calls has this number, too, which tells the calls how to read addresses.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h) (`struct net_proto_family`),
//! [`include/linux/in.h`](srctree/include/linux/in.h) (`struct sockaddr_in`)

use super::{
    tables::{AF_INET, IPPROTO_TCP, SOCK_STREAM},
    *,
};

/// Length of a `struct sockaddr_storage`, in bytes.
const LONGEST: usize = 128;

/// Room for a copy of an address, aligned like a `struct sockaddr_storage`.
#[repr(align(8))]
pub(super) struct Room([u8; LONGEST]);

impl Room {
    pub(super) const fn new() -> Self {
        Room([0; LONGEST])
    }
}

/// Returns the family that TCP reads in place of `given`, on a socket whose addresses have the
/// family `alias`.
fn for_tcp(given: u16, alias: u16) -> u16 {
    match given {
        _ if given == alias => AF_INET as u16,
        // On sockets of this family, an address of `AF_INET` is one of another family.
        _ if given == AF_INET as u16 => u16::MAX,
        _ => given,
    }
}

impl<M: Streams> StreamCall<'_, M> {
    /// Returns the number of the alias family, if the descriptor is of that family.
    pub(super) fn alias(&self) -> Option<u16> {
        let family = self.family();
        (family != self.sock().family()).then_some(family)
    }

    /// Returns the address `name` as TCP and the companion read it. Uses `room` for a copy if the
    /// address has another family in it.
    pub(super) fn read_name<'r>(&self, name: &'r [u8], room: &'r mut Room) -> &'r [u8] {
        self.copy_name(name, room).map_or(name, |copy| &*copy)
    }

    /// Copies the address `name` to `room`, with the family that TCP reads. Returns `None` if the
    /// address is as TCP reads it.
    pub(super) fn copy_name<'r>(&self, name: &[u8], room: &'r mut Room) -> Option<&'r mut [u8]> {
        let (alias, (family, rest)) = (self.alias()?, name.split_first_chunk::<2>()?);
        let family = for_tcp(u16::from_ne_bytes(*family), alias).to_ne_bytes();
        for (byte, from) in room.0.iter_mut().zip(family.iter().chain(rest)) {
            *byte = *from;
        }
        room.0.get_mut(..name.len().min(LONGEST))
    }

    /// Writes the alias family, if the descriptor is of that family, into an address of `AF_INET`.
    ///
    /// # Safety
    ///
    /// `address` is valid for writes of an aligned `sa_family_t`.
    pub(super) unsafe fn write_family(&self, address: *mut bindings::sockaddr) {
        if let Some(alias) = self.alias() {
            // SAFETY: By the caller's promise.
            unsafe { (*address).sa_family = alias };
        }
    }
}

/// A registered alias family. Dropping this value unregisters the family.
pub(crate) struct AliasRegistration<M: Streams> {
    _number: FamilyNumber,
    _streams: PhantomData<fn() -> M>,
}

impl<M: Streams> AliasRegistration<M> {
    /// Registers `family` as the alias family. Its sockets can be created once it is
    /// [opened](Self::open). The tables of `AF_INET` must be complete, which `_prepared` shows. May
    /// be called once.
    ///
    /// # Errors
    ///
    /// The errors of [`FamilyNumber::register`].
    pub(crate) fn new(
        family: u16,
        _prepared: &Prepared<M>,
        module: &'static ThisModule,
    ) -> Result<Self> {
        // A number for which there are tables already would be taken for that family. The kernel
        // itself may have no sockets of `AF_INET6`.
        if family == AF_INET as u16 || family == AF_INET6 {
            return Err(EEXIST);
        }
        // SAFETY: `_prepared` shows that the tables of `AF_INET` are complete. Nothing reads the
        // alias family's tables before the family is registered, and a second call of `fill_alias`
        // fails.
        unsafe { M::tables().fill_alias(family)? };
        Ok(AliasRegistration {
            // SAFETY: `create` fails, or moves a new socket to the descriptor.
            _number: unsafe { FamilyNumber::register(family, create::<M>, module)? },
            _streams: PhantomData,
        })
    }

    /// Lets users create sockets of the family. Must be called after [`Prepared::register`], since
    /// the sockets have the module's protocol number.
    pub(crate) fn open(&self) {
        M::tables().alias_open.store(true, Release);
    }
}

/// # Safety
///
/// Called by the core, with a valid namespace, and with a new `struct socket` whose `sk` is not set
/// yet.
unsafe extern "C" fn create<M: Streams>(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: c_int,
    kern: c_int,
) -> c_int {
    // SAFETY: The core made the descriptor for this call.
    if unsafe { (*socket).type_ } as u32 != SOCK_STREAM {
        return ESOCKTNOSUPPORT.to_errno();
    }
    if protocol != 0 && protocol != IPPROTO_TCP as c_int {
        return EPROTONOSUPPORT.to_errno();
    }
    // Rules of security modules and filters of system calls know `AF_INET`, and not this family. So
    // a program needs the capability to set up the network.
    // SAFETY: The running call holds the namespace.
    if kern == 0 && !unsafe { bindings::may_configure(net) } {
        return EPERM.to_errno();
    }
    let tables = M::tables();
    if !tables.alias_open.load(Acquire) {
        return EAFNOSUPPORT.to_errno();
    }
    let mut made: *mut bindings::socket = ptr::null_mut();
    // SAFETY: The running call holds the namespace. The function writes `made` if it succeeds.
    let result = unsafe {
        bindings::__sock_create(
            net,
            AF_INET,
            SOCK_STREAM as c_int,
            tables.of(AF_INET as u16).protocol().into(),
            &mut made,
            kern,
        )
    };
    if result != 0 {
        return result;
    }
    // SAFETY: Both descriptors are ours. TCP's socket moves from `made` to `socket`, and gets the
    // alias family's table, whose functions are for such sockets. Then `made` has no socket and is
    // released.
    unsafe {
        let sk = (*made).sk;
        (*made).sk = ptr::null_mut();
        bindings::sock_graft(sk, socket);
        bindings::socket_support_zc(socket);
        (*socket).ops = tables.calls(tables.alias_family(), false);
        bindings::sock_release(made);
    }
    0
}

// SPDX-License-Identifier: GPL-2.0

//! Registers a socket family and its protocols, and translates the calls through the kernel's
//! function tables into calls of safe functions.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    message::Message,
    options::{OptionBuffer, OptionValue, StructArgument},
    ring::Ring,
    skb::Skb,
    sock::{Protocol, RawSock, Sock, SockRef},
    softirq::Softirq,
    splice::Pipe,
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{self, ManuallyDrop},
    ptr, slice,
    sync::atomic::{AtomicBool, AtomicUsize},
};
use kernel::{
    ffi::{c_char, c_int, c_uint},
    mm::virt::VmaNew,
};

mod call;
mod descriptor;
mod ioctl;
mod protocol;
mod splicing;
pub(crate) use call::{Call, Closing, NewDescriptor, SocketState};
pub(crate) use descriptor::with_descriptor;
pub(super) use ioctl::answer_by;
use ioctl::{answer, ioctl};
pub(crate) use protocol::ProtocolRegistration;
pub(super) use splicing::splice_by;
use splicing::{splice_eof, splice_read};

/// The type of sockets whose messages keep their boundaries.
pub(crate) const SOCK_SEQPACKET: u32 = 5;

/// Length of `struct sockaddr_en`, in bytes.
pub(crate) const ADDRESS_LEN: usize = 16;

/// The end whose address a call asks for: the socket's own end of a connection, or the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The socket's own end, for `getsockname`.
    Own,
    /// The peer, for `getpeername`, which succeeds only if the connection is established.
    Peer,
    /// The peer, for `accept` and `SO_PEERNAME`, which also succeed if the connection has ended.
    Accepted,
}

/// A protocol's socket calls. A call that the protocol does not implement fails as unsupported.
pub(crate) trait Operations: Protocol {
    /// Called when the last reference to the descriptor was dropped.
    fn release(closing: Closing<'_, Self>);
    /// Serves `bind`.
    fn bind(call: &Call<'_, Self>, address: &[u8]) -> Result;
    /// Serves `connect`.
    fn connect(call: &Call<'_, Self>, address: &[u8], nonblocking: bool) -> Result;
    /// Serves `accept`: attaches a connection to `new`.
    fn accept(_call: &Call<'_, Self>, _new: NewDescriptor<'_>, _nonblocking: bool) -> Result {
        Err(EOPNOTSUPP)
    }
    /// Serves `getsockname`, `getpeername` and the address that `accept` returns.
    fn name(sock: &Sock<Self>, end: End) -> Result<[u8; ADDRESS_LEN]>;
    /// Returns the socket's readiness, `EPOLL*`. The task is already in the wait queue.
    fn poll(call: &Call<'_, Self>) -> u32;
    /// Returns the result of the `ioctl` `command`. For an unknown command, returns `ENOIOCTLCMD`,
    /// so that the core passes the command on to the device layer.
    fn ioctl(sock: &Sock<Self>, command: u32) -> Result<u32>;
    /// Serves an `ioctl` of the range that belongs to protocols, by number: its argument is a
    /// structure, which the call may change.
    fn exchange(_sock: &Sock<Self>, _number: u32, _argument: StructArgument) -> Result {
        Err(ENOIOCTLCMD)
    }
    /// Serves `listen`.
    fn listen(_call: &Call<'_, Self>, _backlog: u32) -> Result {
        Err(EOPNOTSUPP)
    }
    /// Serves `shutdown` of `RCV_SHUTDOWN | SEND_SHUTDOWN`.
    fn shutdown(call: &Call<'_, Self>, halves: u8) -> Result;
    /// Sets `SO_RCVLOWAT` to `mark` bytes, with the socket locked by the core.
    fn set_low_water(sock: &Sock<Self>, mark: i32) {
        sock.set_low_water(mark);
    }
    /// Serves `getsockopt` above the socket level.
    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result;
    /// Serves `setsockopt` above the socket level.
    fn set_option(_sock: &Sock<Self>, _level: i32, _name: i32, _value: OptionValue) -> Result {
        Err(ENOPROTOOPT)
    }
    /// Serves `sendmsg`. Returns the number of bytes sent.
    fn send(call: &Call<'_, Self>, message: &mut Message<'_>, len: usize) -> Result<usize>;
    /// Serves `recvmsg`. Returns the number of bytes received.
    fn receive(
        call: &Call<'_, Self>,
        message: &mut Message<'_>,
        len: usize,
        flags: c_int,
    ) -> Result<usize>;
    /// Whether the protocol implements [`splice`](Self::splice). If not, the core serves `splice`
    /// by a receive call into pages of its own.
    const SPLICES: bool = false;
    /// Serves `splice` out of the socket. Returns the number of bytes moved.
    fn splice(
        _call: &Call<'_, Self>,
        _pipe: &mut Pipe<'_>,
        _len: usize,
        _nonblocking: bool,
    ) -> Result<usize> {
        Err(EOPNOTSUPP)
    }
    /// Serves `sendmsg` on a socket of type `SOCK_SEQPACKET`. Returns the number of bytes sent.
    fn send_record(
        _call: &Call<'_, Self>,
        _message: &mut Message<'_>,
        _len: usize,
    ) -> Result<usize> {
        Err(EOPNOTSUPP)
    }
    /// Serves `recvmsg` on a socket of type `SOCK_SEQPACKET`. Returns the number of bytes received.
    fn receive_record(
        _call: &Call<'_, Self>,
        _message: &mut Message<'_>,
        _len: usize,
        _flags: c_int,
    ) -> Result<usize> {
        Err(EOPNOTSUPP)
    }
    /// Returns the ring that `mmap` maps, if the socket has one. Must not lock the socket: the task
    /// holds the lock of its address space, which is taken after the socket's where a send call
    /// faults.
    fn ring(_sock: &Sock<Self>) -> Option<&Ring> {
        None
    }
    /// Called when a `sendfile` or `splice` that has announced more data (`MSG_MORE`) reaches the
    /// end of its file.
    fn no_more(_sock: &Sock<Self>) {}
}

/// The function tables through which the kernel calls a protocol, and the count of its sockets.
pub(crate) struct Vtable<P: Protocol> {
    proto: UnsafeCell<bindings::proto>,
    /// A copy of `proto` with this module as owner, for the sockets that [hold](Self::pin) the
    /// module.
    pinning: UnsafeCell<bindings::proto>,
    ops: UnsafeCell<bindings::proto_ops>,
    /// The table of calls for sockets of type `SOCK_SEQPACKET`.
    record_ops: UnsafeCell<bindings::proto_ops>,
    /// Whether a registration has begun. Only the first registration may write the tables.
    taken: AtomicBool,
    /// Whether the tables are complete and registered.
    registered: AtomicBool,
    allocated: AtomicUsize,
    _protocol: PhantomData<fn() -> P>,
}

// SAFETY: The tables are written only before they are registered. The other fields are atomic.
unsafe impl<P: Protocol> Sync for Vtable<P> {}

/// Returns what the core expects of a call: 0, or a negative error number.
pub(super) fn code(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Returns what the core expects of a call that counts bytes: the count, or a negative error
/// number.
pub(super) fn count(result: Result<usize>) -> c_int {
    match result {
        Ok(n) => c_int::try_from(n).unwrap_or(c_int::MAX),
        Err(e) => e.to_errno(),
    }
}

impl<P: Operations> Vtable<P> {
    /// Creates the tables of a protocol that `/proc/net/protocols` lists as `name`.
    pub(crate) const fn new(name: &[u8]) -> Self {
        // SAFETY: All-zero bytes are a valid value: a table that leaves everything to the core's
        // defaults.
        let mut proto: bindings::proto = unsafe { mem::zeroed() };
        let mut i = 0;
        while i < name.len() {
            proto.name[i] = name[i] as c_char;
            i += 1;
        }
        proto.obj_size = mem::size_of::<Sock<P>>() as c_uint;
        proto.backlog_rcv = Some(backlog::<P>);
        proto.release_cb = Some(super::timer::release_cb::<P>);
        proto.ioctl = Some(answer::<P>);
        // `owner` stays null for a protocol whose sockets outlive their descriptors. A descriptor
        // holds the module by `ops.owner`. A connection without a descriptor only waits for its
        // peer's close. It must not block module exit, which ends the connection.
        let ops = Self::stream_ops();
        let record_ops = bindings::proto_ops {
            sendmsg: Some(send_record::<P>),
            recvmsg: Some(receive_record::<P>),
            splice_eof: None,
            splice_read: None,
            set_peek_off: None,
            set_rcvlowat: Some(leave_rcvlowat),
            ..ops
        };
        Vtable {
            proto: UnsafeCell::new(proto),
            pinning: UnsafeCell::new(proto),
            ops: UnsafeCell::new(ops),
            record_ops: UnsafeCell::new(record_ops),
            taken: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            allocated: AtomicUsize::new(0),
            _protocol: PhantomData,
        }
    }

    /// Returns whether `ops` is a table of this protocol's.
    fn has(&self, ops: *const bindings::proto_ops) -> bool {
        [self.ops.get(), self.record_ops.get()].contains(&ops.cast_mut())
    }

    /// Returns the table of calls for sockets of all types but `SOCK_SEQPACKET`.
    const fn stream_ops() -> bindings::proto_ops {
        // SAFETY: The table consists of numbers and pointers, so all-zero bytes are a valid value.
        let mut ops: bindings::proto_ops = unsafe { mem::zeroed() };
        ops.release = Some(release::<P>);
        ops.bind = Some(bind::<P>);
        ops.connect = Some(connect::<P>);
        ops.socketpair = Some(bindings::sock_no_socketpair);
        ops.accept = Some(accept::<P>);
        ops.getname = Some(getname::<P>);
        ops.poll = Some(poll::<P>);
        ops.ioctl = Some(ioctl::<P>);
        #[cfg(CONFIG_COMPAT)]
        {
            ops.compat_ioctl = Some(ioctl::<P>);
        }
        ops.gettstamp = Some(bindings::sock_gettstamp);
        ops.listen = Some(listen::<P>);
        ops.shutdown = Some(shutdown::<P>);
        ops.setsockopt = Some(setsockopt::<P>);
        ops.getsockopt = Some(getsockopt::<P>);
        ops.sendmsg = Some(sendmsg::<P>);
        ops.recvmsg = Some(recvmsg::<P>);
        ops.splice_eof = Some(splice_eof::<P>);
        if P::SPLICES {
            ops.splice_read = Some(splice_read::<P>);
        }
        ops.set_peek_off = Some(bindings::sk_set_peek_off);
        ops.mmap = Some(mmap::<P>);
        ops.set_rcvlowat = Some(set_rcvlowat::<P>);
        ops
    }
}

/// The descriptor (`struct socket`) for which a `socket` call creates a socket (`struct sock`).
pub(crate) struct NewSocket<'a> {
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    kern: c_int,
    _call: PhantomData<&'a ()>,
}

impl<'a> NewSocket<'a> {
    /// Returns the requested type, `SOCK_*`.
    pub(crate) fn kind(&self) -> u32 {
        // SAFETY: The core made the descriptor for this call.
        unsafe { (*self.socket).type_ as u32 }
    }

    /// Creates a socket of protocol `P` for the descriptor. No one else has a reference to the
    /// socket before the running `socket` call returns.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if there is no memory, `EINVAL` for a socket of the kernel itself.
    pub(crate) fn attach<P: Operations>(
        self,
        protocol: i32,
        shared: P::Shared,
    ) -> Result<&'a Sock<P>> {
        if self.kern != 0 {
            // The rest of the module relies on each socket holding its namespace. A kernel socket
            // does not hold it.
            return Err(EINVAL);
        }
        let vtable = P::vtable();
        let records = self.kind() == SOCK_SEQPACKET;
        let ops = if records {
            vtable.record_ops.get()
        } else {
            vtable.ops.get()
        };
        // SAFETY: The running call holds the namespace. `sk` is ours until `sock_init_data` ties it
        // to the descriptor. From then on the initial reference is the descriptor's. `set_up`
        // initialises the parts behind `sk` before any other call can reach the socket.
        unsafe {
            let sk = vtable.alloc(self.net, false)?;
            bindings::sock_init_data(self.socket, sk);
            set_up::<P>(sk, protocol, shared);
            if !records {
                bindings::socket_support_zc(self.socket);
            }
            (*self.socket).ops = ops;
            Ok(Sock::from_raw(sk))
        }
    }
}

/// Creates a socket of protocol `P` without a descriptor, in the namespace of `other`.
///
/// # Errors
///
/// `ENOBUFS` if there is no memory, `ENODEV` if the protocol is not registered.
pub(super) fn without_descriptor<P: Operations>(
    other: &RawSock,
    protocol: i32,
    shared: P::Shared,
) -> Result<SockRef<P>> {
    // SAFETY: `other` holds the namespace, or is the kernel's own, in the initial namespace, which
    // always exists. `sk` and its initial reference are ours. `set_up` initialises the parts behind
    // `sk` before anyone else has a reference.
    unsafe {
        // Lockdep tells the locks of the kernel's own sockets, which memory reclaim may take, from
        // those of programs' sockets.
        let kern = bindings::sk_is_kernels(other.as_ptr());
        let sk = P::vtable().alloc(bindings::sock_net(other.as_ptr()), kern)?;
        bindings::sock_init_data(ptr::null_mut(), sk);
        set_up::<P>(sk, protocol, shared);
        Ok(SockRef::from_raw(sk))
    }
}

/// Turns a `sock` that the core has allocated and initialised into a socket of `P`.
///
/// # Safety
///
/// No one else has a reference to `sk`, and the table of `P` has allocated it.
unsafe fn set_up<P: Operations>(sk: *mut bindings::sock, protocol: i32, shared: P::Shared) {
    // SAFETY: By the caller's promise, `sk` was allocated by the table of `P`, and no one else has
    // a reference to it.
    unsafe {
        (*sk).sk_protocol = protocol as u16;
        // These flags are for the buffers that the core allocates in send calls.
        (*sk).sk_allocation = bindings::ENET_GFP_TASK;
        (*sk).sk_backlog_rcv = Some(backlog::<P>);
        Sock::<P>::init(sk, shared);
    }
}

/// A socket family.
pub(crate) trait Family: 'static {
    /// Serves `socket(family, kind, protocol)`.
    fn create(new: NewSocket<'_>, protocol: i32) -> Result;
}

/// The core's function by which it makes a family's sockets.
type Create =
    unsafe extern "C" fn(*mut bindings::net, *mut bindings::socket, c_int, c_int) -> c_int;

/// The number of a family that the core knows. Dropping it unregisters the number.
pub(super) struct FamilyNumber(KBox<UnsafeCell<bindings::net_proto_family>>);

// SAFETY: The table is only read after registration.
unsafe impl Send for FamilyNumber {}
// SAFETY: The table is only read after registration.
unsafe impl Sync for FamilyNumber {}

impl FamilyNumber {
    /// Registers `family`, whose sockets `create` makes.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the number is another family's, `ENOBUFS` if the kernel has no such number,
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `create` is a function of `module`, and makes a socket for the descriptor that the core
    /// passes, or fails.
    pub(super) unsafe fn register(
        family: u16,
        create: Create,
        module: &'static ThisModule,
    ) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid value: a table without a function.
        let mut table: bindings::net_proto_family = unsafe { mem::zeroed() };
        table.family = c_int::from(family);
        table.create = Some(create);
        table.owner = module.as_ptr().cast();
        let table = KBox::new(UnsafeCell::new(table), GFP_KERNEL)?;
        // SAFETY: The table stays in its box until `drop` has unregistered it.
        to_result(unsafe { bindings::sock_register(table.get()) })?;
        Ok(FamilyNumber(table))
    }
}

impl Drop for FamilyNumber {
    fn drop(&mut self) {
        // A call of `create` that still runs holds the module. While the module is unloaded, there
        // is none. If the module fails to load, one reference is the loader's.
        // SAFETY: `register` has registered the family. The first function waits until no call
        // finds the family. The owner is this module. This is process context.
        unsafe {
            let table = self.0.get();
            bindings::sock_unregister((*table).family);
            while bindings::module_refcount((*table).owner) > 1 {
                bindings::schedule_timeout_uninterruptible(1);
            }
        }
    }
}

/// A registered family. Dropping it unregisters the family.
pub(crate) struct FamilyRegistration<F: Family> {
    _number: FamilyNumber,
    _family: PhantomData<F>,
}

impl<F: Family> FamilyRegistration<F> {
    /// Registers `family`.
    ///
    /// # Errors
    ///
    /// The errors of [`FamilyNumber::register`].
    pub(crate) fn new(family: u16, module: &'static ThisModule) -> Result<Self> {
        Ok(FamilyRegistration {
            // SAFETY: `create` makes its socket by `NewSocket`.
            _number: unsafe { FamilyNumber::register(family, create::<F>, module)? },
            _family: PhantomData,
        })
    }
}

/// # Safety
///
/// Called by the core, with a valid namespace, and with a new `struct socket` whose `sk` is not set
/// yet.
unsafe extern "C" fn create<F: Family>(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: c_int,
    kern: c_int,
) -> c_int {
    code(F::create(
        NewSocket {
            net,
            socket,
            kern,
            _call: PhantomData,
        },
        protocol,
    ))
}

/// Returns the protocol's socket behind a descriptor.
///
/// # Safety
///
/// `socket` is the `struct socket` of a running call, and its `sk` is a socket of `P`.
#[inline]
unsafe fn of<'a, P: Operations>(socket: *mut bindings::socket) -> &'a Sock<P> {
    // SAFETY: By the caller's promise, the running call holds the descriptor, which holds the
    // socket.
    unsafe { Sock::from_raw((*socket).sk) }
}

/// Returns an address that the core has copied from the user.
///
/// # Safety
///
/// `address` is valid for `len` bytes.
unsafe fn address<'a>(address: *const bindings::sockaddr_unsized, len: c_int) -> &'a [u8] {
    // SAFETY: By the caller's promise, `address` is valid for `len` bytes. A negative length
    // becomes 0.
    unsafe { slice::from_raw_parts(address.cast(), usize::try_from(len).unwrap_or(0)) }
}

/// # Safety
///
/// Called by the core with a locked socket of `P`, and with a buffer that the core gives away.
unsafe extern "C" fn backlog<P: Protocol>(
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: Bottom halves are enabled again below. They are disabled so that the protocol runs in
    // the same context as for a packet from the device.
    unsafe { bindings::local_bh_disable() };
    // SAFETY: The core calls this with the socket locked, and gives the buffer away. Nothing is
    // borrowed from the guard at that time.
    unsafe {
        let sock = Sock::<P>::from_raw(sk);
        if let Some(skb) = Skb::from_raw(skb) {
            P::backlog(&mut sock.assume_locked(), skb, Softirq::assume());
        }
    }
    // SAFETY: This pairs with `local_bh_disable` above.
    unsafe { bindings::local_bh_enable() };
    0
}

/// # Safety
///
/// Called by the core, once for each `struct socket`. Its `sk` is null or a socket of `P`.
unsafe extern "C" fn release<P: Operations>(socket: *mut bindings::socket) -> c_int {
    // SAFETY: The core calls this once for a descriptor. `sk` is null if `create` failed. The
    // descriptor's reference is dropped after the protocol's `release`.
    unsafe {
        let sk = (*socket).sk;
        if !sk.is_null() {
            P::release(Closing::new(socket));
            (*socket).sk = ptr::null_mut();
            bindings::sock_put(sk);
        }
    }
    0
}

/// # Safety
///
/// Called by the core, in a `bind` call on a socket of `P`, with `len` bytes of kernel memory at
/// `addr`.
unsafe extern "C" fn bind<P: Operations>(
    socket: *mut bindings::socket,
    addr: *mut bindings::sockaddr_unsized,
    len: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`, and `addr` is a kernel copy of the address.
    unsafe { code(P::bind(&Call::new(socket), address(addr, len))) }
}

/// # Safety
///
/// Called by the core, in a `connect` call on a socket of `P`, with `len` bytes of kernel memory at
/// `addr`.
unsafe extern "C" fn connect<P: Operations>(
    socket: *mut bindings::socket,
    addr: *mut bindings::sockaddr_unsized,
    len: c_int,
    flags: c_int,
) -> c_int {
    let nonblocking = flags & bindings::O_NONBLOCK as c_int != 0;
    // SAFETY: The call runs on `socket`, and `addr` is a kernel copy of the address.
    unsafe {
        code(P::connect(
            &Call::new(socket),
            address(addr, len),
            nonblocking,
        ))
    }
}

/// # Safety
///
/// Called by the core, in an `accept` call on a socket of `P`, with valid arguments. `new` is a
/// `struct socket` whose `sk` is not set yet.
unsafe extern "C" fn accept<P: Operations>(
    socket: *mut bindings::socket,
    new: *mut bindings::socket,
    arg: *mut bindings::proto_accept_arg,
) -> c_int {
    // SAFETY: The call runs on `socket`. `arg` is valid, and the `sk` of `new` is not set yet.
    unsafe {
        let nonblocking = (*arg).flags & bindings::O_NONBLOCK as c_int != 0;
        let new = NewDescriptor::new(new);
        code(P::accept(&Call::new(socket), new, nonblocking))
    }
}

/// # Safety
///
/// Called by the core, in a call that asks for a name of a socket of `P`, with room for a
/// `sockaddr_storage` at `addr`.
unsafe extern "C" fn getname<P: Operations>(
    socket: *mut bindings::socket,
    addr: *mut bindings::sockaddr,
    peer: c_int,
) -> c_int {
    let end = match peer {
        0 => End::Own,
        1 => End::Peer,
        _ => End::Accepted,
    };
    // SAFETY: The call runs on `socket`.
    match P::name(unsafe { of(socket) }, end) {
        Ok(name) => {
            // SAFETY: The core passes room for a `sockaddr_storage`.
            unsafe { ptr::copy_nonoverlapping(name.as_ptr(), addr.cast(), name.len()) };
            ADDRESS_LEN as c_int
        }
        Err(e) => e.to_errno(),
    }
}

/// # Safety
///
/// Called by the core, in a `poll` call on a socket of `P`, with the call's file and wait table.
unsafe extern "C" fn poll<P: Operations>(
    file: *mut bindings::file,
    socket: *mut bindings::socket,
    wait: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The call runs on `socket`, and `file` and `wait` belong to it.
    unsafe {
        bindings::sock_poll_wait(file, socket, wait);
        P::poll(&Call::new(socket))
    }
}

/// # Safety
///
/// Called by the core, in a `mmap` call on a socket of `P`, with the new area, which is not visible
/// to others yet.
unsafe extern "C" fn mmap<P: Operations>(
    _file: *mut bindings::file,
    socket: *mut bindings::socket,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let sock = unsafe { of::<P>(socket) };
    // SAFETY: The area is being set up by this call.
    let (vma, skipped) = unsafe { (VmaNew::from_raw(vma.cast()), bindings::vma_offset(vma)) };
    code(
        P::ring(sock)
            .ok_or(ENODEV)
            .and_then(|ring| ring.map(vma, skipped)),
    )
}

/// # Safety
///
/// Called by the core, in a `listen` call on a socket of `P`.
unsafe extern "C" fn listen<P: Operations>(socket: *mut bindings::socket, backlog: c_int) -> c_int {
    // SAFETY: The call runs on `socket`.
    unsafe { code(P::listen(&Call::new(socket), backlog.max(0) as u32)) }
}

/// # Safety
///
/// Called by the core, in a `shutdown` call on a socket of `P`.
unsafe extern "C" fn shutdown<P: Operations>(socket: *mut bindings::socket, how: c_int) -> c_int {
    // Adding 1 to SHUT_RD, SHUT_WR or SHUT_RDWR gives the `*_SHUTDOWN` bits with the same meaning.
    let halves = match how {
        0..=2 => (how + 1) as u8,
        _ => return EINVAL.to_errno(),
    };
    // SAFETY: The call runs on `socket`.
    unsafe { code(P::shutdown(&Call::new(socket), halves)) }
}

/// # Safety
///
/// Called by the core, in a `setsockopt` call on a socket of `P`; `value` is user memory, or kernel
/// memory of `len` bytes.
unsafe extern "C" fn setsockopt<P: Operations>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: bindings::sockptr_t,
    len: c_uint,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let sock = unsafe { of(socket) };
    // SAFETY: The core passed `value` and `len`, and they are used within the call.
    let value = unsafe { OptionValue::new(value, len) };
    code(P::set_option(sock, level, name, value))
}

/// # Safety
///
/// Called by the core, in a `getsockopt` call on a socket of `P`; `value` and `len` point to user
/// memory.
unsafe extern "C" fn getsockopt<P: Operations>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: *mut c_char,
    len: *mut c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let sock = unsafe { of(socket) };
    let value = OptionBuffer::new(value.cast(), len);
    code(P::get_option(sock, level, name, value))
}

/// # Safety
///
/// Called by the core, in a `sendmsg` call on a socket of `P`, with that call's message.
unsafe extern "C" fn sendmsg<P: Operations>(
    socket: *mut bindings::socket,
    msg: *mut bindings::msghdr,
    len: usize,
) -> c_int {
    // SAFETY: The call runs on `socket`, and `msg` belongs to it.
    let (call, mut message) = unsafe { (Call::new(socket), Message::from_raw(msg)) };
    let sent = P::send(&call, &mut message, len);
    // The message is dropped before `sent` is examined, so that `sent` is the only value that the
    // function keeps across the drop.
    drop(message);
    count(sent)
}

/// # Safety
///
/// The requirements of [`sendmsg`] hold.
unsafe extern "C" fn send_record<P: Operations>(
    socket: *mut bindings::socket,
    msg: *mut bindings::msghdr,
    len: usize,
) -> c_int {
    // SAFETY: The call runs on `socket`, and `msg` belongs to it.
    unsafe {
        count(P::send_record(
            &Call::new(socket),
            &mut Message::from_raw(msg),
            len,
        ))
    }
}

/// # Safety
///
/// The requirements of [`recvmsg`] hold.
unsafe extern "C" fn receive_record<P: Operations>(
    socket: *mut bindings::socket,
    msg: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`, and `msg` belongs to it.
    unsafe {
        count(P::receive_record(
            &Call::new(socket),
            &mut Message::from_raw(msg),
            len,
            flags,
        ))
    }
}

/// # Safety
///
/// Called by the core, in a `recvmsg` call on a socket of `P`, with that call's message.
unsafe extern "C" fn recvmsg<P: Operations>(
    socket: *mut bindings::socket,
    msg: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    // A receive call never sets `notice`, the completion notification of a zero-copy send. So its
    // message holds nothing to drop.
    // SAFETY: `msg` belongs to the running call.
    let mut message = ManuallyDrop::new(unsafe { Message::from_raw(msg) });
    // SAFETY: The call runs on `socket`.
    let call = unsafe { Call::new(socket) };
    count(P::receive(&call, &mut message, len, flags))
}

/// Ignores `SO_RCVLOWAT` on a socket whose messages keep their boundaries, since a message arrives
/// as a whole.
extern "C" fn leave_rcvlowat(_sk: *mut bindings::sock, _mark: c_int) -> c_int {
    0
}

/// # Safety
///
/// Called by the core, in a `setsockopt` call, with a socket of `P` that the core has locked.
unsafe extern "C" fn set_rcvlowat<P: Operations>(sk: *mut bindings::sock, mark: c_int) -> c_int {
    // SAFETY: A running `setsockopt` call holds the descriptor, which holds the socket.
    P::set_low_water(unsafe { Sock::from_raw(sk) }, mark);
    0
}

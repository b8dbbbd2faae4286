// SPDX-License-Identifier: GPL-2.0

//! Stream sockets of the Internet families under a protocol number of the module.
//!
//! The kernel creates such a socket like a TCP socket, and the socket then belongs to TCP. The
//! descriptor's `struct sock` is TCP's in every respect as long as the descriptor lasts, and its
//! connection may outlive this module. Only the descriptor's function table is the module's. It is
//! a copy of TCP's table with some functions of this module.
//!
//! A descriptor may get a *companion*, a socket of the module's own protocol, once. The TCP socket
//! and the companion share the descriptor's wait queue, so either wakes the queue's waiters. They
//! share one pending error, which is in the TCP socket. The socket-level options belong to the TCP
//! socket, and the companion has copies of them. [`Streams`] decides which of the two serves a
//! call. Since the descriptor's socket never changes, a call that wrongly goes to TCP finds an
//! unconnected TCP socket.
//!
//! The descriptor's inode refers to the companion by its private pointer, which the socket file
//! system does not use.
//!
//! C headers: [`include/net/protocol.h`](srctree/include/net/protocol.h),
//! [`include/net/inet_common.h`](srctree/include/net/inet_common.h)

use super::{
    bindings,
    family::{answer_by, splice_by, without_descriptor, Call, Closing, FamilyNumber, Operations},
    message::Message,
    options::{IntArgument, OptionBuffer},
    sock::{field, Protocol, RawSock, Sock, SockRef},
    uapi,
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem,
    net::{IpAddr, Ipv6Addr},
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use kernel::ffi::{c_char, c_int, c_long, c_uint, c_ulong};

mod accept;
pub(crate) use accept::NewStream;
mod alias;
pub(crate) use alias::AliasRegistration;
mod bell;
pub(crate) use bell::Bell;
mod calls;
mod front;
mod info;
pub(crate) use info::StreamInfo;
mod objections;
pub(crate) use objections::Objection;
mod serving;
mod tables;
mod tcp_options;
pub(crate) use tables::{Prepared, Registration, Tables};

const AF_INET6: u16 = bindings::AF_INET6 as u16;
const SOL_SOCKET: c_int = bindings::SOL_SOCKET as c_int;
const SOL_TCP: c_int = bindings::SOL_TCP as c_int;

/// Which socket handles the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// TCP's socket.
    Tcp,
    /// The companion, which is a socket of the module's own protocol.
    Companion,
    /// Both sockets, as both listen.
    Both,
    /// Not known yet: `connect` is still deciding.
    Pending,
}

/// The end whose address a call asks for: the socket's own end of a connection, or the peer's.
pub(crate) use super::family::End;

/// An end of a connection: a port, and an IPv6 address or an IPv4 address in the form
/// `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InternetEnd {
    pub(crate) address: [u8; 16],
    pub(crate) port: u16,
}

impl InternetEnd {
    /// Returns the address, in IPv4 form if it is one of IPv4.
    pub(crate) fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.address).to_canonical()
    }

    /// Creates an end.
    pub(crate) fn of(ip: IpAddr, port: u16) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::of_v4(ip.octets(), port),
            IpAddr::V6(ip) => InternetEnd {
                address: ip.octets(),
                port,
            },
        }
    }

    /// Creates an end with an IPv4 address.
    pub(crate) fn of_v4([a, b, c, d]: [u8; 4], port: u16) -> Self {
        InternetEnd {
            address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            port,
        }
    }

    /// Returns whether the address is unspecified, like the address of a listener on all addresses.
    pub(crate) fn is_any(&self) -> bool {
        self.ip().is_unspecified()
    }

    /// Returns whether the address is a link-local one, which only means something together with a
    /// device.
    pub(crate) fn is_link_local(&self) -> bool {
        matches!(self.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Parses the address that a program passed to `connect` on a socket of `AF_INET6` (if `is_v6`)
    /// or `AF_INET`. Also returns its scope, which is the index of a device or 0. Returns `None`
    /// unless `bytes` are a whole address of that family. TCP rejects all other addresses.
    pub(crate) fn parse(bytes: &[u8], is_v6: bool) -> Option<(Self, u32)> {
        const INET: [u8; 2] = (bindings::AF_INET as u16).to_ne_bytes();
        const INET6: [u8; 2] = AF_INET6.to_ne_bytes();
        // Lengths, in bytes, of the shortest addresses that the kernel accepts. The last field of
        // `struct sockaddr_in6` may be missing.
        const INET_LEN: usize = 16;
        const INET6_LEN: usize = 24;
        let (family, rest) = bytes.split_first_chunk::<2>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let port = u16::from_be_bytes(*port);
        match *family {
            INET if !is_v6 && bytes.len() >= INET_LEN => {
                Some((Self::of_v4(*rest.first_chunk()?, port), 0))
            }
            INET6 if is_v6 && bytes.len() >= INET6_LEN => {
                let scope = rest.get(20..).and_then(|scope| scope.first_chunk());
                let end = InternetEnd {
                    address: *rest.get(4..)?.first_chunk()?,
                    port,
                };
                Some((end, scope.map_or(0, |scope| u32::from_ne_bytes(*scope))))
            }
            _ => None,
        }
    }
}

/// Serves the streams under the module's protocol number. The functions run in socket calls,
/// including `poll`, and may sleep.
pub(crate) trait Streams: Sized + 'static {
    /// The companions' protocol.
    type Protocol: Operations;
    /// The data that the module keeps with each companion.
    type Record: Send + Sync;

    /// Returns the tables through which the kernel calls the module.
    fn tables() -> &'static Tables<Self>;
    /// Serves `connect`.
    fn connect(call: &StreamCall<'_, Self>, address: &[u8], nonblocking: bool) -> Result;
    /// Serves `listen`.
    fn listen(call: &StreamCall<'_, Self>, backlog: u32) -> Result;
    /// Serves `accept`, on a descriptor that may get a companion while the call waits.
    fn accept(
        call: &StreamCall<'_, Self>,
        new: &mut NewStream<'_, Self>,
        nonblocking: bool,
    ) -> Result;
    /// Returns which socket serves the calls on a descriptor with a companion. If that is still
    /// undecided, this call may decide it.
    fn backend(call: &StreamCall<'_, Self>, companion: &Companion<Self>) -> Backend;
    /// Works like [`Streams::backend`], but waits while the decision is pending, for at most
    /// `timeout` jiffies. Reduces `timeout` by the time that has passed.
    ///
    /// # Errors
    ///
    /// `EAGAIN` after the timeout, and the other errors of
    /// [`Guard::wait`](super::sock::Guard::wait).
    fn await_backend(
        call: &StreamCall<'_, Self>,
        companion: &Companion<Self>,
        timeout: &mut c_long,
    ) -> Result<Backend>;
    /// Lets TCP carry the companion's connection, because kernel code waits for the callbacks of
    /// TCP's socket. Begins TCP's connection to the same address.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, and the connection stays as it is, if TCP could not continue it.
    fn leave_to_tcp(call: &StreamCall<'_, Self>, companion: &Companion<Self>) -> Result;
    /// Returns the address of one `end` of the connection that the companion has or is opening, and
    /// the scope of this address. The scope of a link-local address is the index of its device, or
    /// zero if the device is not known. The scope of any other address is 0.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`.
    fn name(
        call: &StreamCall<'_, Self>,
        companion: &Companion<Self>,
        end: End,
    ) -> Result<(InternetEnd, u32)>;
    /// Serves `shutdown` of `RCV_SHUTDOWN | SEND_SHUTDOWN`, while the decision of `connect` is
    /// pending. Returns `None` if the decision has been made, so that the chosen socket serves the
    /// call.
    fn give_up(call: &StreamCall<'_, Self>, companion: &Companion<Self>) -> Option<Result>;
    /// Called before `shutdown` of a connection that the companion has.
    fn shutting(companion: &Companion<Self>);
    /// Sets `TCP_USER_TIMEOUT` to `millis` milliseconds; 0 means the protocol's default.
    fn set_user_timeout(companion: &Companion<Self>, millis: u32);
    /// Sets `TCP_NOTSENT_LOWAT`: with as many unsent bytes, the stream takes no further ones.
    fn set_unsent_limit(companion: &Companion<Self>, bytes: u32);
    /// Returns the data that `TCP_INFO` reports on the companion's connection.
    fn info(companion: &Companion<Self>) -> StreamInfo;
    /// Returns whether an option level belongs to the companions' protocol.
    fn has_option_level(level: i32) -> bool;
    /// Called when a descriptor with a companion is being released, while both sockets exist.
    fn closing(call: &StreamCall<'_, Self>, companion: &Companion<Self>);
    /// Called when the descriptor with this TCP socket is being released.
    fn released(sock: &RawSock);
    /// Called when TCP's socket may have stopped listening.
    fn look_at_listener(call: &StreamCall<'_, Self>, companion: &Companion<Self>);
}

/// The parts that a companion is made of.
pub(crate) struct Parts<M: Streams> {
    pub(crate) shared: <M::Protocol as Protocol>::Shared,
    pub(crate) record: M::Record,
}

/// A descriptor's companion: a socket of the module's own protocol, which shares the descriptor of
/// a TCP socket.
pub(crate) struct Companion<M: Streams> {
    sock: SockRef<M::Protocol>,
    /// The data that the module keeps with the companion.
    pub(crate) record: M::Record,
}

impl<M: Streams> Companion<M> {
    /// Returns the companion's socket.
    pub(crate) fn sock(&self) -> &Sock<M::Protocol> {
        &self.sock
    }
}

/// A running call on a descriptor of the module's protocol number.
pub(crate) struct StreamCall<'a, M: Streams> {
    socket: *mut bindings::socket,
    _call: PhantomData<(&'a (), fn() -> M)>,
}

impl<'a, M: Streams> StreamCall<'a, M> {
    /// # Safety
    ///
    /// `socket` is a valid `struct socket` with one of `M`'s tables and with its `sk` set. It is
    /// held for as long as `'a`.
    unsafe fn new(socket: *mut bindings::socket) -> Self {
        StreamCall {
            socket,
            _call: PhantomData,
        }
    }

    /// Returns the descriptor's socket, which is TCP's.
    pub(crate) fn sock(&self) -> &'a RawSock {
        // SAFETY: A descriptor's socket stays the same, and the call holds the descriptor.
        unsafe { RawSock::from_raw((*self.socket).sk) }
    }

    /// Returns the descriptor's family: that of its socket, or the alias family.
    fn family(&self) -> u16 {
        // SAFETY: The call holds the descriptor, whose table of calls is one of the module's static
        // tables. Another call may replace the table by one of the same family, in a single store.
        unsafe { (*ptr::read_volatile(&raw const (*self.socket).ops)).family as u16 }
    }

    /// Returns whether the descriptor is of `AF_INET6`.
    pub(crate) fn is_v6(&self) -> bool {
        self.sock().family() == AF_INET6
    }

    /// Returns the companion, if there is one.
    pub(crate) fn companion(&self) -> Option<&'a Companion<M>> {
        // SAFETY: The pointer in the inode is null, or a companion that was complete when
        // `accompany` or `serve` published it. The companion stays until the descriptor is
        // released, and release waits for running calls.
        unsafe {
            bindings::socket_companion(self.socket)
                .cast::<Companion<M>>()
                .as_ref()
        }
    }

    /// Returns this call as a call on the companion.
    pub(crate) fn on(&self, companion: &'a Companion<M>) -> Call<'a, M::Protocol> {
        // SAFETY: The companion belongs to this descriptor, stays as long as the descriptor, and
        // uses the descriptor's wait queue. `'a` limits the borrow of the companion to the running
        // call.
        unsafe { Call::of(&companion.sock, self.socket) }
    }

    /// Gives the descriptor a companion created from `make`, unless the descriptor already has a
    /// companion.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOBUFS`, `ENODEV`; the descriptor then has no companion.
    pub(crate) fn accompany(
        &self,
        protocol: i32,
        make: impl FnOnce() -> Result<Parts<M>>,
    ) -> Result<&'a Companion<M>> {
        if let Some(companion) = self.companion() {
            return Ok(companion);
        }
        let Parts { shared, record } = make()?;
        let sock = without_descriptor::<M::Protocol>(self.sock(), protocol, shared)?;
        // The companion joins the control group of the descriptor's socket, since the rules of that
        // group apply whichever task connects or listens.
        // SAFETY: The socket is new.
        unsafe { sock.join_group(self.sock()) };
        let companion = KBox::new(Companion::<M> { sock, record }, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The socket is new and the call holds the descriptor. If another call has set a
        // companion first, the socket is detached again before it is dropped.
        unsafe { attach(self.socket, &companion.sock) };
        self.adopt(&companion);
        let raw = KBox::into_raw(companion);
        // SAFETY: The companion is complete. If `socket_set_companion` returns true, the inode owns
        // it; otherwise it is still ours.
        unsafe {
            let first = bindings::socket_set_companion(self.socket, raw.cast());
            if !first {
                detach(&KBox::from_raw(raw).sock);
            }
        }
        self.companion().ok_or(EINVAL)
    }

    /// Copies the options of TCP's socket to the companion.
    pub(crate) fn adopt(&self, companion: &Companion<M>) {
        let low_water = companion.sock.adopt_options(self.sock());
        if let Some(mark) = low_water {
            M::Protocol::set_low_water(&companion.sock, mark);
        }
        self.adopt_user_timeout(companion);
        self.adopt_unsent_limit(companion);
    }

    /// Copies `TCP_NOTSENT_LOWAT` of TCP's socket, or its default in the namespace
    /// (`net.ipv4.tcp_notsent_lowat`), to the companion.
    fn adopt_unsent_limit(&self, companion: &Companion<M>) {
        // SAFETY: The socket is TCP's, and the function makes single loads.
        let bytes = unsafe { bindings::tcp_unsent_limit(self.sock().as_ptr()) };
        M::set_unsent_limit(companion, bytes);
    }

    /// Copies the user timeout of TCP's socket to the companion.
    fn adopt_user_timeout(&self, companion: &Companion<M>) {
        // SAFETY: The socket is TCP's, and the function makes a single load.
        let millis = unsafe { bindings::tcp_user_timeout(self.sock().as_ptr()) };
        M::set_user_timeout(companion, millis);
    }

    /// Sets whether calls from now on ask [`Streams::backend`] which socket serves them.
    pub(crate) fn set_asked(&self, asked: bool) {
        // SAFETY: The descriptor is of this family.
        let ops = unsafe { M::tables().calls(self.family(), asked) };
        // SAFETY: The call holds the descriptor. Both tables are static and complete and have the
        // same owner. The core reads the pointer once for each call.
        unsafe { bindings::socket_set_ops(self.socket, ops) };
    }

    /// Sets whether the companion serves the requests of `io_uring` on TCP's socket from now on.
    /// Has no effect if other kernel code, such as a sockmap, has replaced the socket's protocol
    /// table. That code later restores the table that it replaced.
    pub(crate) fn set_served(&self, served: bool) {
        let sk = self.sock().as_ptr();
        let table = M::tables().of(self.sock().family());
        // SAFETY: The call holds the descriptor, so the field `skc_prot` in its socket is valid,
        // and it is aligned. This function accesses the field atomically, and the core reads it
        // with single loads.
        let place = unsafe { AtomicPtr::from_ptr(&raw mut (*sk).__sk_common.skc_prot) };
        // Both tables are complete and static, and differ in two functions. The module's table is
        // valid until the descriptor is released, which calls TCP's `close`. The exchange fails if
        // other kernel code has replaced the table. This failure is ignored, and the other code's
        // table stays in place.
        let _ = place.compare_exchange(table.proto(!served), table.proto(served), Relaxed, Relaxed);
    }

    fn inet_ops(&self) -> &'static bindings::proto_ops {
        M::tables().of(self.sock().family()).inet_ops()
    }

    /// Calls TCP's `connect`, with a kernel copy of the address.
    ///
    /// # Errors
    ///
    /// The errors of TCP's `connect`.
    pub(crate) fn connect(&self, address: &[u8], nonblocking: bool) -> Result {
        const SOCKADDR_STORAGE: usize = 128;
        let mut storage = [0_u64; SOCKADDR_STORAGE / 8];
        let room = mem::size_of_val(&storage);
        let len = address.len().min(room);
        let call = self.inet_ops().connect.ok_or(EOPNOTSUPP)?;
        let flags = if nonblocking {
            bindings::O_NONBLOCK as c_int
        } else {
            0
        };
        // SAFETY: The socket is TCP's. The address is aligned kernel memory with room for an
        // address of any family, and its first `len` bytes are copied from `address`.
        to_result(unsafe {
            ptr::copy_nonoverlapping(address.as_ptr(), storage.as_mut_ptr().cast(), len);
            call(
                self.socket,
                storage.as_mut_ptr().cast(),
                len as c_int,
                flags,
            )
        })
    }

    /// Returns whether TCP is connecting, and has sent its SYN again because nothing has answered.
    pub(crate) fn repeats_syn(&self) -> bool {
        // SAFETY: The socket is TCP's, and the function makes single loads.
        unsafe { bindings::tcp_repeats_syn(self.sock().as_ptr()) }
    }

    /// Stores an error for the next call on TCP's socket and wakes the tasks that wait for errors.
    pub(crate) fn report_error(&self, error: Error) {
        let sock = self.sock();
        // SAFETY: `sk_err` is an aligned word of the valid socket, which TCP also writes in single
        // stores.
        unsafe { ptr::write_volatile(field!(sock, sk_err), -error.to_errno()) };
        sock.wake_error();
    }

    /// Calls TCP's `listen`.
    ///
    /// # Errors
    ///
    /// The errors of TCP's `listen`.
    pub(crate) fn listen(&self, backlog: u32) -> Result {
        let call = self.inet_ops().listen.ok_or(EOPNOTSUPP)?;
        // SAFETY: The socket is TCP's.
        to_result(unsafe { call(self.socket, c_int::try_from(backlog).unwrap_or(c_int::MAX)) })
    }

    /// Returns TCP's readiness. The task is already in the wait queue.
    fn poll(&self, file: *mut bindings::file) -> u32 {
        match self.inet_ops().poll {
            // SAFETY: The socket is TCP's, and `file` belongs to the call. Since the poll table is
            // null, the function does not add a waiter.
            Some(call) => unsafe { call(file, self.socket, ptr::null_mut()) },
            None => 0,
        }
    }

    /// Returns whether the descriptor has no connection, and none is being opened.
    pub(crate) fn is_unconnected(&self) -> bool {
        // SAFETY: The call holds the descriptor, and `state` is read in a single load.
        let state = unsafe { ptr::read_volatile(&raw const (*self.socket).state) };
        state == bindings::socket_state_SS_UNCONNECTED
    }

    /// Returns whether the descriptor blocks (has no `O_NONBLOCK`). A single call on the descriptor
    /// may still be non-blocking.
    pub(crate) fn blocks(&self) -> bool {
        // SAFETY: The call holds the descriptor. If it has a file, the file is valid during the
        // call.
        !unsafe { bindings::socket_is_nonblocking(self.socket) }
    }

    /// Returns whether an `AF_INET6` socket excludes IPv4.
    pub(crate) fn is_v6_only(&self) -> bool {
        // SAFETY: The socket is TCP's, hence of an Internet family. The function makes a single
        // load.
        unsafe { bindings::inet_v6only(self.sock().as_ptr()) }
    }

    /// Returns whether `accept` on TCP's socket would find a connection or would fail.
    pub(crate) fn tcp_accepts(&self) -> bool {
        // SAFETY: The socket is TCP's, and the function reads its accept queue as TCP's `poll`
        // does.
        unsafe { bindings::tcp_can_accept(self.sock().as_ptr()) }
    }
}

/// Ties a companion to a descriptor, to the descriptor's wait queue, and to the descriptor's
/// socket. The companion holds a reference to that socket until the companion is destructed.
///
/// # Safety
///
/// No one else ties the companion at the same time: the companion is new, or is locked and has
/// neither a descriptor nor a front. It is detached before the descriptor is released.
unsafe fn attach<P: Operations>(socket: *mut bindings::socket, companion: &Sock<P>) {
    // SAFETY: Both pointers are valid, and the companion's `sk_user_data` is for the module's use.
    unsafe { bindings::sk_accompany(companion.as_ptr(), socket) };
}

/// Detaches a companion from the descriptor's wait queue.
fn detach<P: Operations>(companion: &Sock<P>) {
    // SAFETY: By the invariant of `RawSock`, the socket is valid. The function may be called more
    // than once.
    unsafe { bindings::sock_orphan(companion.as_ptr()) };
}

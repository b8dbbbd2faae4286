// SPDX-License-Identifier: GPL-2.0

//! The tables through which the kernel calls streams, and their registration.

use super::tcp_options::{exchanges_table, of_connection, refusal};
use super::*;

const AF_INET: c_int = bindings::AF_INET as c_int;
const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;
pub(super) const IPPROTO_TCP: u32 = bindings::IPPROTO_TCP;

/// The kernel's tables for one of the two families, complete before they are registered.
pub(crate) struct Table {
    /// TCP's own.
    tcp: *mut bindings::proto,
    /// TCP's, except for `init` and the owner. Sockets are allocated with it, and use TCP's own
    /// from then on.
    ///
    /// It stays the table that created them (`sk_prot_creator`) until a call [hands them
    /// over](hand_over): until then the socket holds the module, which nothing else does while the
    /// core creates the socket. If that fails, the core drops the reference.
    proto: bindings::proto,
    /// TCP's, except for the functions that `io_uring` calls or compares [here](super::serving):
    /// for a socket whose descriptor's calls the companion serves.
    serving: bindings::proto,
    /// TCP's own: `inet_stream_ops` or `inet6_stream_ops`.
    inet_ops: *const bindings::proto_ops,
    /// TCP's, except for the owner and the calls that may lead to a companion.
    tcp_ops: bindings::proto_ops,
    /// TCP's, except for the owner and the calls that ask which socket serves them.
    mapped_ops: bindings::proto_ops,
    switch: bindings::inet_protosw,
}

impl Table {
    /// Returns TCP's functions. They exist, as a descriptor uses this table.
    pub(super) fn inet_ops(&self) -> &'static bindings::proto_ops {
        // SAFETY: TCP is no module, and its tables are static. Without them there is no
        // registration, hence no descriptor that could ask.
        unsafe { &*self.inet_ops }
    }

    /// Returns TCP's own table of its sockets.
    pub(super) fn tcp_proto(&self) -> *mut bindings::proto {
        self.tcp
    }

    pub(super) fn tcp_ops(&self) -> *const bindings::proto_ops {
        &self.tcp_ops
    }

    pub(super) fn mapped_ops(&self) -> *const bindings::proto_ops {
        &self.mapped_ops
    }

    /// Returns the table for a TCP socket: while its companion [serves](StreamCall::set_served) the
    /// calls, or before and after.
    pub(super) fn proto(&self, served: bool) -> *mut bindings::proto {
        if served {
            (&raw const self.serving).cast_mut()
        } else {
            self.tcp
        }
    }
}

/// The tables of both families.
pub(crate) struct Tables<M: Streams> {
    inet: UnsafeCell<Table>,
    inet6: UnsafeCell<Table>,
    /// A registration exists or existed; only that one may write the tables.
    taken: AtomicBool,
    _streams: PhantomData<fn() -> M>,
}

// SAFETY: The tables are written by the one registration, before the kernel learns of them, and
// read after.
unsafe impl<M: Streams> Sync for Tables<M> {}

impl<M: Streams> Tables<M> {
    /// Creates empty tables.
    pub(crate) const fn new() -> Self {
        // SAFETY: Pointers, numbers and functions that may be missing: zeroes are values of each.
        unsafe {
            Tables {
                inet: UnsafeCell::new(mem::zeroed()),
                inet6: UnsafeCell::new(mem::zeroed()),
                taken: AtomicBool::new(false),
                _streams: PhantomData,
            }
        }
    }

    fn place(&self, family: u16) -> *mut Table {
        match family {
            AF_INET6 => self.inet6.get(),
            _ => self.inet.get(),
        }
    }

    /// Returns the table of a family that some socket has.
    pub(super) fn of(&self, family: u16) -> &Table {
        // SAFETY: Complete since before the kernel learnt of it; a socket is made after that.
        unsafe { &*self.place(family) }
    }

    /// Copies TCP's tables for `family`.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` if the kernel does not have the family, `ENOMEM` and the like without memory.
    ///
    /// # Safety
    ///
    /// Called by the one registration, before the kernel knows the table.
    unsafe fn fill(&self, family: c_int, protocol: u16, module: &'static ThisModule) -> Result {
        let mut socket: *mut bindings::socket = ptr::null_mut();
        // SAFETY: The first namespace is always there; `socket` is written if the function
        // succeeds.
        to_result(unsafe {
            bindings::sock_create_kern(
                &raw mut bindings::init_net,
                family,
                SOCK_STREAM as c_int,
                IPPROTO_TCP as c_int,
                &mut socket,
            )
        })?;
        // SAFETY: No one else looks at the table, by the caller's promise.
        let table = unsafe { &mut *self.place(family as u16) };
        // SAFETY: The socket is ours until it is released. TCP's tables, which it names, are
        // static, since TCP is no module; they consist of numbers and pointers to what is static
        // too.
        unsafe {
            table.tcp = (*(*socket).sk).__sk_common.skc_prot;
            table.proto = ptr::read(table.tcp);
            table.serving = ptr::read(table.tcp);
            table.inet_ops = (*socket).ops;
            table.tcp_ops = ptr::read(table.inet_ops);
            bindings::sock_release(socket);
        }
        table.proto.init = Some(init::<M>);
        table.proto.owner = module.as_ptr().cast();
        table.serving.ioctl = Some(serving::answer::<M>);
        table.serving.recvmsg = Some(serving::receive::<M>);
        let ops = &mut table.tcp_ops;
        ops.owner = module.as_ptr().cast();
        ops.release = Some(release::<M>);
        ops.connect = Some(connect::<M>);
        ops.listen = Some(listen::<M>);
        // A call that began before there was a companion continues when there is one: TCP's own
        // `accept` then wakes for a companion's connections in vain, and TCP's own `shutdown` stops
        // one listener of two.
        ops.accept = Some(accept::<M>);
        // The core asks the table that `accept` was called by for the new connection's address.
        ops.getname = Some(getname::<M>);
        ops.shutdown = Some(shutdown::<M>);
        ops.setsockopt = Some(setsockopt::<M>);
        table.mapped_ops = *ops;
        let ops = &mut table.mapped_ops;
        ops.bind = Some(bind::<M>);
        ops.poll = Some(poll::<M>);
        ops.ioctl = Some(ioctl::<M>);
        // TCP's function for compatible calls handles what has another layout there, and leaves the
        // rest to `ioctl`.
        ops.getsockopt = Some(getsockopt::<M>);
        // The core would call it in place of the module's function, if TCP ever has one.
        ops.getsockopt_iter = None;
        ops.sendmsg = Some(sendmsg::<M>);
        ops.recvmsg = Some(recvmsg::<M>);
        ops.splice_eof = Some(splice_eof::<M>);
        ops.splice_read = Some(splice_read::<M>);
        ops.mmap = Some(bindings::sock_no_mmap);
        table.switch.type_ = SOCK_STREAM as u16;
        table.switch.protocol = protocol;
        table.switch.prot = &raw mut table.proto;
        table.switch.ops = &raw const table.tcp_ops;
        table.switch.flags = bindings::INET_PROTOSW_ICSK as u8;
        Ok(())
    }
}

/// Tables that are complete and not yet registered: everything that can fail without memory is
/// done. If a module failed to load after it had registered something, it would be freed under the
/// sockets created since.
pub(crate) struct Prepared<M: Streams> {
    has_inet6: bool,
    _streams: PhantomData<fn() -> M>,
}

impl<M: Streams> Prepared<M> {
    /// Creates the tables for streams of `protocol` of `AF_INET` and, if the kernel has it,
    /// `AF_INET6`; may be called once.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call; those of creating a socket.
    pub(crate) fn new(protocol: u16, module: &'static ThisModule) -> Result<Self> {
        let tables = M::tables();
        if tables.taken.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        // SAFETY: This is the only registration there ever is.
        unsafe { tables.fill(AF_INET, protocol, module)? };
        // SAFETY: This is the only registration there ever is.
        let has_inet6 = match unsafe { tables.fill(AF_INET6.into(), protocol, module) } {
            Ok(()) => true,
            Err(error) if error == EAFNOSUPPORT => false,
            Err(error) => return Err(error),
        };
        Ok(Prepared {
            has_inet6,
            _streams: PhantomData,
        })
    }

    /// Registers the protocol number.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the kernel itself uses the number.
    pub(crate) fn register(self) -> Result<Registration<M>> {
        let tables = M::tables();
        // SAFETY: The table is complete, and static. The value is gone after this, so it is
        // registered once.
        unsafe {
            let switch = &raw mut (*tables.inet.get()).switch;
            bindings::inet_register_protosw(switch);
            // On failure the function only logs.
            if (*switch).list.next.is_null() {
                return Err(EEXIST);
            }
        }
        let mut registration = Registration {
            has_inet6: false,
            _streams: PhantomData,
        };
        if self.has_inet6 {
            // SAFETY: The table is complete, and static. The value is gone after this, so it is
            // registered once.
            let result = to_result(unsafe {
                bindings::inet6_register(&raw mut (*tables.inet6.get()).switch)
            });
            match result {
                Ok(()) => registration.has_inet6 = true,
                Err(error) if error == EAFNOSUPPORT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(registration)
    }
}

/// The protocol number, registered for both families; dropping it unregisters.
pub(crate) struct Registration<M: Streams> {
    has_inet6: bool,
    _streams: PhantomData<fn() -> M>,
}

impl<M: Streams> Drop for Registration<M> {
    fn drop(&mut self) {
        let tables = M::tables();
        // SAFETY: Registered by `register`. Both functions wait for those that look for a protocol.
        // Sockets that were made are TCP's alone, since one that has a descriptor, or is about to
        // get one, holds the module. A creator that has found the table, and not yet got as far as
        // that reference, is the core's to deal with, as for each module with a table here:
        // `inet_create` leaves the read section before `sk_alloc` takes it, and a reference that is
        // asked for now is refused (`try_module_get`).
        unsafe {
            if self.has_inet6 {
                bindings::inet6_unregister(&raw mut (*tables.inet6.get()).switch);
            }
            bindings::inet_unregister_protosw(&raw mut (*tables.inet.get()).switch);
        }
    }
}

/// Turns a new socket into one of TCP's.
///
/// # Safety
///
/// Called by the core, with a new socket that was allocated with this module's copy of TCP's table.
unsafe extern "C" fn init<M: Streams>(sk: *mut bindings::sock) -> c_int {
    // SAFETY: No one else has the socket yet. It was allocated as TCP's are, from the same memory,
    // so it may be TCP's from here on.
    unsafe {
        let tcp = M::tables().of((*sk).__sk_common.skc_family).tcp;
        (*sk).sk_protocol = IPPROTO_TCP as u16;
        (*sk).__sk_common.skc_prot = tcp;
        match (*tcp).init {
            Some(init) => init(sk),
            None => 0,
        }
    }
}

/// Makes the descriptor's socket entirely TCP's, if it is not yet, so that it may outlive the
/// module. Once is enough, before anything can outlive the descriptor: `connect`, `listen`,
/// `setsockopt` (`TCP_REPAIR`) and `release` do it. If a connection is opened by `MSG_FASTOPEN`
/// instead, its remains in `TIME_WAIT` hold the module.
///
/// # Safety
///
/// `socket` is a descriptor of `M`'s tables with a socket, during a call on it, so it holds the
/// module.
unsafe fn hand_over<M: Streams>(socket: *mut bindings::socket) {
    // SAFETY: The call holds the descriptor and so its socket, of a family that there is a table
    // for. The core reads the pointer when the socket's last reference is gone, or when a
    // connection of it only waits (`TIME_WAIT`).
    let (creator, table) = unsafe {
        let sk = (*socket).sk;
        (
            AtomicPtr::from_ptr(&raw mut (*sk).sk_prot_creator),
            M::tables().of((*sk).__sk_common.skc_family),
        )
    };
    let ours = (&raw const table.proto).cast_mut();
    if creator.load(Relaxed) == ours
        && (creator.compare_exchange(ours, table.tcp, Relaxed, Relaxed)).is_ok()
    {
        // SAFETY: The reference that `sk_alloc` took for the table, which the socket no longer
        // names. The descriptor has another.
        unsafe { bindings::module_put(table.proto.owner) };
    }
}

fn code(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

fn count(result: Result<usize>) -> c_int {
    match result {
        Ok(n) => c_int::try_from(n).unwrap_or(c_int::MAX),
        Err(error) => error.to_errno(),
    }
}

/// Passes a call on to TCP, to which the socket belongs.
macro_rules! by_tcp {
    ($call:ident, $name:ident($($argument:expr),*)) => {
        match $call.inet_ops().$name {
            // SAFETY: The descriptor's socket is TCP's, of the family that the function is for, and
            // the arguments are the core's own.
            Some(tcp) => unsafe { tcp($($argument),*) },
            None => EOPNOTSUPP.to_errno(),
        }
    };
}

/// Returns which socket handles the call: TCP's if there is no companion, as while one is being
/// created.
pub(super) fn served<'a, M: Streams>(
    call: &StreamCall<'a, M>,
) -> (Backend, Option<&'a Companion<M>>) {
    match call.companion() {
        Some(companion) => (M::backend(call, companion), Some(companion)),
        None => (Backend::Tcp, None),
    }
}

/// Works as [`served`], after waiting for the decision. Calls that are invalid on listeners go to
/// TCP, which rejects them.
fn awaited<'a, M: Streams>(
    call: &StreamCall<'a, M>,
    timeout: c_long,
) -> Result<Option<&'a Companion<M>>> {
    let Some(companion) = call.companion() else {
        return Ok(None);
    };
    let backend = M::await_backend(call, companion, timeout)?;
    Ok((backend == Backend::Companion).then_some(companion))
}

/// # Safety
///
/// Called by the core, once for a descriptor of this module, which has a socket unless creating or
/// accepting one failed.
unsafe extern "C" fn release<M: Streams>(socket: *mut bindings::socket) -> c_int {
    // SAFETY: The last call on the descriptor. What hangs on the inode is ours or nothing.
    let companion = unsafe { bindings::socket_take_companion(socket) }.cast::<Companion<M>>();
    if !companion.is_null() {
        // SAFETY: Made by `KBox::into_raw`, and taken off the inode by the one that does.
        let companion = unsafe { KBox::from_raw(companion) };
        // SAFETY: This is the descriptor's last call, and the companion has its wait queue until it
        // is closed.
        M::Protocol::release(unsafe { Closing::of(&companion.sock, socket) });
        detach(&companion.sock);
        // SAFETY: The descriptor is there until this call returns. TCP's socket may outlive the
        // module.
        unsafe { StreamCall::<M>::new(socket) }.set_served(false);
    }
    // SAFETY: The socket, if there is one, is TCP's, and all of the families release it alike:
    // without one it does nothing.
    unsafe {
        let family = match (*socket).sk.as_ref() {
            Some(sk) => sk.__sk_common.skc_family,
            None => return 0,
        };
        hand_over::<M>(socket);
        M::released(RawSock::from_raw((*socket).sk));
        match M::tables().of(family).inet_ops().release {
            Some(tcp) => tcp(socket),
            None => 0,
        }
    }
}

/// # Safety
///
/// Called by the core, in a `bind` call on a descriptor of this module, with `len` bytes of kernel
/// memory.
unsafe extern "C" fn bind<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr_unsized,
    len: c_int,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    match served(&call).0 {
        Backend::Companion | Backend::Pending => EINVAL.to_errno(),
        Backend::Tcp | Backend::Both => by_tcp!(call, bind(socket, address, len)),
    }
}

/// # Safety
///
/// Called by the core, in a `connect` call on a descriptor of this module, with `len` bytes of
/// kernel memory.
unsafe extern "C" fn connect<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr_unsized,
    len: c_int,
    flags: c_int,
) -> c_int {
    let nonblocking = flags & bindings::O_NONBLOCK as c_int != 0;
    // SAFETY: A call that runs on `socket`, with a kernel copy of the address, whose length is not
    // negative.
    unsafe {
        hand_over::<M>(socket);
        let call = StreamCall::<M>::new(socket);
        let len = usize::try_from(len).unwrap_or(0);
        let address = core::slice::from_raw_parts(address.cast::<u8>(), len);
        code(M::connect(&call, address, nonblocking))
    }
}

/// # Safety
///
/// Called by the core, in a `listen` call on a descriptor of this module.
unsafe extern "C" fn listen<M: Streams>(socket: *mut bindings::socket, backlog: c_int) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe {
        hand_over::<M>(socket);
        StreamCall::<M>::new(socket)
    };
    // TCP treats the number as unsigned.
    code(M::listen(&call, backlog as u32))
}

/// # Safety
///
/// Called by the core, in an `accept` call on a descriptor of this module, with a descriptor that
/// has no socket, and valid arguments.
unsafe extern "C" fn accept<M: Streams>(
    socket: *mut bindings::socket,
    new: *mut bindings::socket,
    argument: *mut bindings::proto_accept_arg,
) -> c_int {
    // SAFETY: A call that runs on `socket`; the new descriptor is this call's.
    unsafe {
        let call = StreamCall::<M>::new(socket);
        let nonblocking = (*argument).flags & bindings::O_NONBLOCK as c_int != 0;
        // Until the companion serves it, if it ever does.
        let table = M::tables().of(call.sock().family());
        bindings::socket_set_ops(new, table.tcp_ops());
        let mut new = NewStream::new(new, argument);
        code(M::accept(&call, &mut new, nonblocking))
    }
}

/// # Safety
///
/// Called by the core, in a call that asks for an address of a descriptor of this module, with room
/// for a `sockaddr_storage`; after `accept` the descriptor may have `tcp_ops`.
unsafe extern "C" fn getname<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr,
    peer: c_int,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    let end = match peer {
        0 => End::Own,
        1 => End::Peer,
        _ => End::Accepted,
    };
    let (backend, companion) = served(&call);
    let companion = match backend {
        Backend::Companion | Backend::Pending => companion,
        Backend::Tcp | Backend::Both => None,
    };
    let Some(companion) = companion else {
        return by_tcp!(call, getname(socket, address, peer));
    };
    match M::name(&call, companion, end) {
        // SAFETY: The core passes room for a `sockaddr_storage`, of which the helper writes the
        // start.
        Ok(end) => unsafe {
            bindings::inet_write_name(address.cast(), call.is_v6(), end.address.as_ptr(), end.port)
        },
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Called by the core, in a `poll` call on a descriptor of this module, with its file and its wait
/// table.
unsafe extern "C" fn poll<M: Streams>(
    file: *mut bindings::file,
    socket: *mut bindings::socket,
    wait: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: A call that runs on `socket`, with file and table of its own.
    let call = unsafe {
        bindings::sock_poll_wait(file, socket, wait);
        StreamCall::<M>::new(socket)
    };
    let (backend, companion) = served(&call);
    let mut ready = 0;
    if let Some(companion) = companion {
        if backend == Backend::Companion || backend == Backend::Both {
            ready |= M::Protocol::poll(&call.on(companion));
        }
    }
    if backend == Backend::Tcp || backend == Backend::Both {
        ready |= call.poll(file);
    }
    ready
}

/// # Safety
///
/// Called by the core, in an `ioctl` call on a descriptor of this module.
unsafe extern "C" fn ioctl<M: Streams>(
    socket: *mut bindings::socket,
    command: c_uint,
    argument: c_ulong,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if let (Backend::Companion, Some(companion)) = served(&call) {
        match M::Protocol::ioctl(&companion.sock, command) {
            Err(error) if error == ENOIOCTLCMD => {}
            other => return code(other.and_then(|value| IntArgument::new(argument).write(value))),
        }
    }
    by_tcp!(call, ioctl(socket, command, argument))
}

/// # Safety
///
/// Called by the core, in a `shutdown` call on a descriptor of this module.
unsafe extern "C" fn shutdown<M: Streams>(socket: *mut bindings::socket, how: c_int) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    // SHUT_RD, SHUT_WR and SHUT_RDWR are one less than the bits of the halves they mean.
    let halves = match how {
        0..=2 => (how + 1) as u8,
        _ => return EINVAL.to_errno(),
    };
    match served(&call) {
        (Backend::Companion, Some(companion)) => {
            code(M::Protocol::shutdown(&call.on(companion), halves))
        }
        (Backend::Pending, Some(companion)) => code(M::give_up(&call, companion)),
        _ => {
            let result = by_tcp!(call, shutdown(socket, how));
            // The state is loaded after TCP's own call, see `StreamCall::ordered_state`.
            if let Some(companion) = call.companion() {
                M::look_at_listener(&call, companion);
            }
            result
        }
    }
}

/// # Safety
///
/// Called by the core, in a `setsockopt` call on a descriptor of this module; `value` is the
/// user's, or kernel memory of `len` bytes. Options of the socket level come here only if there is
/// a companion.
unsafe extern "C" fn setsockopt<M: Streams>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: bindings::sockptr_t,
    len: c_uint,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe {
        hand_over::<M>(socket);
        StreamCall::<M>::new(socket)
    };
    if exchanges_table(level, name) {
        // As on a kernel without TLS: libraries continue without it.
        return ENOENT.to_errno();
    }
    if let Some(error) = refusal(level, name, call.is_v6()) {
        if matches!(served(&call).0, Backend::Companion | Backend::Pending) {
            return error.to_errno();
        }
    }
    if level != SOL_SOCKET {
        let result = by_tcp!(call, setsockopt(socket, level, name, value, len));
        if let Some(companion) = call.companion() {
            if (level, name) == (SOL_TCP, bindings::TCP_USER_TIMEOUT as c_int) {
                call.adopt_user_timeout(companion);
            }
            M::look_at_listener(&call, companion);
        }
        return result;
    }
    let (backend, companion) = served(&call);
    let of_stamps = [bindings::SO_TIMESTAMPING_OLD, bindings::SO_TIMESTAMPING_NEW];
    let before = (backend == Backend::Companion && of_stamps.contains(&(name as u32)))
        .then(|| call.sock().begin_stamp_numbers())
        .flatten();
    // SAFETY: What the core itself would have called.
    let result = unsafe { bindings::sock_setsockopt(socket, level, name, value, len) };
    if let Some(before) = before.filter(|_| result != 0) {
        call.sock().undo_stamp_numbers(before);
    }
    if let Some(companion) = companion {
        call.adopt(companion);
        M::look_at_listener(&call, companion);
    }
    result
}

/// # Safety
///
/// Called by the core, in a `getsockopt` call on a descriptor of this module; the two addresses are
/// the user's.
unsafe extern "C" fn getsockopt<M: Streams>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: *mut c_char,
    len: *mut c_int,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if let (Backend::Companion, Some(companion)) = served(&call) {
        if (level, name) == (SOL_TCP, bindings::TCP_INFO as c_int) {
            let value = OptionBuffer::new(value.cast(), len);
            return code(M::info(companion).write(value));
        }
        if let Some(part) = of_connection(level, name, call.is_v6()) {
            let info = M::info(companion);
            if info.is_connected() {
                return code(OptionBuffer::new(value.cast(), len).write_u32(part(&info)));
            }
        }
        if M::has_option_level(level) {
            let value = OptionBuffer::new(value.cast(), len);
            return code(M::Protocol::get_option(&companion.sock, level, name, value));
        }
    }
    by_tcp!(call, getsockopt(socket, level, name, value, len))
}

/// # Safety
///
/// Called by the core, in a `sendmsg` call on a descriptor of this module, with that call's
/// message.
unsafe extern "C" fn sendmsg<M: Streams>(
    socket: *mut bindings::socket,
    message: *mut bindings::msghdr,
    len: usize,
) -> c_int {
    // SAFETY: A call that runs on `socket`, with its own message.
    let (call, flags) = unsafe { (StreamCall::<M>::new(socket), (*message).msg_flags as c_int) };
    let timeout = call.sock().send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    match awaited(&call, timeout) {
        // SAFETY: The message is that of the call, which goes on.
        Ok(Some(companion)) => count(unsafe {
            M::Protocol::send(&call.on(companion), &mut Message::from_raw(message), len)
        }),
        Ok(None) => by_tcp!(call, sendmsg(socket, message, len)),
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Called by the core, in a `recvmsg` call on a descriptor of this module, with that call's
/// message.
unsafe extern "C" fn recvmsg<M: Streams>(
    socket: *mut bindings::socket,
    message: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if flags & uapi::MSG_ERRQUEUE != 0 {
        return receive_report(&call, message, len, flags);
    }
    let timeout = call.sock().receive_timeout(flags & uapi::MSG_DONTWAIT != 0);
    match awaited(&call, timeout) {
        Ok(Some(companion)) => {
            // SAFETY: The message is that of the call, which goes on.
            let mut message = unsafe { Message::from_raw(message) };
            let result = M::Protocol::receive(&call.on(companion), &mut message, len, flags);
            companion.sock.show_arrival();
            count(result)
        }
        Ok(None) => by_tcp!(call, recvmsg(socket, message, len, flags)),
        Err(error) => error.to_errno(),
    }
}

/// Receives a report of an error queue: TCP's socket has those about zero-copy sends, which have no
/// packet; the companion has those about its frames.
fn receive_report<M: Streams>(
    call: &StreamCall<'_, M>,
    message: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    let socket = call.socket;
    let code = by_tcp!(call, recvmsg(socket, message, len, flags));
    match call.companion() {
        Some(companion) if code == EAGAIN.to_errno() => {
            // SAFETY: The message is that of the running call, which has changed nothing in it so
            // far.
            let mut message = unsafe { Message::from_raw(message) };
            count(M::Protocol::receive(
                &call.on(companion),
                &mut message,
                len,
                flags,
            ))
        }
        _ => code,
    }
}

/// # Safety
///
/// Called by the core, in a `splice` call out of a descriptor of this module, with the call's own
/// pipe, which it has locked.
unsafe extern "C" fn splice_read<M: Streams>(
    socket: *mut bindings::socket,
    position: *mut bindings::loff_t,
    pipe: *mut bindings::pipe_inode_info,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: A call that runs on `socket`, which has a file then.
    let (call, nonblocking) = unsafe {
        (
            StreamCall::<M>::new(socket),
            bindings::socket_is_nonblocking(socket),
        )
    };
    match awaited(&call, call.sock().receive_timeout(nonblocking)) {
        // SAFETY: The call goes on, on `socket` with its file, and the pipe is its own.
        Ok(Some(companion)) => unsafe {
            splice_by(&call.on(companion), socket, position, pipe, len, flags)
        },
        Ok(None) => match call.inet_ops().splice_read {
            // SAFETY: The socket is TCP's, and the arguments are the core's own.
            Some(tcp) => unsafe { tcp(socket, position, pipe, len, flags) },
            None => EINVAL.to_errno() as isize,
        },
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// Called by the core, in a `splice` or `sendfile` call on a descriptor of this module.
unsafe extern "C" fn splice_eof<M: Streams>(socket: *mut bindings::socket) {
    // SAFETY: A call that runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if let (Backend::Companion, Some(companion)) = served(&call) {
        return M::Protocol::no_more(&companion.sock);
    }
    if let Some(tcp) = call.inet_ops().splice_eof {
        // SAFETY: The socket is TCP's.
        unsafe { tcp(socket) };
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The tables through which the kernel calls streams, and their registration.

use super::tcp_options::{exchanges_table, of_connection, refusal};
use super::*;

const AF_INET: c_int = bindings::AF_INET as c_int;
const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;
pub(super) const IPPROTO_TCP: u32 = bindings::IPPROTO_TCP;

/// The kernel's tables for one of the two families. They are complete before they are registered.
pub(crate) struct Table {
    /// TCP's own table.
    tcp: *mut bindings::proto,
    /// A copy of TCP's table, except for `init` and the owner. Sockets are allocated with this
    /// table, and use TCP's own from [`init`] on.
    ///
    /// This table stays the `sk_prot_creator` of a socket until a call [hands over](hand_over) the
    /// socket. Until then the socket holds the module, because nothing else holds it while the core
    /// creates the socket. If the creation fails, the core drops the socket's reference to the
    /// module.
    proto: bindings::proto,
    /// A copy of TCP's table, except for the functions of [`serving`](super::serving), which
    /// `io_uring` calls or compares. A TCP socket has this table while its companion serves the
    /// descriptor's calls.
    serving: bindings::proto,
    /// TCP's own calls: `inet_stream_ops` or `inet6_stream_ops`.
    inet_ops: *const bindings::proto_ops,
    /// TCP's calls, except for the owner and the calls that may lead to a companion.
    tcp_ops: bindings::proto_ops,
    /// A copy of TCP's calls. It differs in the owner, and in the calls that ask which socket
    /// serves them.
    mapped_ops: bindings::proto_ops,
    switch: bindings::inet_protosw,
}

impl Table {
    /// Returns TCP's own calls. The pointer is set, since a descriptor uses this table.
    pub(super) fn inet_ops(&self) -> &'static bindings::proto_ops {
        // SAFETY: TCP is no module, and its tables are static. Without these tables there is no
        // registration, hence no descriptor whose calls could come here.
        unsafe { &*self.inet_ops }
    }

    /// Returns TCP's own table for its sockets.
    pub(super) fn tcp_proto(&self) -> *mut bindings::proto {
        self.tcp
    }

    pub(super) fn tcp_ops(&self) -> *const bindings::proto_ops {
        &self.tcp_ops
    }

    pub(super) fn mapped_ops(&self) -> *const bindings::proto_ops {
        &self.mapped_ops
    }

    /// Returns the table of a TCP socket, depending on whether its companion
    /// [serves](StreamCall::set_served) the calls.
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
    /// Whether there is or was a registration. Only that registration may write the tables.
    taken: AtomicBool,
    _streams: PhantomData<fn() -> M>,
}

// SAFETY: Only the one registration writes the tables, before the kernel learns of them.
unsafe impl<M: Streams> Sync for Tables<M> {}

impl<M: Streams> Tables<M> {
    /// Creates empty tables.
    pub(crate) const fn new() -> Self {
        // SAFETY: The tables consist of pointers, numbers and optional functions, so all-zero bytes
        // are a valid value.
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

    /// Returns the table of a family of which a socket exists.
    pub(super) fn of(&self, family: u16) -> &Table {
        // SAFETY: The table was complete before the kernel learnt of it, and a socket is created
        // only after that.
        unsafe { &*self.place(family) }
    }

    /// Copies TCP's tables for `family`.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` if the kernel does not have the family, `ENOMEM` or a similar error if there
    /// is no memory.
    ///
    /// # Safety
    ///
    /// Called by the one registration, before the kernel knows the table.
    unsafe fn fill(&self, family: c_int, protocol: u16, module: &'static ThisModule) -> Result {
        let mut socket: *mut bindings::socket = ptr::null_mut();
        // SAFETY: The initial namespace always exists. The function writes `socket` if it succeeds.
        to_result(unsafe {
            bindings::sock_create_kern(
                &raw mut bindings::init_net,
                family,
                SOCK_STREAM as c_int,
                IPPROTO_TCP as c_int,
                &mut socket,
            )
        })?;
        // SAFETY: By the caller's promise, no one else uses the table.
        let table = unsafe { &mut *self.place(family as u16) };
        // SAFETY: The socket is ours until it is released. It points to TCP's tables, which are
        // static, since TCP is no module. The tables consist of numbers and of pointers to static
        // objects.
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
        // `accept` and `shutdown` are the module's even without a companion, since a call may begin
        // before there is one. TCP's own `accept` would then wake up for a companion's connections
        // in vain, and TCP's own `shutdown` would stop only one of the two listeners.
        ops.accept = Some(accept::<M>);
        // For the new connection's address, the core calls `getname` of the table through which
        // `accept` was called.
        ops.getname = Some(getname::<M>);
        ops.shutdown = Some(shutdown::<M>);
        ops.setsockopt = Some(setsockopt::<M>);
        table.mapped_ops = *ops;
        let ops = &mut table.mapped_ops;
        ops.bind = Some(bind::<M>);
        ops.poll = Some(poll::<M>);
        ops.ioctl = Some(ioctl::<M>);
        // TCP's `compat_ioctl` handles the commands whose arguments have a different layout in
        // 32-bit programs, and passes the others to `ioctl`.
        ops.getsockopt = Some(getsockopt::<M>);
        // If TCP ever has a `getsockopt_iter`, the core would call it instead of the module's
        // function.
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

/// Tables that are complete and not yet registered. Every step that can fail for lack of memory
/// comes before registration. If the module failed to load after it had registered the protocol
/// number, it would be freed although new sockets might use it.
pub(crate) struct Prepared<M: Streams> {
    has_inet6: bool,
    _streams: PhantomData<fn() -> M>,
}

impl<M: Streams> Prepared<M> {
    /// Creates the tables for streams with the protocol number `protocol` in `AF_INET` and, if the
    /// kernel has it, `AF_INET6`. May be called once.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call, and the errors of creating a socket.
    pub(crate) fn new(protocol: u16, module: &'static ThisModule) -> Result<Self> {
        let tables = M::tables();
        if tables.taken.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        // SAFETY: This is the only registration there ever is, and the kernel does not know the
        // table yet.
        unsafe { tables.fill(AF_INET, protocol, module)? };
        // SAFETY: This is the only registration there ever is, and the kernel does not know the
        // table yet.
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
        // SAFETY: The table is complete and static. It is registered only once, since this function
        // consumes the value.
        unsafe {
            let switch = &raw mut (*tables.inet.get()).switch;
            bindings::inet_register_protosw(switch);
            // `inet_register_protosw` reports a failure only in the log.
            if (*switch).list.next.is_null() {
                return Err(EEXIST);
            }
        }
        let mut registration = Registration {
            has_inet6: false,
            _streams: PhantomData,
        };
        if self.has_inet6 {
            // SAFETY: The table is complete and static. It is registered only once, since this
            // function consumes the value.
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

/// The registration of the protocol number for both families. Dropping it unregisters the number.
pub(crate) struct Registration<M: Streams> {
    has_inet6: bool,
    _streams: PhantomData<fn() -> M>,
}

impl<M: Streams> Drop for Registration<M> {
    fn drop(&mut self) {
        let tables = M::tables();
        // SAFETY: `register` has registered the tables. Both functions wait for lookups of a
        // protocol. The remaining sockets are entirely TCP's, because a socket with a descriptor,
        // or about to get one, would hold the module. A `socket` call may have found the table but
        // not yet taken its reference to the module, since `inet_create` leaves the read section
        // before `sk_alloc`. The core deals with this for every module with such a table:
        // `try_module_get` now refuses the reference.
        unsafe {
            if self.has_inet6 {
                bindings::inet6_unregister(&raw mut (*tables.inet6.get()).switch);
            }
            bindings::inet_unregister_protosw(&raw mut (*tables.inet.get()).switch);
        }
    }
}

/// Turns a new socket into a TCP socket.
///
/// # Safety
///
/// Called by the core with a new socket that was allocated with this module's copy of TCP's table.
unsafe extern "C" fn init<M: Streams>(sk: *mut bindings::sock) -> c_int {
    // SAFETY: No one else has a reference to the socket yet. It was allocated like a TCP socket,
    // from the same slab cache, so it may become one.
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

/// Makes the descriptor's socket entirely TCP's, unless it already is, so that it may outlive the
/// module. This must happen before anything can outlive the descriptor, so `connect`, `listen`,
/// `setsockopt` (`TCP_REPAIR`) and `release` call this. If a connection is opened by `MSG_FASTOPEN`
/// instead, its `TIME_WAIT` socket holds the module.
///
/// # Safety
///
/// `socket` is a descriptor of `M`'s tables with a socket. A running call holds the descriptor,
/// which holds the module.
unsafe fn hand_over<M: Streams>(socket: *mut bindings::socket) {
    // SAFETY: The call holds the descriptor and so its socket, for whose family there is a table.
    // The core reads `sk_prot_creator` only after the socket's last reference is gone, or when it
    // creates a `TIME_WAIT` socket.
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
        // SAFETY: `sk_alloc` took a reference to the module for `table.proto`. The function drops
        // this reference, since the socket no longer points to `table.proto`. The descriptor holds
        // another reference.
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
            // SAFETY: The descriptor's socket is TCP's, and of the family that the function is for.
            // The core passed the arguments.
            Some(tcp) => unsafe { tcp($($argument),*) },
            None => EOPNOTSUPP.to_errno(),
        }
    };
}

/// Returns the socket that handles the call, and the companion. TCP's socket handles it if there is
/// no companion yet, for instance while one is being created.
pub(super) fn served<'a, M: Streams>(
    call: &StreamCall<'a, M>,
) -> (Backend, Option<&'a Companion<M>>) {
    match call.companion() {
        Some(companion) => (M::backend(call, companion), Some(companion)),
        None => (Backend::Tcp, None),
    }
}

/// Works like [`served`], but waits for the decision of `connect`, and returns the companion only
/// if the companion handles the call. The calls that use this function are invalid on listeners. On
/// a listener they go to TCP's socket, and TCP rejects them.
fn awaited<'a, M: Streams>(
    call: &StreamCall<'a, M>,
    mut timeout: c_long,
) -> Result<Option<&'a Companion<M>>> {
    let Some(companion) = call.companion() else {
        return Ok(None);
    };
    let backend = M::await_backend(call, companion, &mut timeout)?;
    Ok((backend == Backend::Companion).then_some(companion))
}

/// # Safety
///
/// Called by the core, once for a descriptor of this module. The descriptor has a socket unless
/// creating or accepting the socket failed.
unsafe extern "C" fn release<M: Streams>(socket: *mut bindings::socket) -> c_int {
    // SAFETY: This is the last call on the descriptor. The pointer in the inode is null or this
    // module's companion.
    let companion = unsafe { bindings::socket_take_companion(socket) }.cast::<Companion<M>>();
    if !companion.is_null() {
        // SAFETY: The pointer comes from `KBox::into_raw`. Only this call has taken it from the
        // inode.
        let companion = unsafe { KBox::from_raw(companion) };
        // SAFETY: This is the descriptor's last call, and the companion uses the descriptor's wait
        // queue until it is detached.
        M::Protocol::release(unsafe { Closing::of(&companion.sock, socket) });
        detach(&companion.sock);
        // SAFETY: The descriptor is valid until this call returns. TCP's socket, which may outlive
        // the module, gets TCP's own table again.
        unsafe { StreamCall::<M>::new(socket) }.set_served(false);
    }
    // SAFETY: The socket, if there is one, is TCP's. The function that releases the socket belongs
    // to the socket's own family.
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
/// memory at `address`.
unsafe extern "C" fn bind<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr_unsized,
    len: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    match served(&call).0 {
        Backend::Companion | Backend::Pending => EINVAL.to_errno(),
        Backend::Tcp | Backend::Both => by_tcp!(call, bind(socket, address, len)),
    }
}

/// # Safety
///
/// Called by the core, in a `connect` call on a descriptor of this module, with `len` bytes of
/// kernel memory at `address`.
unsafe extern "C" fn connect<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr_unsized,
    len: c_int,
    flags: c_int,
) -> c_int {
    let nonblocking = flags & bindings::O_NONBLOCK as c_int != 0;
    // SAFETY: The call runs on `socket`, and `address` is a kernel copy of `len` bytes. A negative
    // length becomes 0.
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
    // SAFETY: The call runs on `socket`.
    let call = unsafe {
        hand_over::<M>(socket);
        StreamCall::<M>::new(socket)
    };
    // TCP treats `backlog` as unsigned.
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
    // SAFETY: The call runs on `socket`, and the new descriptor belongs to this call.
    unsafe {
        let call = StreamCall::<M>::new(socket);
        let nonblocking = (*argument).flags & bindings::O_NONBLOCK as c_int != 0;
        // The new descriptor has `tcp_ops` until a companion serves it, if one ever does.
        let table = M::tables().of(call.sock().family());
        bindings::socket_set_ops(new, table.tcp_ops());
        let mut new = NewStream::new(new, argument);
        code(M::accept(&call, &mut new, nonblocking))
    }
}

/// # Safety
///
/// Called by the core, in a call that asks for an address of a descriptor of this module, with room
/// for a `sockaddr_storage` at `address`. After `accept` the descriptor may have `tcp_ops`.
unsafe extern "C" fn getname<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr,
    peer: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
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
        // SAFETY: The core passes room for a `sockaddr_storage`, and the helper writes at most a
        // `sockaddr_in6`.
        Ok(end) => unsafe {
            bindings::inet_write_name(address.cast(), call.is_v6(), end.address.as_ptr(), end.port)
        },
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// Called by the core, in a `poll` call on a descriptor of this module, with the call's file and
/// wait table.
unsafe extern "C" fn poll<M: Streams>(
    file: *mut bindings::file,
    socket: *mut bindings::socket,
    wait: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The call runs on `socket`, and `file` and `wait` belong to it.
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
    // SAFETY: The call runs on `socket`.
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
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    // Each of SHUT_RD, SHUT_WR and SHUT_RDWR is one less than the `*_SHUTDOWN` bits that it means.
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
/// Called by the core, in a `setsockopt` call on a descriptor of this module; `value` is user
/// memory, or kernel memory of `len` bytes. Socket-level options come here only if there is a
/// companion.
unsafe extern "C" fn setsockopt<M: Streams>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: bindings::sockptr_t,
    len: c_uint,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let call = unsafe {
        hand_over::<M>(socket);
        StreamCall::<M>::new(socket)
    };
    if exchanges_table(level, name) {
        // This is the error of a kernel without TLS, so libraries continue without kernel TLS.
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
            if result == 0 {
                call.apply(companion, level, name);
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
    // SAFETY: The core itself would have called this function, with the same arguments.
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
/// Called by the core, in a `getsockopt` call on a descriptor of this module; `value` and `len`
/// point to user memory.
unsafe extern "C" fn getsockopt<M: Streams>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: *mut c_char,
    len: *mut c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
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
    // SAFETY: The call runs on `socket`, and `message` belongs to it.
    let (call, flags) = unsafe { (StreamCall::<M>::new(socket), (*message).msg_flags as c_int) };
    let timeout = call.sock().send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    match awaited(&call, timeout) {
        Ok(Some(companion)) => {
            // SAFETY: The message belongs to the running call.
            let mut message = unsafe { Message::from_raw(message) };
            if call.is_corked() {
                message.add_flags(uapi::MSG_MORE);
            }
            count(M::Protocol::send(&call.on(companion), &mut message, len))
        }
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
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if flags & uapi::MSG_ERRQUEUE != 0 {
        return receive_report(&call, message, len, flags);
    }
    let timeout = call.sock().receive_timeout(flags & uapi::MSG_DONTWAIT != 0);
    match awaited(&call, timeout) {
        Ok(Some(companion)) => {
            // SAFETY: The message belongs to the running call.
            let mut message = unsafe { Message::from_raw(message) };
            let result = M::Protocol::receive(&call.on(companion), &mut message, len, flags);
            companion.sock.show_arrival();
            if result.is_ok() {
                call.tell_unread(companion, &mut message);
            }
            count(result)
        }
        Ok(None) => by_tcp!(call, recvmsg(socket, message, len, flags)),
        Err(error) => error.to_errno(),
    }
}

/// Receives a report from an error queue. The queue of TCP's socket has the reports on zero-copy
/// sends, which contain no packet. The companion's queue has the reports on its frames.
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
            // SAFETY: The message belongs to the running call, which has changed nothing in it so
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
/// pipe, which the core has locked.
unsafe extern "C" fn splice_read<M: Streams>(
    socket: *mut bindings::socket,
    position: *mut bindings::loff_t,
    pipe: *mut bindings::pipe_inode_info,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: The call runs on `socket`, which has a file during the call.
    let (call, nonblocking) = unsafe {
        (
            StreamCall::<M>::new(socket),
            bindings::socket_is_nonblocking(socket),
        )
    };
    match awaited(&call, call.sock().receive_timeout(nonblocking)) {
        // SAFETY: The call is still running on `socket`, which has a file. The position and the
        // pipe belong to the call.
        Ok(Some(companion)) => unsafe {
            splice_by(&call.on(companion), socket, position, pipe, len, flags)
        },
        Ok(None) => match call.inet_ops().splice_read {
            // SAFETY: The socket is TCP's, and the core passed the arguments.
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
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    if let (Backend::Companion, Some(companion)) = served(&call) {
        if !call.is_corked() {
            M::Protocol::no_more(&companion.sock);
        }
        return;
    }
    if let Some(tcp) = call.inet_ops().splice_eof {
        // SAFETY: The socket is TCP's.
        unsafe { tcp(socket) };
    }
}

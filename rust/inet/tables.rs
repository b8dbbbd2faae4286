// SPDX-License-Identifier: GPL-2.0

//! The tables through which the kernel calls stream sockets, and the registration of these tables.

use super::*;

pub(super) const AF_INET: c_int = bindings::AF_INET as c_int;
pub(super) const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;
pub(super) const IPPROTO_TCP: u32 = bindings::IPPROTO_TCP;

/// The kernel's tables for one of the two families. They are complete before they are registered.
pub(crate) struct Table {
    /// TCP's own table for its sockets.
    tcp: *mut bindings::proto,
    /// A copy of TCP's table with a different `init` and a different owner. Sockets are allocated
    /// with this table, and use TCP's own table from [`init`] on.
    ///
    /// This table stays the `sk_prot_creator` of a socket until a call [hands over](hand_over) the
    /// socket to TCP. Until then the socket holds the module, because nothing else holds the module
    /// while the core creates the socket. If the creation fails, the core drops the socket's
    /// reference to the module.
    proto: bindings::proto,
    /// A copy of TCP's table in which the functions of [`serving`](super::serving) replace TCP's
    /// own. `io_uring` calls them, or compares them with TCP's. A TCP socket has this table while
    /// its companion serves the descriptor's calls.
    serving: bindings::proto,
    /// TCP's own calls: `inet_stream_ops` or `inet6_stream_ops`.
    inet_ops: *const bindings::proto_ops,
    calls: Calls,
    switch: bindings::inet_protosw,
}

/// The tables of calls for descriptors.
struct Calls {
    /// The calls of a descriptor that only TCP's socket serves: a copy of TCP's own table. Only its
    /// owner, and the calls that may lead to a companion, are the module's.
    tcp: bindings::proto_ops,
    /// The calls of a descriptor that its companion may serve: a copy of `tcp` in which more calls
    /// are the module's. These first ask which socket serves them ([`Streams::backend`]).
    mapped: bindings::proto_ops,
}

impl Table {
    /// Returns TCP's own calls. The pointer is set, since a descriptor uses this table.
    pub(super) fn inet_ops(&self) -> &'static bindings::proto_ops {
        // SAFETY: TCP is built into the kernel, and its tables are static. Registration fails if
        // the tables are missing, so the pointer is valid whenever a call on a descriptor comes
        // here.
        unsafe { &*self.inet_ops }
    }

    /// Returns TCP's own table for its sockets.
    pub(super) fn tcp_proto(&self) -> *mut bindings::proto {
        self.tcp
    }

    /// Returns the module's protocol number.
    pub(super) fn protocol(&self) -> u16 {
        self.switch.protocol
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

/// The alias family's number, and its tables of calls: copies of those for `AF_INET` with this
/// number. In both, `bind` and `sendmsg` are the module's, since they read addresses.
struct Alias {
    family: u16,
    calls: Calls,
}

/// The tables of both families, and of the alias family.
pub(crate) struct Tables<M: Streams> {
    inet: UnsafeCell<Table>,
    inet6: UnsafeCell<Table>,
    alias: UnsafeCell<Alias>,
    /// Whether a registration has begun. Only the first registration may write the tables.
    taken: AtomicBool,
    /// Whether the alias family's tables are written.
    alias_taken: AtomicBool,
    /// Whether sockets of the alias family can be created.
    pub(super) alias_open: AtomicBool,
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
                alias: UnsafeCell::new(mem::zeroed()),
                taken: AtomicBool::new(false),
                alias_taken: AtomicBool::new(false),
                alias_open: AtomicBool::new(false),
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

    /// Returns the table of `family`. The table is complete, because a socket of this family
    /// exists.
    pub(super) fn of(&self, family: u16) -> &Table {
        // SAFETY: The table was complete before the kernel learnt of it, and a socket is created
        // only after that.
        unsafe { &*self.place(family) }
    }

    /// Returns the alias family, whose tables are complete, because the kernel knows the family.
    fn alias(&self) -> &Alias {
        // SAFETY: The tables were complete before the kernel learnt of the family.
        unsafe { &*self.alias.get() }
    }

    /// Returns the number of the alias family, which is registered.
    pub(super) fn alias_family(&self) -> u16 {
        self.alias().family
    }

    /// Returns the table of calls for a descriptor of `family`, which may be the alias family.
    /// `asked` says whether calls ask [`Streams::backend`] which socket serves them.
    ///
    /// # Safety
    ///
    /// There is a descriptor of `family`, or `family` is the alias family and is registered.
    pub(super) unsafe fn calls(&self, family: u16, asked: bool) -> *const bindings::proto_ops {
        let is_alias = c_int::from(family) != AF_INET && family != AF_INET6;
        let calls = if is_alias {
            &self.alias().calls
        } else {
            &self.of(family).calls
        };
        if asked {
            &calls.mapped
        } else {
            &calls.tcp
        }
    }

    /// Copies the tables of calls of `AF_INET`, which are complete, for the alias family `family`.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call.
    ///
    /// # Safety
    ///
    /// The tables of `AF_INET` are complete, and the alias family is not registered yet.
    pub(super) unsafe fn fill_alias(&self, family: u16) -> Result {
        if self.alias_taken.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        let inet = self.of(AF_INET as u16);
        let copy = |ops: &bindings::proto_ops| bindings::proto_ops {
            family: family.into(),
            bind: Some(calls::bind::<M>),
            sendmsg: Some(calls::sendmsg::<M>),
            ..*ops
        };
        let calls = Calls {
            tcp: copy(&inet.calls.tcp),
            mapped: copy(&inet.calls.mapped),
        };
        // SAFETY: Only this call writes the tables, and the kernel does not know them yet.
        unsafe { self.alias.get().write(Alias { family, calls }) };
        Ok(())
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
            table.calls.tcp = ptr::read(table.inet_ops);
            bindings::sock_release(socket);
        }
        table.proto.init = Some(init::<M>);
        table.proto.owner = module.as_ptr().cast();
        table.serving.ioctl = Some(serving::answer::<M>);
        table.serving.recvmsg = Some(serving::receive::<M>);
        let ops = &mut table.calls.tcp;
        ops.owner = module.as_ptr().cast();
        ops.release = Some(calls::release::<M>);
        ops.connect = Some(calls::connect::<M>);
        ops.listen = Some(calls::listen::<M>);
        // `accept` and `shutdown` are the module's even without a companion, since the descriptor
        // may get a companion while a call runs. A companion's connections would wake TCP's own
        // `accept` in vain. TCP's own `shutdown` would stop only one of the two listeners.
        ops.accept = Some(calls::accept::<M>);
        // For the new connection's address, the core calls `getname` of the table through which
        // `accept` was called.
        ops.getname = Some(calls::getname::<M>);
        ops.shutdown = Some(calls::shutdown::<M>);
        ops.setsockopt = Some(calls::setsockopt::<M>);
        table.calls.mapped = *ops;
        let ops = &mut table.calls.mapped;
        ops.bind = Some(calls::bind::<M>);
        ops.poll = Some(calls::poll::<M>);
        ops.ioctl = Some(calls::ioctl::<M>);
        // `compat_ioctl` stays TCP's. It handles the commands whose arguments have a different
        // layout in 32-bit programs, and passes the others to `ioctl`.
        ops.getsockopt = Some(calls::getsockopt::<M>);
        // If a later kernel's TCP had a `getsockopt_iter`, the core would call it instead of the
        // module's function.
        ops.getsockopt_iter = None;
        ops.sendmsg = Some(calls::sendmsg::<M>);
        ops.recvmsg = Some(calls::recvmsg::<M>);
        ops.splice_eof = Some(calls::splice_eof::<M>);
        ops.splice_read = Some(calls::splice_read::<M>);
        ops.mmap = Some(bindings::sock_no_mmap);
        table.switch.type_ = SOCK_STREAM as u16;
        table.switch.protocol = protocol;
        table.switch.prot = &raw mut table.proto;
        table.switch.ops = &raw const table.calls.tcp;
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
        // The module relies on each socket's namespace lasting as long as the socket. A socket of
        // the kernel itself does not hold it, and only the initial one lasts for ever.
        let net = bindings::sock_net(sk);
        if bindings::sk_is_kernels(sk) && net != &raw mut bindings::init_net {
            return EINVAL.to_errno();
        }
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
/// `socket` is a valid `struct socket` with one of `M`'s tables and with its `sk` set. A running
/// call holds the descriptor, which holds the module.
pub(super) unsafe fn hand_over<M: Streams>(socket: *mut bindings::socket) {
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

// SPDX-License-Identifier: GPL-2.0

//! The calls on a stream's descriptor: each goes to TCP's socket or to the companion.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h) (`struct proto_ops`)

use super::super::family::{code, count};
use super::alias::Room;
use super::tables::hand_over;
use super::tcp_options::{exchanges_table, of_connection, refusal};
use super::*;

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
/// Called by the core, once for each `struct socket` of this module. `socket` is valid. It has no
/// `sk` if creating or accepting the socket failed.
pub(super) unsafe extern "C" fn release<M: Streams>(socket: *mut bindings::socket) -> c_int {
    // SAFETY: This is the last call on the descriptor. The pointer in the inode is null or this
    // module's companion.
    let companion = unsafe { bindings::socket_take_companion(socket) }.cast::<Companion<M>>();
    if !companion.is_null() {
        // SAFETY: The pointer comes from `KBox::into_raw`. Only this call has taken it from the
        // inode.
        let companion = unsafe { KBox::from_raw(companion) };
        // SAFETY: The descriptor is valid until this call returns.
        let call = unsafe { StreamCall::<M>::new(socket) };
        M::closing(&call, &companion);
        // SAFETY: This is the descriptor's last call, and the companion uses the descriptor's wait
        // queue until it is detached.
        M::Protocol::release(unsafe { Closing::of(&companion.sock, socket) });
        detach(&companion.sock);
        // TCP's socket, which may outlive the module, gets TCP's own table again.
        call.set_served(false);
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
pub(super) unsafe extern "C" fn bind<M: Streams>(
    socket: *mut bindings::socket,
    address: *mut bindings::sockaddr_unsized,
    len: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    match served(&call).0 {
        Backend::Companion | Backend::Pending => EINVAL.to_errno(),
        Backend::Tcp | Backend::Both => {
            let mut room = Room::new();
            // SAFETY: The core passed `len` bytes at `address`. A negative length becomes 0.
            let name = unsafe {
                let len = usize::try_from(len).unwrap_or(0);
                core::slice::from_raw_parts(address.cast::<u8>(), len)
            };
            let (address, len) = match call.copy_name(name, &mut room) {
                Some(copy) => (copy.as_mut_ptr().cast(), copy.len() as c_int),
                None => (address, len),
            };
            by_tcp!(call, bind(socket, address, len))
        }
    }
}

/// # Safety
///
/// Called by the core, in a `connect` call on a descriptor of this module, with `len` bytes of
/// kernel memory at `address`.
pub(super) unsafe extern "C" fn connect<M: Streams>(
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
        let mut room = Room::new();
        code(M::connect(
            &call,
            call.read_name(address, &mut room),
            nonblocking,
        ))
    }
}

/// # Safety
///
/// Called by the core, in a `listen` call on a descriptor of this module.
pub(super) unsafe extern "C" fn listen<M: Streams>(
    socket: *mut bindings::socket,
    backlog: c_int,
) -> c_int {
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
/// Called by the core, in an `accept` call on a descriptor of this module, with valid arguments.
/// `new` is a `struct socket` whose `sk` is not set yet.
pub(super) unsafe extern "C" fn accept<M: Streams>(
    socket: *mut bindings::socket,
    new: *mut bindings::socket,
    argument: *mut bindings::proto_accept_arg,
) -> c_int {
    // SAFETY: The call runs on `socket`, and the new descriptor belongs to this call.
    unsafe {
        let call = StreamCall::<M>::new(socket);
        let nonblocking = (*argument).flags & bindings::O_NONBLOCK as c_int != 0;
        let is_kernels = (*new).ops.is_null();
        // The new descriptor's calls go to TCP until a companion serves them, if one ever does.
        bindings::socket_set_ops(new, M::tables().calls(call.family(), false));
        let mut stream = NewStream::new(new, argument);
        let result = M::accept(&call, &mut stream, nonblocking);
        if result.is_err() && is_kernels {
            // In a call of kernel code, the core takes the descriptor's reference to the module
            // only if the call succeeds. If it fails, the core releases the descriptor, and drops
            // the reference since there is a table. The listener holds the module, so this
            // function succeeds.
            let _ = bindings::try_module_get((*(*new).ops).owner);
        }
        code(result)
    }
}

/// # Safety
///
/// Called by the core, in a call that asks for an address of a descriptor of this module, with room
/// for a `sockaddr_storage` at `address`. After `accept`, the descriptor may still have the table
/// for a descriptor that only TCP's socket serves.
pub(super) unsafe extern "C" fn getname<M: Streams>(
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
    let code = match companion {
        None => by_tcp!(call, getname(socket, address, peer)),
        Some(companion) => match M::name(&call, companion, end) {
            // SAFETY: The core passes room for a `sockaddr_storage`, and the helper writes at most
            // a `sockaddr_in6`.
            Ok((end, device)) => unsafe {
                bindings::inet_write_name(
                    address.cast(),
                    call.is_v6(),
                    end.address.as_ptr(),
                    end.port,
                    c_int::try_from(device).unwrap_or(0),
                )
            },
            Err(error) => error.to_errno(),
        },
    };
    if code >= 0 {
        // SAFETY: The core passes room for a `sockaddr_storage`.
        unsafe { call.write_family(address) };
    }
    code
}

/// # Safety
///
/// Called by the core, in a `poll` call on a descriptor of this module, with the call's file and
/// wait table.
pub(super) unsafe extern "C" fn poll<M: Streams>(
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
pub(super) unsafe extern "C" fn ioctl<M: Streams>(
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
pub(super) unsafe extern "C" fn shutdown<M: Streams>(
    socket: *mut bindings::socket,
    how: c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    // Adding 1 to SHUT_RD, SHUT_WR or SHUT_RDWR gives the `*_SHUTDOWN` bits with the same meaning.
    let halves = match how {
        0..=2 => (how + 1) as u8,
        _ => return EINVAL.to_errno(),
    };
    loop {
        match served(&call) {
            (Backend::Companion, Some(companion)) => {
                M::shutting(companion);
                return code(M::Protocol::shutdown(&call.on(companion), halves));
            }
            (Backend::Pending, Some(companion)) => {
                if let Some(result) = M::give_up(&call, companion) {
                    return code(result);
                }
            }
            _ => {
                let result = by_tcp!(call, shutdown(socket, how));
                // `look_at_listener` loads the state of TCP's socket after TCP's own call: see
                // `StreamCall::ordered_state`.
                if let Some(companion) = call.companion() {
                    M::look_at_listener(&call, companion);
                }
                return result;
            }
        }
    }
}

/// # Safety
///
/// Called by the core, in a `setsockopt` call on a descriptor of this module; `value` is user
/// memory, or kernel memory of `len` bytes. Socket-level options come here only if there is a
/// companion.
pub(super) unsafe extern "C" fn setsockopt<M: Streams>(
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
        // From this error, libraries conclude that the kernel has no TLS, and continue without
        // kernel TLS.
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
pub(super) unsafe extern "C" fn getsockopt<M: Streams>(
    socket: *mut bindings::socket,
    level: c_int,
    name: c_int,
    value: *mut c_char,
    len: *mut c_int,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let call = unsafe { StreamCall::<M>::new(socket) };
    let (backend, companion) = served(&call);
    if (level, name) == (SOL_TCP, bindings::TCP_INFO as c_int) {
        let info = match (&backend, companion) {
            (Backend::Companion, Some(companion)) => Some(M::info(companion)),
            (Backend::Pending, _) => Some(StreamInfo::of_attempt()),
            _ => None,
        };
        if let Some(info) = info {
            return code(info.write(OptionBuffer::new(value.cast(), len)));
        }
    }
    if let (Backend::Companion, Some(companion)) = (backend, companion) {
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
pub(super) unsafe extern "C" fn sendmsg<M: Streams>(
    socket: *mut bindings::socket,
    message: *mut bindings::msghdr,
    len: usize,
) -> c_int {
    // SAFETY: The call runs on `socket`, and `message` belongs to it.
    let (call, flags) = unsafe { (StreamCall::<M>::new(socket), (*message).msg_flags as c_int) };
    // TCP would read the address of a connection that `MSG_FASTOPEN` opens.
    if flags & bindings::MSG_FASTOPEN as c_int != 0 && call.alias().is_some() {
        return EOPNOTSUPP.to_errno();
    }
    let timeout = call.sock().send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    match awaited(&call, timeout) {
        Ok(Some(companion)) => {
            // SAFETY: The message belongs to the running call.
            let mut message = unsafe { Message::from_raw(message) };
            if message.is_of_kernel() {
                if companion.sock.has_callbacks_in_front() {
                    return match M::leave_to_tcp(&call, companion) {
                        Ok(()) => by_tcp!(call, sendmsg(socket, message.raw(), len)),
                        Err(error) => error.to_errno(),
                    };
                }
                call.follow_priority(companion);
            }
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
pub(super) unsafe extern "C" fn recvmsg<M: Streams>(
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
    // TCP does not wait for urgent data. A socket that is still connecting has none, so the call
    // fails.
    if flags & uapi::MSG_OOB != 0 && served(&call).0 == Backend::Pending {
        return EINVAL.to_errno();
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
            // SAFETY: The message belongs to the running call, and is unchanged so far.
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
pub(super) unsafe extern "C" fn splice_read<M: Streams>(
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
pub(super) unsafe extern "C" fn splice_eof<M: Streams>(socket: *mut bindings::socket) {
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

// SPDX-License-Identifier: GPL-2.0

//! Attaches a connection, of TCP or of a companion, to the new descriptor of an `accept` call.

use super::{tables::IPPROTO_TCP, *};

/// The new `struct socket` of an `accept` call, before it gets a connection of TCP or of a
/// companion. Its `sk` is not set until then.
pub(crate) struct NewStream<'a, M: Streams> {
    socket: *mut bindings::socket,
    argument: *mut bindings::proto_accept_arg,
    _call: PhantomData<(&'a mut (), fn() -> M)>,
}

impl<M: Streams> NewStream<'_, M> {
    /// # Safety
    ///
    /// `socket` is a valid `struct socket` with one of `M`'s tables, and its `sk` is not set yet.
    /// No one else uses it as long as this value exists. `argument` belongs to the `accept` call.
    pub(super) unsafe fn new(
        socket: *mut bindings::socket,
        argument: *mut bindings::proto_accept_arg,
    ) -> Self {
        NewStream {
            socket,
            argument,
            _call: PhantomData,
        }
    }

    /// Returns whether the descriptor has a connection.
    fn is_used(&self) -> bool {
        // SAFETY: The descriptor is ours.
        unsafe { !(*self.socket).sk.is_null() }
    }

    /// Returns the number of the descriptor's inode, if the descriptor has a connection.
    pub(crate) fn inode(&self) -> Option<u64> {
        if !self.is_used() {
            return None;
        }
        // SAFETY: The descriptor is ours, and so is its socket, which is not null.
        let sock = unsafe { RawSock::from_raw((*self.socket).sk) };
        Some(sock.inode())
    }

    /// Accepts one of TCP's connections. Returns `false` if there is none.
    ///
    /// # Errors
    ///
    /// The errors of TCP's `accept`, except `EAGAIN`. `EINVAL` if the descriptor already has a
    /// connection.
    pub(crate) fn accept_of_tcp(&mut self, listener: &StreamCall<'_, M>) -> Result<bool> {
        if self.is_used() {
            return Err(EINVAL);
        }
        let call = listener.inet_ops().accept.ok_or(EOPNOTSUPP)?;
        // SAFETY: The listener is TCP's, the `sk` of the new descriptor is not set yet, and
        // `argument` belongs to the call.
        let result = to_result(unsafe {
            (*self.argument).flags |= bindings::O_NONBLOCK as c_int;
            call(listener.socket, self.socket, self.argument)
        });
        match result {
            Ok(()) => Ok(true),
            Err(error) if error == EAGAIN => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a TCP socket for the descriptor, with the options of `listener`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the descriptor already has a connection, and the errors of creating a socket.
    fn create_front(&mut self, listener: &RawSock) -> Result {
        if self.is_used() {
            return Err(EINVAL);
        }
        let mut made: *mut bindings::socket = ptr::null_mut();
        // SAFETY: The listener holds its namespace. The function writes `made` if it succeeds.
        to_result(unsafe {
            bindings::__sock_create(
                bindings::sock_net(listener.as_ptr()),
                listener.family().into(),
                bindings::sock_type_SOCK_STREAM as c_int,
                IPPROTO_TCP as c_int,
                &mut made,
                bindings::sk_is_kernels(listener.as_ptr()).into(),
            )
        })?;
        // SAFETY: Both descriptors are ours. TCP's socket moves from `made` to `self.socket`, whose
        // table is for such sockets. Then `made` has no socket and is released.
        unsafe {
            let sk = (*made).sk;
            (*made).sk = ptr::null_mut();
            bindings::sock_graft(sk, self.socket);
            bindings::socket_support_zc(self.socket);
            bindings::sock_release(made);
            RawSock::from_raw(sk).inherit_options(listener);
        }
        Ok(())
    }

    /// Makes `child` the companion of the descriptor. Creates the descriptor's TCP socket, with the
    /// listener's options, and [bound](StreamCall::bind_to_device) to `device`, if that is given.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the descriptor already has a connection or the child already has a descriptor,
    /// and the errors of creating a socket. After an error the child is unchanged.
    pub(crate) fn serve(
        &mut self,
        listener: &StreamCall<'_, M>,
        child: SockRef<M::Protocol>,
        record: M::Record,
        device: Option<u32>,
    ) -> Result {
        let companion = KBox::new(
            Companion::<M> {
                sock: child,
                record,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        self.create_front(listener.sock())?;
        companion.sock.charge();
        let guard = companion.sock.lock();
        // SAFETY: The child is locked, so no other call gives it a descriptor at the same time, and
        // it had none. `release` detaches it before the descriptor is freed.
        unsafe {
            if !(*companion.sock.as_ptr()).sk_socket.is_null() || companion.sock.is_dead() {
                return Err(EINVAL);
            }
            attach(self.socket, &companion.sock);
        }
        drop(guard);
        // SAFETY: The descriptor is ours and has a socket now.
        let call = unsafe { StreamCall::<M>::new(self.socket) };
        if let Some(device) = device {
            let _ = call.bind_to_device(device);
        }
        call.adopt(&companion);
        // SAFETY: No one else uses the descriptor. The companion is complete, and the descriptor's
        // inode takes it over.
        unsafe {
            bindings::socket_set_companion(self.socket, KBox::into_raw(companion).cast());
            (*self.socket).state = bindings::socket_state_SS_CONNECTED;
        }
        call.set_asked(true);
        call.set_served(true);
        Ok(())
    }
}

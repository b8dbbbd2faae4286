// SPDX-License-Identifier: GPL-2.0

//! `struct sock` with a protocol's own state behind it: references, locks, flags, queues.
//!
//! A [`Sock`] has two parts of its own. `shared` is read by anyone at any time and looks after
//! itself (atomics, locks). `state` belongs to whoever has the socket locked: a task through
//! [`Sock::lock`], or the receive path through [`Sock::lock_bh`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    family::Vtable,
    map::Entry,
    namespace::Net,
    queue::Queue,
    skb::{Context, Skb},
    uapi,
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr,
    ptr::NonNull,
    sync::atomic::{
        fence, AtomicBool, AtomicI32, AtomicU32, AtomicU8,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// State of a socket, as the core's helpers test it (`TCP_*` of `net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub(crate) enum TcpState {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

/// A protocol: what its sockets carry beside `struct sock`.
pub(crate) trait Protocol: Sized + 'static {
    /// Read without the socket lock.
    type Shared: Sync;
    /// Guarded by the socket lock.
    type State;

    /// The tables the kernel calls the protocol by.
    fn vtable() -> &'static Vtable<Self>;
    /// A packet that waited while a task held the lock; the caller holds it.
    fn backlog(sock: &Sock<Self>, state: &mut Self::State, skb: Skb);
    /// The socket's timer fired; called with the lock held and bottom halves disabled.
    fn timer(_sock: &Sock<Self>, _state: &mut Self::State) {}
    /// A task is about to release the lock, or pauses at what came meanwhile, and the backlog is
    /// empty; called with bottom halves disabled.
    #[inline]
    fn released(_sock: &Sock<Self>, _state: &mut Self::State) {}
}

/// Whether the calling task is ending, so that nobody waits for what it does.
pub(crate) fn task_is_exiting() -> bool {
    // SAFETY: Looks at the calling task.
    unsafe { bindings::task_is_exiting() }
}

/// A socket of any protocol.
#[repr(transparent)]
pub(crate) struct RawSock(UnsafeCell<bindings::sock>);

// SAFETY: All methods are ones the kernel allows from any context, or say what they need.
unsafe impl Sync for RawSock {}

/// The address of a field of a socket; to be used in an `unsafe` block that argues for it.
macro_rules! field {
    ($self:ident, $($field:tt)+) => {
        core::ptr::addr_of_mut!((*$self.as_ptr()).$($field)+)
    };
}
pub(super) use field;

impl RawSock {
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// The namespace the socket was made in.
    #[inline]
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: A socket holds its namespace.
        unsafe { Net::from_raw((*self.as_ptr()).__sk_common.skc_net.net) }
    }

    /// Connection state.
    #[inline]
    pub(crate) fn tcp_state(&self) -> u8 {
        self.state_cell().load(Relaxed)
    }

    /// Sets the connection state.
    #[inline]
    pub(crate) fn set_tcp_state(&self, state: TcpState) {
        self.state_cell().store(state as u8, Relaxed);
    }

    #[inline]
    fn state_cell(&self) -> &AtomicU8 {
        // SAFETY: The field is a byte in a valid socket, accessed by everyone in single loads and
        // stores.
        unsafe { AtomicU8::from_ptr(field!(self, __sk_common.skc_state).cast()) }
    }

    #[inline]
    fn shutdown_cell(&self) -> &AtomicU8 {
        // SAFETY: As in `state_cell`.
        unsafe { AtomicU8::from_ptr(field!(self, sk_shutdown)) }
    }

    /// Which halves are shut down: `RCV_SHUTDOWN | SEND_SHUTDOWN`.
    #[inline]
    pub(crate) fn shutdown(&self) -> u8 {
        self.shutdown_cell().load(Relaxed)
    }

    /// Shuts down further halves; the caller has the socket locked.
    #[inline]
    pub(crate) fn add_shutdown(&self, halves: u8) {
        self.shutdown_cell().fetch_or(halves, Relaxed);
    }

    /// Opens both halves again, for a socket that is connected anew.
    #[inline]
    pub(crate) fn clear_shutdown(&self) {
        self.shutdown_cell().store(0, Relaxed);
    }

    #[inline]
    fn error_cell(&self) -> &AtomicI32 {
        // SAFETY: As in `state_cell`.
        unsafe { AtomicI32::from_ptr(field!(self, sk_err)) }
    }

    /// Whether an error waits to be reported. Asked after the state, it tells of the error that the
    /// state came with.
    #[inline]
    pub(crate) fn has_error(&self) -> bool {
        fence(Acquire);
        self.error_cell().load(Relaxed) != 0
    }

    /// Takes the error that waits, if any.
    #[inline]
    pub(crate) fn take_error(&self) -> Result {
        match self.error_cell().swap(0, Relaxed) {
            0 => Ok(()),
            errno => Err(Error::from_errno(-errno)),
        }
    }

    /// Stores an error for the next call. To be done before the state that comes with it is set, so
    /// that no one who looks without the lock sees a failure without its reason.
    pub(crate) fn set_error(&self, error: Error) {
        self.error_cell().store(-error.to_errno(), Relaxed);
        fence(Release);
    }

    /// Stores an error for the next call and wakes whoever waits for one.
    pub(crate) fn report_error(&self, error: Error) {
        self.set_error(error);
        self.wake_error();
    }

    /// How often the socket was disconnected by a call: who sleeps in another finds out by it.
    #[inline]
    pub(super) fn disconnects(&self) -> i32 {
        self.disconnects_cell().load(Relaxed)
    }

    /// Counts a disconnect; the caller has the socket locked.
    pub(crate) fn count_disconnect(&self) {
        self.disconnects_cell().fetch_add(1, Relaxed);
    }

    fn disconnects_cell(&self) -> &AtomicI32 {
        // SAFETY: An aligned word in a valid socket.
        unsafe { AtomicI32::from_ptr(field!(self, sk_disconnects)) }
    }

    /// Whether packets wait for the task that owns the socket.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        // SAFETY: A single load, as the core does it.
        unsafe { !ptr::read_volatile(field!(self, sk_backlog.tail)).is_null() }
    }

    /// Whether the descriptor is closed and only the protocol still holds the socket.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_DEAD)
    }

    #[inline]
    pub(super) fn has_flag(&self, flag: bindings::sock_flags) -> bool {
        // SAFETY: A single load of a valid socket's flags, which are bits of one word.
        let flags =
            unsafe { ptr::read_volatile(field!(self, __sk_common.__bindgen_anon_5.skc_flags)) };
        flags & (1 << flag) != 0
    }

    /// Cuts the socket from its descriptor.
    pub(crate) fn orphan(&self) {
        // SAFETY: The caller is the socket's `release`, which runs once.
        unsafe { bindings::sock_orphan(self.as_ptr()) };
    }

    /// Receive memory charged to the socket, bytes.
    #[inline]
    pub(crate) fn receive_queued(&self) -> u32 {
        // SAFETY: A single load, as the core does it.
        unsafe { ptr::read_volatile(field!(self, sk_backlog.rmem_alloc.counter)).max(0) as u32 }
    }

    /// Memory of packets that are with the devices, bytes.
    #[inline]
    pub(crate) fn in_devices(&self) -> u32 {
        // SAFETY: The socket is valid.
        unsafe { bindings::sk_wmem_alloc_get(self.as_ptr()).max(0) as u32 }
    }

    /// Memory of the stream's write queue, bytes (`sk_wmem_queued`).
    #[inline]
    pub(crate) fn write_queued(&self) -> &AtomicU32 {
        // SAFETY: An aligned word in a valid socket; written by the lock's owner, read by anyone.
        unsafe { AtomicU32::from_ptr(field!(self, sk_wmem_queued).cast()) }
    }

    /// Gives the socket's frames the hash of a flow of their own.
    pub(crate) fn start_flow(&self) {
        // SAFETY: Stores a random number in a valid socket.
        unsafe { bindings::sk_set_txhash(self.as_ptr()) };
    }

    /// Whether the calling task may bind to `port` in the socket's namespace.
    pub(crate) fn may_bind(&self, port: u16) -> bool {
        // SAFETY: The socket holds its namespace; called by a task, whose credentials are asked.
        unsafe { bindings::may_bind_port(bindings::sock_net(self.as_ptr()), port) }
    }

    /// Remembers the processor that brought `skb` (`SO_INCOMING_CPU`), and the device's queue that
    /// it came by (`SO_BUSY_POLL`).
    #[inline]
    pub(crate) fn note_arrival(&self, skb: &Skb) {
        // SAFETY: Both are valid; single stores, as the core does them without the lock.
        unsafe { bindings::sk_note_arrival(self.as_ptr(), skb.as_ptr()) };
    }

    /// Remembers the device's queue that `skb` came by (`SO_BUSY_POLL`).
    #[inline]
    pub(crate) fn note_queue(&self, skb: &Skb) {
        // SAFETY: As in `note_arrival`.
        unsafe { bindings::sk_mark_napi_id(self.as_ptr(), skb.as_ptr()) };
    }

    /// How many connections may wait to be accepted, as given to `listen`.
    #[inline]
    pub(crate) fn backlog_limit(&self) -> &AtomicU32 {
        // SAFETY: An aligned word in a valid socket, accessed in single loads and stores.
        unsafe { AtomicU32::from_ptr(field!(self, sk_max_ack_backlog)) }
    }

    /// Counts a packet that the socket could not take.
    #[inline]
    pub(crate) fn count_drop(&self) {
        // SAFETY: The socket is valid.
        unsafe { bindings::sk_drops_inc(self.as_ptr()) };
    }

    /// Packets that the socket could not take.
    pub(crate) fn drops(&self) -> u32 {
        // SAFETY: The socket is valid.
        unsafe { bindings::sk_drops_read(self.as_ptr()) as u32 }
    }

    /// User that made the socket, as seen from the initial user namespace.
    pub(crate) fn uid(&self) -> u32 {
        // SAFETY: The socket is valid.
        unsafe { bindings::sk_uid(self.as_ptr()) }
    }

    /// Inode number of the descriptor, 0 if there is none.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: The socket is valid.
        unsafe { bindings::sock_ino(self.as_ptr()) }
    }

    /// Where the core keeps received packets.
    #[inline]
    pub(crate) fn receive_queue(&self) -> &Queue {
        // SAFETY: The queue is part of a valid socket; `Queue` is transparent over it.
        unsafe { &*field!(self, sk_receive_queue).cast() }
    }

    /// Where a stream keeps packets until they are acknowledged.
    #[inline]
    pub(crate) fn write_queue(&self) -> &Queue {
        // SAFETY: As in `receive_queue`.
        unsafe { &*field!(self, sk_write_queue).cast() }
    }

    /// Where queueing disciplines report what they did not send in time (`SO_TXTIME`).
    #[inline]
    fn error_queue(&self) -> &Queue {
        // SAFETY: As in `receive_queue`.
        unsafe { &*field!(self, sk_error_queue).cast() }
    }

    /// Readiness that errors bring: one that waits to be reported, or reports that are queued.
    #[inline]
    pub(crate) fn error_readiness(&self) -> u32 {
        if !self.error_queue().is_empty() {
            if self.has_flag(bindings::sock_flags_SOCK_SELECT_ERR_QUEUE) {
                return uapi::EPOLLERR | uapi::EPOLLPRI;
            }
            return uapi::EPOLLERR;
        }
        if self.has_error() {
            uapi::EPOLLERR
        } else {
            0
        }
    }

    /// Charges `skb` to the socket's receive memory.
    #[inline]
    pub(crate) fn charge_receive(&self, skb: &mut Skb) {
        // SAFETY: Both are valid; the charge ends with the buffer, and queued buffers are freed
        // before the socket.
        unsafe { bindings::skb_set_owner_r(skb.as_ptr(), self.as_ptr()) };
    }
}

/// A socket of protocol `P`, held by whoever lent the reference.
#[repr(C)]
pub(crate) struct Sock<P: Protocol> {
    raw: RawSock,
    pub(super) timer: UnsafeCell<bindings::hrtimer>,
    /// The timer fired while a task owned the socket.
    pub(super) timer_missed: AtomicBool,
    pub(super) entry: Entry,
    shared: P::Shared,
    state: UnsafeCell<P::State>,
}

// SAFETY: `raw` and `shared` are `Sync`; `state` is reached through the lock only.
unsafe impl<P: Protocol> Sync for Sock<P> {}

impl<P: Protocol> Deref for Sock<P> {
    type Target = RawSock;

    #[inline]
    fn deref(&self) -> &RawSock {
        &self.raw
    }
}

impl<P: Protocol> Sock<P> {
    /// # Safety
    ///
    /// `sk` must be a socket of protocol `P`, valid for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: Sockets of `P` are allocated with this type's size and start with `sock`.
        unsafe { &*sk.cast() }
    }

    /// # Safety
    ///
    /// `timer` must be the timer of a socket of protocol `P`.
    pub(super) unsafe fn from_timer(timer: *mut bindings::hrtimer) -> *const Self {
        // SAFETY: The timer is a field of the socket.
        unsafe { timer.byte_sub(core::mem::offset_of!(Self, timer)).cast() }
    }

    /// What may be read without the lock.
    #[inline]
    pub(crate) fn shared(&self) -> &P::Shared {
        &self.shared
    }

    /// Makes a socket's own parts, in memory that the core allocated.
    ///
    /// # Safety
    ///
    /// `sk` is a new socket of `P` that nobody else knows of.
    pub(super) unsafe fn init(sk: *mut bindings::sock, shared: P::Shared, state: P::State) {
        let this: *mut Self = sk.cast();
        // SAFETY: The memory is ours, of the right size, and holds nothing that needs dropping.
        unsafe {
            ptr::write(
                ptr::addr_of_mut!((*this).timer_missed),
                AtomicBool::new(false),
            );
            ptr::write(ptr::addr_of_mut!((*this).entry), Entry::new());
            ptr::write(ptr::addr_of_mut!((*this).shared), shared);
            ptr::write(ptr::addr_of_mut!((*this).state), UnsafeCell::new(state));
            (*sk).sk_destruct = Some(Self::destruct);
            bindings::sock_set_flag(sk, bindings::sock_flags_SOCK_RCU_FREE);
            super::timer::setup::<P>(&*this);
        }
        P::vtable().count(1);
        // SAFETY: The socket is complete.
        P::vtable().count_in_use(unsafe { &(*this).raw }, 1);
    }

    /// Called by the core when the last reference and the last packet in flight are gone.
    ///
    /// # Safety
    ///
    /// For the core alone to call, once for a socket of `P`.
    unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
        // SAFETY: Nobody else has the socket any more, and it is destructed once, in an RCU
        // callback, which holds no lock. The timer may still be waiting, or running elsewhere.
        unsafe {
            let this: *mut Self = sk.cast();
            super::timer::cancel(&*this);
            (*this).raw.receive_queue().purge();
            (*this).raw.write_queue().purge();
            // Those that nobody took; the core leaves them to the protocol.
            (*this).raw.error_queue().purge();
            ptr::drop_in_place(ptr::addr_of_mut!((*this).shared));
            ptr::drop_in_place(ptr::addr_of_mut!((*this).state));
        }
        P::vtable().count(-1);
    }

    /// A reference to the socket.
    #[inline]
    pub(crate) fn hold(&self) -> SockRef<P> {
        // SAFETY: The socket is valid, so its count is not zero.
        unsafe { bindings::sock_hold(self.as_ptr()) };
        // SAFETY: The reference just taken.
        unsafe { SockRef::from_raw(self.as_ptr()) }
    }

    /// A reference to a socket that was found in a read section, unless its last one is gone.
    pub(super) fn try_hold(&self) -> Option<SockRef<P>> {
        // SAFETY: The read section keeps the memory. A reference is made of what was just taken.
        unsafe { bindings::sock_tryhold(self.as_ptr()).then(|| SockRef::from_raw(self.as_ptr())) }
    }

    /// Locks the socket for the calling task; may sleep.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, P> {
        // SAFETY: Process context: only socket calls and module exit come here.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), 0) };
        Guard(self)
    }

    /// Locks a child for the task that has its listener locked. Never the other way round: a child
    /// reaches its listener without that one's lock.
    pub(crate) fn lock_child(&self) -> Guard<'_, P> {
        const SINGLE_DEPTH_NESTING: i32 = 1;
        // SAFETY: As in `lock`; the class tells the lock checker of the order.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), SINGLE_DEPTH_NESTING) };
        Guard(self)
    }

    /// Takes the socket's spin lock, in softirq context or with bottom halves disabled.
    #[inline]
    pub(crate) fn lock_bh(&self) -> BhGuard<'_, P> {
        // SAFETY: The caller is in softirq context; the nested class keeps a child's lock, taken
        // while its listener's is held, apart from it for the lock checker.
        let owned = unsafe { bindings::bh_lock_sock_nested(self.as_ptr()) };
        BhGuard { sock: self, owned }
    }

    /// The state, for a caller that the core has given the lock.
    ///
    /// # Safety
    ///
    /// The caller has the socket's lock and no other reference to the state.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(super) unsafe fn state_mut(&self) -> &mut P::State {
        // SAFETY: The caller's promise.
        unsafe { &mut *self.state.get() }
    }
}

/// An owned reference to a socket.
///
/// # Invariants
///
/// The pointer is a valid socket of `P`, of which this value holds one reference.
pub(crate) struct SockRef<P: Protocol>(NonNull<Sock<P>>);

// SAFETY: Sockets are shared between CPUs and tasks.
unsafe impl<P: Protocol> Send for SockRef<P> {}
// SAFETY: `Sock` is `Sync`.
unsafe impl<P: Protocol> Sync for SockRef<P> {}

impl<P: Protocol> SockRef<P> {
    /// # Safety
    ///
    /// `sk` is a socket of `P`, and the caller gives away one reference to it.
    #[inline]
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // SAFETY: Valid, hence not null.
        SockRef(unsafe { NonNull::new_unchecked(sk.cast()) })
    }

    /// Gives the reference away.
    #[inline]
    pub(super) fn into_raw(self) -> *mut bindings::sock {
        let sk = self.0.as_ptr().cast();
        core::mem::forget(self);
        sk
    }

    /// Leaves the reference to the socket itself: its protocol holds it until
    /// [`Self::from_lifetime`] takes it back.
    #[inline]
    pub(crate) fn leave(self) {
        let _ = self.into_raw();
    }

    /// Ends the protocol's use of a socket: gives back the reference that it had on it.
    pub(crate) fn retire(self) {
        P::vtable().count_in_use(&self, -1);
    }

    /// Takes the reference that the protocol holds on a socket of its own.
    ///
    /// The caller answers for taking it once.
    #[inline]
    pub(crate) fn from_lifetime(sock: &Sock<P>) -> Self {
        // SAFETY: Every socket is born with one reference that belongs to its protocol; callers
        // are the protocol's single end of life, guarded by a flag under the socket's lock.
        unsafe { SockRef::from_raw(sock.as_ptr()) }
    }
}

impl<P: Protocol> Deref for SockRef<P> {
    type Target = Sock<P>;

    #[inline]
    fn deref(&self) -> &Sock<P> {
        // SAFETY: By the type's invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Protocol> Drop for SockRef<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Gives back the reference of the invariant.
        unsafe { bindings::sock_put(self.0.as_ptr().cast()) };
    }
}

/// A socket locked by the calling task. Dropping it processes the packets that came meanwhile.
pub(crate) struct Guard<'a, P: Protocol>(&'a Sock<P>);

impl<'a, P: Protocol> Guard<'a, P> {
    /// The socket and its state.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&'a Sock<P>, &mut P::State) {
        // SAFETY: The lock is held, and the state is borrowed from the guard.
        (self.0, unsafe { self.0.state_mut() })
    }

    /// The socket.
    #[inline]
    pub(crate) fn sock(&self) -> &'a Sock<P> {
        self.0
    }

    /// The state.
    #[inline]
    pub(crate) fn state(&mut self) -> &mut P::State {
        self.parts().1
    }

    /// Processes the packets that came while the lock was held, if any: acknowledgements and
    /// windows must not wait for a long copy. No other task gets the lock in between.
    #[inline]
    pub(crate) fn flush_backlog(&mut self) {
        if self.0.has_backlog() {
            // SAFETY: Process context, and the guard holds the lock; nothing borrows the state, since
            // `self` is mutable.
            unsafe { bindings::__sk_flush_backlog(self.0.as_ptr()) };
        }
    }

    /// Releases the lock, lets `f` run, and takes the lock again.
    #[inline]
    pub(super) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The guard holds the lock; nothing borrows the state, since `self` is mutable.
        unsafe { bindings::release_sock(self.0.as_ptr()) };
        let result = f();
        // SAFETY: Process context, as when the guard was made.
        unsafe { bindings::lock_sock_nested(self.0.as_ptr(), 0) };
        result
    }
}

impl<P: Protocol> Drop for Guard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The guard holds the lock.
        unsafe { bindings::release_sock(self.0.as_ptr()) };
    }
}

/// A socket whose spin lock is held in softirq context; a task may own it nevertheless.
pub(crate) struct BhGuard<'a, P: Protocol> {
    sock: &'a Sock<P>,
    /// Whether a task owns it, which cannot change meanwhile.
    owned: bool,
}

impl<'a, P: Protocol> BhGuard<'a, P> {
    /// The socket and its state, unless a task owns it.
    #[inline]
    pub(crate) fn parts(&mut self) -> Option<(&'a Sock<P>, &mut P::State)> {
        // SAFETY: The spin lock is held, so ownership cannot change; without an owner the state
        // is ours for the borrow of the guard.
        (!self.owned).then(|| (self.sock, unsafe { self.sock.state_mut() }))
    }

    /// Keeps `skb` for the task that owns the socket. Gives it back if too much waits already.
    #[inline]
    pub(crate) fn add_backlog(&mut self, skb: Skb, limit: u32) -> core::result::Result<(), Skb> {
        let raw = skb.into_raw();
        // SAFETY: The spin lock is held; on success the buffer belongs to the backlog.
        unsafe {
            if bindings::sk_add_backlog(self.sock.as_ptr(), raw, limit) == 0 {
                return Ok(());
            }
        }
        // SAFETY: On failure it is still ours.
        match unsafe { Skb::from_raw(raw) } {
            Some(skb) => Err(skb),
            None => Ok(()),
        }
    }
}

impl<P: Protocol> Drop for BhGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The guard holds the spin lock.
        unsafe { bindings::bh_unlock_sock(self.sock.as_ptr()) };
    }
}

/// A child made from a listener, locked until it is finished.
pub(crate) struct NewChild<P: Protocol> {
    sock: SockRef<P>,
}

impl<P: Protocol> NewChild<P> {
    /// Copies `listener`'s options into a new socket with parts of its own, in softirq context.
    /// The lifetime reference is the protocol's, as with any socket.
    pub(crate) fn spawn(listener: &Sock<P>, shared: P::Shared, state: P::State) -> Option<Self> {
        // SAFETY: The listener is valid and locked by the caller; the copy's lock is ours.
        let sk = unsafe { bindings::sk_clone(listener.as_ptr(), Context::Softirq.gfp(), true) };
        let sk = NonNull::new(sk)?.as_ptr();
        // SAFETY: A new socket that nobody knows of, a byte copy of the listener's: its own parts
        // are written over without being dropped, since the listener still owns the originals.
        // Links into hash tables are not copied but made empty.
        unsafe {
            Sock::<P>::init(sk, shared, state);
            (*sk).__sk_common.__bindgen_anon_4.skc_bind_node = core::mem::zeroed();
            (*sk).sk_ack_backlog = 0;
            (*sk).sk_max_ack_backlog = 0;
            (*sk).sk_shutdown = 0;
        }
        // SAFETY: `sk_clone` made two references: one is the protocol's, the other ours.
        let sock = unsafe { SockRef::from_raw(sk) };
        Some(NewChild { sock })
    }

    /// The child and its state.
    pub(crate) fn parts(&mut self) -> (&Sock<P>, &mut P::State) {
        // SAFETY: `sk_clone` locked the child, and nobody owns it.
        (&self.sock, unsafe { self.sock.state_mut() })
    }
}

impl<P: Protocol> Drop for NewChild<P> {
    fn drop(&mut self) {
        // SAFETY: Locked by `sk_clone`.
        unsafe { bindings::bh_unlock_sock(self.sock.as_ptr()) };
    }
}

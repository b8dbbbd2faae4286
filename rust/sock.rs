// SPDX-License-Identifier: GPL-2.0

//! `struct sock` followed by a protocol's own state: references, locks, flags, queues.
//!
//! A [`Sock`] has two parts of its own. `shared` is accessible without the socket lock and
//! synchronises itself (atomics, locks). `state` belongs to the holder of the socket lock: a task
//! through [`Sock::lock`], or the receive path through [`Sock::lock_bh`]. Both lend `state` as part
//! of [`Locked`].
//!
//! References are counted: a descriptor has one, each table and queue that lists a socket has one,
//! and every [`SockRef`] is one.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    family::Vtable,
    map::Entry,
    namespace::Net,
    queue::{self, Queue},
    skb::{Buffer, Skb},
    sock_list::{ChildLink, Links, SlotLink},
    softirq::Softirq,
    table::Memberships,
};
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU8, Ordering::Relaxed},
};
use kernel::types::NotThreadSafe;

mod child;
pub(crate) use child::NewChild;

/// The state of a socket, as the core's helpers test it (`TCP_*` of `net/tcp_states.h`).
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

/// The [`Protocol::Kind`] of streams: the socket lock guards the receive queue, which is reached
/// through [`Locked`].
pub(crate) enum Stream {}

/// The [`Protocol::Kind`] of datagrams: the receive queue has its own lock, which the core's
/// functions for datagrams take.
pub(crate) enum Datagram {}

/// A protocol. It defines what its sockets have in addition to `struct sock`.
pub(crate) trait Protocol: Sized + 'static {
    /// [`Stream`] or [`Datagram`].
    type Kind;
    /// Data read without the socket lock.
    type Shared: Send + Sync;
    /// Data guarded by the socket lock.
    type State: Default + Send;
    /// The type of a value that each socket stores beside its links, for the owner of the
    /// [`SockLists`](super::sock_list::SockLists) that the socket belongs to. For instance, a
    /// scheduler keeps its data about the socket there.
    type Slot: Default + Send;
    /// Whether the protocol wakes writers itself. If so, a packet that leaves its device does not
    /// wake them (`SOCK_USE_WRITE_QUEUE`).
    const WAKES_WRITERS: bool;
    /// Whether a socket may continue without a descriptor. Module exit ends such sockets, so they
    /// do not hold the module. Otherwise each socket holds the module until the socket's memory is
    /// freed.
    const OUTLIVES_DESCRIPTOR: bool;

    /// Returns the tables through which the kernel calls the protocol.
    fn vtable() -> &'static Vtable<Self>;
    /// Handles a packet that came while a task had the lock.
    fn backlog(locked: &mut Locked<'_, Self>, skb: Skb, softirq: Softirq<'_>);
    /// Handles the expiry of the socket's timer.
    fn timer(_locked: &mut Locked<'_, Self>, _softirq: Softirq<'_>) {}
    /// Returns whether [`before_release`](Self::before_release) has anything to do.
    fn awaits_release(_shared: &Self::Shared) -> bool {
        false
    }
    /// Called when a task is about to release the lock, or has just processed the backlog while it
    /// keeps the lock. The backlog is empty.
    #[inline]
    fn before_release(_locked: &mut Locked<'_, Self>, _softirq: Softirq<'_>) {}
}

/// Returns whether the calling task has a fatal signal, and must not continue with long work.
pub(super) fn task_is_killed() -> bool {
    // SAFETY: The function only reads the calling task's signals.
    unsafe { bindings::task_is_killed() }
}

/// Returns whether the calling task is exiting, so that no process waits for its results.
pub(crate) fn task_is_exiting() -> bool {
    // SAFETY: The function only reads the calling task's flags.
    unsafe { bindings::task_is_exiting() }
}

/// A socket of any protocol.
///
/// # Invariants
///
/// A reference is to a valid `struct sock`, which is not freed during the borrow. The reference's
/// owner holds a reference count of the socket, or is in a read section, and the memory outlives
/// this section.
#[repr(transparent)]
pub(crate) struct RawSock(UnsafeCell<bindings::sock>);

// SAFETY: The kernel allows the operation of each method from any context, or the method's
// documentation states the requirement.
unsafe impl Sync for RawSock {}

/// The address of a field of a socket; for use in an `unsafe` block whose comment justifies the
/// access.
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

    /// # Safety
    ///
    /// `sk` is valid for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: The type is transparent over `sock`. The caller promises that `sk` is valid for
        // `'a`.
        unsafe { &*sk.cast() }
    }

    /// Returns the address family, `AF_*`.
    #[inline]
    pub(super) fn family(&self) -> u16 {
        // SAFETY: The field was written before the socket was shared, and does not change.
        unsafe { (*self.as_ptr()).__sk_common.skc_family }
    }

    /// Returns the namespace that the socket was created in.
    #[inline]
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: A socket holds its namespace.
        unsafe { Net::from_raw((*self.as_ptr()).__sk_common.skc_net.net) }
    }

    /// Returns the connection state.
    #[inline]
    pub(crate) fn tcp_state(&self) -> u8 {
        self.state_cell().load(Relaxed)
    }

    #[inline]
    fn state_cell(&self) -> &AtomicU8 {
        // SAFETY: The field is a byte in a valid socket, and all code accesses it in single loads
        // and stores.
        unsafe { AtomicU8::from_ptr(field!(self, __sk_common.skc_state).cast()) }
    }

    #[inline]
    fn shutdown_cell(&self) -> &AtomicU8 {
        // SAFETY: The field is a byte in a valid socket, and all code accesses it in single loads
        // and stores.
        unsafe { AtomicU8::from_ptr(field!(self, sk_shutdown)) }
    }

    /// Returns which halves are shut down: `RCV_SHUTDOWN | SEND_SHUTDOWN`.
    #[inline]
    pub(crate) fn shutdown(&self) -> u8 {
        self.shutdown_cell().load(Relaxed)
    }

    /// Returns the number of times that a call has disconnected the socket. Sleeping calls check
    /// whether this number has changed.
    #[inline]
    pub(super) fn disconnects(&self) -> i32 {
        self.disconnects_cell().load(Relaxed)
    }

    fn disconnects_cell(&self) -> &AtomicI32 {
        // SAFETY: The field is an aligned word in a valid socket.
        unsafe { AtomicI32::from_ptr(field!(self, sk_disconnects)) }
    }

    /// Returns whether packets wait for the task that owns the socket.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { !ptr::read_volatile(field!(self, sk_backlog.tail)).is_null() }
    }

    /// Returns whether the descriptor is closed and only the protocol still holds the socket.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_DEAD)
    }

    #[inline]
    pub(super) fn has_flag(&self, flag: bindings::sock_flags) -> bool {
        // SAFETY: The socket is valid. Its flags are bits of one word, which is read in a single
        // load.
        let flags =
            unsafe { ptr::read_volatile(field!(self, __sk_common.__bindgen_anon_5.skc_flags)) };
        flags & (1 << flag) != 0
    }

    /// Returns the receive memory charged to the socket, in bytes.
    #[inline]
    pub(crate) fn receive_queued(&self) -> u32 {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_backlog.rmem_alloc.counter)).max(0) as u32 }
    }

    /// Returns the memory of sent packets that devices and queueing disciplines have not freed yet,
    /// in bytes.
    #[inline]
    pub(crate) fn in_devices(&self) -> u32 {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::sk_wmem_alloc_get(self.as_ptr()).max(0) as u32 }
    }

    /// Returns the counter of the write queue's memory, in bytes (`sk_wmem_queued`).
    #[inline]
    pub(crate) fn write_queued(&self) -> &AtomicU32 {
        // SAFETY: The field is an aligned word in a valid socket. The lock's owner writes it, and
        // any context may read it.
        unsafe { AtomicU32::from_ptr(field!(self, sk_wmem_queued).cast()) }
    }

    /// Gives the socket's frames a new flow hash.
    pub(crate) fn start_flow(&self) {
        // SAFETY: The function stores a random number in a valid socket.
        unsafe { bindings::sk_set_txhash(self.as_ptr()) };
    }

    /// Returns whether the calling task may bind to `port` in the socket's namespace.
    pub(crate) fn may_bind(&self, port: u16) -> bool {
        // SAFETY: The socket holds its namespace. The function checks the credentials of the
        // calling task.
        unsafe { bindings::may_bind_port(bindings::sock_net(self.as_ptr()), port) }
    }

    /// Stores how `skb` arrived: on which processor (`SO_INCOMING_CPU`), through which device queue
    /// (`SO_BUSY_POLL`), and in which flow (receive flow steering).
    #[inline]
    pub(crate) fn note_arrival(&self, skb: &Buffer) {
        // SAFETY: Both pointers are valid. The function makes single stores, as the core does
        // without the lock.
        unsafe { bindings::sk_note_arrival(self.as_ptr(), skb.as_ptr()) };
    }

    /// Makes receive flow steering direct the socket's packets to the current processor.
    #[inline]
    pub(crate) fn record_flow(&self) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function writes only to
        // the core's table.
        unsafe { bindings::sk_record_flow(self.as_ptr()) };
    }

    /// Stores the device queue through which `skb` arrived (`SO_BUSY_POLL`).
    #[inline]
    pub(crate) fn note_queue(&self, skb: &Buffer) {
        // SAFETY: Both pointers are valid. The function makes single stores, as the core does
        // without the lock.
        unsafe { bindings::sk_mark_napi_id(self.as_ptr(), skb.as_ptr()) };
    }

    /// Counts a packet that the socket had to drop.
    #[inline]
    pub(crate) fn count_drop(&self) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::sk_drops_inc(self.as_ptr()) };
    }

    /// Returns how many packets the socket had to drop.
    pub(crate) fn drops(&self) -> u32 {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::sk_drops_read(self.as_ptr()) as u32 }
    }

    /// Returns the inode number of the descriptor, 0 if there is none.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::sock_ino(self.as_ptr()) }
    }

    /// Returns whether the receive queue is empty. A stream's readers depend on its unread bytes
    /// instead, which its protocol counts.
    #[inline]
    pub(crate) fn receives_nothing(&self) -> bool {
        // SAFETY: The queue is part of a valid socket.
        unsafe { queue::is_empty(field!(self, sk_receive_queue)) }
    }
}

/// A socket of protocol `P`. A reference is valid as long as the object it was borrowed from holds
/// the socket.
///
/// # Invariants
///
/// `raw` is a valid, initialised socket. The table of `P` allocated it with room for the fields
/// behind it. `state` is reached by the holder of the socket lock only.
#[repr(C)]
pub(crate) struct Sock<P: Protocol> {
    raw: RawSock,
    pub(super) timer: UnsafeCell<bindings::hrtimer>,
    /// Whether the timer fired while a task owned the socket.
    pub(super) timer_missed: AtomicBool,
    pub(super) entry: Entry,
    pub(super) tables: Memberships,
    pub(super) links: Links<P, SlotLink>,
    pub(super) child_links: Links<P, ChildLink>,
    /// Whether the socket is no longer counted in `/proc/net/protocols`.
    retired: AtomicBool,
    /// Received buffers that are out of order. They form a list that is guarded and purged like
    /// `sk_receive_queue`.
    out_of_order: UnsafeCell<bindings::sk_buff_head>,
    shared: P::Shared,
    state: UnsafeCell<P::State>,
}

// SAFETY: `raw` and `shared` are `Sync`. `state`, which is `Send`, is reached through the lock
// only. The data in the links of a socket is reached only through the lists that the socket belongs
// to.
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

    /// Sets the connection state.
    #[inline]
    pub(crate) fn set_tcp_state(&self, state: TcpState) {
        self.state_cell().store(state as u8, Relaxed);
    }

    /// Returns the limit of the accept queue, as passed to `listen`.
    #[inline]
    pub(crate) fn backlog_limit(&self) -> &AtomicU32 {
        // SAFETY: The field is an aligned word in a valid socket, and all code accesses it in
        // single loads and stores.
        unsafe { AtomicU32::from_ptr(field!(self, sk_max_ack_backlog)) }
    }

    /// Returns the part that is accessible without the lock.
    #[inline]
    pub(crate) fn shared(&self) -> &P::Shared {
        &self.shared
    }

    /// Initialises a socket's own parts, in memory that the core allocated.
    ///
    /// # Safety
    ///
    /// `sk` is a new socket of `P` to which no one else has a reference.
    pub(super) unsafe fn init(sk: *mut bindings::sock, shared: P::Shared) {
        let this: *mut Self = sk.cast();
        // SAFETY: By the caller's promise, `sk` is exclusively ours and has the size of `Self`. Its
        // fields hold nothing that needs dropping.
        unsafe {
            ptr::write(
                ptr::addr_of_mut!((*this).timer_missed),
                AtomicBool::new(false),
            );
            ptr::write(ptr::addr_of_mut!((*this).entry), Entry::new());
            ptr::write(ptr::addr_of_mut!((*this).tables), Memberships::default());
            ptr::write(ptr::addr_of_mut!((*this).links), Links::default());
            ptr::write(ptr::addr_of_mut!((*this).child_links), Links::default());
            ptr::write(ptr::addr_of_mut!((*this).retired), AtomicBool::new(false));
            bindings::skb_queue_head_init(ptr::addr_of_mut!((*this).out_of_order).cast());
            ptr::write(ptr::addr_of_mut!((*this).shared), shared);
            ptr::write(ptr::addr_of_mut!((*this).state), UnsafeCell::default());
            (*sk).sk_destruct = Some(Self::destruct);
            bindings::sock_set_flag(sk, bindings::sock_flags_SOCK_RCU_FREE);
            if P::WAKES_WRITERS {
                bindings::sock_set_flag(sk, bindings::sock_flags_SOCK_USE_WRITE_QUEUE);
            }
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
    /// Called only by the core, once for a socket of `P`.
    unsafe extern "C" fn destruct(sk: *mut bindings::sock) {
        // SAFETY: No other reference to the socket exists, and the core calls this once, in an RCU
        // callback, which holds no lock. The timer may still be armed, or running on another
        // processor.
        unsafe {
            let this: *mut Self = sk.cast();
            super::timer::cancel(&*this);
            (*this).retire();
            Queue::from_raw(ptr::addr_of_mut!((*sk).sk_receive_queue)).purge();
            Queue::from_raw((*this).out_of_order.get()).purge();
            // The error queue still holds the reports that no call has received. The core leaves
            // them to the protocol.
            Queue::from_raw(ptr::addr_of_mut!((*sk).sk_error_queue)).purge();
            let front = (*this).front();
            if front != sk {
                bindings::sock_put(front);
            }
            ptr::drop_in_place(ptr::addr_of_mut!((*this).shared));
            ptr::drop_in_place(ptr::addr_of_mut!((*this).state));
            ptr::drop_in_place(ptr::addr_of_mut!((*this).links));
        }
        P::vtable().count(-1);
    }

    /// Stops counting the socket in `/proc/net/protocols`, and no longer steers its flow to the
    /// processor of its reader, since its connection is over. Further calls have no effect.
    pub(crate) fn retire(&self) {
        if !self.retired.swap(true, Relaxed) {
            P::vtable().count_in_use(&self.raw, -1);
            // SAFETY: By the invariant of `RawSock`, the socket is valid. The function only
            // compares its hash and changes an entry of a table of the kernel.
            unsafe { bindings::sk_forget_flow(self.as_ptr()) };
        }
    }

    /// Returns a reference to the socket. Returns `None` if the last reference is gone and only a
    /// read section still keeps the socket's memory.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<SockRef<P>> {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The `SockRef` takes over the
        // reference that `sock_tryhold` has taken.
        unsafe { bindings::sock_tryhold(self.as_ptr()).then(|| SockRef::from_raw(self.as_ptr())) }
    }

    /// Locks the socket for the calling task; may sleep.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, P> {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), 0) };
        Guard(self, NotThreadSafe)
    }

    /// Locks a child for the task that has its listener locked. A task that holds a child's lock
    /// never locks the listener, so the order is fixed.
    pub(crate) fn lock_child(&self) -> Guard<'_, P> {
        const SINGLE_DEPTH_NESTING: i32 = 1;
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The nested class tells
        // lockdep of the order.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), SINGLE_DEPTH_NESTING) };
        Guard(self, NotThreadSafe)
    }

    /// Takes the socket's spin lock.
    #[inline]
    pub(crate) fn lock_bh<'a>(&'a self, _softirq: Softirq<'a>) -> BhGuard<'a, P> {
        // SAFETY: The socket is valid, and bottom halves are disabled. The nested class tells
        // lockdep that a child's lock may be taken while its listener's lock is held.
        let owned = unsafe { bindings::bh_lock_sock_nested(self.as_ptr()) };
        BhGuard {
            sock: self,
            owned,
            _held: NotThreadSafe,
        }
    }

    /// # Safety
    ///
    /// The socket is locked for as long as `'a`, and no one else accesses the data that the lock
    /// guards.
    #[inline]
    pub(super) unsafe fn assume_locked<'a>(&'a self) -> Locked<'a, P> {
        Locked {
            sock: self,
            // SAFETY: By the caller's promise, the socket is locked, and no one else accesses
            // `state`.
            state: unsafe { &mut *self.state.get() },
            _held: NotThreadSafe,
        }
    }
}

/// An owned reference to a socket.
///
/// # Invariants
///
/// The pointer is a valid socket of `P`, of which this value holds one reference.
pub(crate) struct SockRef<P: Protocol>(NonNull<Sock<P>>);

// SAFETY: A reference may be dropped on any CPU and in any task, and `Sock` is `Sync`.
unsafe impl<P: Protocol> Send for SockRef<P> {}
// SAFETY: `Sock` is `Sync`.
unsafe impl<P: Protocol> Sync for SockRef<P> {}

impl<P: Protocol> SockRef<P> {
    /// # Safety
    ///
    /// `sk` is a socket of `P`, of which one reference is given away.
    #[inline]
    pub(super) unsafe fn from_raw(sk: *mut bindings::sock) -> Self {
        // SAFETY: `sk` is valid, hence not null.
        SockRef(unsafe { NonNull::new_unchecked(sk.cast()) })
    }
}

impl<P: Protocol> Clone for SockRef<P> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: By the invariant, the reference count is not zero. The clone takes over the new
        // reference.
        unsafe {
            bindings::sock_hold(self.as_ptr());
            SockRef::from_raw(self.as_ptr())
        }
    }
}

impl<P: Protocol> Deref for SockRef<P> {
    type Target = Sock<P>;

    #[inline]
    fn deref(&self) -> &Sock<P> {
        // SAFETY: By the invariant of `SockRef`, the pointer is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Protocol> Drop for SockRef<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the invariant, this value holds a reference, which the function drops.
        unsafe { bindings::sock_put(self.0.as_ptr().cast()) };
    }
}

/// Everything that the socket lock guards, borrowed from a guard: the state, and a stream's receive
/// queue.
///
/// # Invariants
///
/// The lock of `sock` is held during the borrow, and the guarded data is accessed through `self`
/// only.
pub(crate) struct Locked<'a, P: Protocol> {
    sock: &'a Sock<P>,
    /// The protocol's state.
    pub(crate) state: &'a mut P::State,
    _held: NotThreadSafe,
}

impl<'a, P: Protocol> Locked<'a, P> {
    /// Returns the socket.
    #[inline]
    pub(crate) fn sock(&self) -> &'a Sock<P> {
        self.sock
    }

    /// Shuts down further halves, `RCV_SHUTDOWN | SEND_SHUTDOWN`.
    #[inline]
    pub(crate) fn add_shutdown(&mut self, halves: u8) {
        self.sock.shutdown_cell().fetch_or(halves, Relaxed);
    }

    /// Reopens both halves, for a socket that may be connected anew.
    #[inline]
    pub(crate) fn clear_shutdown(&mut self) {
        self.sock.shutdown_cell().store(0, Relaxed);
    }

    /// Counts that a call has disconnected the socket. Calls that sleep on the socket then fail
    /// with `EPIPE`.
    pub(crate) fn count_disconnect(&mut self) {
        self.sock.disconnects_cell().fetch_add(1, Relaxed);
    }

    /// Wakes writers, if any waits for send buffer space.
    #[inline]
    pub(crate) fn wake_writers(&mut self) {
        // SAFETY: The lock is held, so `sk_socket` does not change. The helper checks whether it is
        // null.
        if unsafe { bindings::sk_test_clear_nospace(self.sock.as_ptr()) } {
            self.sock.signal_write_space();
        }
    }
}

impl<P: Protocol<Kind = Stream>> Locked<'_, P> {
    /// Returns the received buffers that no call has consumed.
    #[inline]
    pub(crate) fn receive_queue(&mut self) -> &mut Queue {
        // SAFETY: The queue is part of the locked socket, and the receive queue of a stream is
        // reached only through `Locked`, which `self` borrows exclusively.
        unsafe { Queue::from_raw(ptr::addr_of_mut!((*self.sock.as_ptr()).sk_receive_queue)) }
    }

    /// Queues a received buffer, charged to the receive memory.
    #[inline]
    pub(crate) fn queue_received(&mut self, skb: Skb) {
        let sock = self.sock;
        // SAFETY: The queue is this socket's.
        unsafe { self.receive_queue().push(sock, skb) };
    }

    /// Returns the received buffers that are out of order, also charged to the receive memory.
    #[inline]
    pub(crate) fn out_of_order_queue(&mut self) -> &mut Queue {
        // SAFETY: The list is part of the locked socket, was initialised by `Sock::init`, and is
        // reached only through `Locked`, which `self` borrows exclusively.
        unsafe { Queue::from_raw(self.sock.out_of_order.get()) }
    }

    /// Queues a received out-of-order buffer, after the last queued buffer for which `follows`
    /// returns true.
    pub(crate) fn queue_out_of_order(&mut self, skb: Skb, follows: impl Fn(&Buffer) -> bool) {
        let sock = self.sock;
        // SAFETY: The queue is this socket's.
        unsafe { self.out_of_order_queue().insert(sock, skb, follows) };
    }
}

/// A socket locked by the calling task. Dropping the guard processes the packets that arrived while
/// the lock was held.
///
/// # Invariants
///
/// The calling task owns the socket lock until the guard is dropped.
pub(crate) struct Guard<'a, P: Protocol>(&'a Sock<P>, NotThreadSafe);

impl<'a, P: Protocol> Guard<'a, P> {
    /// Returns everything that the lock guards.
    #[inline]
    pub(crate) fn locked(&mut self) -> Locked<'_, P> {
        // SAFETY: The lock is held, and all that it guards is borrowed from the guard.
        unsafe { self.0.assume_locked() }
    }

    /// Returns the socket.
    #[inline]
    pub(crate) fn sock(&self) -> &'a Sock<P> {
        self.0
    }

    /// Processes the packets that arrived while the lock was held, since acknowledgements and
    /// windows must not wait for a long copy. No other task gets the lock in between. Returns
    /// `false` if there were no packets.
    #[inline]
    pub(crate) fn flush_backlog(&mut self) -> bool {
        let waits = self.0.has_backlog();
        if waits {
            // SAFETY: This runs in process context, and the guard holds the lock. Nothing else
            // borrows the state, since `self` is borrowed exclusively.
            unsafe { bindings::__sk_flush_backlog(self.0.as_ptr()) };
        }
        waits
    }

    /// Releases the lock, runs `f`, and takes the lock again.
    #[inline]
    pub(super) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The guard holds the lock. Nothing else borrows the state, since `self` is
        // borrowed exclusively.
        unsafe { bindings::release_sock(self.0.as_ptr()) };
        let result = f();
        // SAFETY: This runs in process context, like the call that created the guard.
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

/// A socket whose spin lock is held in softirq context; a task may still own the socket.
///
/// # Invariants
///
/// The spin lock is held until the guard is dropped. `owned` says whether a task owns the socket.
pub(crate) struct BhGuard<'a, P: Protocol> {
    sock: &'a Sock<P>,
    /// Whether a task owns the socket, which cannot change while the spin lock is held.
    owned: bool,
    _held: NotThreadSafe,
}

impl<P: Protocol> BhGuard<'_, P> {
    /// Returns everything that the lock guards, unless a task owns the socket.
    #[inline]
    pub(crate) fn locked(&mut self) -> Option<Locked<'_, P>> {
        // SAFETY: The spin lock is held, so ownership cannot change. Without an owner, all that the
        // lock guards is borrowed from this guard.
        (!self.owned).then(|| unsafe { self.sock.assume_locked() })
    }

    /// Queues `skb` for the task that owns the socket. Returns `skb` if the backlog is full.
    #[inline]
    pub(crate) fn add_backlog(&mut self, skb: Skb, limit: u32) -> core::result::Result<(), Skb> {
        let raw = skb.into_raw();
        // SAFETY: The spin lock is held. After success the buffer belongs to the backlog.
        unsafe {
            if bindings::sk_add_backlog(self.sock.as_ptr(), raw, limit) == 0 {
                return Ok(());
            }
        }
        // SAFETY: On failure the buffer is still ours.
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

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receiving without system calls.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::constants::EP_SO_RECEIVE_RING;
use crate::socket::Socket;
use crate::{Address, EdpSocket, EspStream, MacAddr};

/// The control page, `struct ep_receive_ring` in `af_enet.h`.
#[repr(C)]
struct Control {
    put: AtomicU64,
    _line: [u64; 7],
    taken: AtomicU64,
    _other_line: [u64; 7],
    call: AtomicU32,
}

/// The memory of a socket's ring: the control page, and the ring twice in a row.
#[derive(Debug)]
struct RingMemory {
    socket: Socket,
    start: NonNull<u8>,
    page: usize,
    size: usize,
    taken: u64,
    _only: Only,
}

/// The inodes of the sockets whose rings this process has mapped.
static MAPPED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Shows that this process has not mapped the ring of a socket before: two values would both count
/// the same bytes as taken.
#[derive(Debug)]
struct Only(u64);

impl Only {
    fn of(socket: &Socket) -> io::Result<Self> {
        let mut about = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is open, and there is room for what the call writes.
        if unsafe { libc::fstat(socket.as_raw_fd(), about.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has succeeded, and so has written all of it.
        let about = unsafe { about.assume_init() };
        #[allow(clippy::unnecessary_cast)] // The type has 32 bits on some platforms.
        let inode = about.st_ino as u64;
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if !mapped.insert(inode) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(Self(inode))
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.remove(&self.0);
    }
}

// SAFETY: the mapping belongs to the value, and to no thread.
unsafe impl Send for RingMemory {}
// SAFETY: a shared reference only reads: the counts by atomic loads, and bytes that the kernel does
// not change until an exclusive reference counts them as taken. This process has one value for each
// socket. Only another process that has got the descriptor could count them, by a mapping of its
// own.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Makes the socket's ring, or finds one of the same size, and maps it.
    fn new(socket: Socket, size: usize) -> io::Result<Self> {
        let only = Only::of(&socket)?;
        let bytes = u32::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        if let Err(error) = socket.set_option(EP_SO_RECEIVE_RING, bytes) {
            let there = error.raw_os_error() == Some(libc::EBUSY)
                && socket.option::<u32>(EP_SO_RECEIVE_RING)? == bytes;
            if !there {
                return Err(error);
            }
        }
        // SAFETY: the call has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: the kernel chooses the place of the new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + 2 * size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut ring = Self {
            socket,
            start,
            page,
            size,
            taken: 0,
            _only: only,
        };
        ring.taken = ring.control().taken.load(Ordering::Relaxed);
        Ok(ring)
    }

    fn control(&self) -> &Control {
        // SAFETY: the mapping begins with the control page, and lives as long as `self`. The kernel
        // changes only the fields that are atomic.
        unsafe { self.start.cast().as_ref() }
    }

    /// Returns the bytes that the kernel has put into the ring, and that were not consumed.
    fn bytes(&self) -> &[u8] {
        let put = self.control().put.load(Ordering::Acquire);
        let unread = (put.wrapping_sub(self.taken) as usize).min(self.size);
        let place = self.taken as usize % self.size;
        // SAFETY: the mapping has the ring's bytes twice in a row behind the control page, so
        // `unread` bytes from any place in the first copy are in the mapping. The kernel has
        // written them, and does not change them before they are counted as taken.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(self.page + place), unread) }
    }

    /// Gives the room of the first `length` bytes back to the kernel, but of no more than there
    /// are.
    fn consume(&mut self, length: usize) {
        self.taken += length.min(self.bytes().len()) as u64;
        self.control().taken.store(self.taken, Ordering::Release);
    }

    /// Returns whether a receive call has something to return that is not in the ring.
    fn needs_call(&self) -> bool {
        self.control().call.load(Ordering::Acquire) != 0
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this place and length, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + 2 * self.size) };
    }
}

/// A ring of memory into which the kernel puts the bytes of an ESP connection, so that a program
/// that polls receives them without a system call.
///
/// The kernel puts bytes into the ring as long as they fit. If they do not, it queues them, and all
/// that follow, until receive calls have emptied the queue; [`read`](Self::read) makes these calls.
/// Flow control is the queue's: a program that does not read stops its peer.
///
/// While a connection has a ring, its receive calls never block, and fail with `WouldBlock` as long
/// as there are bytes in the ring. So read by [`read`](Self::read) alone. `poll` and `epoll` wait
/// for bytes as usual, those in the ring included; a receive request of `io_uring` does not. The
/// stream sends as before.
///
/// The value has a handle of the connection, which ends only once both the stream and this value
/// are dropped, or by [`EspStream::shutdown`]. The kernel fills the ring also after this value was
/// dropped; another value for the same stream continues where this one ended.
///
/// A child process has no ring. After `fork`, it must neither use nor drop the value.
///
/// ```no_run
/// use sockaddr_en::{EspStream, ReceiveRing};
///
/// let stream = EspStream::connect("02:00:00:00:00:01%eth0:2805")?;
/// let mut ring = ReceiveRing::new(&stream, 1 << 20)?;
/// let mut buffer = [0; 1500];
/// loop {
///     match ring.read(&mut buffer) {
///         Ok(0) => break,
///         Ok(length) => println!("{length} bytes"),
///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::hint::spin_loop(),
///         Err(error) => return Err(error),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReceiveRing(RingMemory);

impl ReceiveRing {
    /// Makes a ring of `size` bytes for a connection, or maps the ring of this size that the
    /// connection has. `size` is a power of two from the size of a page to 16 MiB. The memory
    /// counts against `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another size, `EBUSY` if the connection has a ring of another size or another
    /// value of this process has it, `ENOBUFS` if the memory exceeds the limit, `ENOPROTOOPT` if
    /// the module does not support rings, and the errors of `mmap(2)`, after which the ring is
    /// there and may be mapped again.
    pub fn new(stream: &EspStream, size: usize) -> io::Result<Self> {
        RingMemory::new(stream.0.try_clone()?, size).map(Self)
    }

    /// Returns the bytes that the kernel has put into the ring, and that were not
    /// [consumed](Self::consume).
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Gives the room of the first `length` bytes back to the kernel, but of no more than there
    /// are.
    pub fn consume(&mut self, length: usize) {
        self.0.consume(length);
    }

    /// Receives bytes, without waiting. Makes a system call only if the ring is empty and the
    /// kernel has queued bytes, or has an error or the end of the stream to report.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no bytes have arrived; the errors of [`std::io::Read::read`] of the stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes();
        let length = bytes.len().min(buffer.len());
        if length > 0 {
            buffer[..length].copy_from_slice(&bytes[..length]);
            self.consume(length);
            return Ok(length);
        }
        if !self.0.needs_call() || buffer.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.socket.recv_with_flags(buffer, libc::MSG_DONTWAIT)
    }
}

impl AsFd for ReceiveRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// A datagram in a [`DatagramRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender's address.
    pub sender: Address,
    /// The datagram's bytes.
    pub bytes: &'a [u8],
}

/// Number of bytes that precede a datagram's own in a ring: `struct ep_datagram` in `af_enet.h`.
const HEADER: usize = 24;

/// A ring of memory into which the kernel puts the datagrams of an EDP socket, so that a program
/// that polls receives them without a system call, and without a copy.
///
/// A datagram that does not fit is dropped, as one is for which the receive buffer has no room.
/// From the moment on in which a socket has a ring, its receive calls return only datagrams that
/// were queued before, never block, and otherwise fail with `WouldBlock`. `poll` and `epoll` wait
/// for datagrams as usual. The socket sends as before.
///
/// The value has a handle of the socket. A child process has no ring. After `fork`, it must neither
/// use nor drop the value.
///
/// ```no_run
/// use sockaddr_en::{DatagramRing, EdpSocket};
///
/// let socket = EdpSocket::bind("*%eth0:2805")?;
/// let mut ring = DatagramRing::new(&socket, 1 << 20)?;
/// loop {
///     match ring.first() {
///         Some(datagram) => println!("{} bytes", datagram.bytes.len()),
///         None => std::hint::spin_loop(),
///     }
///     ring.consume();
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DatagramRing(RingMemory);

impl DatagramRing {
    /// Makes a ring of `size` bytes for a socket, or maps the ring of this size that the socket
    /// has, like [`ReceiveRing::new`]. A datagram takes 24 bytes more than it has, and up to 7 that
    /// make the sum a multiple of 8.
    ///
    /// # Errors
    ///
    /// The errors of [`ReceiveRing::new`].
    pub fn new(socket: &EdpSocket, size: usize) -> io::Result<Self> {
        RingMemory::new(socket.0.try_clone()?, size).map(Self)
    }

    /// Returns the datagram that came first of those that were not [consumed](Self::consume).
    pub fn first(&self) -> Option<Datagram<'_>> {
        let (header, rest) = self.0.bytes().split_first_chunk::<HEADER>()?;
        // The length, four bytes of 0, and `struct sockaddr_en`.
        let &[l0, l1, l2, l3, _, _, _, _, _, _, p0, p1, i0, i1, i2, i3, _, m0, m1, m2, m3, m4, m5, _] =
            header;
        let sender = Address::new(
            MacAddr::from([m0, m1, m2, m3, m4, m5]),
            u32::from_ne_bytes([i0, i1, i2, i3]),
            u16::from_be_bytes([p0, p1]),
        );
        // Another process with the descriptor may have written to the ring.
        let bytes = rest.get(..u32::from_ne_bytes([l0, l1, l2, l3]) as usize)?;
        Some(Datagram { sender, bytes })
    }

    /// Gives the room of the first datagram back to the kernel, if there is one.
    pub fn consume(&mut self) {
        let Some(length) = self.first().map(|datagram| datagram.bytes.len()) else {
            return;
        };
        self.0.consume((HEADER + length).next_multiple_of(8));
    }

    /// Receives a datagram, without waiting. Makes a system call only if the ring is empty and the
    /// kernel has datagrams that were queued before there was a ring. Returns the length and the
    /// sender. Bytes that exceed `buffer` are lost.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no datagram has arrived; the errors of
    /// [`EdpSocket::recv_from`](crate::EdpSocket::recv_from).
    pub fn recv_from(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        if self.0.needs_call() {
            match self.0.socket.recv_from(buffer, libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
        let Some(Datagram { sender, bytes }) = self.first() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        self.consume();
        Ok((length, sender))
    }
}

impl AsFd for DatagramRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

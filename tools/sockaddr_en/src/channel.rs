// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels: messages, and puts to memory of the peer's program.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

use socket2::Type;

use crate::constants::{
    EPPROTO_ESP, EP_IOC_END_REGION, EP_IOC_REGION, EP_PUT, EP_SEND, EP_SO_DOMAIN, EP_TELLS,
};
use crate::socket::{common_methods, data_methods, Socket, BACKLOG};
use crate::{Address, ToAddress};

/// Number of bytes of a message's header.
const HEADER: usize = 24;

/// A domain: the regions of memory to which peers of its channels may write.
///
/// The domain, and with it its regions, lasts until the value and all of its regions are dropped.
/// Its channels may last longer.
///
/// ```no_run
/// use sockaddr_en::{Domain, Message};
///
/// // A host offers a mebibyte to a client.
/// let domain = Domain::new()?;
/// let region = domain.region(1 << 20)?;
/// let listener = domain.listen("*:2805")?;
/// let (channel, _) = listener.accept()?;
/// channel.send(0, region.place(0), &[])?;
/// while let Some(message) = channel.recv(&mut [])? {
///     // What the message says is the peer's, and so it is checked.
///     let Message::Put { place, immediate } = message else { continue };
///     let mut bytes = vec![0; immediate.min(100) as usize];
///     if region.contains(place, bytes.len()) {
///         region.read(place.offset as usize, &mut bytes);
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// ```no_run
/// use sockaddr_en::{Domain, Message, Place};
///
/// // Another host writes there.
/// let channel = Domain::new()?.connect("02:00:00:00:00:01%eth0:2805")?;
/// if let Some(Message::Sent { place, .. }) = channel.recv(&mut [])? {
///     channel.put_and_tell(Place { offset: 100, ..place }, b"hello", 5)?;
///     while !channel.is_complete()? {
///         std::thread::yield_now();
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Domain(Arc<Socket>);

impl Domain {
    /// Makes a domain without regions.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` if the module does not support puts, and the errors of `socket(2)`.
    pub fn new() -> io::Result<Self> {
        let socket = socket()?;
        socket.set_option(EP_SO_DOMAIN, socket.as_raw_fd() as u32)?;
        Ok(Self(Arc::new(socket)))
    }

    /// Makes a region of `length` bytes, all 0. Its pages, at least two, count against
    /// `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0 or more than 4 GiB, `ENOBUFS` if the memory exceeds the limit,
    /// `ENOSPC` if the domain has 1,024 regions, and the errors of `mmap(2)`.
    pub fn region(&self, length: usize) -> io::Result<Region> {
        let memory = Memory::new(length)?;
        // SAFETY: the memory stays mapped until the region has ended, and nothing refers to it but
        // by atomic accesses.
        let key = unsafe { self.pin(memory.start.as_ptr(), length) }?;
        Ok(Region {
            domain: self.clone(),
            memory,
            key,
        })
    }

    /// Makes a region of `length` bytes of the program's own memory, from `start` on. Returns its
    /// key. The region lasts until [`end`](Self::end) is called with the key, or the domain ends.
    ///
    /// # Safety
    ///
    /// Until then, the memory must stay allocated, and the program must access it as memory that
    /// others may write at any time.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that the program cannot write; otherwise as [`region`](Self::region).
    pub unsafe fn pin(&self, start: *mut u8, length: usize) -> io::Result<u64> {
        let mut request = [start.expose_provenance() as u64, length as u64, 0];
        // SAFETY: the request reads and writes three numbers, which live across the call. The
        // caller leaves the memory to the peers until the region has ended.
        let made = unsafe { libc::ioctl(self.0.as_raw_fd(), EP_IOC_REGION, &mut request) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        let [_, _, key] = request;
        Ok(key)
    }

    /// Ends the region with this key, if there is one. Nothing is written to its memory after this.
    pub fn end(&self, key: u64) {
        let request = [0, 0, key];
        // SAFETY: the request reads three numbers, which live across the call. An error means that
        // there is no such region.
        unsafe { libc::ioctl(self.0.as_raw_fd(), EP_IOC_END_REGION, &request) };
    }

    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// The errors of [`EspStream::connect`](crate::EspStream::connect); `ConnectionRefused` also if
    /// the listener accepts no channels.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<Channel> {
        let socket = self.socket()?;
        socket.connect(address)?;
        Ok(Channel(socket))
    }

    /// Opens a socket, binds it and listens for channels. The accept queue holds up to 128
    /// connections.
    ///
    /// # Errors
    ///
    /// The errors of [`EspListener::bind`](crate::EspListener::bind).
    pub fn listen(&self, address: impl ToAddress) -> io::Result<ChannelListener> {
        let socket = self.socket()?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?;
        Ok(ChannelListener(socket))
    }

    /// Opens a socket of the domain, for programs that call `connect(2)`, or `bind(2)` and
    /// `listen(2)`, themselves: see [`Channel`] and [`ChannelListener`], which take the descriptor.
    ///
    /// # Errors
    ///
    /// The errors of `socket(2)`.
    pub fn open(&self) -> io::Result<OwnedFd> {
        self.socket().map(OwnedFd::from)
    }

    /// Opens a socket of the domain.
    fn socket(&self) -> io::Result<Socket> {
        let socket = socket()?;
        socket.set_option(EP_SO_DOMAIN, self.0.as_raw_fd() as u32)?;
        Ok(socket)
    }
}

impl AsFd for Domain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> io::Result<Socket> {
    Socket::new(Type::SEQPACKET, EPPROTO_ESP)
}

/// Memory of this process that others may write at any time.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the value, and to no thread.
unsafe impl Send for Memory {}
// SAFETY: all accesses are atomic.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place of the new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: the mapping has this length, and lives as long as `self`. `AtomicU8` has the
        // layout of `u8`.
        unsafe { std::slice::from_raw_parts(self.start.cast().as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this place and length, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Memory of this process to which peers write by its key, over the channels of its domain.
///
/// Peers may write at any time. So the bytes are copied in and out, and no reference to them is
/// given. The bytes of a put are not written at once, nor in order. They are all there when a
/// message is received that the peer has sent behind them, or [`Message::Put`]; or when a
/// [number](Self::load) that the peer has put behind them is there.
///
/// Dropping the value ends the region, and waits until no packet writes to it any more, which takes
/// some milliseconds. After `fork`, a child must not drop it, as that would end the parent's
/// region.
#[derive(Debug)]
pub struct Region {
    domain: Domain,
    memory: Memory,
    key: u64,
}

impl Region {
    /// Returns the key, which peers need to write to the region. It cannot be guessed.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns a place in the region, for a peer.
    pub fn place(&self, offset: u64) -> Place {
        Place {
            key: self.key,
            offset,
        }
    }

    /// Returns whether `length` bytes from `place` on are in the region.
    pub fn contains(&self, place: Place, length: usize) -> bool {
        let end = place.offset.checked_add(length as u64);
        place.key == self.key && end.is_some_and(|end| end <= self.len() as u64)
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty)] // A region is never empty.
    pub fn len(&self) -> usize {
        self.memory.length
    }

    /// Copies the bytes from `offset` on to `bytes`.
    ///
    /// # Panics
    ///
    /// If they do not lie within the region.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = &self.memory.bytes()[offset..][..bytes.len()];
        for (to, byte) in bytes.iter_mut().zip(from) {
            *to = byte.load(Ordering::Relaxed);
        }
    }

    /// Copies `bytes` to the region, from `offset` on.
    ///
    /// # Panics
    ///
    /// If they do not lie within the region.
    // The exclusive reference keeps stores of bytes apart from the loads of numbers.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = &self.memory.bytes()[offset..][..bytes.len()];
        for (to, byte) in to.iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
    }

    /// Returns the address of the memory, for programs that access it without the copies of
    /// [`read`](Self::read) and [`write`](Self::write).
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Reads the number of eight bytes, in the byte order of the host, at `offset`. If the peer has
    /// put it as a message of its own, all eight bytes change at once, and after all that the same
    /// channel has put before.
    ///
    /// # Panics
    ///
    /// If `offset` is no multiple of eight, or the number does not lie within the region.
    pub fn load(&self, offset: usize) -> u64 {
        let bytes = &self.memory.bytes()[offset..][..8];
        assert!(offset % 8 == 0, "{offset} is no multiple of eight");
        // SAFETY: the eight bytes are in the mapping, and aligned, since a mapping begins with a
        // page. While `self` is borrowed, safe code does not store bytes of another size there, but
        // only loads them.
        unsafe { AtomicU64::from_ptr(bytes.as_ptr().cast_mut().cast()) }.load(Ordering::Acquire)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.domain.end(self.key);
    }
}

/// A place in a region of the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The key of the region.
    pub key: u64,
    /// Offset in the region, in bytes.
    pub offset: u64,
}

/// A message that a program receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A message of the peer's, whose bytes were received.
    Sent {
        /// The peer's immediate data.
        immediate: u32,
        /// A place that the peer names, such as one of its own regions.
        place: Place,
        /// Number of bytes. If they are more than the buffer has, the rest was lost.
        length: usize,
    },
    /// A put that tells. All of its bytes are in their place, and those of all puts before it.
    Put {
        /// The peer's immediate data.
        immediate: u32,
        /// Where the put began.
        place: Place,
    },
}

/// An ESP connection of messages, which also writes to memory of the peer's program.
#[derive(Debug)]
pub struct Channel(Socket);

common_methods!(Channel);
data_methods!(Channel);

/// Returns the header of a message.
fn header(operation: u8, flags: u8, immediate: u32, place: Place) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = operation;
    header[1] = flags;
    header[4..8].copy_from_slice(&immediate.to_be_bytes());
    header[8..16].copy_from_slice(&place.key.to_be_bytes());
    header[16..].copy_from_slice(&place.offset.to_be_bytes());
    header
}

impl Channel {
    /// Number of bytes of a message's header. They count as [sent](Self::unacknowledged).
    pub const HEADER: usize = HEADER;

    /// The most bytes of one message, without its header, that every host accepts.
    pub const MOST: usize = 65_536 - HEADER;

    /// Sends a message for the peer's program to receive. The immediate data and the place are the
    /// programs', and there may be no bytes.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a message that is longer than the peer accepts, or than the send buffer can
    /// grow to. Messages of up to 65,512 bytes are never too long. `WouldBlock` if the socket is
    /// non-blocking and the send buffer is full; otherwise the errors of `send(2)`.
    pub fn send(&self, immediate: u32, place: Place, bytes: &[u8]) -> io::Result<()> {
        self.message(header(EP_SEND, 0, immediate, place), bytes)
    }

    /// Puts bytes to a place in a region of the peer's. The peer's program does not learn of it.
    /// The bytes are in their place once the channel [is complete](Self::is_complete).
    ///
    /// If the peer has no region with this key, or the bytes do not fit, the connection ends with
    /// `ConnectionReset` at both ends.
    ///
    /// # Errors
    ///
    /// The errors of `send(2)`. A call that may fail with `WouldBlock`, on a non-blocking socket or
    /// with a timeout, may have put a part of more than 65,512 bytes.
    pub fn put(&self, place: Place, bytes: &[u8]) -> io::Result<()> {
        let mut offset = place.offset;
        for part in bytes.chunks(Self::MOST) {
            self.message(header(EP_PUT, 0, 0, Place { offset, ..place }), part)?;
            offset = offset.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    /// Puts bytes like [`put`](Self::put). Once all of them are in their place, the peer's program
    /// receives [`Message::Put`] with the place and the immediate data.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Self::put).
    pub fn put_and_tell(&self, place: Place, bytes: &[u8], immediate: u32) -> io::Result<()> {
        let mut bytes = bytes;
        if bytes.len() > Self::MOST {
            // A put of no bytes tells of all.
            self.put(place, bytes)?;
            bytes = &[];
        }
        self.message(header(EP_PUT, EP_TELLS, immediate, place), bytes)
    }

    fn message(&self, header: [u8; HEADER], bytes: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        self.0.send_vectored(&parts).map(drop)
    }

    /// Receives a message. Returns `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is non-blocking and no message is queued; otherwise the errors of
    /// `recv(2)`.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        let mut header = [0; HEADER];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let length = self
            .0
            .recv_vectored_with_flags(&mut parts, libc::MSG_TRUNC)?;
        let Some(length) = length.checked_sub(HEADER) else {
            return Ok(None);
        };
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| header[at + i]));
        let immediate = number(0) as u32;
        let place = Place {
            key: number(8),
            offset: number(16),
        };
        Ok(Some(match header[0] {
            EP_PUT => Message::Put { immediate, place },
            _ => Message::Sent {
                immediate,
                place,
                length,
            },
        }))
    }

    /// Returns whether the peer has acknowledged all that was sent and put. What was put is in its
    /// place then.
    ///
    /// # Errors
    ///
    /// The error of the connection, if it has failed, and `NotConnected` if it has ended: it is not
    /// known then what has arrived.
    pub fn is_complete(&self) -> io::Result<bool> {
        let bytes = self.unacknowledged()?;
        let mut state = libc::pollfd {
            fd: self.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: the call reads and writes one entry, which lives across the call.
        let ready = unsafe { libc::poll(&mut state, 1, 0) };
        if ready < 0 {
            return Err(io::Error::last_os_error());
        }
        if state.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
            let error = self.0.take_error()?;
            return Err(error.unwrap_or_else(|| io::ErrorKind::NotConnected.into()));
        }
        Ok(bytes == 0)
    }

    /// Returns the number of bytes, headers included, that were sent and put, and that the peer has
    /// not acknowledged. A connection that has failed keeps the number.
    ///
    /// # Errors
    ///
    /// The errors of `SIOCOUTQ`.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes an integer, which lives across the call.
        let asked = unsafe { libc::ioctl(self.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if asked < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the socket is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

/// A socket that accepts channels.
#[derive(Debug)]
pub struct ChannelListener(Socket);

common_methods!(ChannelListener);

impl ChannelListener {
    /// Waits for a channel. Returns the channel and its peer's address.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is non-blocking and the accept queue is empty; otherwise the
    /// errors of `accept(2)`.
    pub fn accept(&self) -> io::Result<(Channel, Address)> {
        let (socket, address) = self.0.accept()?;
        Ok((Channel(socket), address))
    }
}

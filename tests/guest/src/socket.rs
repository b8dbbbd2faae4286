// SPDX-License-Identifier: GPL-2.0-only

//! Makes socket calls as the kernel offers them: no call is retried, and an error is the call's
//! errno.

use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};
use sockaddr_en::{EdpStats, EspStats};

use crate::address::{Address, AF_ENET, SOL_EP, SO_MTU, SO_STATS};

/// Number of bytes of the largest socket address that the wrappers read back.
const NAME_MAX: usize = 128;

/// The indices of `SO_MEMINFO`, as in `linux/sock_diag.h`.
pub mod meminfo {
    /// Index of the number of bytes that are charged for received packets.
    pub const RMEM_ALLOC: usize = 0;
    /// Index of the limit of the receive buffer, in bytes.
    pub const RCVBUF: usize = 1;
    /// Index of the limit of the send buffer, in bytes.
    pub const SNDBUF: usize = 3;
    /// Index of the number of bytes that are charged for packets that are not yet acknowledged.
    pub const WMEM_QUEUED: usize = 5;
    /// Index of the number of bytes that are charged for packets that came while a task owned the
    /// socket.
    pub const BACKLOG: usize = 7;
    /// Index of the number of dropped packets.
    pub const DROPS: usize = 8;
    /// The number of these indices.
    pub const COUNT: usize = 9;
}

/// A socket of any family.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// A message that [`Socket::receive_message`] has received.
#[derive(Debug)]
pub struct Received {
    /// The call's return value.
    pub length: usize,
    /// `msg_flags`.
    pub flags: c_int,
    /// The sender's address as the kernel wrote it.
    pub name: Vec<u8>,
}

/// Turns a system call's -1 into its errno.
pub fn check(result: impl Into<i64>) -> Result<i64> {
    match result.into() {
        -1 => Err(Error::last_os_error()),
        value => Ok(value),
    }
}

/// One piece of memory from which a call sends.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Readable bytes.
    Good(&'a [u8]),
    /// This many bytes that the process may not access.
    Bad(usize),
}

/// One piece of memory into which a call receives.
#[derive(Debug)]
pub enum PieceMut<'a> {
    /// Writable bytes.
    Good(&'a mut [u8]),
    /// This many bytes that the process may not access.
    Bad(usize),
}

/// An address that is never mapped: inside the first page, below `vm.mmap_min_addr`.
pub const NOWHERE: *mut c_void = 8 as *mut c_void;

/// Converts the pieces to the kernel's format. The pieces must outlive the result.
pub fn vector(pieces: &[Piece]) -> Vec<libc::iovec> {
    let entry = |piece: &Piece| match *piece {
        Piece::Good(bytes) => libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        },
        Piece::Bad(length) => libc::iovec {
            iov_base: NOWHERE,
            iov_len: length,
        },
    };
    pieces.iter().map(entry).collect()
}

/// Converts pieces to receive into, like [`vector`].
pub fn vector_mut(pieces: &mut [PieceMut]) -> Vec<libc::iovec> {
    let entry = |piece: &mut PieceMut| match piece {
        PieceMut::Good(bytes) => libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        },
        PieceMut::Bad(length) => libc::iovec {
            iov_base: NOWHERE,
            iov_len: *length,
        },
    };
    pieces.iter_mut().map(entry).collect()
}

impl Socket {
    /// Calls `socket(2)`; the descriptor is close-on-exec.
    ///
    /// # Errors
    /// The call's errno, as for every function here.
    pub fn new(family: c_int, kind: c_int, protocol: c_int) -> Result<Self> {
        // SAFETY: `socket` takes three integers and accesses no memory of ours.
        let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
        // SAFETY: The kernel just returned this descriptor and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Makes an ESP socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    pub fn esp() -> Result<Self> {
        Self::new(AF_ENET, libc::SOCK_STREAM, 0)
    }

    /// Makes an EDP socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    pub fn edp() -> Result<Self> {
        Self::new(AF_ENET, libc::SOCK_DGRAM, 0)
    }

    /// Calls `bind(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn bind(&self, address: &Address) -> Result<()> {
        self.bind_bytes(&address.to_bytes())
    }

    /// Calls `bind(2)` with any bytes as the address.
    ///
    /// # Errors
    /// The call's errno.
    pub fn bind_bytes(&self, name: &[u8]) -> Result<()> {
        let length = name.len() as socklen_t;
        // SAFETY: `name` is readable for the length given.
        check(unsafe { libc::bind(self.raw(), name.as_ptr().cast(), length) }).map(drop)
    }

    /// Calls `connect(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn connect(&self, address: &Address) -> Result<()> {
        self.connect_bytes(&address.to_bytes())
    }

    /// Calls `connect(2)` with any bytes as the address.
    ///
    /// # Errors
    /// The call's errno.
    pub fn connect_bytes(&self, name: &[u8]) -> Result<()> {
        let length = name.len() as socklen_t;
        // SAFETY: `name` is readable for the length given.
        check(unsafe { libc::connect(self.raw(), name.as_ptr().cast(), length) }).map(drop)
    }

    /// Calls `listen(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn listen(&self, backlog: c_int) -> Result<()> {
        // SAFETY: `listen` takes two integers.
        check(unsafe { libc::listen(self.raw(), backlog) }).map(drop)
    }

    /// Calls `accept4(2)` with exactly these flags and without a buffer for the address.
    ///
    /// # Errors
    /// The call's errno.
    pub fn accept_with_flags(&self, flags: c_int) -> Result<Self> {
        let (name, length) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: Both pointers are null, so the kernel writes no address.
        let fd = check(unsafe { libc::accept4(self.raw(), name, length, flags) })?;
        // SAFETY: The kernel just returned this descriptor and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Calls `accept4(2)` with `flags`; also returns the peer's address as bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn accept(&self, flags: c_int) -> Result<(Self, Vec<u8>)> {
        let mut name = [0u8; NAME_MAX];
        let mut length = NAME_MAX as socklen_t;
        // SAFETY: `name` is writable for `length` bytes, and `length` itself is writable.
        let fd = check(unsafe {
            libc::accept4(
                self.raw(),
                name.as_mut_ptr().cast(),
                &mut length,
                flags | libc::SOCK_CLOEXEC,
            )
        })?;
        // SAFETY: The kernel just returned this descriptor and nothing else owns it.
        let accepted = Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        Ok((accepted, name[..NAME_MAX.min(length as usize)].to_vec()))
    }

    /// Calls `send(2)`, without adding `MSG_NOSIGNAL`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn send(&self, bytes: &[u8], flags: c_int) -> Result<usize> {
        // SAFETY: `bytes` is readable for its length.
        let sent = check(unsafe {
            libc::send(self.raw(), bytes.as_ptr().cast(), bytes.len(), flags) as i64
        })?;
        Ok(sent as usize)
    }

    /// Sends all of `bytes`, with as many calls as that takes.
    ///
    /// # Errors
    /// The errno of the first call that fails.
    pub fn send_all(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let sent = self.send(bytes, libc::MSG_NOSIGNAL)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Calls `sendto(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn send_to(&self, bytes: &[u8], flags: c_int, address: &Address) -> Result<usize> {
        self.send_to_bytes(bytes, flags, &address.to_bytes())
    }

    /// Calls `sendto(2)` with any bytes as the address.
    ///
    /// # Errors
    /// The call's errno.
    pub fn send_to_bytes(&self, bytes: &[u8], flags: c_int, name: &[u8]) -> Result<usize> {
        // SAFETY: `bytes` and `name` are readable for their lengths.
        let sent = check(unsafe {
            libc::sendto(
                self.raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
                name.as_ptr().cast(),
                name.len() as socklen_t,
            ) as i64
        })?;
        Ok(sent as usize)
    }

    /// Calls `sendmsg(2)` with several pieces, to `name` unless `name` is empty.
    ///
    /// # Errors
    /// The call's errno.
    pub fn send_message(&self, pieces: &[Piece], flags: c_int, name: &[u8]) -> Result<usize> {
        let mut vector = vector(pieces);
        // SAFETY: All-zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        if !name.is_empty() {
            message.msg_name = name.as_ptr().cast_mut().cast();
            message.msg_namelen = name.len() as socklen_t;
        }
        message.msg_iov = vector.as_mut_ptr();
        message.msg_iovlen = vector.len();
        // SAFETY: The header points to `name` and `vector`, both alive. Good pieces are readable
        // for their lengths, and for a bad piece the kernel returns EFAULT.
        let sent = check(unsafe { libc::sendmsg(self.raw(), &message, flags) as i64 })?;
        Ok(sent as usize)
    }

    /// Calls `recv(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn receive(&self, bytes: &mut [u8], flags: c_int) -> Result<usize> {
        // SAFETY: `bytes` is writable for its length.
        let got = check(unsafe {
            libc::recv(self.raw(), bytes.as_mut_ptr().cast(), bytes.len(), flags) as i64
        })?;
        Ok(got as usize)
    }

    /// Fills `bytes`, with as many calls as that takes.
    ///
    /// # Errors
    /// The errno of the first call that fails; `UnexpectedEof` if the stream ends early.
    pub fn receive_exact(&self, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.receive(&mut bytes[filled..], 0)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                got => filled += got,
            }
        }
        Ok(())
    }

    /// Receives the next `length` bytes, with as many calls as that takes.
    ///
    /// # Errors
    /// As [`Self::receive_exact`].
    pub fn receive_all(&self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.receive_exact(&mut bytes).map(|()| bytes)
    }

    /// Calls `recvfrom(2)`; returns the length, and the sender's address as bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn receive_from(&self, bytes: &mut [u8], flags: c_int) -> Result<(usize, Vec<u8>)> {
        let received = self.receive_message(&mut [PieceMut::Good(bytes)], flags)?;
        Ok((received.length, received.name))
    }

    /// Calls `recvmsg(2)` with several pieces.
    ///
    /// # Errors
    /// The call's errno.
    pub fn receive_message(&self, pieces: &mut [PieceMut], flags: c_int) -> Result<Received> {
        let mut name = [0u8; NAME_MAX];
        let mut vector = vector_mut(pieces);
        // SAFETY: All-zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = NAME_MAX as socklen_t;
        message.msg_iov = vector.as_mut_ptr();
        message.msg_iovlen = vector.len();
        // SAFETY: The header points to `name` and `vector`, both alive. Good pieces are writable
        // for their lengths, and for a bad piece the kernel returns EFAULT.
        let got = check(unsafe { libc::recvmsg(self.raw(), &mut message, flags) as i64 })?;
        Ok(Received {
            length: got as usize,
            flags: message.msg_flags,
            name: name[..NAME_MAX.min(message.msg_namelen as usize)].to_vec(),
        })
    }

    /// Returns the address from `getsockname(2)` as bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn local_name(&self) -> Result<Vec<u8>> {
        let mut name = [0u8; NAME_MAX];
        let mut length = NAME_MAX as socklen_t;
        // SAFETY: `name` is writable for `length` bytes, and `length` itself is writable.
        check(unsafe { libc::getsockname(self.raw(), name.as_mut_ptr().cast(), &mut length) })?;
        Ok(name[..NAME_MAX.min(length as usize)].to_vec())
    }

    /// Returns the address from `getpeername(2)` as bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn peer_name(&self) -> Result<Vec<u8>> {
        let mut name = [0u8; NAME_MAX];
        let mut length = NAME_MAX as socklen_t;
        // SAFETY: `name` is writable for `length` bytes, and `length` itself is writable.
        check(unsafe { libc::getpeername(self.raw(), name.as_mut_ptr().cast(), &mut length) })?;
        Ok(name[..NAME_MAX.min(length as usize)].to_vec())
    }

    /// Returns the address from `getsockname(2)`, decoded.
    ///
    /// # Errors
    /// The call's errno, or the error of [`Address::from_bytes`].
    pub fn local_address(&self) -> anyhow::Result<Address> {
        Address::from_bytes(&self.local_name()?)
    }

    /// Returns the address from `getpeername(2)`, decoded.
    ///
    /// # Errors
    /// The call's errno, or the error of [`Address::from_bytes`].
    pub fn peer_address(&self) -> anyhow::Result<Address> {
        Address::from_bytes(&self.peer_name()?)
    }

    /// Calls `shutdown(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn shutdown(&self, how: c_int) -> Result<()> {
        // SAFETY: `shutdown` takes two integers.
        check(unsafe { libc::shutdown(self.raw(), how) }).map(drop)
    }

    /// Calls `setsockopt(2)` with any bytes as the value.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        let length = value.len() as socklen_t;
        // SAFETY: `value` is readable for the length given.
        check(unsafe { libc::setsockopt(self.raw(), level, name, value.as_ptr().cast(), length) })
            .map(drop)
    }

    /// Calls `getsockopt(2)` with a buffer of `room` bytes. The length that is passed to the kernel
    /// is `claimed`.
    ///
    /// # Errors
    /// The call's errno.
    ///
    /// # Panics
    /// If `claimed` is more than `room`.
    pub fn option(&self, level: c_int, name: c_int, room: usize, claimed: i32) -> Result<Vec<u8>> {
        assert!(
            claimed <= room as i32,
            "the kernel would write past the room"
        );
        let mut value = vec![0u8; room];
        let mut length = claimed as socklen_t;
        // SAFETY: `value` is writable for at least `claimed` bytes (the kernel refuses a negative
        // length without writing), and `length` is writable too.
        check(unsafe {
            libc::getsockopt(
                self.raw(),
                level,
                name,
                value.as_mut_ptr().cast(),
                &mut length,
            )
        })?;
        value.truncate(length as usize);
        Ok(value)
    }

    /// Returns an option of one `int`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn int_option(&self, level: c_int, name: c_int) -> Result<i32> {
        let value = self.option(level, name, 4, 4)?;
        let bytes: [u8; 4] = value
            .try_into()
            .map_err(|_| Error::other("the option is not four bytes long"))?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Sets an option of one `int`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_int_option(&self, level: c_int, name: c_int, value: i32) -> Result<()> {
        self.set_option(level, name, &value.to_ne_bytes())
    }

    /// Returns an option of one `int` at the level `SOL_SOCKET`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn so(&self, name: c_int) -> Result<i32> {
        self.int_option(libc::SOL_SOCKET, name)
    }

    /// Sets an option of one `int` at the level `SOL_SOCKET`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_so(&self, name: c_int, value: i32) -> Result<()> {
        self.set_int_option(libc::SOL_SOCKET, name, value)
    }

    /// Returns the numbers of `SO_MEMINFO`, by the indices in [`meminfo`].
    ///
    /// # Errors
    /// The call's errno.
    pub fn meminfo(&self) -> Result<[u32; meminfo::COUNT]> {
        let numbers = self.numbers(libc::SOL_SOCKET, libc::SO_MEMINFO, meminfo::COUNT)?;
        Ok(std::array::from_fn(|index| numbers[index]))
    }

    /// Returns the largest payload of one packet in bytes (`EDP_SO_MTU` or `ESP_SO_MTU`).
    ///
    /// # Errors
    /// The call's errno.
    pub fn largest_payload(&self) -> Result<i32> {
        self.int_option(SOL_EP, SO_MTU)
    }

    /// Returns the protocol's counters, an array of u32 in the order of its `_stats` structure.
    ///
    /// # Errors
    /// The call's errno.
    pub fn counters(&self, count: usize) -> Result<Vec<u32>> {
        self.numbers(SOL_EP, SO_STATS, count)
    }

    /// Returns an option that is an array of `count` u32.
    fn numbers(&self, level: c_int, name: c_int, count: usize) -> Result<Vec<u32>> {
        let value = self.option(level, name, 4 * count, 4 * count as i32)?;
        if value.len() != 4 * count {
            return Err(Error::other(format!("{} bytes of numbers", value.len())));
        }
        Ok(value
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }

    /// Returns the counters of an EDP socket.
    ///
    /// # Errors
    /// The call's errno.
    pub fn edp_counters(&self) -> Result<EdpStats> {
        let [pkt_tx, tx_err, pkt_rx, pkt_rx_drop] = self.counted()?;
        Ok(EdpStats {
            pkt_tx,
            tx_err,
            pkt_rx,
            pkt_rx_drop,
        })
    }

    /// Returns the counters of an ESP socket.
    ///
    /// # Errors
    /// The call's errno.
    pub fn esp_counters(&self) -> Result<EspStats> {
        let [pkt_tx, pkt_rtx, tx_err, pkt_rx, pkt_rx_oos, pkt_rx_drop, seq_lost, arq_tx] =
            self.counted()?;
        Ok(EspStats {
            pkt_tx,
            pkt_rtx,
            tx_err,
            pkt_rx,
            pkt_rx_oos,
            pkt_rx_drop,
            seq_lost,
            arq_tx,
        })
    }

    /// Returns the counters as an array.
    fn counted<const N: usize>(&self) -> Result<[u32; N]> {
        let counters = self.counters(N)?;
        counters
            .try_into()
            .map_err(|_| Error::other("another number of counters"))
    }

    /// Returns the pending error by `SO_ERROR`, which clears it.
    ///
    /// # Errors
    /// The call's errno.
    pub fn pending_error(&self) -> Result<i32> {
        self.so(libc::SO_ERROR)
    }

    /// Sets `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_timeout(&self, which: c_int, timeout: Duration) -> Result<()> {
        let seconds = timeout.as_secs() as i64;
        let micros = i64::from(timeout.subsec_micros());
        let mut value = [0u8; 16];
        value[..8].copy_from_slice(&seconds.to_ne_bytes());
        value[8..].copy_from_slice(&micros.to_ne_bytes());
        self.set_option(libc::SOL_SOCKET, which, &value)
    }

    /// Sets `SO_LINGER`: off, or on with this many seconds. With 0, the next close resets the
    /// connection.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_linger(&self, seconds: Option<i32>) -> Result<()> {
        let value = [i32::from(seconds.is_some()), seconds.unwrap_or(0)].map(i32::to_ne_bytes);
        self.set_option(libc::SOL_SOCKET, libc::SO_LINGER, &value.concat())
    }

    /// Duplicates the descriptor, close-on-exec.
    ///
    /// # Errors
    /// The call's errno.
    pub fn duplicate(&self) -> Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sets or clears `O_NONBLOCK`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_nonblocking(&self, on: bool) -> Result<()> {
        let mut value = c_int::from(on);
        // SAFETY: FIONBIO reads one int through the pointer, which lives across the call.
        check(unsafe { libc::ioctl(self.raw(), libc::FIONBIO, &mut value) }).map(drop)
    }

    /// Makes an ioctl that returns one int, such as `FIONREAD` or `TIOCOUTQ`. Returns this int.
    ///
    /// # Errors
    /// The call's errno.
    pub fn queued(&self, request: libc::c_ulong) -> Result<i32> {
        let mut value: c_int = 0;
        // SAFETY: The queue-length requests write one int through the pointer, which lives across
        // the call.
        check(unsafe { libc::ioctl(self.raw(), request, &mut value) })?;
        Ok(value)
    }

    /// Returns the hardware address of the interface `name`, through `SIOCGIFHWADDR` on this
    /// socket.
    ///
    /// # Errors
    /// The call's errno.
    pub fn hardware_address(&self, name: &str) -> Result<[u8; 6]> {
        let mut request = interface_request(name);
        // SAFETY: SIOCGIFHWADDR reads the name from, and writes the address to, this one ifreq.
        check(unsafe { libc::ioctl(self.raw(), libc::SIOCGIFHWADDR, &mut request) })?;
        // SAFETY: The call succeeded, so the union holds a hardware address.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|index| data[index] as u8))
    }

    /// Returns the index of the interface `name`, through `SIOCGIFINDEX` on this socket.
    ///
    /// # Errors
    /// The call's errno.
    pub fn interface_index(&self, name: &str) -> Result<u32> {
        let mut request = interface_request(name);
        // SAFETY: SIOCGIFINDEX reads the name from, and writes the index to, this one ifreq.
        check(unsafe { libc::ioctl(self.raw(), libc::SIOCGIFINDEX, &mut request) })?;
        // SAFETY: The call succeeded, so the union holds an index.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Calls `poll(2)` on this socket alone; returns the events, or 0 if `timeout` has passed.
    ///
    /// # Errors
    /// The call's errno.
    pub fn poll(&self, events: i16, timeout: Duration) -> Result<i16> {
        let mut entry = libc::pollfd {
            fd: self.raw(),
            events,
            revents: 0,
        };
        // SAFETY: `entry` is one pollfd, alive and writable for the call.
        check(unsafe { libc::poll(&mut entry, 1, timeout.as_millis() as c_int) })?;
        Ok(entry.revents)
    }

    /// Returns the events of this socket, without waiting.
    ///
    /// # Errors
    /// The errno of `poll(2)`.
    pub fn events(&self) -> Result<i16> {
        self.poll(libc::POLLIN, Duration::ZERO)
    }

    /// Makes a `socketpair(2)` of any kind and closes it at once.
    ///
    /// # Errors
    /// The call's errno.
    pub fn pair(family: c_int, kind: c_int) -> Result<()> {
        let mut both = [0; 2];
        // SAFETY: The array has room for the two descriptors.
        check(unsafe { libc::socketpair(family, kind, 0, both.as_mut_ptr()) })?;
        for fd in both {
            // SAFETY: The kernel just returned this descriptor and nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl FromRawFd for Socket {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: By this function's contract the descriptor is open and owned by nothing else.
        Self(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.raw()
    }
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: All-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let room = request.ifr_name.len() - 1;
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *target = byte as libc::c_char;
    }
    request
}

/// Returns the index of an interface in the calling thread's namespace.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn interface_index(name: &str) -> Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: `name` is a terminated string that lives across the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Error::last_os_error()),
        index => Ok(index),
    }
}

/// Binds a packet socket to `ifindex` and `ethertype` (host order).
///
/// # Errors
/// The call's errno.
pub fn bind_packet(socket: &Socket, ifindex: u32, ethertype: u16) -> Result<()> {
    // SAFETY: All-zero bytes are a valid sockaddr_ll.
    let mut name: libc::sockaddr_ll = unsafe { zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = ethertype.to_be();
    name.sll_ifindex = ifindex as c_int;
    let length = size_of::<libc::sockaddr_ll>();
    // SAFETY: The slice covers exactly `name`. sockaddr_ll has no padding, so all its bytes are
    // initialised.
    let bytes = unsafe { std::slice::from_raw_parts(ptr::from_ref(&name).cast::<u8>(), length) };
    socket.bind_bytes(bytes)
}

// SPDX-License-Identifier: GPL-2.0-only

//! Makes random calls, one after the other.

use std::mem::size_of;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use fastrand::Rng;
use libc::{c_int, c_long, c_void};

use super::arena::{Arena, ROOM};
use super::channels::Keys;
use super::mapped;
use super::tally::Tally;
use guest::address::{EPPROTO_EZDP, EP_SO_RECEIVE_RING, EP_SO_ZEROCOPY};
use guest::prelude::*;

macro_rules! kinds {
    ($($name:ident)*) => {
        /// The kinds of system calls that the fuzzer makes; and `MappedByEsp`, the connections of
        /// mapped sockets over the wire, which succeed if ESP carries them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $(
            #[allow(missing_docs)]
            $name,
        )* }

        impl Kind {
            /// All kinds of calls.
            pub const ALL: [Kind; [$(Kind::$name),*].len()] = [$(Kind::$name),*];
        }
    };
}

kinds! {
    Socket Bind Connect Listen Accept Send SendTo SendMsg SendMmsg Recv RecvFrom RecvMsg RecvMmsg GetSockName GetPeerName
    SetSockOpt GetSockOpt Ring Channel Ioctl Fcntl Shutdown Close Dup Dup2 Poll Select EpollCtl EpollWait SpliceIn SpliceOut Sendfile
    Read Write PassFd TakeFd Uring MappedByEsp
}

/// The number of slots for descriptors that the threads of a process share. An empty slot holds -1.
pub const SLOTS: usize = 24;

/// The state that the threads of one process of the fuzzer share.
#[derive(Debug)]
pub struct Common {
    /// The memory for arguments.
    pub arena: Arena,
    /// Sockets of the module, and descriptors that calls on them returned.
    pub slots: [AtomicI32; SLOTS],
    /// Both ends of a pipe.
    pub pipe: [c_int; 2],
    /// A file with contents.
    pub file: c_int,
    /// An epoll instance.
    pub epoll: c_int,
    /// Both ends of the Unix socket pair that all processes share.
    pub post: [c_int; 2],
    /// The host's own address, by which its sockets reach each other even while the wire is cut.
    pub own: Address,
    /// Addresses of all families to use in calls.
    pub addresses: Vec<Vec<u8>>,
    /// The host's namespace and that of the other host.
    pub namespaces: [File; 2],
    /// The number of the other host, the last byte of its IP addresses.
    pub other: u8,
    /// Keys of regions.
    pub keys: Keys,
    /// The counters of calls, which all processes share.
    pub tally: &'static Tally,
}

/// Makes random calls in one thread.
#[derive(Debug)]
pub struct Caller<'a> {
    /// The state shared with other threads.
    pub common: &'a Common,
    /// The random generator, which makes all decisions.
    pub rng: Rng,
}

/// Lengths of arguments. The module's behaviour changes at or near each of these lengths.
const LENGTHS: [usize; 16] = [
    0, 1, 2, 6, 11, 15, 16, 17, 128, 1483, 1489, 1494, 1500, 4096, 32768, ROOM,
];

/// The `ioctl(2)` requests that change nothing outside of the socket. `FIOSETOWN` and `SIOCSPGRP`
/// are missing, because their random argument would name another process as the owner of signals.
/// `fcntl(2)` sets the owner instead.
const REQUESTS: [u64; 14] = [
    libc::FIONREAD, // SIOCINQ
    libc::TIOCOUTQ, // SIOCOUTQ
    libc::FIONBIO,
    libc::FIOASYNC,
    0x8903, // FIOGETOWN
    0x8905, // SIOCATMARK
    0x8906, // SIOCGSTAMP
    0x8907, // SIOCGSTAMPNS
    0x8910, // SIOCGIFNAME
    0x8913, // SIOCGIFFLAGS
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
    0x894b, // SIOCOUTQNSD
    0x894c, // SIOCGSKNS
];

impl Caller<'_> {
    fn length(&mut self) -> usize {
        match self.rng.u8(..8) {
            0 => self.rng.usize(..ROOM),
            1..=3 => self.rng.usize(..200),
            _ => *self.rng.choice(&LENGTHS).unwrap_or(&0),
        }
    }

    pub(super) fn memory(&mut self, length: usize) -> *mut c_void {
        self.common.arena.pointer(&mut self.rng, length)
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> *mut c_void {
        if self.rng.u8(..32) == 0 {
            return self.common.arena.bad(&mut self.rng);
        }
        self.common.arena.put(&mut self.rng, bytes)
    }

    /// Returns one of the shared descriptors, or rarely an invalid one.
    fn fd(&mut self) -> c_int {
        if self.rng.u8(..64) == 0 {
            return *self.rng.choice(&[-1, 9999, c_int::MIN]).unwrap_or(&-1);
        }
        // Skip empty slots, because most calls should reach the module.
        let start = self.rng.usize(..SLOTS);
        (start..start + SLOTS)
            .map(|slot| self.common.slots[slot % SLOTS].load(Relaxed))
            .find(|fd| *fd >= 0)
            .unwrap_or(-1)
    }

    /// Stores a descriptor in a random slot, and closes the descriptor that was there.
    pub(super) fn keep(&mut self, fd: c_long) -> c_long {
        if let Ok(new @ 0..) = c_int::try_from(fd) {
            let old = self.common.slots[self.rng.usize(..SLOTS)].swap(new, Relaxed);
            self.close(old);
        }
        fd
    }

    fn close(&mut self, fd: c_int) -> c_long {
        // SAFETY: The descriptor comes from a slot, so no Rust object owns it. Another thread may
        // have closed it already, or may be in a call on it; the fuzzer tests that on purpose.
        unsafe { libc::syscall(libc::SYS_close, fd) }
    }

    fn address(&mut self) -> Vec<u8> {
        let known = &self.common.addresses;
        let mut address = known[self.rng.usize(..known.len())].clone();
        match self.rng.u8(..16) {
            0 => address.iter_mut().for_each(|byte| *byte = self.rng.u8(..)),
            1 => {
                let at = self.rng.usize(..address.len());
                address[at] = self.rng.u8(..);
            }
            2 => address[..2].fill(0), // AF_UNSPEC disconnects
            3 => address.resize(self.rng.usize(..=128), 0),
            _ => {}
        }
        address
    }

    fn message_flags(&mut self) -> c_int {
        let wild = self.rng.u8(..8) == 0;
        let some = if wild { self.rng.i32(..) } else { 0 };
        let known = [
            0,
            libc::MSG_PEEK,
            libc::MSG_WAITALL,
            libc::MSG_TRUNC,
            libc::MSG_MORE,
            libc::MSG_OOB,
            libc::MSG_ERRQUEUE,
            libc::MSG_ZEROCOPY,
        ];
        let patience = [0, libc::MSG_DONTWAIT, libc::MSG_DONTWAIT];
        some | libc::MSG_NOSIGNAL
            | self.rng.choice(&known).unwrap_or(&0)
            | self.rng.choice(&patience).unwrap_or(&0)
    }

    /// Makes a `msghdr`, as words. Its vector of buffers is in the arena.
    fn message(&mut self) -> [u64; 7] {
        let count = self.rng.usize(..5);
        let mut vector = Vec::new();
        for _ in 0..count {
            let length = self.length();
            let huge = self.rng.u8(..32) == 0;
            vector.push(self.memory(length) as u64);
            vector.push(if huge {
                self.rng.u64(..)
            } else {
                length as u64
            });
        }
        let vector = self.put(&words(&vector)) as u64;
        let name = self.address();
        let (name, name_len) = match self.rng.bool() {
            true => (self.put(&name) as u64, name.len() as u64),
            false => (0, 0),
        };
        let level = *self
            .rng
            .choice(&[libc::SOL_SOCKET, SOL_EP, 0])
            .unwrap_or(&0);
        let told = *self.rng.choice(&[0, 15, 16, 20, 24, 4096]).unwrap_or(&0);
        let control = [
            told,
            u64::from(level as u32) | (self.rng.u64(..70) << 32),
            7,
        ];
        let (control, control_len) = match self.rng.u8(..4) {
            0 => (self.put(&words(&control)) as u64, 24),
            1 => (self.memory(256) as u64, self.rng.u64(..256)),
            _ => (0, 0),
        };
        // `msg_iovlen` is an unsigned long. The fuzzer sometimes stores a wrong value.
        let count = if self.rng.u8(..32) == 0 {
            self.rng.u64(..2000)
        } else {
            count as u64
        };
        [name, name_len, vector, count, control, control_len, 0]
    }

    /// Makes the array of messages for `sendmmsg(2)` or `recvmmsg(2)`; returns its address and
    /// length.
    fn messages(&mut self) -> (*mut c_void, usize) {
        let count = self.rng.usize(..4);
        let mut all = Vec::new();
        for _ in 0..count {
            all.extend(self.message());
            all.push(0);
        }
        (self.put(&words(&all)), count)
    }

    /// Stores an address length that a call reads and the kernel updates; returns its position.
    fn told(&mut self) -> *mut c_void {
        let told = *self
            .rng
            .choice(&[0i32, 1, 8, 15, 16, 17, 128, -1, 100_000])
            .unwrap_or(&0);
        self.put(&told.to_ne_bytes())
    }

    /// Makes a call with which sockets meet, and counts it.
    pub(super) fn counted(&mut self, kind: Kind, arguments: [u64; 6]) -> c_long {
        let number = match kind {
            Kind::Socket => libc::SYS_socket,
            Kind::Bind => libc::SYS_bind,
            Kind::Listen => libc::SYS_listen,
            Kind::Connect => libc::SYS_connect,
            _ => libc::SYS_accept4,
        };
        self.common.tally.begin(kind);
        let result = Self::syscall(number, arguments);
        self.common.tally.end(kind, result >= 0);
        result
    }

    /// Makes a socket that does not block, in the thread's namespace, with which others meet.
    pub(super) fn nonblocking(&mut self, family: i32, kind: i32, protocol: i32) -> u64 {
        let arguments = [family, kind | libc::SOCK_NONBLOCK, protocol, 0, 0, 0];
        let fd = self.counted(Kind::Socket, arguments.map(|one| one as u64));
        self.keep(fd) as u64
    }

    /// Makes a listener, a connection to it and the accepted socket, so that other calls find
    /// sockets with a peer. The descriptors are in slots from the start, so other threads may use
    /// or close them at any time.
    pub fn meet(&mut self) {
        let port = self.rng.u16(2100..2200);
        let own = self.common.own.port(port).to_bytes();
        let kind = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET][self.rng.usize(..2)];
        let [listener, client] = [(); 2].map(|()| self.nonblocking(AF_ENET, kind, 0));
        if kind == libc::SOCK_SEQPACKET && self.rng.bool() {
            self.join(listener, listener);
            let domain = [listener, client][self.rng.usize(..2)];
            self.join(client, domain);
        }
        let name = self.common.arena.put(&mut self.rng, &own) as u64;
        self.counted(Kind::Bind, [listener, name, 16, 0, 0, 0]);
        self.counted(Kind::Listen, [listener, 4, 0, 0, 0, 0]);
        self.counted(Kind::Connect, [client, name, 16, 0, 0, 0]);
        let accepted = self.counted(Kind::Accept, [listener, 0, 0, 0, 0, 0]);
        self.keep(accepted);
    }

    /// Makes and counts one call.
    pub fn call(&mut self) {
        // `socket` and `accept` are called more often than the others, because without sockets no
        // call succeeds, and without `accept` no connection has a server.
        let kind = match self.rng.u8(..32) {
            0 => Kind::Socket,
            1 => Kind::Accept,
            _ => Kind::ALL[self.rng.usize(..Kind::ALL.len())],
        };
        if matches!(kind, Kind::Uring | Kind::MappedByEsp) {
            // A separate thread starts the operations of io_uring, and `meet_over_the_wire` makes
            // these connections.
            return;
        }
        self.common.tally.begin(kind);
        let good = self.make(kind) >= 0;
        self.common.tally.end(kind, good);
    }

    fn make(&mut self, kind: Kind) -> c_long {
        let fd = self.fd();
        match kind {
            Kind::Socket => self.socket(),
            Kind::Bind | Kind::Connect => self.take_name(kind, fd),
            Kind::Accept | Kind::GetSockName | Kind::GetPeerName => self.give_name(kind, fd),
            Kind::Send | Kind::SendTo | Kind::Recv | Kind::RecvFrom | Kind::Read | Kind::Write => {
                self.bytes(kind, fd)
            }
            Kind::SendMsg | Kind::RecvMsg | Kind::SendMmsg | Kind::RecvMmsg => {
                self.vectors(kind, fd)
            }
            Kind::SetSockOpt | Kind::GetSockOpt => self.option(kind, fd),
            Kind::Ring => self.ring(fd),
            Kind::Channel => {
                let other = self.fd();
                self.channel(fd, other)
            }
            Kind::Ioctl | Kind::Fcntl => self.control(kind, fd),
            Kind::Listen | Kind::Shutdown | Kind::Close | Kind::Dup | Kind::Dup2 => {
                self.integers(kind, fd)
            }
            Kind::Poll | Kind::Select | Kind::EpollCtl | Kind::EpollWait => {
                self.readiness(kind, fd)
            }
            Kind::SpliceIn | Kind::SpliceOut | Kind::Sendfile => self.files(kind, fd),
            Kind::PassFd => self.pass(fd),
            Kind::TakeFd => self.take(),
            Kind::Uring | Kind::MappedByEsp => -1,
        }
    }

    /// Makes the system call directly, since a library wrapper might check the arguments.
    pub(super) fn syscall(number: c_long, arguments: [u64; 6]) -> c_long {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: Every pointer from a caller points into the arena, which contains no Rust object,
        // or to memory that the kernel refuses to access. Every descriptor is invalid, or comes
        // from a slot or `Common` and belongs to no Rust object.
        unsafe { libc::syscall(number, a, b, c, d, e, f) }
    }

    fn socket(&mut self) -> c_long {
        let (family, usual) = match self.rng.u8(..8) {
            0..=4 => (AF_ENET, 0),
            _ => mapped::any(&mut self.rng),
        };
        let kinds = match family {
            AF_ENET => &[libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM][..],
            _ => &[libc::SOCK_STREAM],
        };
        let kind = *self.rng.choice(kinds).unwrap_or(&0);
        let flags = [
            0,
            libc::SOCK_NONBLOCK,
            libc::SOCK_NONBLOCK,
            libc::SOCK_CLOEXEC,
        ];
        let flags = *self.rng.choice(&flags).unwrap_or(&0);
        let wild = self.rng.u8(..32) == 0;
        let usual = match kind {
            libc::SOCK_DGRAM => self.rng.i32(0..=EPPROTO_EZDP),
            _ => usual,
        };
        // Wild ones are of this module's family, so that all sockets are the module's.
        let (family, protocol, kind) = match wild {
            true => (AF_ENET, self.rng.i32(..), self.rng.i32(0..12)),
            false => (family, usual, kind),
        };
        let arguments = [family, kind | flags, protocol, 0, 0, 0].map(|one| one as u64);
        let fd = Self::syscall(libc::SYS_socket, arguments);
        self.keep(fd)
    }

    fn take_name(&mut self, kind: Kind, fd: c_int) -> c_long {
        let name = self.address();
        let length = match self.rng.u8(..16) {
            0 => self.rng.u64(..200),
            1 => u64::MAX,
            _ => name.len() as u64,
        };
        let number = match kind {
            Kind::Bind => libc::SYS_bind,
            _ => libc::SYS_connect,
        };
        let name = self.put(&name) as u64;
        Self::syscall(number, [fd as u64, name, length, 0, 0, 0])
    }

    fn give_name(&mut self, kind: Kind, fd: c_int) -> c_long {
        let name = self.memory(128) as u64;
        let told = self.told() as u64;
        let number = match kind {
            Kind::GetSockName => libc::SYS_getsockname,
            Kind::GetPeerName => libc::SYS_getpeername,
            _ => {
                let flags = [0, libc::SOCK_NONBLOCK, self.rng.i32(..)];
                let flags = *self.rng.choice(&flags).unwrap_or(&0) as u64;
                let (name, told) = match self.rng.bool() {
                    true => (name, told),
                    false => (0, 0),
                };
                let got = Self::syscall(libc::SYS_accept4, [fd as u64, name, told, flags, 0, 0]);
                return self.keep(got);
            }
        };
        Self::syscall(number, [fd as u64, name, told, 0, 0, 0])
    }

    fn bytes(&mut self, kind: Kind, fd: c_int) -> c_long {
        let length = self.length();
        let bytes = self.memory(length) as u64;
        let flags = self.message_flags() as u64;
        let (fd, length) = (fd as u64, length as u64);
        match kind {
            Kind::Read => Self::syscall(libc::SYS_read, [fd, bytes, length, 0, 0, 0]),
            Kind::Write => Self::syscall(libc::SYS_write, [fd, bytes, length, 0, 0, 0]),
            Kind::Send => Self::syscall(libc::SYS_sendto, [fd, bytes, length, flags, 0, 0]),
            Kind::Recv => Self::syscall(libc::SYS_recvfrom, [fd, bytes, length, flags, 0, 0]),
            Kind::SendTo => {
                let name = self.address();
                let (told, name) = (name.len() as u64, self.put(&name) as u64);
                Self::syscall(libc::SYS_sendto, [fd, bytes, length, flags, name, told])
            }
            _ => {
                let (name, told) = (self.memory(128) as u64, self.told() as u64);
                Self::syscall(libc::SYS_recvfrom, [fd, bytes, length, flags, name, told])
            }
        }
    }

    fn vectors(&mut self, kind: Kind, fd: c_int) -> c_long {
        let flags = self.message_flags() as u64;
        let fd = fd as u64;
        if matches!(kind, Kind::SendMsg | Kind::RecvMsg) {
            let message = self.message();
            let message = self.put(&words(&message)) as u64;
            let number = match kind {
                Kind::SendMsg => libc::SYS_sendmsg,
                _ => libc::SYS_recvmsg,
            };
            return Self::syscall(number, [fd, message, flags, 0, 0, 0]);
        }
        let (messages, count) = self.messages();
        let (messages, count) = (messages as u64, count as u64);
        if kind == Kind::SendMmsg {
            return Self::syscall(libc::SYS_sendmmsg, [fd, messages, count, flags, 0, 0]);
        }
        let time = words(&[0, self.rng.u64(..2_000_000)]);
        let time = match self.rng.u8(..4) {
            0 => 0,
            _ => self.put(&time) as u64,
        };
        Self::syscall(libc::SYS_recvmmsg, [fd, messages, count, flags, time, 0])
    }

    fn option(&mut self, kind: Kind, fd: c_int) -> c_long {
        let level = *self
            .rng
            .choice(&[
                libc::SOL_SOCKET,
                libc::SOL_SOCKET,
                SOL_EP,
                0,
                6,
                libc::SOL_IPV6,
            ])
            .unwrap_or(&0);
        let zero_copy = level == SOL_EP && self.rng.u8(..4) == 0;
        let name = if zero_copy {
            EP_SO_ZEROCOPY
        } else {
            self.rng.i32(0..90)
        };
        // SO_SNDBUFFORCE (32) and SO_RCVBUFFORCE (33) would let root allocate all memory. SO_SNDBUF
        // (7) takes their place.
        let name = if matches!(name, 32 | 33) { 7 } else { name };
        let value = match self.rng.u8(..5) {
            0 => words(&[self.rng.u64(..), self.rng.u64(..)]),
            1 => words(&[0, self.rng.u64(..100_000)]),
            2 => words(&[1 | (self.rng.u64(..3) << 32), 0]),
            3 => b"eth0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            _ => words(&[self.rng.u64(..100_000), 0]),
        };
        let length = *self
            .rng
            .choice(&[0u64, 1, 3, 4, 8, 16, 16, 128, 5000])
            .unwrap_or(&4);
        let value = self.put(&value) as u64;
        let (fd, level, name) = (fd as u64, level as u64, name as u64);
        if kind == Kind::SetSockOpt {
            return Self::syscall(libc::SYS_setsockopt, [fd, level, name, value, length, 0]);
        }
        let told = self.told() as u64;
        Self::syscall(libc::SYS_getsockopt, [fd, level, name, value, told, 0])
    }

    /// Makes a receive ring, maps it, and writes random counts to its control page. The mapping may
    /// stay until the process ends.
    fn ring(&mut self, fd: c_int) -> c_long {
        const COUNTS: usize = 160;
        let size = 4096_u64 << self.rng.u32(..6);
        let value = self.put(&words(&[size, 0])) as u64;
        let (fd, level, name) = (fd as u64, SOL_EP as u64, EP_SO_RECEIVE_RING as u64);
        let made = Self::syscall(libc::SYS_setsockopt, [fd, level, name, value, 4, 0]);
        let length = match self.rng.u8(..8) {
            0 => self.rng.u64(..100_000),
            _ => 4096 + 2 * size,
        };
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let shared = libc::MAP_SHARED as u64;
        let place = Self::syscall(libc::SYS_mmap, [0, length, access, shared, fd, 0]);
        if place < 0 {
            return made;
        }
        let word = self.rng.u64(..).to_ne_bytes();
        for at in 0..COUNTS {
            let to = (place as usize + at) as *mut u8;
            // SAFETY: The mapping has at least a page. No reference to it exists; the kernel, and
            // threads with the same ring, read and write it too.
            unsafe { to.write_volatile(word[at % word.len()]) };
        }
        if self.rng.u8(..4) > 0 {
            return Self::syscall(libc::SYS_munmap, [place as u64, length, 0, 0, 0, 0]);
        }
        made
    }

    fn control(&mut self, kind: Kind, fd: c_int) -> c_long {
        let fd = fd as u64;
        if kind == Kind::Ioctl {
            let request = match self.rng.u8(..8) {
                // Requests of type 0x89, which is the type of sockets and devices, are only chosen
                // from `REQUESTS`.
                0 => Some(self.rng.u64(..0x1_0000_0000))
                    .filter(|number| (number >> 8) & 0xff != 0x89),
                _ => self.rng.choice(&REQUESTS).copied(),
            };
            let argument = self.put(b"eth0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0") as u64;
            let got = Self::syscall(
                libc::SYS_ioctl,
                [fd, request.unwrap_or(libc::FIONREAD), argument, 0, 0, 0],
            );
            // SIOCGSKNS returns a descriptor of a network namespace. It is kept, so that later
            // calls also get a descriptor that is no socket.
            return if request == Some(0x894c) {
                self.keep(got)
            } else {
                got
            };
        }
        let modes = [
            0,
            libc::O_NONBLOCK,
            libc::O_ASYNC,
            libc::O_NONBLOCK | libc::O_ASYNC,
        ];
        let (command, argument) = match self.rng.u8(..7) {
            0..=2 => (libc::F_SETFL, *self.rng.choice(&modes).unwrap_or(&0) as u64),
            3 => (libc::F_GETFL, 0),
            // The owner 0 means that no process owns the descriptor.
            4 => (
                libc::F_SETOWN,
                *self
                    .rng
                    .choice(&[0, u64::from(std::process::id())])
                    .unwrap_or(&0),
            ),
            5 => (libc::F_SETFD, 1),
            _ => (libc::F_GETOWN, 0),
        };
        Self::syscall(libc::SYS_fcntl, [fd, command as u64, argument, 0, 0, 0])
    }

    fn integers(&mut self, kind: Kind, fd: c_int) -> c_long {
        let number = |number, argument| Self::syscall(number, [fd as u64, argument, 0, 0, 0, 0]);
        match kind {
            Kind::Listen => number(
                libc::SYS_listen,
                *self.rng.choice(&[0, 1, 5, 128, u64::MAX]).unwrap_or(&1),
            ),
            Kind::Shutdown => number(libc::SYS_shutdown, self.rng.u64(..4)),
            Kind::Dup => {
                let fd = number(libc::SYS_dup, 0);
                self.keep(fd)
            }
            Kind::Dup2 => {
                // The descriptor that is replaced may be one on which a thread is sleeping in a
                // call.
                let target = self.common.slots[self.rng.usize(..SLOTS)].load(Relaxed);
                match target {
                    0.. => number(libc::SYS_dup3, target as u64),
                    _ => -1,
                }
            }
            _ => {
                let old = self.common.slots[self.rng.usize(..SLOTS)].swap(-1, Relaxed);
                self.close(old)
            }
        }
    }

    fn readiness(&mut self, kind: Kind, fd: c_int) -> c_long {
        let short = self.rng.u64(..5_000_000);
        match kind {
            Kind::Poll => {
                let mut all = Vec::new();
                for _ in 0..self.rng.usize(1..4) {
                    all.push(u64::from(self.fd() as u32) | (self.rng.u64(..0x4000) << 32));
                }
                let list = self.put(&words(&all)) as u64;
                let time = self.put(&words(&[0, short])) as u64;
                Self::syscall(libc::SYS_ppoll, [list, all.len() as u64, time, 0, 0, 0])
            }
            Kind::Select => {
                let mut set = [0u64; 16];
                if let Some(word) = set.get_mut(fd.max(0) as usize / 64) {
                    *word |= 1 << (fd.max(0) % 64);
                }
                let sets = [(); 3].map(|()| self.put(&words(&set)) as u64);
                let time = self.put(&words(&[0, short])) as u64;
                let [read, write, except] = sets;
                Self::syscall(libc::SYS_pselect6, [1024, read, write, except, time, 0])
            }
            Kind::EpollCtl => {
                let event = u64::from(self.rng.u32(..)) & 0xf000_3fff;
                let event = self.put(&words(&[event, 0])) as u64;
                let (epoll, fd) = (self.common.epoll as u64, fd as u64);
                Self::syscall(
                    libc::SYS_epoll_ctl,
                    [epoll, self.rng.u64(1..4), fd, event, 0, 0],
                )
            }
            _ => {
                let events = self.memory(16 * 8) as u64;
                let epoll = self.common.epoll as u64;
                Self::syscall(
                    libc::SYS_epoll_pwait,
                    [epoll, events, 8, self.rng.u64(..5), 0, 0],
                )
            }
        }
    }

    fn files(&mut self, kind: Kind, fd: c_int) -> c_long {
        let length = self.length() as u64;
        let flags = self.rng.u64(..16);
        let [out, into] = self.common.pipe.map(|end| end as u64);
        let fd = fd as u64;
        match kind {
            Kind::SpliceIn => Self::syscall(libc::SYS_splice, [fd, 0, into, 0, length, flags | 2]),
            Kind::SpliceOut => {
                let page = self.memory(4096) as u64;
                let vector = self.put(&words(&[page, 4096])) as u64;
                Self::syscall(libc::SYS_vmsplice, [into, vector, 1, 2, 0, 0]);
                Self::syscall(libc::SYS_splice, [out, 0, fd, 0, length, flags | 2])
            }
            _ => {
                let file = self.common.file as u64;
                let offset = words(&[self.rng.u64(..ROOM as u64)]);
                let offset = self.put(&offset) as u64;
                Self::syscall(libc::SYS_sendfile, [fd, file, offset, length, 0, 0])
            }
        }
    }

    /// Sends a descriptor to any process that receives it.
    fn pass(&mut self, fd: c_int) -> c_long {
        let size = size_of::<libc::cmsghdr>() as u64 + 4;
        let rights = u64::from(libc::SOL_SOCKET as u32) | ((libc::SCM_RIGHTS as u64) << 32);
        let control = self.put(&words(&[size, rights, u64::from(fd as u32)])) as u64;
        let byte = self.memory(1) as u64;
        let vector = self.put(&words(&[byte, 1])) as u64;
        let message = self.put(&words(&[0, 0, vector, 1, control, 24, 0])) as u64;
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64;
        let post = self.common.post[0] as u64;
        Self::syscall(libc::SYS_sendmsg, [post, message, flags, 0, 0, 0])
    }

    /// Receives a descriptor that some process has sent.
    fn take(&mut self) -> c_long {
        // The kernel writes a descriptor number into the buffers, so they are on the thread's
        // stack. In the arena, other threads could overwrite the number.
        let mut byte = 0u8;
        let mut control = [0u64; 3];
        let mut vector = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        // SAFETY: All-zero bytes are a valid `msghdr`, which is plain data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; 3]>();
        // SAFETY: `message` points to memory of this function that is writable for the given
        // lengths.
        let got = unsafe { libc::recvmsg(self.common.post[1], &mut message, libc::MSG_DONTWAIT) }
            as c_long;
        if got > 0 && message.msg_controllen >= 20 {
            let fd = control[2] as u32 as c_int;
            self.keep(fd.into());
        }
        got
    }
}

/// Returns words as their bytes in memory.
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

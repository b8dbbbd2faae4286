// SPDX-License-Identifier: GPL-2.0-only

//! Makes system calls as a 32-bit x86 program makes them: `int 0x80`, with pointers and `long`s of
//! 4 bytes.
//!
//! The kernel takes the interrupt from 64-bit programs too, and treats the call as a 32-bit one.
//! All memory that such a call refers to is in a [`Room`] below 2 GiB.

use std::arch::asm;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::{ptr, slice};

use guest::control::Control;
use guest::socket::{check, Socket};

/// Numbers of system calls on 32-bit x86.
mod number {
    pub const IOCTL: u32 = 54;
    pub const BIND: u32 = 361;
    pub const CONNECT: u32 = 362;
    pub const GETSOCKOPT: u32 = 365;
    pub const SETSOCKOPT: u32 = 366;
    pub const GETSOCKNAME: u32 = 367;
    pub const GETPEERNAME: u32 = 368;
    pub const SENDMSG: u32 = 370;
    pub const RECVMSG: u32 = 372;
}

/// Number of bytes of a [`Room`].
const SIZE: usize = 64 << 10;

/// The results of `recvmsg(2)`.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The received bytes of all pieces, joined.
    pub bytes: Vec<u8>,
    /// The sender's address.
    pub name: Vec<u8>,
    /// The control messages.
    pub control: Vec<Control>,
    /// `msg_flags`.
    pub flags: u32,
}

/// The end of a connection whose address a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `getsockname(2)`.
    Own,
    /// `getpeername(2)`.
    Peer,
}

/// Memory below 2 GiB for the arguments of 32-bit calls. Each call starts with an empty room.
#[derive(Debug)]
pub struct Room {
    base: *mut u8,
    used: usize,
}

impl Room {
    /// Maps the memory.
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    pub fn new() -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: This makes a new mapping, which replaces no other.
        let base = unsafe { libc::mmap(ptr::null_mut(), SIZE, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let base = base.cast();
        Ok(Self { base, used: 0 })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: The mapping has `SIZE` bytes, initialised with zeros, and only `self` refers to
        // it. The kernel writes to it only during calls, which borrow `self`.
        unsafe { slice::from_raw_parts_mut(self.base, SIZE) }
    }

    /// Copies bytes into the room and returns their address.
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let begin = self.used.next_multiple_of(8);
        self.used = begin + bytes.len();
        self.bytes()[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.base as usize as u32 + begin as u32
    }

    /// Copies 32-bit words into the room and returns their address.
    fn put_words(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.put(&bytes)
    }

    /// Returns the bytes at an address that [`put`](Self::put) has returned.
    fn get(&mut self, address: u32, length: usize) -> Vec<u8> {
        let begin = address as usize - self.base as usize;
        self.bytes()[begin..begin + length].to_vec()
    }

    fn word(&mut self, address: u32) -> u32 {
        let bytes = self.get(address, 4);
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Makes a call and empties the room. The arguments of the next call then replace the arguments
    /// of this call.
    ///
    /// # Safety
    /// The arguments must refer to memory of this room only, with as many bytes as the call uses.
    unsafe fn call(&mut self, number: u32, socket: &Socket, arguments: [u32; 4]) -> Result<u32> {
        self.used = 0;
        let [second, third, fourth, fifth] = arguments.map(u64::from);
        let result: i64;
        // SAFETY: By this function's contract the kernel accesses memory of the room only. LLVM
        // reserves rbx, so the code exchanges rbx before and after the interrupt. The kernel may
        // clear r8 to r11.
        unsafe {
            asm!(
                "xchg rbx, {first}",
                "int 0x80",
                "xchg rbx, {first}",
                first = inout(reg) socket.as_raw_fd() as u64 => _,
                inlateout("rax") u64::from(number) => result,
                in("rcx") second,
                in("rdx") third,
                in("rsi") fourth,
                in("rdi") fifth,
                lateout("r8") _,
                lateout("r9") _,
                lateout("r10") _,
                lateout("r11") _,
            );
        }
        match result as i32 {
            error @ -4095..0 => Err(Error::from_raw_os_error(-error)),
            value => Ok(value as u32),
        }
    }

    /// Calls `getsockopt(2)` with room for `length` bytes.
    ///
    /// # Errors
    /// The call's errno, as for every function here.
    pub fn option(
        &mut self,
        socket: &Socket,
        level: i32,
        name: i32,
        length: usize,
    ) -> Result<Vec<u8>> {
        let value = self.put(&vec![0; length]);
        let told = self.put_words(&[length as u32]);
        let arguments = [level as u32, name as u32, value, told];
        // SAFETY: `value` is the address of as many bytes as the length at `told` says.
        unsafe { self.call(number::GETSOCKOPT, socket, arguments) }?;
        let length = self.word(told) as usize;
        Ok(self.get(value, length))
    }

    /// Calls `setsockopt(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn set_option(
        &mut self,
        socket: &Socket,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<()> {
        let address = self.put(value);
        let arguments = [level as u32, name as u32, address, value.len() as u32];
        // SAFETY: `address` points to `value.len()` bytes in the room.
        unsafe { self.call(number::SETSOCKOPT, socket, arguments) }.map(drop)
    }

    /// Calls `setsockopt(2)` with `SO_ATTACH_FILTER`, whose value contains a pointer to `program`.
    /// An instruction has a code, two jumps and a constant.
    ///
    /// # Errors
    /// The call's errno.
    pub fn attach_filter(
        &mut self,
        socket: &Socket,
        program: &[(u16, [u8; 2], u32)],
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for (code, jumps, constant) in program {
            bytes.extend_from_slice(&code.to_ne_bytes());
            bytes.extend_from_slice(jumps);
            bytes.extend_from_slice(&constant.to_ne_bytes());
        }
        let address = self.put(&bytes);
        let value = self.put_words(&[program.len() as u32, address]);
        let (level, name) = (libc::SOL_SOCKET as u32, libc::SO_ATTACH_FILTER as u32);
        // SAFETY: The value has 8 bytes, and the program has as many instructions as the value
        // says.
        unsafe { self.call(number::SETSOCKOPT, socket, [level, name, value, 8]) }.map(drop)
    }

    /// Calls `ioctl(2)` with an argument that the kernel reads and writes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn ioctl(&mut self, socket: &Socket, request: u32, argument: &[u8]) -> Result<Vec<u8>> {
        let address = self.put(argument);
        // The structure of a request is smaller than these 256 bytes, so the kernel overwrites
        // nothing else.
        self.put(&[0; 256]);
        // SAFETY: Behind the argument there is room for the structure of any request.
        unsafe { self.call(number::IOCTL, socket, [request, address, 0, 0]) }?;
        Ok(self.get(address, argument.len()))
    }

    /// Calls `bind(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn bind(&mut self, socket: &Socket, name: &[u8]) -> Result<()> {
        self.with_name(number::BIND, socket, name)
    }

    /// Calls `connect(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn connect(&mut self, socket: &Socket, name: &[u8]) -> Result<()> {
        self.with_name(number::CONNECT, socket, name)
    }

    fn with_name(&mut self, number: u32, socket: &Socket, name: &[u8]) -> Result<()> {
        let address = self.put(name);
        let arguments = [address, name.len() as u32, 0, 0];
        // SAFETY: `address` points to `name.len()` bytes in the room.
        unsafe { self.call(number, socket, arguments) }.map(drop)
    }

    /// Calls `getsockname(2)` or `getpeername(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn name(&mut self, socket: &Socket, end: End) -> Result<Vec<u8>> {
        let name = self.put(&[0; 128]);
        let told = self.put_words(&[128]);
        let number = match end {
            End::Own => number::GETSOCKNAME,
            End::Peer => number::GETPEERNAME,
        };
        // SAFETY: `name` is the address of 128 bytes, and the length at `told` is 128.
        unsafe { self.call(number, socket, [name, told, 0, 0]) }?;
        let length = self.word(told) as usize;
        Ok(self.get(name, length))
    }

    /// Calls `sendmsg(2)` with pieces and an address, which may be empty.
    ///
    /// # Errors
    /// The call's errno.
    pub fn send_message(
        &mut self,
        socket: &Socket,
        name: &[u8],
        pieces: &[&[u8]],
        control: &[Control],
        flags: i32,
    ) -> Result<usize> {
        let vector: Vec<u32> = pieces
            .iter()
            .flat_map(|piece| [self.put(piece), piece.len() as u32])
            .collect();
        let vector = self.put_words(&vector);
        let control = encode(control);
        let named = self.put(name);
        let controlled = self.put(&control);
        let header = self.put_words(&[
            if name.is_empty() { 0 } else { named },
            name.len() as u32,
            vector,
            pieces.len() as u32,
            if control.is_empty() { 0 } else { controlled },
            control.len() as u32,
            0,
        ]);
        // SAFETY: The header refers to memory of the room, with the true lengths.
        let sent = unsafe { self.call(number::SENDMSG, socket, [header, flags as u32, 0, 0]) }?;
        Ok(sent as usize)
    }

    /// Calls `recvmsg(2)` with pieces of these lengths.
    ///
    /// # Errors
    /// The call's errno.
    pub fn receive_message(
        &mut self,
        socket: &Socket,
        pieces: &[usize],
        flags: i32,
    ) -> Result<Message> {
        const NAME: usize = 128;
        const CONTROL: usize = 512;
        let places: Vec<(u32, usize)> = pieces
            .iter()
            .map(|&length| (self.put(&vec![0; length]), length))
            .collect();
        let vector: Vec<u32> = places
            .iter()
            .flat_map(|&(place, length)| [place, length as u32])
            .collect();
        let vector = self.put_words(&vector);
        let (name, control) = (self.put(&[0; NAME]), self.put(&[0; CONTROL]));
        let header = self.put_words(&[
            name,
            NAME as u32,
            vector,
            pieces.len() as u32,
            control,
            CONTROL as u32,
            0,
        ]);
        // SAFETY: The header refers to memory of the room, with the true lengths.
        let got = unsafe { self.call(number::RECVMSG, socket, [header, flags as u32, 0, 0]) }?;
        let mut bytes: Vec<u8> = places
            .iter()
            .flat_map(|&(place, length)| self.get(place, length))
            .collect();
        bytes.truncate(got as usize);
        let name_length = self.word(header + 4) as usize;
        let control_length = self.word(header + 20) as usize;
        let control = self.get(control, control_length);
        Ok(Message {
            bytes,
            name: self.get(name, name_length),
            control: decode(&control),
            flags: self.word(header + 24),
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: The mapping was made by `new`, and nothing refers to it any more.
        let result = unsafe { libc::munmap(self.base.cast(), SIZE) };
        debug_assert!(check(result).is_ok());
    }
}

/// The number of bytes of a 32-bit `struct cmsghdr`, which has a length, a level and a type.
const HEADER: usize = 12;

/// Encodes control messages like a 32-bit program, each on a boundary of 4 bytes.
fn encode(messages: &[Control]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Control { level, kind, data } in messages {
        let length = (HEADER + data.len()) as u32;
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&level.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Vec<Control> {
    let number = |at: usize, bytes: &[u8]| {
        i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mut messages = Vec::new();
    while bytes.len() >= HEADER {
        let length = number(0, bytes) as usize;
        messages.push(Control {
            level: number(4, bytes),
            kind: number(8, bytes),
            data: bytes[HEADER..length].to_vec(),
        });
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    messages
}

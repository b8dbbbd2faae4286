// SPDX-License-Identifier: GPL-2.0-only

//! Sends frames by a packet socket's transmit ring. The kernel sends them from pages of this
//! process's memory, and copies only their Ethernet headers. So the program can change the rest of
//! a frame while the kernel reads it.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU8};

use crate::prelude::*;

const PACKET_TX_RING: i32 = 13; // This and the next five are of <linux/if_packet.h>.
const PACKET_VERSION: i32 = 10;
const TPACKET_V2: i32 = 1;
const TP_STATUS_AVAILABLE: u32 = 0;
const TP_STATUS_SEND_REQUEST: u32 = 1;
const TP_STATUS_WRONG_FORMAT: u32 = 4;

/// The number of bytes of the longest frame: an Ethernet header and an MTU of 9000.
pub const FRAME_MAX: usize = 14 + 9000;

/// Number of bytes of a slot: `struct tpacket2_hdr` and the longest frame.
const SLOT: usize = 16_384;
const BLOCK: usize = 65_536;
const BLOCKS: usize = 32;
const SLOTS: usize = BLOCK / SLOT * BLOCKS;
/// Offset of the frame in a slot: `TPACKET2_HDRLEN` minus the size of `struct sockaddr_ll`.
const DATA: usize = 32;
/// Offset of `tp_len` in `struct tpacket2_hdr`; `tp_status` is at offset 0.
const LENGTH: usize = 4;

const _: () = assert!(DATA + FRAME_MAX <= SLOT);

/// A packet socket's transmit ring, and the mapping of its memory.
#[derive(Debug)]
pub struct Ring {
    socket: PacketSocket,
    memory: *mut u8,
    next: usize,
}

impl Ring {
    /// Makes a transmit ring for the socket.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn new(socket: PacketSocket) -> Result<Self> {
        let plain = socket.socket();
        plain.set_int_option(libc::SOL_PACKET, PACKET_VERSION, TPACKET_V2)?;
        let request: Vec<u8> = [BLOCK, BLOCKS, SLOT, SLOTS]
            .into_iter()
            .flat_map(|number| (number as u32).to_ne_bytes())
            .collect();
        plain
            .set_option(libc::SOL_PACKET, PACKET_TX_RING, &request)
            .context("PACKET_TX_RING")?;
        // SAFETY: A new mapping overlaps no existing one. It is as long as the ring that the option
        // above has made.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BLOCK * BLOCKS,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                plain.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mapping the ring");
        }
        Ok(Self {
            socket,
            memory: memory.cast(),
            next: 0,
        })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: The slot is inside the mapping, which lives as long as `self`. The slot's first
        // four bytes are the status, which is aligned because the slot is. The kernel changes the
        // status too, so the access is atomic.
        unsafe { AtomicU32::from_ptr(self.memory.add(slot * SLOT).cast()) }
    }

    /// Puts a frame into the next slot; returns `false` if the slot is not free.
    pub fn put(&mut self, frame: &[u8]) -> bool {
        let status = self.status(self.next);
        match status.load(Ordering::Acquire) {
            TP_STATUS_AVAILABLE | TP_STATUS_WRONG_FORMAT => {}
            _ => return false,
        }
        let length = frame.len().min(FRAME_MAX);
        // SAFETY: The slot is inside the mapping and has room for the longest frame. The kernel
        // reads the slot only after the store below has changed its status.
        unsafe {
            let slot = self.memory.add(self.next * SLOT);
            slot.add(LENGTH).cast::<u32>().write(length as u32);
            slot.add(DATA)
                .copy_from_nonoverlapping(frame.as_ptr(), length);
        }
        status.store(TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }

    /// Makes the kernel send the frames in the ring.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send(&self) -> io::Result<()> {
        // SAFETY: The buffer is null and its length is 0, so the kernel reads nothing through it.
        // It sends the frames in the ring.
        check(unsafe {
            libc::send(
                self.socket.socket().as_raw_fd(),
                ptr::null(),
                0,
                libc::MSG_DONTWAIT,
            ) as i64
        })
        .map(drop)
    }

    /// Overwrites 64 bytes of the frame that was put `ago` frames ago: the bytes that follow its
    /// Ethernet header. Does so even if the kernel is reading that frame.
    pub fn disturb(&mut self, ago: usize, byte: u8) {
        let slot = (self.next + SLOTS - ago % SLOTS) % SLOTS;
        let place = slot * SLOT + DATA + 14;
        // SAFETY: The address is inside the mapping. The kernel may read it at the same time
        // through its own mapping, and must cope with any contents.
        unsafe { self.memory.add(place).write_bytes(byte, 64) };
    }

    /// Flips `bits` of the byte at `offset` in the frames of all slots, even if the kernel is
    /// reading them.
    pub fn flip(&self, offset: usize, bits: u8) {
        for slot in 0..SLOTS {
            let place = slot * SLOT + DATA + offset.min(FRAME_MAX - 1);
            // SAFETY: The address is inside the mapping, which lives as long as `self`. Concurrent
            // readers must cope with any contents.
            let byte = unsafe { AtomicU8::from_ptr(self.memory.add(place)) };
            byte.fetch_xor(bits, Ordering::Relaxed);
        }
    }
}

// SAFETY: Through a shared reference the ring's memory is accessed only by atomics.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: This is the mapping made in `new`, which this value owns.
        unsafe { libc::munmap(self.memory.cast(), BLOCK * BLOCKS) };
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Plays the virtual machine's side of `vhost-net`, with queues in memory like the queues of a
//! virtio-net driver.
//!
//! The kernel's threads move frames between these queues and a tap device, as they do for QEMU with
//! `vhost=on`. Layouts and numbers are defined in <linux/vhost.h> and <linux/virtio_ring.h>.

use std::fs::OpenOptions;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::fence;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::netns::finish;
use crate::prelude::*;
use crate::tun::Tun;

/// Number of frames that a queue holds.
const DEPTH: u16 = 64;
/// Number of bytes of a buffer. A buffer holds a `struct virtio_net_hdr`, followed by a frame.
const ROOM: usize = 2048;
/// `VRING_DESC_F_WRITE`: the kernel writes to the buffer.
const WRITE: u16 = 2;

/// Offsets of a queue's parts in the queue's memory, and the size of this memory, in bytes.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const FRAMES: usize = 0x3000;
const SIZE: usize = FRAMES + DEPTH as usize * ROOM;

/// `struct vhost_vring_state`.
#[repr(C)]
pub struct State {
    index: u32,
    number: u32,
}

/// `struct vhost_vring_file`.
#[repr(C)]
pub struct Descriptor {
    index: u32,
    fd: i32,
}

/// `struct vhost_vring_addr`.
#[repr(C)]
pub struct Addresses {
    index: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

/// `struct vhost_memory` with two regions. The ioctl's number encodes the size of the header alone.
#[repr(C)]
pub struct Memory {
    regions: u32,
    padding: u32,
    region: [Region; 2],
}

/// `struct vhost_memory_region`.
#[repr(C)]
pub struct Region {
    guest: u64,
    size: u64,
    user: u64,
    padding: u64,
}

/// The ioctls of `/dev/vhost-net`.
mod ioctl {
    use super::{Addresses, Descriptor, Memory, State};

    const VHOST: u8 = 0xaf;

    nix::ioctl_none!(set_owner, VHOST, 0x01);
    nix::ioctl_write_ptr_bad!(
        set_mem_table,
        nix::request_code_write!(VHOST, 0x03, size_of::<u64>()),
        Memory
    );
    nix::ioctl_write_ptr!(set_features, VHOST, 0x00, u64);
    nix::ioctl_write_ptr!(set_vring_num, VHOST, 0x10, State);
    nix::ioctl_write_ptr!(set_vring_addr, VHOST, 0x11, Addresses);
    nix::ioctl_write_ptr!(set_vring_base, VHOST, 0x12, State);
    nix::ioctl_write_ptr!(set_vring_kick, VHOST, 0x20, Descriptor);
    nix::ioctl_write_ptr!(set_vring_call, VHOST, 0x21, Descriptor);
    nix::ioctl_write_ptr!(net_set_backend, VHOST, 0x30, Descriptor);
}

/// A queue, and the events by which its two sides wake each other.
#[derive(Debug)]
pub struct Queue {
    memory: NonNull<u8>,
    kick: EventFd,
    call: EventFd,
    /// Number of buffers given to the kernel so far, and number of buffers that the kernel has
    /// given back.
    given: u16,
    back: u16,
}

// SAFETY: The memory belongs to the queue, and only the queue's owner uses pointers into it.
unsafe impl Send for Queue {}

impl Queue {
    fn new() -> Result<Self> {
        let size = NonZeroUsize::new(SIZE).context("a size")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: This makes a new mapping at an address that the kernel chooses.
        let memory = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE) }?;
        Ok(Self {
            memory: memory.cast(),
            kick: EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?,
            call: EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?,
            given: 0,
            back: 0,
        })
    }

    fn address(&self, at: usize) -> u64 {
        self.memory.as_ptr() as u64 + at as u64
    }

    /// Returns the address of the value of type `T` at offset `at`.
    fn place<T>(&self, at: usize) -> *mut T {
        assert!(at % align_of::<T>() == 0 && at + size_of::<T>() <= SIZE);
        // SAFETY: The address is within the mapping, by the assertion above.
        unsafe { self.memory.as_ptr().add(at).cast() }
    }

    fn get<T: Copy>(&self, at: usize) -> T {
        // SAFETY: `place` returns an aligned address within the mapping, and the callers read only
        // integers, of which every bit pattern is a valid value. The kernel may write there, so the
        // access is volatile.
        unsafe { self.place::<T>(at).read_volatile() }
    }

    fn set<T: Copy>(&self, at: usize, value: T) {
        // SAFETY: `place` returns an aligned address within the mapping. The kernel may read there,
        // so the access is volatile.
        unsafe { self.place::<T>(at).write_volatile(value) }
    }

    fn frame(slot: u16) -> usize {
        FRAMES + usize::from(slot) * ROOM
    }

    /// Gives a slot of `length` bytes to the kernel.
    fn give(&mut self, slot: u16, length: usize, flags: u16) -> Result<()> {
        let descriptor = DESCRIPTORS + usize::from(slot) * 16;
        self.set(descriptor, self.address(Self::frame(slot)));
        self.set(descriptor + 8, length as u32);
        self.set(descriptor + 12, flags);
        self.set(descriptor + 14, 0u16);
        self.set(AVAILABLE + 4 + usize::from(self.given % DEPTH) * 2, slot);
        self.given = self.given.wrapping_add(1);
        fence(Ordering::Release);
        self.set(AVAILABLE + 2, self.given);
        self.kick.write(1).context("waking vhost")?;
        Ok(())
    }

    /// Returns the next slot that the kernel has given back, and the number of bytes written there.
    fn take(&mut self) -> Option<(u16, usize)> {
        if self.get::<u16>(USED + 2) == self.back {
            return None;
        }
        fence(Ordering::Acquire);
        let at = USED + 4 + usize::from(self.back % DEPTH) * 8;
        self.back = self.back.wrapping_add(1);
        Some((self.get::<u32>(at) as u16, self.get::<u32>(at + 4) as usize))
    }

    /// Waits until the kernel has given a slot back; returns `false` if it has not within `time`.
    fn wait(&self, time: Duration) -> Result<bool> {
        let mut entry = [PollFd::new(self.call.as_fd(), PollFlags::POLLIN)];
        let woken = poll(&mut entry, PollTimeout::try_from(time)?)? > 0;
        if woken {
            self.call.read()?;
        }
        Ok(woken)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the memory with this size, and `Port` closes vhost before it drops
        // its queues.
        let _ = unsafe { munmap(self.memory.cast(), SIZE) };
    }
}

/// A virtual machine's network card behind a tap device.
#[derive(Debug)]
pub struct Port {
    // The file of `vhost-net`. It is dropped first, which ends the kernel's thread.
    _vhost: File,
    /// The queue in which vhost stores the tap device's transmitted frames.
    pub receive_queue: ReceiveQueue,
    /// The queue from which vhost takes frames for the tap device to receive.
    pub transmit_queue: TransmitQueue,
}

/// The virtual machine's receive queue.
#[derive(Debug)]
pub struct ReceiveQueue(Queue);

/// The virtual machine's transmit queue.
#[derive(Debug)]
pub struct TransmitQueue {
    queue: Queue,
    /// Slots that the kernel does not own.
    free: Vec<u16>,
}

impl Port {
    /// Attaches `vhost-net` to `tap`, whose frames follow a `struct virtio_net_hdr` of ten bytes.
    ///
    /// # Errors
    /// If the driver is missing or refuses something.
    pub fn new(tap: &Tun) -> Result<Self> {
        // The queues are declared before the file, so that the file is closed first if something
        // fails.
        let queues = [Queue::new()?, Queue::new()?];
        let loaded = finish(Command::new("modprobe").arg("vhost_net"), "");
        let path = "/dev/vhost-net";
        let vhost = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("{path}; modprobe vhost_net: {loaded:?}"))?;
        let fd = vhost.as_raw_fd();
        // SAFETY: Each call reads one value of the type that <linux/vhost.h> names for the call.
        // The value lives across the call. vhost writes to the two regions until the file is
        // closed. The regions are the memory of the queues, which are dropped later.
        unsafe {
            ioctl::set_owner(fd).context("VHOST_SET_OWNER")?;
            ioctl::set_features(fd, &0).context("VHOST_SET_FEATURES")?;
            let memory = Memory {
                regions: 2,
                padding: 0,
                region: [0, 1].map(|index: usize| Region {
                    guest: queues[index].address(0),
                    size: SIZE as u64,
                    user: queues[index].address(0),
                    padding: 0,
                }),
            };
            ioctl::set_mem_table(fd, &memory).context("VHOST_SET_MEM_TABLE")?;
        }
        for (index, queue) in (0..).zip(&queues) {
            let file = |fd: i32| Descriptor { index, fd };
            let depth = State {
                index,
                number: DEPTH.into(),
            };
            let addresses = Addresses {
                index,
                flags: 0,
                descriptors: queue.address(DESCRIPTORS),
                used: queue.address(USED),
                available: queue.address(AVAILABLE),
                log: 0,
            };
            // SAFETY: Each call reads one value of the type that <linux/vhost.h> names for the
            // call. The value lives across the call. The addresses are in the queue's memory, which
            // is dropped after the file.
            unsafe {
                ioctl::set_vring_num(fd, &depth)?;
                ioctl::set_vring_base(fd, &State { index, number: 0 })?;
                ioctl::set_vring_addr(fd, &addresses)?;
                ioctl::set_vring_kick(fd, &file(queue.kick.as_raw_fd()))?;
                ioctl::set_vring_call(fd, &file(queue.call.as_raw_fd()))?;
                ioctl::net_set_backend(fd, &file(tap.as_fd().as_raw_fd()))
                    .context("VHOST_NET_SET_BACKEND")?;
            }
        }
        let [receive, transmit] = queues;
        let mut port = Self {
            _vhost: vhost,
            receive_queue: ReceiveQueue(receive),
            transmit_queue: TransmitQueue {
                queue: transmit,
                free: (0..DEPTH).collect(),
            },
        };
        for slot in 0..DEPTH {
            port.receive_queue.0.give(slot, ROOM, WRITE)?;
        }
        Ok(port)
    }
}

impl ReceiveQueue {
    /// Returns the next frame, preceded by its `struct virtio_net_hdr`, or `None` if there is none
    /// within `time`.
    ///
    /// # Errors
    /// If the kernel reports more bytes than the buffer has.
    pub fn read(&mut self, time: Duration) -> Result<Option<Vec<u8>>> {
        let queue = &mut self.0;
        let mut taken = queue.take();
        if taken.is_none() && queue.wait(time)? {
            taken = queue.take();
        }
        let Some((slot, length)) = taken else {
            return Ok(None);
        };
        ensure!(
            slot < DEPTH && length <= ROOM,
            "slot {slot}: {length} bytes"
        );
        let bytes = (0..length)
            .map(|at| queue.get(Queue::frame(slot) + at))
            .collect();
        queue.give(slot, ROOM, WRITE)?;
        Ok(Some(bytes))
    }
}

impl TransmitQueue {
    /// Transmits a frame, preceded by its `struct virtio_net_hdr`. While all slots are in use,
    /// waits for at most `time`.
    ///
    /// # Errors
    /// If the frame is too long, or no slot comes back.
    pub fn write(&mut self, bytes: &[u8], time: Duration) -> Result<()> {
        ensure!(bytes.len() <= ROOM, "a frame of {} bytes", bytes.len());
        let queue = &mut self.queue;
        let slot = loop {
            while let Some((slot, _)) = queue.take() {
                self.free.push(slot);
            }
            if let Some(slot) = self.free.pop() {
                break slot;
            }
            ensure!(queue.wait(time)?, "vhost gives no slot back");
        };
        for (at, byte) in bytes.iter().enumerate() {
            queue.set(Queue::frame(slot) + at, *byte);
        }
        queue.give(slot, bytes.len(), 0)
    }
}

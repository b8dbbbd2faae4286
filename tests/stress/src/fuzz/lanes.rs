// SPDX-License-Identifier: GPL-2.0-only

//! Sends hostile frames to a host, by one of several lanes. Each lane gives the host a different
//! kind of packet buffer.

use std::io;

use fastrand::Rng;

use crate::fuzz::world::World;
use guest::calls::send_many;
use guest::packet_ring::Ring;
use guest::prelude::*;

/// A way by which frames reach a host, named after the kind of buffer that the host gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// A private buffer. The bytes of a long frame are in pages.
    Plain,
    /// A clone, whose data other ports of the bridge share.
    Cloned,
    /// A clone whose data, including the protocol's header, are in pages of the sender's memory.
    Paged,
    /// A buffer like `Paged`, but the sender changes the pages while the host uses them.
    Changing,
    /// A clone that has no checksum yet: the kernel is to fill one in at a random position.
    Offloaded,
}

impl Lane {
    /// Returns a random lane to host b, or the only lane to host a.
    pub fn any(to_b: bool, rng: &mut Rng) -> Self {
        match rng.u8(..10) {
            _ if !to_b => Self::Plain,
            0..=3 => Self::Plain,
            4..=6 => Self::Cloned,
            7 => Self::Paged,
            8 => Self::Changing,
            _ => Self::Offloaded,
        }
    }
}

/// The packet sockets through which the fuzzer sends frames.
#[derive(Debug)]
pub struct Lanes {
    /// The sockets at the wire's two ends: the one connected to host a, and the one connected to
    /// host b.
    ports: [PacketSocket; 2],
    bridge: PacketSocket,
    offload: PacketSocket,
    ring: Ring,
    /// Number of frames that the kernel did not send, because it lacked memory or rejected them.
    pub refused: u64,
}

/// Opens a socket that sends from `device` and receives nothing.
fn sender(world: &World, device: &str) -> Result<PacketSocket> {
    // No frame has this type, so the socket receives nothing.
    let socket = PacketSocket::open(&world.wire, device, 0x88b7)?;
    socket.socket().set_so(libc::SO_SNDBUFFORCE, 16 << 20)?;
    Ok(socket)
}

impl Lanes {
    /// Opens all sockets.
    ///
    /// # Errors
    /// If the kernel refuses one.
    pub fn open(world: &World) -> Result<Self> {
        let offload = sender(world, "x")?;
        let vnet_header = 15; // PACKET_VNET_HDR, <linux/if_packet.h>
        offload
            .socket()
            .set_int_option(libc::SOL_PACKET, vnet_header, 1)
            .context("PACKET_VNET_HDR")?;
        Ok(Self {
            ports: [sender(world, "ap")?, sender(world, "bp")?],
            bridge: sender(world, "x")?,
            offload,
            ring: Ring::new(sender(world, "x")?)?,
            refused: 0,
        })
    }

    /// Sends frames by one lane, in order.
    ///
    /// # Errors
    /// If a call fails for a reason other than its frame.
    pub fn send(
        &mut self,
        lane: Lane,
        to_b: bool,
        frames: &[Vec<u8>],
        rng: &mut Rng,
    ) -> Result<()> {
        let socket = match lane {
            Lane::Plain => &self.ports[usize::from(to_b)],
            Lane::Cloned => &self.bridge,
            Lane::Offloaded => {
                let told: Vec<Vec<u8>> = frames.iter().map(|frame| offloaded(frame, rng)).collect();
                self.refused += batch(&self.offload, &told)?;
                return Ok(());
            }
            Lane::Paged | Lane::Changing => return self.by_ring(lane, frames, rng),
        };
        self.refused += batch(socket, frames)?;
        Ok(())
    }

    fn by_ring(&mut self, lane: Lane, frames: &[Vec<u8>], rng: &mut Rng) -> Result<()> {
        for frame in frames {
            if !self.ring.put(frame) {
                self.flush_ring()?;
                if !self.ring.put(frame) {
                    // The previous frame in this slot of the ring is still queued, so this frame is
                    // not sent.
                    self.refused += 1;
                    continue;
                }
            }
            if lane == Lane::Changing {
                self.flush_ring()?;
                self.ring.disturb(rng.usize(1..8), rng.u8(..));
            }
        }
        self.flush_ring()
    }

    fn flush_ring(&mut self) -> Result<()> {
        match self.ring.send() {
            Ok(()) => Ok(()),
            Err(error) if is_the_frames_fault(&error) => {
                self.refused += 1;
                Ok(())
            }
            Err(error) => Err(error).context("sending the ring"),
        }
    }
}

/// Returns `frame`, preceded by a `struct virtio_net_hdr` that asks for a checksum.
fn offloaded(frame: &[u8], rng: &mut Rng) -> Vec<u8> {
    let needs_checksum = 1; // VIRTIO_NET_HDR_F_NEEDS_CSUM
    let mut told = vec![needs_checksum, 0];
    // These numbers are the header length, the segment size, the offset at which the sum starts,
    // and the offset of the checksum from that start.
    let start = rng.u16(..frame.len().min(64) as u16);
    let offset = rng.u16(..32);
    for number in [0, 0, start, offset] {
        told.extend_from_slice(&number.to_ne_bytes());
    }
    told.extend_from_slice(frame);
    told
}

/// Sends frames with as few calls as possible; returns the number of frames that the kernel
/// refused.
fn batch(socket: &PacketSocket, frames: &[Vec<u8>]) -> Result<u64> {
    let pieces: Vec<Piece> = frames.iter().map(|frame| Piece::Good(frame)).collect();
    let (mut done, mut refused) = (0, 0);
    while done < pieces.len() {
        match send_many(socket.socket(), &pieces[done..], libc::MSG_DONTWAIT) {
            Ok(sent) => done += sent,
            Err(error) if is_the_frames_fault(&error) => {
                done += 1;
                refused += 1;
            }
            Err(error) => return Err(error).context("sending frames"),
        }
    }
    Ok(refused)
}

fn is_the_frames_fault(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::ENOBUFS | libc::EAGAIN)
    )
}

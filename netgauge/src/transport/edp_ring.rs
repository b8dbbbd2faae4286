// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over EDP that receives by a ring of mapped memory, so that a program that polls
//! receives without system calls.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use nix::sys::socket::MsgFlags;
use sockaddr_en::{DatagramRing, EdpProtocol, EdpSocket};

use super::datagram::DatagramSocket;
use super::edp::prepare_with;
use super::kind::Kind;
use super::polled::Waits;
use super::Context;

/// The size of a ring in bytes, which holds the datagrams of one large message.
const SIZE: usize = 4 << 20;

pub(super) const KIND: Kind = Kind {
    polled: true,
    ..Kind::new(
        "edp-ring",
        "PF_ENET datagrams, received by a mapped ring",
        |context| prepare_with(context, EdpProtocol::Edp, Ringed::new),
    )
};

/// A socket that sends by calls, and receives by a ring.
struct Ringed {
    socket: EdpSocket,
    ring: RefCell<DatagramRing>,
    waits: Waits,
}

impl Ringed {
    fn new(socket: EdpSocket, context: &Context) -> Result<Self> {
        let ring = DatagramRing::new(&socket, SIZE).context("making a ring of 4 MiB")?;
        Ok(Self {
            socket,
            ring: RefCell::new(ring),
            waits: Waits::of(&context.options, context.loss_timeout),
        })
    }
}

impl AsFd for Ringed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl DatagramSocket for Ringed {
    fn recv(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
        let mut receive = || Ok(self.ring.borrow_mut().recv_from(buffer)?.0);
        if flags.contains(MsgFlags::MSG_DONTWAIT) {
            return receive();
        }
        self.waits.receive(&self.socket, receive)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over datagrams of any protocol. A large message is sent as several datagrams.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::Result;
use nix::sys::socket::{recv, send, setsockopt, sockopt, MsgFlags};
use socket2::SockRef;

use super::options::limit_calls;
use super::polled::Waits;
use super::{Context, Transport};
use crate::host::is_timeout;

/// The size of the receive buffer, bytes. It holds the datagrams of one large message, or of a bulk
/// transfer's window.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A connected datagram socket.
pub(crate) trait DatagramSocket: AsFd {
    /// Sends one datagram.
    fn send(&self, datagram: &[u8], flags: MsgFlags) -> io::Result<usize> {
        let fd = self.as_fd().as_raw_fd();
        Ok(send(fd, datagram, flags | MsgFlags::MSG_NOSIGNAL)?)
    }

    /// Receives one datagram, truncated to the buffer.
    fn recv(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
        Ok(recv(self.as_fd().as_raw_fd(), buffer, flags)?)
    }

    /// Waits until the kernel has released the memory of all sent datagrams.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns a remark about the datagrams sent so far, for the report.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// A datagram socket, and how its calls wait.
struct Calls<S> {
    socket: S,
    waits: Waits,
}

impl<S: DatagramSocket> Calls<S> {
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        if !self.waits.polls_to_send {
            return self.socket.send(datagram, MsgFlags::empty());
        }
        let call = || self.socket.send(datagram, MsgFlags::MSG_DONTWAIT);
        self.waits.send(&self.socket, call)
    }

    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.waits.polls_to_receive {
            return self.socket.recv(buffer, MsgFlags::empty());
        }
        let call = || self.socket.recv(buffer, MsgFlags::MSG_DONTWAIT);
        self.waits.receive(&self.socket, call)
    }
}

/// Treats a datagram as sent if the device's queue was full. The datagram is then lost like one
/// that the network dropped.
fn lost_if_full(sent: io::Result<usize>) -> io::Result<()> {
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        sent => sent.map(drop),
    }
}

/// A transport over a connected datagram socket.
pub(crate) struct Datagrams<S> {
    calls: Calls<S>,
    max_datagram: usize,
    /// The buffer for a datagram if the rest of the message is shorter than `max_datagram`.
    spare: Vec<u8>,
}

impl<S: DatagramSocket> Datagrams<S> {
    /// Wraps a connected socket whose datagrams have at most `max_datagram` bytes. No call waits
    /// longer than `timeout` for a datagram, or for room to send one.
    pub(crate) fn new(socket: S, max_datagram: usize, timeout: Duration) -> io::Result<Self> {
        let options = SockRef::from(&socket);
        limit_calls(&socket, Some(timeout))?;
        // Only root may exceed the system's limit. For other users, the buffer gets that limit.
        if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            options.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        let max_datagram = max_datagram.max(1);
        let waits = Waits::blocking(timeout);
        Ok(Self {
            calls: Calls { socket, waits },
            max_datagram,
            spare: vec![0; max_datagram],
        })
    }

    /// Wraps a connected socket, with the options of `context`.
    pub(super) fn boxed(
        socket: S,
        max_datagram: usize,
        context: &Context,
    ) -> Result<Box<dyn Transport>>
    where
        S: 'static,
    {
        let (options, timeout) = (&context.options, context.loss_timeout);
        let mut datagrams = Self::new(socket, max_datagram, timeout)?;
        options.apply(&datagrams.calls.socket)?;
        datagrams.calls.waits = Waits::of(options, timeout);
        Ok(Box::new(datagrams))
    }
}

impl<S: DatagramSocket> Transport for Datagrams<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        for datagram in message.chunks(self.max_datagram) {
            lost_if_full(self.calls.send(datagram))?;
        }
        Ok(())
    }

    /// Receives one message. All datagrams of the message begin with the same byte. This byte
    /// distinguishes them from the datagrams of an earlier, incomplete message.
    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            let room = message.len() - filled;
            // A short last part is received into `spare`. If that part is lost, the next datagram
            // begins the next message, and may be longer than `room`.
            let length = if filled > 0 && room < self.max_datagram {
                let length = self.calls.recv(&mut self.spare)?;
                let part = &self.spare[..length];
                if part.first() == message.first() {
                    let length = length.min(room);
                    message[filled..filled + length].copy_from_slice(&part[..length]);
                    length
                } else {
                    let length = length.min(message.len());
                    message[..length].copy_from_slice(&part[..length]);
                    filled = 0;
                    length
                }
            } else {
                let length = self.calls.recv(&mut message[filled..])?;
                if length > 0 && message[filled] != message[0] {
                    message.copy_within(filled..filled + length, 0);
                    filled = 0;
                }
                length
            };
            filled += length;
        }
        Ok(())
    }

    fn try_send(&mut self, rest: &[u8]) -> io::Result<usize> {
        let datagram = &rest[..rest.len().min(self.max_datagram)];
        let flags = MsgFlags::MSG_DONTWAIT;
        lost_if_full(self.calls.socket.send(datagram, flags))?;
        Ok(datagram.len())
    }

    fn try_recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.calls.socket.recv(buffer, MsgFlags::MSG_DONTWAIT)
    }

    fn max_datagram(&self) -> Option<usize> {
        Some(self.max_datagram)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.calls.socket.settle()
    }

    fn remark(&self) -> Option<String> {
        self.calls.socket.remark()
    }

    fn discard_pending(&mut self) -> io::Result<()> {
        // poll(2) also reports datagrams of other senders, which the socket skips. So only a
        // non-blocking call shows whether there is data.
        loop {
            match self.calls.socket.recv(&mut [0], MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

as_fd!([S: AsFd] Datagrams<S>, calls.socket);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    impl DatagramSocket for UnixDatagram {}

    fn pair(max_datagram: usize) -> (Datagrams<UnixDatagram>, UnixDatagram) {
        let (one, two) = UnixDatagram::pair().unwrap();
        (
            Datagrams::new(one, max_datagram, Duration::from_millis(20)).unwrap(),
            two,
        )
    }

    #[test]
    fn large_messages_go_as_several_datagrams() {
        let (mut one, two) = pair(4);
        one.send(&[7; 10]).unwrap();
        let mut buffer = [0; 16];
        assert_eq!([4, 4, 2].map(|_| two.recv(&mut buffer).unwrap()), [4, 4, 2]);

        for length in [4, 4, 2] {
            two.send(&[9; 4][..length]).unwrap();
        }
        let mut message = [0; 10];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [9; 10]);
    }

    #[test]
    fn parts_of_an_earlier_message_are_discarded() {
        let (mut one, two) = pair(4);
        // The middle of message 1 is lost; message 2 is complete.
        for datagram in [&[1; 4][..], &[1; 2], &[2; 4], &[2; 4], &[2; 2]] {
            two.send(datagram).unwrap();
        }
        let mut message = [0; 10];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [2; 10]);
    }

    #[test]
    fn the_loss_of_a_last_part_does_not_affect_the_next_message() {
        let (mut one, two) = pair(4);
        for datagram in [&[1; 4][..], &[1; 4], &[2; 4], &[2; 4], &[2; 2]] {
            two.send(datagram).unwrap();
        }
        let mut message = [0; 10];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [2; 10]);
    }

    #[test]
    fn a_stray_datagram_does_not_let_a_padded_message_overflow() {
        let (mut one, two) = pair(64);
        two.send(&[1; 3]).unwrap();
        two.send(&[5; 46]).unwrap();
        let mut message = [0; 10];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [5; 10]);
    }

    #[test]
    fn padding_behind_the_message_is_cut() {
        let (mut one, two) = pair(64);
        two.send(&[5; 46]).unwrap();
        let mut message = [0; 3];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [5; 3]);

        // The message of 65 bytes is two datagrams. The second one carries one byte, and padding up
        // to 46 bytes, which is cut off.
        two.send(&[6; 64]).unwrap();
        two.send(&[6; 46]).unwrap();
        let mut message = [0; 65];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [6; 65]);
    }

    #[test]
    fn loss_is_a_timeout() {
        let (mut one, two) = pair(4);
        two.send(&[1; 4]).unwrap();
        assert!(is_timeout(&one.recv(&mut [0; 5]).unwrap_err()));
    }

    #[test]
    fn no_room_is_a_timeout_however_a_call_waits() {
        for polls in [false, true] {
            let (mut one, _two) = pair(4);
            one.calls.waits.polls_to_send = polls;
            // The peer's socket holds only a few unread datagrams, so a send fails soon.
            let error = loop {
                if let Err(error) = one.send(&[1; 4]) {
                    break error;
                }
            };
            assert!(is_timeout(&error), "{error}");
        }
    }

    #[test]
    fn pending_datagrams_can_be_discarded() {
        let (mut one, two) = pair(4);
        two.send(&[1; 4]).unwrap();
        two.send(&[2; 4]).unwrap();
        one.discard_pending().unwrap();
        assert!(is_timeout(&one.recv(&mut [0; 1]).unwrap_err()));
    }

    /// A socket that skips the datagrams of another sender. Those datagrams begin with 0.
    struct Choosy(UnixDatagram);

    impl DatagramSocket for Choosy {
        fn recv(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
            loop {
                let length = DatagramSocket::recv(&self.0, buffer, flags)?;
                if buffer[0] != 0 {
                    return Ok(length);
                }
            }
        }
    }

    as_fd!([] Choosy, 0);

    #[test]
    fn datagrams_of_other_senders_are_not_discarded_as_pending() {
        let (one, two) = UnixDatagram::pair().unwrap();
        let mut one = Datagrams::new(Choosy(one), 4, Duration::from_millis(20)).unwrap();
        for datagram in [[0; 4], [1; 4], [0; 4]] {
            two.send(&datagram).unwrap();
        }
        one.discard_pending().unwrap();
        two.send(&[2; 4]).unwrap();
        let mut message = [0; 4];
        one.recv(&mut message).unwrap();
        assert_eq!(message, [2; 4]);
    }
}

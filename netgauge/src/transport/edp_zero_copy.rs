// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over EZDP, which is EDP that sends from the program's own memory.
//!
//! Frames and ports are EDP's. The kernel pins the pages of a datagram instead of copying them, and
//! reports a completion on the socket's error queue when it has released them. Like the streams
//! with `MSG_ZEROCOPY`, this transport waits for all completions before it receives, because every
//! program has to wait before it writes to the pages again. For devices that need a copy, such as
//! veth, the kernel makes a copy, and reports that it did.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::Result;
use nix::sys::socket::{recv, send, MsgFlags};
use sockaddr_en::EdpProtocol;

use super::completions::Completions;
use super::datagram::DatagramSocket;
use super::kind::Kind;
use super::{edp, Context, Prepared};

pub(super) const KIND: Kind = Kind::new(
    "edp-zerocopy",
    "PF_ENET datagrams, sent without a copy (EZDP)",
    prepare,
);

fn prepare(context: &Context) -> Result<Prepared> {
    edp::prepare_with(context, EdpProtocol::Ezdp, |socket, context| {
        Ok(ZeroCopyDatagrams::new(socket, context.give_up))
    })
}

/// A connected socket whose sends are completed by reports in its error queue.
struct ZeroCopyDatagrams<S: AsFd> {
    socket: S,
    completions: RefCell<Completions>,
    /// The time limit of a wait for a completion.
    most: Duration,
}

impl<S: AsFd> ZeroCopyDatagrams<S> {
    fn new(socket: S, most: Duration) -> Self {
        Self {
            socket,
            completions: RefCell::default(),
            most,
        }
    }
}

impl<S: AsFd> DatagramSocket for ZeroCopyDatagrams<S> {
    fn send(&self, datagram: &[u8], flags: MsgFlags) -> io::Result<usize> {
        let mut completions = self.completions.borrow_mut();
        completions.take_if_many(&self.socket)?;
        let fd = self.socket.as_fd().as_raw_fd();
        loop {
            match send(fd, datagram, flags | MsgFlags::MSG_NOSIGNAL).map_err(io::Error::from) {
                Ok(sent) => {
                    completions.expect_one();
                    return Ok(sent);
                }
                // The socket's memory has no room for a further completion, or the limit of pinned
                // memory is reached. In both cases, completions of earlier sends make room.
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS) && completions.pending() > 0 =>
                {
                    completions.await_one(&self.socket, self.most)?;
                }
                Err(error) => {
                    // The completions are taken before the caller waits for room, because queued
                    // completions would end each wait at once.
                    completions.take(&self.socket)?;
                    return Err(error);
                }
            }
        }
    }

    fn recv(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
        // The kernel may still send the previous message from the memory of `buffer`, which this
        // call overwrites.
        self.settle()?;
        Ok(recv(self.socket.as_fd().as_raw_fd(), buffer, flags)?)
    }

    fn settle(&self) -> io::Result<()> {
        let mut completions = self.completions.borrow_mut();
        completions.settle(&self.socket, self.most)
    }

    fn remark(&self) -> Option<String> {
        self.completions.borrow().remark()
    }
}

impl<S: AsFd> Drop for ZeroCopyDatagrams<S> {
    fn drop(&mut self) {
        // The caller may reuse the memory of sent messages, so the kernel should have released it.
        // An error is ignored, because the socket is closed and sends nothing more.
        let _ = self.settle();
    }
}

as_fd!([S: AsFd] ZeroCopyDatagrams<S>, socket);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::polled::wait;
    use nix::poll::PollFlags;
    use nix::sys::socket::setsockopt;
    use std::net::UdpSocket;

    socket_option!(set ZeroCopy, libc::SOL_SOCKET, libc::SO_ZEROCOPY);

    /// EZDP needs the kernel module. UDP with this flag completes its sends in the same way.
    const FLAG: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> (ZeroCopyDatagrams<UdpSocket>, UdpSocket) {
        let [one, two] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(two.local_addr().unwrap()).unwrap();
        two.connect(one.local_addr().unwrap()).unwrap();
        setsockopt(&one, ZeroCopy, &1).unwrap();
        (ZeroCopyDatagrams::new(one, PATIENCE), two)
    }

    #[test]
    fn after_settling_no_completion_ends_a_wait_for_data() {
        let (one, two) = pair();
        let mut bytes = [0; 1000];
        one.send(&[7; 1000], FLAG).unwrap();
        two.recv(&mut bytes).unwrap();
        let events = wait(&one, PollFlags::POLLIN, PATIENCE).unwrap();
        assert_eq!(events, PollFlags::POLLERR);
        one.settle().unwrap();
        let events = wait(&one, PollFlags::POLLIN, Duration::from_millis(20)).unwrap();
        assert_eq!(events, PollFlags::empty());
    }

    #[test]
    fn every_send_is_completed_before_a_datagram_is_received() {
        let (one, two) = pair();
        let mut bytes = [0; 1000];
        for tag in 1..=200 {
            one.send(&[tag; 1000], FLAG).unwrap();
            assert_eq!(two.recv(&mut bytes).unwrap(), 1000);
            assert_eq!(bytes, [tag; 1000]);
        }
        two.send(&[9; 10]).unwrap();
        assert_eq!(one.recv(&mut bytes, MsgFlags::empty()).unwrap(), 10);
        assert_eq!(one.completions.borrow().pending(), 0);
        assert_eq!(one.completions.borrow().completed(), 200);
    }
}

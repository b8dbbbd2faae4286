// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests the typed sockets on a kernel that does not have the address family. Some tests check the
//! errors. The others check the descriptor traits, on descriptors of a different family.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use sockaddr_en::{Address, EdpSocket, EspStream};

fn stream_pair() -> (EspStream, EspStream) {
    let (one, two) = UnixStream::pair().unwrap();
    (OwnedFd::from(one).into(), OwnedFd::from(two).into())
}

#[test]
fn streams_read_and_write_by_value_and_by_reference() {
    let (mut one, two) = stream_pair();
    one.write_all(b"abc").unwrap();
    (&one).write_all(b"def").unwrap();
    assert_eq!(
        one.write_vectored(&[IoSlice::new(b"g"), IoSlice::new(b"hi")])
            .unwrap(),
        3
    );

    let mut peeked = [0; 3];
    assert_eq!(two.peek(&mut peeked).unwrap(), 3);
    assert_eq!(&peeked, b"abc");

    let (mut front, mut back) = ([0; 2], [0; 3]);
    let mut buffers = [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)];
    assert_eq!((&two).read_vectored(&mut buffers).unwrap(), 5);
    assert_eq!((&front, &back), (b"ab", b"cde"));

    one.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    two.try_clone().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"fghi");
    assert!(one.take_error().unwrap().is_none());
}

#[test]
fn a_peer_that_is_gone_is_a_broken_pipe_and_no_signal() {
    let (mut one, two) = stream_pair();
    drop(two);
    // SAFETY: restoring the default disposition takes no pointers; this test process has no
    // handler for SIGPIPE that others rely on.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_eq!(
        one.write(b"x").unwrap_err().kind(),
        io::ErrorKind::BrokenPipe
    );
    assert_eq!(
        one.write_vectored(&[IoSlice::new(b"x")])
            .unwrap_err()
            .kind(),
        io::ErrorKind::BrokenPipe
    );
}

#[test]
fn timeouts_and_nonblocking() {
    let (mut one, _two) = stream_pair();
    assert_eq!(one.read_timeout().unwrap(), None);
    one.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    assert!(one.read_timeout().unwrap().is_some());
    assert_eq!(
        one.read(&mut [0]).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );

    one.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(one.write_timeout().unwrap(), Some(Duration::from_secs(1)));
    one.set_write_timeout(None).unwrap();
    assert_eq!(one.write_timeout().unwrap(), None);
    assert_eq!(
        one.set_read_timeout(Some(Duration::ZERO))
            .unwrap_err()
            .kind(),
        io::ErrorKind::InvalidInput
    );

    one.set_read_timeout(None).unwrap();
    one.set_nonblocking(true).unwrap();
    assert_eq!(
        one.read(&mut [0]).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[test]
fn datagrams_keep_their_borders_and_are_cut_to_the_buffer() {
    let (one, two) = UnixDatagram::pair().unwrap();
    let (one, two) = (
        EdpSocket::from(OwnedFd::from(one)),
        EdpSocket::from(OwnedFd::from(two)),
    );
    assert_eq!(one.send(b"first").unwrap(), 5);
    assert_eq!(one.send(b"second").unwrap(), 6);
    let mut buffer = [0; 3];
    assert_eq!(two.peek(&mut buffer).unwrap(), 3);
    assert_eq!(two.recv(&mut buffer).unwrap(), 3);
    assert_eq!(&buffer, b"fir");
    assert_eq!(two.recv(&mut buffer).unwrap(), 3);
    assert_eq!(&buffer, b"sec");
}

#[test]
fn addresses_of_another_family_are_an_error_and_no_garbage() {
    let (one, two) = UnixDatagram::pair().unwrap();
    let two = EdpSocket::from(OwnedFd::from(two));
    assert_eq!(
        two.local_addr().unwrap_err().kind(),
        io::ErrorKind::InvalidData
    );
    one.send(b"x").unwrap();
    assert_eq!(
        two.recv_from(&mut [0; 8]).unwrap_err().kind(),
        io::ErrorKind::InvalidData
    );
}

#[test]
fn wildcards_cannot_be_sent_to() {
    let (one, _two) = UnixDatagram::pair().unwrap();
    let one = EdpSocket::from(OwnedFd::from(one));
    for error in [
        one.send_to(b"x", "*:1").unwrap_err(),
        one.connect(Address::any(1)).unwrap_err(),
        one.send_to(b"x", "02:00:00:00:00:01:2805").unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let error = one
        .send_to(b"x", "02:00:00:00:00:01%absent0:2805")
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn descriptors_are_closed_on_exec_and_go_in_and_out() {
    let (one, _two) = stream_pair();
    let raw = one.as_raw_fd();
    let clone = one.try_clone().unwrap();
    assert_ne!(clone.as_raw_fd(), raw);
    // SAFETY: the descriptor is open, and F_GETFD takes no pointer.
    let flags = unsafe { libc::fcntl(clone.as_fd().as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    let fd: OwnedFd = one.into();
    assert_eq!(fd.as_raw_fd(), raw);
    let raw = EspStream::from(fd).into_raw_fd();
    // SAFETY: the descriptor is open, and `into_raw_fd` gave up its ownership.
    let again = unsafe { EspStream::from_raw_fd(raw) };
    assert_eq!(again.as_raw_fd(), raw);
}

#[cfg(feature = "mio")]
#[test]
fn sockets_are_event_sources_of_mio() {
    let (one, two) = stream_pair();
    let mut one = one;
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(4);
    let readable = mio::Interest::READABLE;
    poll.registry()
        .register(&mut one, mio::Token(7), readable)
        .unwrap();
    (&two).write_all(b"x").unwrap();
    poll.poll(&mut events, Some(Duration::from_secs(20)))
        .unwrap();
    assert!(events.iter().any(|event| event.token() == mio::Token(7)));
    poll.registry().deregister(&mut one).unwrap();
}

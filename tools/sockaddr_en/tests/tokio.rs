// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests the sockets for tokio. The descriptors in these tests are of a different address family,
//! so the tests need no module.
#![cfg(feature = "tokio")]

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use sockaddr_en::tokio::{EdpSocket, EspListener, EspRecordListener, EspRecords, EspStream};
use sockaddr_en::FamilyMissing;
use socket2::{Domain, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

fn pair() -> (EspStream, EspStream) {
    let (one, two) = UnixStream::pair().unwrap();
    let stream = |end: UnixStream| EspStream::from_std(OwnedFd::from(end).into()).unwrap();
    (stream(one), stream(two))
}

#[tokio::test]
async fn more_than_the_buffers_hold_gets_through_both_ways() {
    let (mut one, two) = pair();
    let message: Vec<u8> = (0..4_000_000_u32).map(|i| (i >> 3) as u8).collect();
    let echo = tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(two);
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let (mut from, mut to) = tokio::io::split(&mut one);
    let send = async {
        to.write_all(&message).await?;
        to.shutdown().await
    };
    let mut echoed = Vec::new();
    tokio::try_join!(send, from.read_to_end(&mut echoed)).unwrap();
    echo.await.unwrap();
    assert!(echoed == message);
}

#[tokio::test]
async fn pieces_are_written_as_one() {
    let (mut one, mut two) = pair();
    let pieces = [io::IoSlice::new(b"ab"), io::IoSlice::new(b"cde")];
    assert_eq!(one.write_vectored(&pieces).await.unwrap(), 5);
    let mut got = [0; 5];
    two.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"abcde");
}

#[tokio::test]
async fn a_peer_that_is_gone_is_the_end_and_then_a_broken_pipe() {
    let (mut one, two) = pair();
    drop(two);
    assert_eq!(one.read(&mut [0; 8]).await.unwrap(), 0);
    let error = one.write_all(b"x").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn streams_come_from_and_go_to_the_other_kind() {
    let (one, _two) = pair();
    let fd = one.as_raw_fd();
    assert_eq!(one.as_fd().as_raw_fd(), fd);
    assert_eq!(one.into_std().as_raw_fd(), fd);
}

#[tokio::test]
async fn a_wrong_address_is_told_before_a_missing_module() {
    for (text, kind) in [
        ("02:00:00:00:00:01%nowhere0:1", io::ErrorKind::NotFound),
        ("02:00:00:00:00:01:1", io::ErrorKind::InvalidInput),
    ] {
        for error in [
            EspStream::connect(text).await.unwrap_err(),
            EspRecords::connect(text).await.unwrap_err(),
            EspListener::bind(text).unwrap_err(),
            EspRecordListener::bind(text).unwrap_err(),
            EdpSocket::bind(text).unwrap_err(),
        ] {
            assert!(!FamilyMissing::is(&error), "{error}");
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}

fn record_pair() -> (EspRecords, EspRecords) {
    let (one, two) = socket2::Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let records = |end| EspRecords::from_std(OwnedFd::from(end).into()).unwrap();
    (records(one), records(two))
}

#[tokio::test]
async fn records_keep_their_bounds_and_wait_for_room() {
    let (one, two) = record_pair();
    // The records are more than the socket buffers hold, so that the sender must wait.
    let sender = tokio::spawn(async move {
        for number in 0..2000_u16 {
            one.send(&vec![number as u8; usize::from(number) + 1])
                .await?;
        }
        one.shutdown(Shutdown::Write)
    });
    let mut room = [0; 1000];
    assert_eq!(two.peek(&mut room).await.unwrap(), 1);
    for number in 0..2000_usize {
        assert_eq!(two.recv(&mut room).await.unwrap(), number + 1);
        let there = room.len().min(number + 1);
        assert!(room[..there].iter().all(|byte| *byte == number as u8));
    }
    assert_eq!(two.recv(&mut room).await.unwrap(), 0);
    sender.await.unwrap().unwrap();
    let fd = two.as_fd().as_raw_fd();
    assert_eq!(two.into_std().as_raw_fd(), fd);
}

#[tokio::test]
async fn halves_are_owned_and_end_their_direction() {
    let (one, two) = pair();
    let (mut from, mut to) = one.into_split();
    let (other_from, other_to) = two.into_split();
    let (other_from, other_to) = from_wrong_halves(other_from, other_to);
    let mut two = other_from.reunite(other_to).unwrap();
    let writer = tokio::spawn(async move { to.write_all(b"all there is").await });
    let mut got = String::new();
    two.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "all there is");
    writer.await.unwrap().unwrap();
    // The other direction stays open.
    two.write_all(b"an answer").await.unwrap();
    drop(two);
    got.clear();
    from.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "an answer");
}

/// Returns `from` and `to` after `reunite` has refused to join each with a half of another stream.
fn from_wrong_halves(
    from: sockaddr_en::tokio::OwnedReadHalf,
    to: sockaddr_en::tokio::OwnedWriteHalf,
) -> (
    sockaddr_en::tokio::OwnedReadHalf,
    sockaddr_en::tokio::OwnedWriteHalf,
) {
    let (one, _two) = pair();
    let (other_from, other_to) = one.into_split();
    let (from, other_to) = from.reunite(other_to).unwrap_err();
    let (_, to) = other_from.reunite(to).unwrap_err();
    drop(other_to);
    (from, to)
}

#[tokio::test]
async fn calls_that_do_not_wait_say_so() {
    let (one, two) = pair();
    let error = one.try_read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(two.ready(Interest::WRITABLE).await.unwrap().is_writable());
    assert_eq!(two.try_write(b"now").unwrap(), 3);
    let mut got = [0; 8];
    assert_eq!(one.peek(&mut got).await.unwrap(), 3);
    assert!(one.ready(Interest::READABLE).await.unwrap().is_readable());
    assert_eq!(one.try_read(&mut got).unwrap(), 3);
    assert_eq!(&got[..3], b"now");
}

#[tokio::test]
async fn datagrams_wait_for_each_other() {
    let (one, two) = UnixDatagram::pair().unwrap();
    let socket = |end: UnixDatagram| EdpSocket::from_std(OwnedFd::from(end).into()).unwrap();
    let (one, two) = (socket(one), socket(two));
    let echo = tokio::spawn(async move {
        let mut got = [0; 16];
        let length = two.recv(&mut got).await?;
        two.send(&got[..length]).await
    });
    assert_eq!(one.send(b"a question").await.unwrap(), 10);
    let mut got = [0; 4];
    assert_eq!(one.recv(&mut got).await.unwrap(), 4);
    assert_eq!(&got, b"a qu");
    assert_eq!(echo.await.unwrap().unwrap(), 10);
    assert!(one.local_addr().is_err(), "an address of another family");
    let fd = one.as_fd().as_raw_fd();
    assert_eq!(one.into_std().as_raw_fd(), fd);
}

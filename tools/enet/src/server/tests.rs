// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of what bad clients can do to the server.

use std::net::SocketAddr;

use super::*;

/// Length of an answer that exceeds the buffers of a connection over the loopback device.
const LARGE: usize = 16 << 20;

/// Starts a server, whose metrics have `length` bytes.
fn server(length: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(&[listener], || Answer::metrics("a".repeat(length))));
    address
}

fn send(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn scrape(address: SocketAddr) -> String {
    answer(send(address, b"GET /metrics HTTP/1.0\r\n\r\n"))
}

#[test]
fn a_request_in_pieces_is_answered() {
    let address = server(5);
    let mut client = send(address, b"GET /metrics HTTP/1.1\r\n");
    // Another client is served between the pieces.
    assert!(scrape(address).ends_with("\r\n\r\naaaaa"));
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    assert!(answer(client).ends_with("\r\n\r\naaaaa"));
}

#[test]
fn bad_requests_get_answers_and_end_nothing() {
    let address = server(5);
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 1 << 20]].concat();
    let post = [
        b"POST /metrics HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n".as_slice(),
        &[0; 1 << 20],
    ]
    .concat();
    for (request, status) in [
        (b"HEAD /metrics HTTP/1.0\r\n\r\n".as_slice(), "200"),
        (b"GET /secret HTTP/1.1\r\n\r\n", "404"),
        (b"\xff\xfe\0\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (&post, "405"),
        (&long, "431"),
    ] {
        let text = answer(send(address, request));
        assert!(text.starts_with(&format!("HTTP/1.0 {status} ")), "{text}");
    }
    // Clients that close, at once or before they read.
    drop(TcpStream::connect(address).unwrap());
    drop(send(address, b"GET /metrics HTTP/1.0\r\n\r\n"));
    drop(send(address, b"GET /met"));
    assert!(scrape(address).ends_with("aaaaa"));
}

#[test]
fn silent_clients_do_not_delay_others_and_are_closed() {
    let address = server(5);
    let begin = Instant::now();
    let silent: Vec<_> = (0..100)
        .map(|_| send(address, b"GET /metrics HTTP/1.1\r\n"))
        .collect();
    assert!(scrape(address).ends_with("aaaaa"));
    // Served one after the other, 100 clients would take far longer.
    assert!(begin.elapsed() < 5 * PATIENCE, "{:?}", begin.elapsed());
    for client in silent {
        assert_eq!(answer(client), "");
    }
    assert!(begin.elapsed() >= PATIENCE);
}

#[test]
fn more_silent_clients_than_places_delay_others_for_a_moment() {
    let address = server(5);
    let silent: Vec<_> = (0..2 * MOST)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let begin = Instant::now();
    assert!(scrape(address).ends_with("aaaaa"));
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    drop(silent);
    assert!(scrape(address).ends_with("aaaaa"));
}

#[test]
fn a_client_that_does_not_read_does_not_delay_others_and_is_closed() {
    let address = server(LARGE);
    let slow = send(address, b"GET /metrics HTTP/1.0\r\n\r\n");
    let begin = Instant::now();
    let other = answer(send(address, b"GET / HTTP/1.0\r\n\r\n"));
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    assert!(other.starts_with("HTTP/1.0 200 "), "{other}");
    thread::sleep(2 * PATIENCE);
    let mut read = Vec::new();
    // The kernel may have reset the connection.
    let _ = (&slow).read_to_end(&mut read);
    assert!(read.len() < LARGE, "{}", read.len());
}

/// A client that always sends a little has no more time than the others.
#[test]
fn a_client_that_drips_is_closed() {
    let address = server(5);
    let begin = Instant::now();
    let mut client = send(address, b"GET /metrics HTTP/1.1\r\nX: ");
    while client.write_all(b"a").is_ok() {
        assert!(begin.elapsed() < 30 * PATIENCE, "the server still reads");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn many_clients_at_once_are_answered() {
    let address = server(20_000);
    let clients: Vec<_> = (0..100)
        .map(|_| send(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        .collect();
    for client in clients {
        assert!(answer(client).len() > 20_000);
    }
}

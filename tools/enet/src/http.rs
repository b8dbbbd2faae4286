// SPDX-License-Identifier: MIT OR Apache-2.0

//! Implements the part of HTTP/1.0 that a scraper of metrics needs. Each connection carries one
//! request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum length of a request's head in bytes.
const LONGEST: usize = 8 << 10;

/// Maximum time per client. Clients are served one after the other, so a slow client must not delay
/// the next clients for long.
const PATIENCE: Duration = Duration::from_secs(2);

/// An HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// Returns a response that carries the metrics.
    pub fn metrics(body: String) -> Self {
        Self {
            status: "200 OK",
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body,
        }
    }

    /// Returns a response for metrics that cannot be read.
    pub fn failure(reason: &str) -> Self {
        Self::plain("500 Internal Server Error", reason)
    }

    fn plain(status: &'static str, body: &str) -> Self {
        Self {
            status,
            kind: PLAIN,
            body: format!("{body}\n"),
        }
    }

    fn print(&self, with_body: bool) -> String {
        format!(
            "HTTP/1.0 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
            self.status,
            self.kind,
            self.body.len(),
            if with_body { &self.body } else { "" }
        )
    }
}

/// Reads a request and answers it. `metrics` produces the response for `/metrics`.
///
/// # Errors
/// If the client closes the connection, or exceeds the time limit.
pub fn serve(mut client: TcpStream, metrics: impl FnOnce() -> Answer) -> io::Result<()> {
    let head = read_head(&mut client)?;
    let text = respond(&head, metrics);
    client.set_write_timeout(Some(PATIENCE))?;
    client.write_all(text.as_bytes())
}

/// Returns the response to a request with the head `head`.
pub fn respond(head: &str, metrics: impl FnOnce() -> Answer) -> String {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let Some(target) = target else {
        return Answer::plain("400 Bad Request", "This is no HTTP request.").print(true);
    };
    if !matches!(method, "GET" | "HEAD") {
        return Answer::plain("405 Method Not Allowed", "Only GET and HEAD work here.").print(true);
    }
    let path = target.split('?').next().unwrap_or_default();
    let answer = match path {
        "/metrics" => metrics(),
        "/" => Answer::plain("200 OK", "The metrics are at /metrics."),
        _ => Answer::plain("404 Not Found", "The metrics are at /metrics."),
    };
    answer.print(method == "GET")
}

/// Reads the request up to the empty line, or up to the end of the request.
fn read_head(client: &mut TcpStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let length = client.read(&mut piece)?;
        head.extend_from_slice(&piece[..length]);
        let ended = head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
            || head.windows(2).any(|bytes| bytes == b"\n\n");
        if length == 0 || ended {
            return Ok(String::from_utf8_lossy(&head).into_owned());
        }
        if head.len() > LONGEST {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn answer() -> Answer {
        Answer::metrics("up 1\n".to_owned())
    }

    #[test]
    fn requests_get_their_answers() {
        let get = respond("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", answer);
        assert!(get.starts_with("HTTP/1.0 200 OK\r\n"), "{get}");
        assert!(get.contains("Content-Length: 5\r\n"), "{get}");
        assert!(get.ends_with("\r\n\r\nup 1\n"), "{get}");
        let head = respond("HEAD /metrics HTTP/1.0\r\n\r\n", answer);
        assert!(head.ends_with("close\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.0", "200"),
            ("GET /secret HTTP/1.0", "404"),
            ("POST /metrics HTTP/1.0", "405"),
            ("nonsense", "400"),
            ("", "400"),
        ] {
            let text = respond(request, answer);
            assert!(text.starts_with(&format!("HTTP/1.0 {status} ")), "{text}");
        }
        let failure = respond("GET /metrics HTTP/1.0", || Answer::failure("broken"));
        assert!(failure.starts_with("HTTP/1.0 500 "), "{failure}");
    }

    #[test]
    fn a_client_is_answered_over_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            // The request is sent in two pieces, like the request of a slow client.
            stream.write_all(b"GET /metrics HTTP/1.0\r\n").unwrap();
            stream.write_all(b"\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        serve(listener.accept().unwrap().0, answer).unwrap();
        assert!(client.join().unwrap().ends_with("up 1\n"));
    }

    #[test]
    fn an_endless_request_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            // The server closes the connection during this loop, which ends the loop.
            while stream.write_all(&[b'a'; 1024]).is_ok() {}
        });
        let served = serve(listener.accept().unwrap().0, answer);
        assert_eq!(served.unwrap_err().kind(), ErrorKind::InvalidData);
        client.join().unwrap();
    }
}

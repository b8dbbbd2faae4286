// SPDX-License-Identifier: MIT OR Apache-2.0

//! Implements the part of HTTP/1.0 that a scraper of metrics needs. Each connection carries one
//! request.

/// Maximum length of a request's head in bytes.
const LONGEST: usize = 8 << 10;

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
            "HTTP/1.0 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
            self.status,
            self.kind,
            self.body.len(),
            if self.status.starts_with("405") {
                "Allow: GET, HEAD\r\n"
            } else {
                ""
            },
            if with_body { &self.body } else { "" }
        )
    }
}

/// Returns the response to a request with the head `head`.
pub fn respond(head: &str, metrics: impl FnOnce() -> Answer) -> String {
    if head.len() > LONGEST {
        let status = "431 Request Header Fields Too Large";
        return Answer::plain(status, "The request is too long.").print(true);
    }
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

/// The head of a request, as far as it has arrived.
#[derive(Debug, Default)]
pub struct Head(Vec<u8>);

impl Head {
    /// Returns whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `piece`; an empty piece means that the client has closed. Returns the head once it is
    /// complete, or longer than the server accepts.
    pub fn add(&mut self, piece: &[u8]) -> Option<String> {
        self.0.extend_from_slice(piece);
        let ended = self.0.windows(4).any(|bytes| bytes == b"\r\n\r\n")
            || self.0.windows(2).any(|bytes| bytes == b"\n\n");
        let complete = piece.is_empty() || ended || self.0.len() > LONGEST;
        complete.then(|| String::from_utf8_lossy(&self.0).into_owned())
    }
}

#[cfg(test)]
mod tests {
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
        let post = respond("POST / HTTP/1.0", answer);
        assert!(post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
        let failure = respond("GET /metrics HTTP/1.0", || Answer::failure("broken"));
        assert!(failure.starts_with("HTTP/1.0 500 "), "{failure}");
    }

    #[test]
    fn heads_end_at_an_empty_line_or_when_they_are_too_long() {
        for (pieces, complete) in [
            (vec!["GET / HTTP/1.0\r\n", "Host: a\r\n\r", "\n"], true),
            (vec!["GET / HTTP/1.0\n\n"], true),
            (vec!["GET / HTTP/1.0\r\n", ""], true),
            (vec!["GET / HTTP/1.0\r\n"], false),
            (vec!["GET"], false),
        ] {
            let mut head = Head::default();
            let last = pieces.iter().map(|piece| head.add(piece.as_bytes())).last();
            let whole = complete.then(|| pieces.concat());
            assert_eq!(last.unwrap(), whole, "{pieces:?}");
        }
        let mut head = Head::default();
        let long = (0..100).find_map(|_| head.add(&[b'a'; 1000])).unwrap();
        assert!(long.len() <= LONGEST + 1000);
        assert!(respond(&long, answer).starts_with("HTTP/1.0 431 "));
    }
}

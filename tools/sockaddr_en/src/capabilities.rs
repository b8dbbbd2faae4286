// SPDX-License-Identifier: MIT OR Apache-2.0

//! The version, capabilities and limits that another host reports.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::time::{Duration, Instant};

use crate::constants::{EDP_ANSWER, EDP_QUERY};
use crate::{Address, EdpSocket, ToAddress};

/// Time after which the query is repeated, because the query or its answer may be lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum length of an answer in bytes.
const ANSWER_MAX: usize = 40;

/// Version, capabilities and limits of a host. The host's kernel reports them in answer to a query
/// to port 0 of EDP.
///
/// A field is `None` if the host did not report it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use sockaddr_en::Capabilities;
///
/// let peer = Capabilities::of("02:00:00:00:00:02%eth0:0", Duration::from_secs(1))?;
/// if let Some(largest) = peer.largest_datagram {
///     println!("datagrams of up to {largest} bytes reach the host");
/// }
/// println!("peer: {peer}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Version of the host's protocols.
    pub version: Option<u8>,
    /// Whether the host has ESP.
    pub esp: Option<bool>,
    /// Whether the host accepts datagrams and packets with a checksum.
    pub checksums: Option<bool>,
    /// Whether the host accepts mapped connections. ESP carries these connections to the host's TCP
    /// programs.
    pub mapped: Option<bool>,
    /// The largest datagram that the host accepts, in bytes. With a checksum, a datagram must be 4
    /// bytes smaller.
    pub largest_datagram: Option<u16>,
    /// The largest payload of an ESP packet that the host accepts, in bytes.
    pub largest_payload: Option<u16>,
    /// The host's `burst_length` of ESP.
    pub burst_length: Option<u16>,
    /// The host's `initial_ack_burst_length` of ESP.
    pub initial_ack_burst_length: Option<u16>,
    /// The host's `packets_to_ack` of ESP.
    pub packets_to_ack: Option<u16>,
}

impl Capabilities {
    /// Queries `host`, whose port is ignored, and waits at most `timeout` for the answer.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no answer comes because the host does not exist, or because its module is too
    /// old to answer queries. Otherwise the errors of [`EdpSocket::bind`] and [`EdpSocket::send`].
    pub fn of(host: impl ToAddress, timeout: Duration) -> io::Result<Self> {
        let host = Address {
            port: 0,
            ..host.to_address()?
        };
        let socket = EdpSocket::bind(Address::any(0))?;
        socket.connect(host)?;
        let nonce = RandomState::new().hash_one(Instant::now()) as u32;
        let end = Instant::now() + timeout;
        while Instant::now() < end {
            socket.send(&Self::query(nonce))?;
            let pause = end.min(Instant::now() + PATIENCE);
            if let Some(told) = await_answer(&socket, nonce, pause)? {
                return Ok(told);
            }
        }
        let message = format!("{host} does not answer a query");
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    }

    /// Returns the query datagram, for programs that send it to port 0 of a host from their own
    /// socket, and wait for the answer on that socket. The answer carries the same `nonce`.
    pub fn query(nonce: u32) -> [u8; 5] {
        let [a, b, c, d] = nonce.to_be_bytes();
        [EDP_QUERY, a, b, c, d]
    }

    /// Parses a datagram from port 0 of a host; `None` unless it answers the query that carried
    /// `nonce`.
    pub fn from_answer(datagram: &[u8], nonce: u32) -> Option<Self> {
        let (kind, rest) = datagram.split_first()?;
        let (answered, options) = rest.split_first_chunk()?;
        (*kind == EDP_ANSWER && u32::from_be_bytes(*answered) == nonce)
            .then(|| Self::parse(options))
    }

    fn parse(mut options: &[u8]) -> Self {
        let mut told = Self::default();
        while let [kind, length, rest @ ..] = options {
            let Some((value, behind)) = rest.split_at_checked((*length).into()) else {
                break;
            };
            match (*kind, value) {
                (1, &[version]) => told.version = Some(version),
                (2, &[_, bits]) => {
                    told.esp = Some(bits & 1 != 0);
                    told.checksums = Some(bits & 2 != 0);
                    told.mapped = Some(bits & 4 != 0);
                }
                (3, &[a, b]) => told.largest_datagram = Some(u16::from_be_bytes([a, b])),
                (4, &[a, b]) => told.largest_payload = Some(u16::from_be_bytes([a, b])),
                (5, &[a, b, c, d]) => {
                    told.burst_length = Some(u16::from_be_bytes([a, b]));
                    told.initial_ack_burst_length = Some(u16::from_be_bytes([c, d]));
                }
                (6, &[a, b]) => told.packets_to_ack = Some(u16::from_be_bytes([a, b])),
                (1..=6, _) => break,
                _ => {}
            }
            options = behind;
        }
        told
    }
}

/// Waits until `end` for the answer to the query with `nonce`. Drops all other datagrams.
fn await_answer(socket: &EdpSocket, nonce: u32, end: Instant) -> io::Result<Option<Capabilities>> {
    let mut datagram = [0; ANSWER_MAX];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // The kernel takes a timeout of 0 as no timeout, and counts in microseconds. So the timeout
        // is one millisecond at least.
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.recv(&mut datagram) {
            Ok(length) => {
                let told = Capabilities::from_answer(&datagram[..length], nonce);
                if told.is_some() {
                    return Ok(told);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Prints the reported fields, separated by commas: `version 1, datagrams up to 1494 bytes, ...`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(version) = self.version {
            parts.push(format!("version {version}"));
        }
        if let Some(largest) = self.largest_datagram {
            parts.push(format!("datagrams up to {largest} bytes"));
        }
        if let Some(largest) = self.largest_payload {
            parts.push(format!("ESP payload {largest}"));
        }
        if let (Some(burst), Some(initial)) = (self.burst_length, self.initial_ack_burst_length) {
            parts.push(format!("window {burst}/{initial}"));
        }
        if let Some(packets) = self.packets_to_ack {
            parts.push(format!("acknowledges every {packets}"));
        }
        if self.checksums == Some(true) {
            parts.push("checksums".to_owned());
        }
        if self.esp == Some(false) {
            parts.push("no ESP".to_owned());
        }
        match self.mapped {
            Some(true) => parts.push("takes mapped connections".to_owned()),
            Some(false) => parts.push("takes no mapped connections".to_owned()),
            None => {}
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = &[
        4, 0xaa, 0xbb, 0xcc, 0xdd, 1, 1, 1, 2, 2, 0, 3, 3, 2, 0x23, 0x22, 4, 2, 0x23, 0x1d, 5, 4,
        0, 21, 0, 1, 6, 2, 0, 10,
    ];
    const NONCE: u32 = 0xaabb_ccdd;

    #[test]
    fn an_answer_is_read_and_printed() {
        let told = Capabilities::from_answer(ANSWER, NONCE).unwrap();
        assert_eq!(told.version, Some(1));
        assert_eq!((told.esp, told.checksums), (Some(true), Some(true)));
        assert_eq!(
            told.to_string(),
            "version 1, datagrams up to 8994 bytes, ESP payload 8989, window 21/1, acknowledges every 10, checksums, \
             takes no mapped connections"
        );
        let mut answer = ANSWER.to_vec();
        answer[11] |= 4;
        let told = Capabilities::from_answer(&answer, NONCE).unwrap();
        assert_eq!(told.mapped, Some(true));
        let printed = told.to_string();
        assert!(printed.ends_with(", takes mapped connections"), "{printed}");
    }

    #[test]
    fn only_the_answer_to_the_query_is_read() {
        assert_eq!(Capabilities::from_answer(ANSWER, NONCE + 1), None);
        assert_eq!(Capabilities::from_answer(&ANSWER[..4], NONCE), None);
        assert_eq!(Capabilities::from_answer(&[], NONCE), None);
        let mut query = Capabilities::query(NONCE);
        assert_eq!(query, [3, 0xaa, 0xbb, 0xcc, 0xdd]);
        assert_eq!(Capabilities::from_answer(&query, NONCE), None);
        query[0] = 4;
        let nothing = Capabilities::from_answer(&query, NONCE);
        assert_eq!(nothing, Some(Capabilities::default()));
        assert_eq!(nothing.unwrap().to_string(), "");
    }

    #[test]
    fn a_cut_off_option_ends_the_list() {
        for length in 5..ANSWER.len() {
            let told = Capabilities::from_answer(&ANSWER[..length], NONCE).unwrap();
            assert_eq!(told.packets_to_ack, None);
            assert_eq!(told.version.is_some(), length >= 8);
        }
    }
}

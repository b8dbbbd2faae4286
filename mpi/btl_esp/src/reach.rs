// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests which interfaces of a peer each local interface reaches. The tests are EDP echoes, which
//! the peer's kernel answers.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use sockaddr_en::constants::{EDP_ECHO_REPLY, EDP_ECHO_REQUEST};
use sockaddr_en::{Address, EdpSocket, MacAddr};

use crate::card::Card;
use crate::transport::Interface;

/// The number and the timeouts of the echo requests to a peer's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echoes {
    /// Number of attempts.
    pub attempts: u32,
    /// Timeout of the first attempt; each further attempt doubles the timeout.
    pub timeout: Duration,
}

/// The results of the tests so far: for each pair of a local interface and an Ethernet address of a
/// peer, whether the interface reaches the address. All ranks of a host share the host's Ethernet
/// addresses, so each address is tested only once.
#[derive(Debug)]
pub struct Reach {
    echoes: Echoes,
    known: HashMap<(usize, MacAddr), bool>,
}

impl Reach {
    /// Returns an empty table, in which no peer has been tested yet.
    pub fn new(echoes: Echoes) -> Self {
        Self {
            echoes,
            known: HashMap::new(),
        }
    }

    /// Returns, for each of `interfaces` and each of `cards`, whether the interface reaches the
    /// peer's interface that the card describes.
    pub fn matrix(&mut self, interfaces: &[Interface], cards: &[Card]) -> Vec<Vec<bool>> {
        let macs: HashSet<_> = cards.iter().map(|card| card.mac).collect();
        self.ask(interfaces, &macs);
        let known = |number, interface: &Interface, card: &Card| match interface {
            Interface::Loopback => true,
            Interface::Ethernet { .. } => self.known.get(&(number, card.mac)) == Some(&true),
        };
        let rows = interfaces.iter().enumerate();
        rows.map(|(number, interface)| {
            let row = cards.iter().map(|card| known(number, interface, card));
            row.collect()
        })
        .collect()
    }

    /// Tests all pairs of an interface and an address that have no result yet. The tests run in
    /// parallel.
    fn ask(&mut self, interfaces: &[Interface], macs: &HashSet<MacAddr>) {
        let mut asked = Vec::new();
        for (number, interface) in interfaces.iter().enumerate() {
            let Interface::Ethernet { index, .. } = interface else {
                continue;
            };
            let open: HashSet<_> = macs
                .iter()
                .copied()
                .filter(|mac| !self.known.contains_key(&(number, *mac)))
                .collect();
            // If the socket cannot be opened, the interface is not tested, and reaches no peer.
            if let (false, Ok(socket)) = (open.is_empty(), socket(*index)) {
                asked.push((number, *index, socket, open));
            }
        }
        let mut wait = self.echoes.timeout;
        for _ in 0..self.echoes.attempts {
            for (_, index, socket, open) in &asked {
                for mac in open {
                    // An error is ignored, because a request that cannot be sent counts as lost.
                    let _ = socket.send_to(&request(*mac), Address::new(*mac, *index, 0));
                }
            }
            let end = Instant::now() + wait;
            while asked.iter().any(|(.., open)| !open.is_empty()) && Instant::now() < end {
                for (number, _, socket, open) in &mut asked {
                    let mut answer = [0; 16];
                    while let Ok((length, from)) = socket.recv_from(&mut answer) {
                        let is_reply = answer[..length].first() == Some(&EDP_ECHO_REPLY);
                        if is_reply && open.remove(&from.mac) {
                            self.known.insert((*number, from.mac), true);
                        }
                    }
                }
                std::thread::yield_now();
            }
            wait *= 2;
        }
        for (number, _, _, open) in asked {
            self.known
                .extend(open.into_iter().map(|mac| ((number, mac), false)));
        }
    }
}

fn socket(index: u32) -> io::Result<EdpSocket> {
    let socket = EdpSocket::bind(Address::new(MacAddr::UNSPECIFIED, index, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns an echo request that carries the last four bytes of `mac`. The answer repeats these
/// bytes.
fn request(mac: MacAddr) -> [u8; 5] {
    let [_, _, a, b, c, d] = mac.0;
    [EDP_ECHO_REQUEST, a, b, c, d]
}

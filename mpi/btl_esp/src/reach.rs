// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which of a peer's interfaces answer to which of ours: EDP echoes, which the peer's kernel
//! answers.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use sockaddr_en::constants::{EDP_ECHO_REPLY, EDP_ECHO_REQUEST};
use sockaddr_en::{Address, EdpSocket, MacAddr};

use crate::card::Card;
use crate::transport::Interface;

/// How long the first try waits; each further one waits twice as long.
const FIRST: Duration = Duration::from_millis(5);

/// Tries.
const TRIES: u32 = 3;

/// What is known of the network so far. Ranks of one host share its addresses, and are asked once.
#[derive(Debug, Default)]
pub struct Reach {
    known: HashMap<(usize, MacAddr), bool>,
}

impl Reach {
    /// For each of `interfaces`, whether each of `cards` is reached by it.
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

    /// Asks all that is not known, in parallel.
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
            // an interface that cannot send reaches nobody
            if let (false, Ok(socket)) = (open.is_empty(), socket(*index)) {
                asked.push((number, *index, socket, open));
            }
        }
        let mut wait = FIRST;
        for _ in 0..TRIES {
            for (_, index, socket, open) in &asked {
                for mac in open {
                    // one that is refused is as one that is lost
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

/// A request with four bytes that come back.
fn request(mac: MacAddr) -> [u8; 5] {
    let [_, _, a, b, c, d] = mac.0;
    [EDP_ECHO_REQUEST, a, b, c, d]
}

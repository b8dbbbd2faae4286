// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cards: descriptions of interfaces. Processes exchange their cards at start-up, through Open
//! MPI's modex.

use sockaddr_en::MacAddr;

use crate::wire::VERSION;

/// The description of an interface. Peers need it in order to connect to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// The interface's Ethernet address; unspecified in the test mode, which uses TCP on loopback.
    pub mac: MacAddr,
    /// The port on which the process listens.
    pub port: u16,
    /// The port on which the process listens for channels; 0 if it does not.
    pub channels: u16,
    /// The largest payload of the interface's frames, bytes.
    pub mtu: u32,
    /// The interface's rate in Mbit/s.
    pub rate: u32,
}

/// Number of bytes of an encoded card.
const CARD: usize = 18;

/// Encodes the cards, and the token that peers need to connect, for Open MPI's modex, which carries
/// them to the peers.
pub fn encode(token: u64, cards: &[Card]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(token.to_le_bytes());
    for card in cards {
        bytes.extend(card.mac.0);
        bytes.extend(card.port.to_le_bytes());
        bytes.extend(card.channels.to_le_bytes());
        bytes.extend(card.mtu.to_le_bytes());
        bytes.extend(card.rate.to_le_bytes());
    }
    bytes
}

/// Decodes the token and the cards. Returns `None` for a different version, because the process
/// that wrote them uses a different protocol.
pub fn decode(bytes: &[u8]) -> Option<(u64, Vec<Card>)> {
    let (token, cards) = bytes.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let cards = cards.chunks_exact(CARD).filter_map(read).collect();
    Some((u64::from_le_bytes(*token), cards))
}

fn read(bytes: &[u8]) -> Option<Card> {
    let (mac, rest) = bytes.split_first_chunk::<6>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (channels, rest) = rest.split_first_chunk::<2>()?;
    let (mtu, rest) = rest.split_first_chunk::<4>()?;
    let (rate, _) = rest.split_first_chunk::<4>()?;
    Some(Card {
        mac: MacAddr(*mac),
        port: u16::from_le_bytes(*port),
        channels: u16::from_le_bytes(*channels),
        mtu: u32::from_le_bytes(*mtu),
        rate: u32::from_le_bytes(*rate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_as_they_were_written() {
        let card = |port| Card {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            port,
            channels: port ^ 7,
            mtu: 9000,
            rate: 25_000,
        };
        let cards = [card(1), card(65_535)];
        let mut bytes = encode(7, &cards);
        assert_eq!(decode(&bytes), Some((7, cards.to_vec())));
        bytes[0] += 1;
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[]), None);
    }
}

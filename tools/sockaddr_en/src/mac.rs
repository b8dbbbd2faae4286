// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use crate::constants::ETH_ALEN;

/// An Ethernet address. Its bytes are in the order in which they are transmitted.
///
/// ```
/// use sockaddr_en::MacAddr;
///
/// let mac: MacAddr = "02:00:00:00:00:01".parse()?;
/// assert_eq!(mac, MacAddr([2, 0, 0, 0, 0, 1]));
/// assert_eq!(mac.to_string(), "02:00:00:00:00:01");
/// # Ok::<(), sockaddr_en::ParseMacError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; ETH_ALEN]);

impl MacAddr {
    /// All zero: no address, as in `bind`.
    pub const UNSPECIFIED: Self = Self([0; ETH_ALEN]);
    /// All ones: addresses every host of the segment.
    pub const BROADCAST: Self = Self([0xff; ETH_ALEN]);

    /// Returns whether this is the all-zero address.
    pub const fn is_unspecified(&self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        a | b | c | d | e | f == 0
    }

    /// Returns whether this is a group address, which has the group bit set (IEEE 802 clause 8.2).
    /// The broadcast address is a group address, too.
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<[u8; ETH_ALEN]> for MacAddr {
    fn from(octets: [u8; ETH_ALEN]) -> Self {
        Self(octets)
    }
}

/// The error for a text that is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseMacError(pub(crate) String);

impl ParseMacError {
    /// Returns the address if the text is one in the notation of another system, with dashes or
    /// dots: `02-00-00-00-00-01`, `0200.0000.0001`.
    pub fn meant(&self) -> Option<MacAddr> {
        let groups = |separator, count, digits| {
            let parts: Vec<_> = self.0.split(separator).collect();
            let fits = parts.len() == count && parts.iter().all(|part| part.len() == digits);
            fits.then(|| parts.concat())
        };
        let digits = groups('-', 6, 2).or_else(|| groups('.', 3, 4))?;
        // The digits are checked because `from_str_radix` would accept `+1`.
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let number = u64::from_str_radix(&digits, 16).ok()?;
        let [_, _, octets @ ..] = number.to_be_bytes();
        Some(MacAddr(octets))
    }
}

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        match self.meant() {
            Some(mac) => write!(f, "`{text}` has colons here: write {mac}"),
            None => write!(
                f,
                "`{text}` is not an Ethernet address: write six hexadecimal pairs, as in 02:00:00:00:00:01"
            ),
        }
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseMacError(text.to_owned());
        let mut octets = [0; ETH_ALEN];
        let mut pairs = text.split(':');
        for octet in &mut octets {
            let pair = pairs.next().ok_or_else(wrong)?;
            // The digits are checked because `from_str_radix` would accept `+1`.
            if pair.len() != 2 || !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        match pairs.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_and_parse_are_inverse() {
        for octets in [[0; 6], [0xff; 6], [2, 0xab, 0, 0x0c, 0xd0, 9]] {
            let mac = MacAddr(octets);
            assert_eq!(mac.to_string().parse(), Ok(mac));
        }
        assert_eq!(
            "0A:bC:00:00:00:01".parse(),
            Ok(MacAddr([0x0a, 0xbc, 0, 0, 0, 1]))
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:1",
            "02:00:00:00:00:+1",
            "02:00:00:00:00:0g",
            "02-00-00-00-00-01",
            " 02:00:00:00:00:01",
            "02:00:00:00:00:é",
        ] {
            assert_eq!(
                text.parse::<MacAddr>(),
                Err(ParseMacError(text.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn other_notations_are_refused_with_what_to_write() {
        for text in ["02-00-00-00-00-0A", "0200.0000.000a"] {
            let error = text.parse::<MacAddr>().unwrap_err();
            assert_eq!(error.meant(), Some(MacAddr([2, 0, 0, 0, 0, 10])));
            assert!(error.to_string().ends_with("write 02:00:00:00:00:0a"));
        }
        for text in [
            "02-00-00-00-00",
            "02-00-00-00-00-+1",
            "0200.0000",
            "0200.0000.00.1",
            "é200.0000.0001",
        ] {
            assert_eq!(text.parse::<MacAddr>().unwrap_err().meant(), None, "{text}");
        }
    }

    #[test]
    fn group_and_unspecified() {
        assert!(MacAddr::BROADCAST.is_multicast());
        assert!(MacAddr([1, 0, 0x5e, 0, 0, 1]).is_multicast());
        assert!(!MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
        assert!(MacAddr::UNSPECIFIED.is_unspecified());
        assert!(!MacAddr([0, 0, 0, 0, 0, 1]).is_unspecified());
    }
}

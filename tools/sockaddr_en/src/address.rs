// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket addresses: an Ethernet address, an interface, a port.
//!
//! | text | meaning |
//! |---|---|
//! | `02:00:00:00:00:01%eth0:2805` | port 2805 of that host, reached through interface eth0 |
//! | `02:00:00:00:00:01%2:2805` | the same, with the interface's number |
//! | `*%eth0:2805` | for `bind`: port 2805 on eth0 |
//! | `*:2805` | for `bind`: port 2805 on every interface |

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::constants::{ENET_INTERFACE_ANY, ETH_ALEN};
use crate::family;
use crate::interface::{interface_index, interface_name, ALTERNATIVE_SIZE};
use crate::mac::{MacAddr, ParseMacError};
use crate::raw::SockaddrEn;
use socket2::{SockAddr, SockAddrStorage};

/// A socket address as the kernel represents it, with the interface's number.
///
/// ```
/// use sockaddr_en::{Address, MacAddr};
///
/// let lo = sockaddr_en::interface_index("lo")?;
/// let address: Address = "02:00:00:00:00:01%lo:2805".parse()?;
/// assert_eq!(address, Address::new(MacAddr([2, 0, 0, 0, 0, 1]), lo, 2805));
/// assert_eq!(address.to_string(), "02:00:00:00:00:01%lo:2805");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Ethernet address; [`MacAddr::UNSPECIFIED`] in an address for `bind`.
    pub mac: MacAddr,
    /// Number of the interface to receive on or to send through.
    pub interface: u32,
    /// Port, host byte order; 0 in `bind` asks for a free port.
    pub port: u16,
}

impl Address {
    /// Returns the address of port `port` of the host with Ethernet address `mac`, reached through
    /// `interface`.
    pub const fn new(mac: MacAddr, interface: u32, port: u16) -> Self {
        Self {
            mac,
            interface,
            port,
        }
    }

    /// Returns the address for `bind` that receives on every interface.
    pub const fn any(port: u16) -> Self {
        Self::new(MacAddr::UNSPECIFIED, ENET_INTERFACE_ANY, port)
    }

    /// Returns whether the Ethernet address is unspecified. Such an address can be bound but not
    /// sent to.
    pub const fn is_wildcard(&self) -> bool {
        self.mac.is_unspecified()
    }

    /// Returns the C structure that system calls take.
    pub fn to_raw(&self) -> SockaddrEn {
        SockaddrEn {
            sen_family: family(),
            sen_port: self.port.to_be(),
            sen_ifindex: self.interface,
            sen_addrlen: ETH_ALEN as u8,
            sen_addr: self.mac.0,
            sen_zero: 0,
        }
    }

    /// Reads the C structure that system calls fill in. An address length of 0 counts as 6.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the structure has a family other than [`family()`], or an address length
    /// other than 0 and 6.
    pub fn from_raw(raw: &SockaddrEn) -> io::Result<Self> {
        if raw.sen_family != family() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a socket address of family {}, not {}",
                    raw.sen_family,
                    family()
                ),
            ));
        }
        if raw.sen_addrlen != 0 && usize::from(raw.sen_addrlen) != ETH_ALEN {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a socket address with an Ethernet address of {} bytes",
                    raw.sen_addrlen
                ),
            ));
        }
        Ok(Self::new(
            MacAddr(raw.sen_addr),
            raw.sen_ifindex,
            u16::from_be(raw.sen_port),
        ))
    }
}

/// Converts to the address type of [`socket2`].
impl From<Address> for SockAddr {
    fn from(address: Address) -> Self {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: `SockaddrEn` is plain data, smaller than the storage and no more strictly
        // aligned, and all-zero bytes are a valid value.
        *unsafe { storage.view_as::<SockaddrEn>() } = address.to_raw();
        // SAFETY: the storage holds a complete `SockaddrEn`, and the length is its size.
        unsafe { SockAddr::new(storage, size_of::<SockaddrEn>() as libc::socklen_t) }
    }
}

/// Reads an address of [`socket2`]. Fails with `InvalidData` if the address is shorter than an
/// address of this family, and with the errors of [`Address::from_raw`].
impl TryFrom<&SockAddr> for Address {
    type Error = io::Error;

    fn try_from(address: &SockAddr) -> io::Result<Self> {
        if (address.len() as usize) < size_of::<SockaddrEn>() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a socket address of {} bytes", address.len()),
            ));
        }
        // SAFETY: the pointer is to a whole `SockAddrStorage`, which is aligned for any socket
        // address. Its first `address.len()` bytes, at least the size of `SockaddrEn`, are
        // initialised, and every bit pattern is a valid `SockaddrEn`.
        let raw = unsafe { address.as_ptr().cast::<SockaddrEn>().read() };
        Self::from_raw(&raw)
    }
}

/// Prints the interface by name, or by number if no interface has this number now.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = match self.interface {
            ENET_INTERFACE_ANY => Interface::Any,
            index => interface_name(index).map_or(Interface::Index(index), Interface::Name),
        };
        let mac = (!self.is_wildcard()).then_some(self.mac);
        NamedAddress {
            mac,
            interface,
            port: self.port,
        }
        .fmt(f)
    }
}

/// Parses the text with [`NamedAddress::from_str`] and looks up the interface with
/// [`NamedAddress::resolve`].
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<NamedAddress>()?.resolve()
    }
}

/// An interface as text names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// Every interface.
    Any,
    /// An interface that is given by its number, which is not 0.
    Index(u32),
    /// An interface that is given by its name.
    Name(String),
}

impl Interface {
    /// Returns the interface's number; 0 for [`Interface::Any`].
    ///
    /// # Errors
    ///
    /// [`AddressError::NoInterface`] if no interface has the name. A number is not checked.
    pub fn resolve(&self) -> Result<u32, AddressError> {
        match self {
            Self::Any => Ok(ENET_INTERFACE_ANY),
            Self::Index(index) => Ok(*index),
            Self::Name(name) => {
                interface_index(name).map_err(|_| AddressError::NoInterface(name.clone()))
            }
        }
    }
}

/// A socket address as text. Parsing does not look up the interface, so the text can name
/// interfaces of other hosts.
///
/// ```
/// use sockaddr_en::{Interface, MacAddr, NamedAddress};
///
/// let peer: NamedAddress = "02:00:00:00:00:01%eth0:2805".parse()?;
/// assert_eq!(peer.mac, Some(MacAddr([2, 0, 0, 0, 0, 1])));
/// assert_eq!(peer.interface, Interface::Name("eth0".into()));
/// assert_eq!(peer.port, 2805);
///
/// let local: NamedAddress = "*:2805".parse()?;
/// assert_eq!((local.mac, local.interface), (None, Interface::Any));
///
/// let error = "02:00:00:00:00:01:2805".parse::<NamedAddress>().unwrap_err();
/// assert!(error.to_string().contains("02:00:00:00:00:01%eth0:2805"));
/// # Ok::<(), sockaddr_en::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedAddress {
    /// Ethernet address; `None` where the text has `*`.
    pub mac: Option<MacAddr>,
    /// Interface.
    pub interface: Interface,
    /// Port, host byte order.
    pub port: u16,
}

impl NamedAddress {
    /// Looks up the interface's number.
    ///
    /// # Errors
    ///
    /// [`AddressError::NoInterface`] if this network namespace has no interface of that name.
    pub fn resolve(&self) -> Result<Address, AddressError> {
        let mac = self.mac.unwrap_or(MacAddr::UNSPECIFIED);
        Ok(Address::new(mac, self.interface.resolve()?, self.port))
    }
}

impl fmt::Display for NamedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mac {
            Some(mac) => mac.fmt(f)?,
            None => f.write_str("*")?,
        }
        match (&self.interface, self.mac) {
            (Interface::Any, None) => {}
            // A text with an Ethernet address can be parsed again only if it has an interface, so
            // the number 0 is written.
            (Interface::Any, Some(_)) => write!(f, "%{ENET_INTERFACE_ANY}")?,
            (Interface::Index(index), _) => write!(f, "%{index}")?,
            (Interface::Name(name), _) => write!(f, "%{name}")?,
        }
        write!(f, ":{}", self.port)
    }
}

/// The reason why a text is no socket address of this family, or cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text before `%` is not an Ethernet address.
    #[error(transparent)]
    Mac(#[from] ParseMacError),
    /// The text has an Ethernet address but no interface.
    #[error("`{text}` names no interface: write which one to leave by, as in {mac}%eth0:{port}")]
    NoInterfaceGiven {
        /// The text that was parsed.
        text: String,
        /// The Ethernet address in the text.
        mac: MacAddr,
        /// The port in the text.
        port: u16,
    },
    /// The text between `%` and `:` is no valid interface name or number.
    #[error("`{interface}` in `{text}` cannot be an interface: write its name or number, as in {EXAMPLE}")]
    BadInterface {
        /// The text that was parsed.
        text: String,
        /// The interface in the text.
        interface: String,
    },
    /// The text does not end with `:` and a port.
    #[error("`{0}` has no port: end with one, as in {EXAMPLE}")]
    NoPort(String),
    /// The text after the last `:` is not a number from 0 to 65535.
    #[error("`{port}` in `{text}` is not a port: write a number from 0 to 65535")]
    BadPort {
        /// The text that was parsed.
        text: String,
        /// The port in the text.
        port: String,
    },
    /// This network namespace has no interface of that name.
    #[error("there is no interface `{0}` here: `ip link` lists those there are")]
    NoInterface(String),
}

const EXAMPLE: &str = "02:00:00:00:00:01%eth0:2805";

impl From<AddressError> for io::Error {
    fn from(error: AddressError) -> Self {
        let kind = match error {
            AddressError::NoInterface(_) => io::ErrorKind::NotFound,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

impl FromStr for NamedAddress {
    type Err = AddressError;

    /// Digits alone are an interface's number, so an interface whose name is all digits must be
    /// given by number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((host, rest)) = text.split_once('%') else {
            return without_interface(text);
        };
        let mac = match host {
            "*" => None,
            host => Some(host.parse()?),
        };
        let (interface, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| AddressError::NoPort(text.to_owned()))?;
        Ok(Self {
            mac,
            interface: parse_interface(interface, text)?,
            port: parse_port(port, text)?,
        })
    }
}

fn without_interface(text: &str) -> Result<NamedAddress, AddressError> {
    let no_port = || AddressError::NoPort(text.to_owned());
    if text == "*" || text.parse::<MacAddr>().is_ok() {
        return Err(no_port());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
    if host == "*" {
        let port = parse_port(port, text)?;
        return Ok(NamedAddress {
            mac: None,
            interface: Interface::Any,
            port,
        });
    }
    let mac = host.parse()?;
    let port = parse_port(port, text)?;
    Err(AddressError::NoInterfaceGiven {
        text: text.to_owned(),
        mac,
        port,
    })
}

fn parse_interface(interface: &str, text: &str) -> Result<Interface, AddressError> {
    let bad = || AddressError::BadInterface {
        text: text.to_owned(),
        interface: interface.to_owned(),
    };
    // The kernel's `dev_valid_name()` refuses these names. An alternative name may be longer than
    // an interface's own.
    if interface.is_empty()
        || interface.len() >= ALTERNATIVE_SIZE
        || interface
            .contains(|c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c == '\0')
    {
        return Err(bad());
    }
    if !interface.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Interface::Name(interface.to_owned()));
    }
    match interface.parse() {
        Ok(ENET_INTERFACE_ANY) => Ok(Interface::Any),
        Ok(index) => Ok(Interface::Index(index)),
        Err(_) => Err(bad()),
    }
}

fn parse_port(port: &str, text: &str) -> Result<u16, AddressError> {
    let bad = || AddressError::BadPort {
        text: text.to_owned(),
        port: port.to_owned(),
    };
    // The digits are checked because `u16::from_str` would accept `+1`.
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    port.parse().map_err(|_| bad())
}

/// A value that converts to one [`Address`]. The standard library's `ToSocketAddrs` converts to
/// several addresses instead.
pub trait ToAddress {
    /// Returns the address.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for text that is no address, `NotFound` for an interface that does not exist.
    fn to_address(&self) -> io::Result<Address>;
}

impl ToAddress for Address {
    fn to_address(&self) -> io::Result<Address> {
        Ok(*self)
    }
}

impl ToAddress for NamedAddress {
    fn to_address(&self) -> io::Result<Address> {
        Ok(self.resolve()?)
    }
}

impl ToAddress for str {
    fn to_address(&self) -> io::Result<Address> {
        Ok(self.parse::<Address>()?)
    }
}

impl ToAddress for String {
    fn to_address(&self) -> io::Result<Address> {
        self.as_str().to_address()
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> io::Result<Address> {
        (**self).to_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn parse(text: &str) -> Result<NamedAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn every_form_parses_and_prints_again() {
        let name = |name: &str| Interface::Name(name.to_owned());
        for (text, mac, interface, port) in [
            ("02:00:00:00:00:01%eth0:2805", Some(MAC), name("eth0"), 2805),
            ("02:00:00:00:00:01%2:1", Some(MAC), Interface::Index(2), 1),
            ("02:00:00:00:00:01%0:1", Some(MAC), Interface::Any, 1),
            (
                "02:00:00:00:00:01%eth0.7:65535",
                Some(MAC),
                name("eth0.7"),
                65535,
            ),
            ("*:2805", None, Interface::Any, 2805),
            ("*%eth0:0", None, name("eth0"), 0),
            ("*%4294967295:9", None, Interface::Index(u32::MAX), 9),
        ] {
            assert_eq!(
                parse(text),
                Ok(NamedAddress {
                    mac,
                    interface,
                    port
                }),
                "{text}"
            );
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("*%0:5").unwrap().to_string(), "*:5");
    }

    #[test]
    fn every_mistake_has_its_error() {
        let owned = str::to_owned;
        let long = "a".repeat(ALTERNATIVE_SIZE);
        let too_long = format!("*%{long}:1");
        assert!(format!("*%{}:1", &long[1..])
            .parse::<NamedAddress>()
            .is_ok());
        for text in [
            "",
            "*",
            "eth0",
            "02:00:00:00:00:01",
            "02:00:00:00:00:01%eth0",
            "*%eth0",
        ] {
            assert_eq!(
                parse(text),
                Err(AddressError::NoPort(owned(text))),
                "{text}"
            );
        }
        for (text, interface) in [
            ("02:00:00:00:00:01%:1", ""),
            ("02:00:00:00:00:01%a/b:1", "a/b"),
            ("02:00:00:00:00:01%a:b:1", "a:b"),
            ("02:00:00:00:00:01%e h:1", "e h"),
            (too_long.as_str(), long.as_str()),
            ("*%4294967296:1", "4294967296"),
        ] {
            let (text, interface) = (owned(text), owned(interface));
            assert_eq!(
                parse(&text.clone()),
                Err(AddressError::BadInterface { text, interface })
            );
        }
        for (text, port) in [
            ("*:", ""),
            ("*:65536", "65536"),
            ("*%eth0:+1", "+1"),
            ("*:-1", "-1"),
        ] {
            let (text, port) = (owned(text), owned(port));
            assert_eq!(
                parse(&text.clone()),
                Err(AddressError::BadPort { text, port })
            );
        }
        for text in ["02:00:00:00:01%eth0:1", "%eth0:1", "10.0.0.1:80"] {
            assert!(matches!(parse(text), Err(AddressError::Mac(_))), "{text}");
        }
    }

    #[test]
    fn a_missing_interface_is_answered_with_what_to_write() {
        let error = parse("02:00:00:00:00:01:2805").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`02:00:00:00:00:01:2805` names no interface: write which one to leave by, \
             as in 02:00:00:00:00:01%eth0:2805"
        );
    }

    #[test]
    fn interfaces_are_looked_up() {
        let lo = interface_index("lo").unwrap();
        let address: Address = "02:00:00:00:00:01%lo:2805".parse().unwrap();
        assert_eq!(address, Address::new(MAC, lo, 2805));
        assert_eq!("*:7".parse(), Ok(Address::any(7)));
        assert!("*%lo:7".parse::<Address>().unwrap().is_wildcard());
        assert_eq!(
            "*%absent0:7".parse::<Address>(),
            Err(AddressError::NoInterface("absent0".to_owned()))
        );
        assert_eq!(
            "*%absent0:7".to_address().unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            "nonsense".to_address().unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn an_interface_that_is_gone_prints_as_its_number() {
        assert_eq!(
            Address::new(MAC, u32::MAX, 2805).to_string(),
            "02:00:00:00:00:01%4294967295:2805"
        );
        assert_eq!(Address::any(1).to_string(), "*:1");
        assert_eq!(Address::new(MAC, 0, 1).to_string(), "02:00:00:00:00:01%0:1");
    }

    #[test]
    fn the_structure_has_its_port_in_network_order() {
        let raw = Address::new(MAC, 3, 0x1234).to_raw();
        assert_eq!(raw.sen_family, 28);
        assert_eq!(raw.sen_port.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(
            (raw.sen_ifindex, raw.sen_addrlen, raw.sen_addr),
            (3, 6, MAC.0)
        );
        assert_eq!(
            Address::from_raw(&raw).unwrap(),
            Address::new(MAC, 3, 0x1234)
        );
    }

    #[test]
    fn addresses_go_to_socket2_and_back() {
        let address = Address::new(MAC, 3, 2805);
        let there = SockAddr::from(address);
        assert_eq!((there.len(), there.family()), (16, 28));
        assert_eq!(Address::try_from(&there).unwrap(), address);
        let mut short = there;
        // SAFETY: the first 15 bytes of the storage are part of the initialised address.
        unsafe { short.set_length(15) };
        let error = Address::try_from(&short).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let internet = SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(Address::try_from(&internet).is_err());
    }

    #[test]
    fn addresses_have_an_order() {
        let mut addresses = [(2, 1), (1, 2), (1, 1)].map(|(interface, port)| Address {
            port,
            ..Address::new(MAC, interface, 0)
        });
        addresses.sort();
        assert_eq!(
            addresses.map(|address| (address.interface, address.port)),
            [(1, 1), (1, 2), (2, 1)]
        );
    }

    #[test]
    fn foreign_structures_are_refused() {
        let raw = Address::any(1).to_raw();
        let with_length = |sen_addrlen| {
            let mut changed = raw;
            changed.sen_addrlen = sen_addrlen;
            changed
        };
        assert!(Address::from_raw(&with_length(0)).is_ok());
        for wrong in [5, 7, 255] {
            assert!(Address::from_raw(&with_length(wrong)).is_err());
        }
        let mut other = raw;
        other.sen_family = 29;
        assert!(Address::from_raw(&other).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses and typed sockets for PF_ENET: datagrams (EDP), streams and records (ESP) directly on
//! Ethernet, without IP.
//!
//! The sockets are used like the sockets of [`std::net`]. An [`Address`] is an Ethernet address,
//! the interface that leads to it, and a port:
//!
//! ```no_run
//! use std::io::Write;
//!
//! use sockaddr_en::EspStream;
//!
//! let mut stream = EspStream::connect("02:00:00:00:00:01%eth0:2805")?;
//! stream.write_all(b"hello")?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Features:
//!
//! * `lookup`: the function `lookup` finds a host by its name or IP address.
//! * `tokio`: the module `tokio` has the sockets for that runtime.
//! * `mio`: the sockets are event sources of that crate.
//! * `serde`: addresses are serialized as text.
//!
//! The sockets need the kernel module `enet`; without it, opening one fails with [`FamilyMissing`].
//! Parsing and printing addresses works without it. C programs include `include/af_enet.h`, which
//! has the same numbers.

mod address;
mod capabilities;
mod channel;
pub mod constants;
mod edp;
mod esp;
mod esp_records;
mod esp_socket;
mod family;
mod interface;
#[cfg(feature = "lookup")]
mod lookup;
mod mac;
#[cfg(feature = "lookup")]
mod neighbours;
mod raw;
mod receive_ring;
#[cfg(feature = "serde")]
mod serialize;
mod socket;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use address::{Address, AddressError, Interface, NamedAddress, ToAddress};
pub use capabilities::Capabilities;
pub use channel::{Channel, ChannelListener, Domain, Message, Place, Region};
pub use edp::{EdpProtocol, EdpSocket, Received};
pub use esp::{EspListener, EspStream, Incoming};
pub use esp_records::{EspRecordListener, EspRecords};
pub use esp_socket::EspSocket;
pub use family::{family, set_family, FamilyMissing};
pub use interface::{interface_index, interface_mac, interface_mtu, interface_name};
#[cfg(feature = "lookup")]
pub use lookup::{lookup, lookup_ip, poke, LookupError};
pub use mac::{MacAddr, ParseMacError};
#[cfg(feature = "lookup")]
pub use neighbours::{neighbours, Neighbour};
pub use raw::{EdpStats, EspStats, SockaddrEn};
pub use receive_ring::{Datagram, DatagramRing, ReceiveRing};

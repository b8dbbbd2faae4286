// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raw Ethernet frames through a packet socket (`packet(7)`, `SOCK_DGRAM`: the kernel writes the
//! Ethernet header).

use std::io;

use anyhow::{Context as _, Result};
use nix::sys::socket::MsgFlags;
use sockaddr_en::MacAddr;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use super::datagram::{DatagramSocket, Datagrams};
use super::kind::Kind;
use super::options::Takes;
use super::{at_interface, peer_mac, remedied, Context, Prepared};

pub(super) const KIND: Kind = Kind {
    polled: true,
    takes: Takes {
        busy_poll: false,
        ..Takes::DEVICE
    },
    ..Kind::new("raw", "Ethernet frames, AF_PACKET SOCK_DGRAM", prepare)
};

fn prepare(context: &Context) -> Result<Prepared> {
    let interface = context.ethernet()?;
    // The socket is opened with protocol 0, so it receives nothing until bind sets the Ethernet
    // type. Otherwise the socket would queue frames of other interfaces before the bind.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))
        .map_err(explain_permission)?;
    let any = link_address(context.ethertype, interface.index, MacAddr::UNSPECIFIED);
    socket
        .bind(&any)
        .with_context(|| format!("binding a packet socket to {}", interface.name))?;
    let context = context.clone();
    Ok(Prepared::new(at_interface(&interface, 0), move |peer| {
        let mac = peer_mac(peer)?;
        socket
            .attach_filter(&frames_of(mac))
            .context("letting a packet socket take only the peer's frames")?;
        let address = link_address(context.ethertype, interface.index, mac);
        let socket = PacketSocket { socket, address };
        Datagrams::boxed(socket, interface.mtu, &context)
    }))
}

/// A packet socket and its peer's address. The kernel does not connect packet sockets. Instead, a
/// filter accepts only the peer's frames, so the socket can be read like a connected socket.
struct PacketSocket {
    socket: Socket,
    address: SockAddr,
}

impl DatagramSocket for PacketSocket {
    fn send(&self, datagram: &[u8], flags: MsgFlags) -> io::Result<usize> {
        self.socket
            .send_to_with_flags(datagram, &self.address, flags.bits())
    }
}

as_fd!([] PacketSocket, socket);

/// Returns the address of a packet socket with this Ethernet type (host order), interface and
/// Ethernet address.
fn link_address(ethertype: u16, interface: u32, mac: MacAddr) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is plain C data. It is smaller than the storage and needs no stricter
    // alignment, and all-zero bytes are a valid value of it.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = interface as libc::c_int;
    address.sll_halen = mac.0.len() as u8;
    address.sll_addr[..mac.0.len()].copy_from_slice(&mac.0);
    // SAFETY: `storage` holds a complete `sockaddr_ll`, and the length is the size of that type.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// Returns a filter that accepts only the frames of `sender`. Offsets from `SKF_LL_OFF`
/// (`linux/filter.h`) are in the Ethernet header.
fn frames_of(sender: MacAddr) -> [SockFilter; 6] {
    const SOURCE: u32 = libc::SKF_LL_OFF as u32 + 6;
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, if_false, value| SockFilter::new(code as u16, 0, if_false, value);
    let [a, b, c, d, e, f] = sender.0;
    [
        step(LOAD_WORD, 0, SOURCE),
        step(IF_EQUAL, 3, u32::from_be_bytes([a, b, c, d])),
        step(LOAD_HALF, 0, SOURCE + 4),
        step(IF_EQUAL, 1, u32::from(u16::from_be_bytes([e, f]))),
        step(RETURN, 0, u32::MAX),
        step(RETURN, 0, 0),
    ]
}

fn explain_permission(error: io::Error) -> anyhow::Error {
    let refused = error.kind() == io::ErrorKind::PermissionDenied;
    remedied(error, refused, || {
        "packet sockets are for root: run as root or with CAP_NET_RAW".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;
    use crate::messages::tell;

    #[test]
    fn link_addresses_keep_their_parts() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let address = link_address(0x1234, 7, mac);
        // SAFETY: `link_address` has made `address` from a `sockaddr_ll`, so a `sockaddr_ll` can be
        // read there.
        let raw = unsafe { address.as_ptr().cast::<libc::sockaddr_ll>().read() };
        assert_eq!(raw.sll_protocol.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(raw.sll_ifindex, 7);
    }

    /// Sends two frames through the loopback device, the first one from another sender.
    #[test]
    fn frames_of_other_hosts_are_not_read() {
        const TYPE: u16 = 0x4E48;
        let (other, peer) = (MacAddr([2, 0, 0, 0, 0, 8]), MacAddr([2, 0, 0, 0, 0, 9]));
        let open = |kind| Socket::new(Domain::PACKET, kind, Some(Protocol::from(0)));
        let (reader, writer) = match (open(Type::DGRAM), open(Type::RAW)) {
            (Ok(reader), Ok(writer)) => (reader, writer),
            (Err(error), _) | (_, Err(error)) => {
                tell(format_args!(
                    "left out, packet sockets are for root: {error}"
                ));
                return;
            }
        };
        let loopback = link_address(TYPE, 1, MacAddr::UNSPECIFIED);
        reader
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        reader.bind(&loopback).unwrap();
        reader.attach_filter(&frames_of(peer)).unwrap();
        for (sender, text) in [(other, b"other"), (peer, b"peer!")] {
            let parts: [&[u8]; 4] = [&[0; 6], &sender.0, &TYPE.to_be_bytes(), text];
            writer.send_to(&parts.concat(), &loopback).unwrap();
        }
        let mut text = [0; 8];
        let length = (&reader).read(&mut text).unwrap();
        assert_eq!(&text[..length], b"peer!");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! TIPC, the kernel's protocol for processes of a cluster (`AF_TIPC`, streams).
//!
//! The client connects to the identity of the server's socket, so no name has to be published in
//! the cluster first. Within one network namespace only the module is needed. Between hosts, both
//! hosts need a bearer, which is TIPC's word for an interface that TIPC uses.

use std::io;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use nix::sys::socket::setsockopt;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use super::kind::Kind;
use super::options::Takes;
use super::stream::{self, Connected};
use super::streams::{pair, Protocol, Way};
use super::Context;
use crate::wire::{Endpoint, Place, SocketId};

pub(super) const KIND: Kind = Kind {
    // `SO_SNDBUF` does not limit senders. The receiver's window and the link limit them.
    takes: Takes {
        nodelay: Some("TIPC_NODELAY"),
        receive_buffer: true,
        ..Takes::NOTHING
    },
    interface: false,
    records: false,
    streams: Some(&Tipc),
    ..Kind::new("tipc", "AF_TIPC streams", |context| {
        pair::<Tipc>(context, stream::boxed)
    })
};

/// `TIPC_SOCKET_ADDR` of `linux/tipc.h`: the address is a socket's identity.
const SOCKET_ADDRESS: u8 = 3;
/// `TIPC_CONN_TIMEOUT` of `linux/tipc.h`: the time limit of connecting, milliseconds.
const CONNECT_TIMEOUT: libc::c_int = 130;
/// `TIPC_NODELAY` of `linux/tipc.h`.
const NODELAY: libc::c_int = 138;

socket_option!(set ConnectTimeout, libc::SOL_TIPC, CONNECT_TIMEOUT);
socket_option!(set Nodelay, libc::SOL_TIPC, NODELAY);

/// `struct sockaddr_tipc` of `linux/tipc.h`. The union in this structure holds a socket's identity,
/// and the last word of the union is unused.
#[repr(C)]
struct SockaddrTipc {
    family: libc::sa_family_t,
    kind: u8,
    scope: i8,
    id: SocketId,
    unused: u32,
}

impl SocketId {
    fn to_address(self) -> SockAddr {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: `SockaddrTipc` is plain C data. It is smaller than the storage and needs no
        // stricter alignment, and all-zero bytes are a valid value of it.
        let address = unsafe { storage.view_as::<SockaddrTipc>() };
        address.family = libc::AF_TIPC as libc::sa_family_t;
        address.kind = SOCKET_ADDRESS;
        address.id = self;
        // SAFETY: `storage` holds a complete `SockaddrTipc`, and the length is the size of that
        // type.
        unsafe { SockAddr::new(storage, size_of::<SockaddrTipc>() as libc::socklen_t) }
    }

    fn of(address: &SockAddr) -> Result<Self> {
        ensure!(
            i32::from(address.family()) == libc::AF_TIPC,
            "a TIPC socket with an address of family {}",
            address.family()
        );
        // SAFETY: `address.as_ptr()` points to a whole `SockAddrStorage`, which is aligned for any
        // socket address and larger. All its bytes are initialised, and every bit pattern is a
        // valid `SockaddrTipc`.
        let address = unsafe { address.as_ptr().cast::<SockaddrTipc>().read() };
        Ok(address.id)
    }
}

/// The protocol TIPC.
#[derive(Debug)]
struct Tipc;

impl Protocol for Tipc {
    type Listener = Socket;
    type Stream = Socket;

    fn listen(context: &Context) -> Result<(Socket, Endpoint)> {
        let socket = make(context)?;
        // TIPC ignores the backlog, because the listener's receive buffer limits the accept queue.
        socket.listen(1).context("listening by TIPC")?;
        let endpoint = endpoint(&socket)?;
        Ok((socket, endpoint))
    }

    fn caller(context: &Context) -> Result<Endpoint> {
        endpoint(&make(context)?)
    }

    fn check_caller(listener: &Socket, caller: &Endpoint) -> Result<()> {
        reach(listener, caller).map(drop)
    }

    fn accept(listener: &Socket, context: &Context) -> Result<Socket> {
        let (socket, _) = listener.accept()?;
        // TIPC's connections inherit no options.
        context.options.apply(&socket)?;
        set_nodelay(socket, context)
    }

    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<Socket>> {
        let context = context.clone();
        // The check uses a socket of its own. That is enough, because all sockets of a node are
        // reachable in the same way.
        let theirs = reach(&make(&context)?, server)?;
        Ok(Box::new(move || {
            let socket = make(&context)?;
            connect(&socket, theirs, context.give_up)?;
            set_nodelay(socket, &context)
        }))
    }
}

impl Connected for Socket {}

fn make(context: &Context) -> Result<Socket> {
    let socket = Socket::new(Domain::from(libc::AF_TIPC), Type::STREAM, None);
    let socket = socket.map_err(explain_family)?;
    context.options.apply(&socket)?;
    Ok(socket)
}

/// Returns the endpoint of `socket`.
fn endpoint(socket: &Socket) -> Result<Endpoint> {
    Ok(Endpoint {
        place: Some(Place::here()?),
        tipc: Some(SocketId::of(&socket.local_addr()?)?),
        ..Endpoint::default()
    })
}

/// Checks that TIPC has a way from `socket` to `peer`, and returns the peer's identity.
fn reach(socket: &Socket, peer: &Endpoint) -> Result<SocketId> {
    let own = SocketId::of(&socket.local_addr()?)?;
    let theirs = peer.tipc.context("the peer gave no TIPC address")?;
    if peer.place.as_ref() != Some(&Place::here()?) {
        check_bearers(own, theirs)?;
    }
    Ok(theirs)
}

fn set_nodelay(socket: Socket, context: &Context) -> Result<Socket> {
    setsockopt(&socket, Nodelay, &context.options.is_nodelay().into())?;
    Ok(socket)
}

/// A hint for error messages: what to do if a namespace has no bearer.
const BEARER: &str = "`tipc bearer enable media eth device eth0`, with its Ethernet interface, \
                      makes TIPC use a network";

/// Checks that both nodes have a bearer. A node without an address has no bearer.
fn check_bearers(own: SocketId, theirs: SocketId) -> Result<()> {
    let where_to = match (own.node, theirs.node) {
        (0, 0) => "on both hosts",
        (0, _) => "on this host",
        (_, 0) => "on the peer's host",
        _ => return Ok(()),
    };
    bail!("TIPC has no bearer {where_to}: {BEARER}")
}

fn connect(socket: &Socket, to: SocketId, give_up: Duration) -> Result<()> {
    let timeout = libc::c_int::try_from(give_up.as_millis()).unwrap_or(libc::c_int::MAX);
    setsockopt(socket, ConnectTimeout, &timeout).context("TIPC_CONN_TIMEOUT")?;
    socket.connect(&to.to_address()).with_context(|| {
        format!(
            "connecting to TIPC socket {:x}:{}: `tipc link list` has to show a link that is up on \
             both hosts; {BEARER}",
            to.node, to.port
        )
    })
}

/// If the kernel does not know AF_TIPC, adds advice for the user to the error.
fn explain_family(error: io::Error) -> anyhow::Error {
    let missing = error.raw_os_error() == Some(libc::EAFNOSUPPORT);
    let error = anyhow::Error::new(error);
    if missing {
        return error.context("the kernel module is not loaded here: run `modprobe tipc`");
    }
    error.context("making a TIPC socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_an_address_as_the_kernel_lays_it_out() {
        let id = SocketId {
            port: 0x0102_0304,
            node: 0x0506_0708,
        };
        let address = id.to_address();
        assert_eq!((size_of::<SockaddrTipc>(), address.len()), (16, 16));
        assert_eq!(SocketId::of(&address).unwrap(), id);
        // SAFETY: `address` holds 16 initialised bytes, and every bit pattern is a valid `[u8;
        // 16]`.
        let bytes = unsafe { address.as_ptr().cast::<[u8; 16]>().read() };
        assert_eq!(bytes[..2], 30u16.to_ne_bytes());
        assert_eq!(bytes[2..4], [3, 0]);
        assert_eq!(bytes[4..8], id.port.to_ne_bytes());
        assert_eq!(bytes[8..12], id.node.to_ne_bytes());
    }

    #[test]
    fn an_address_of_another_family_is_no_identity() {
        let address = SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(SocketId::of(&address).is_err());
    }

    #[test]
    fn a_missing_bearer_is_located() {
        let id = |node| SocketId { port: 1, node };
        assert!(check_bearers(id(7), id(8)).is_ok());
        for (own, theirs, expected) in [
            (0, 0, "on both hosts"),
            (0, 8, "on this host"),
            (7, 0, "on the peer's host"),
        ] {
            let error = check_bearers(id(own), id(theirs)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("tipc bearer enable"), "{error}");
        }
    }

    #[test]
    fn a_missing_module_is_answered_with_what_to_do() {
        let error = explain_family(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        assert!(format!("{error:#}").contains("modprobe tipc"), "{error:#}");
        let error = explain_family(io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(!format!("{error:#}").contains("modprobe"), "{error:#}");
    }
}

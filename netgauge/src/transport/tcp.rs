// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP, every write sent at once (`TCP_NODELAY`) unless the options say otherwise.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, SockRef, Socket, Type};

use super::ip::{self, Departure};
use super::options::limit_calls;
use super::stream::Stream;
use super::streams::{Connect, StreamContext, StreamKind, StreamListener, StreamSocket};
use super::{packets, wait_for_peer, Context, Kind, Prepared, Role, Takes, Transport};
use crate::control::Endpoint;
use crate::host::interface_ip;

pub(super) const KIND: Kind = Kind {
    name: "tcp",
    about: "TCP over IP",
    prepare,
    takes: Takes {
        nodelay: Some("TCP_NODELAY"),
        busy_poll: true,
        send_buffer: true,
        receive_buffer: true,
    },
    interface: true,
    records: true,
    streams: Some(StreamKind {
        listen,
        way_to,
        congestion: true,
    }),
};

/// One end's socket: still to connect, or listening.
pub(super) struct Tcp {
    pub(super) socket: Socket,
    own: IpAddr,
    context: Context,
    wrap: Wrap,
}

/// Makes a transport of a connected stream.
type Wrap = fn(TcpStream, &Context) -> Result<Box<dyn Transport>>;

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let wrap = |stream, context: &Context| -> Result<Box<dyn Transport>> {
        Ok(Box::new(
            Stream::new(stream, context).counted(packets::of_tcp),
        ))
    };
    Ok(Box::new(Tcp::new(context, wrap)?))
}

impl Tcp {
    /// This side's socket, which `wrap` makes a transport of once it is connected.
    pub(super) fn new(context: &Context, wrap: Wrap) -> Result<Self> {
        let own = ip::own_address(context)?;
        let domain = Domain::for_address(own);
        let socket = Socket::new(domain, Type::STREAM, None).context("making a TCP socket")?;
        // What a listener has, its connections inherit.
        context.options.apply(&socket)?;
        if context.role == Role::Follower {
            socket
                .bind(&own.into())
                .and_then(|()| socket.listen(1))
                .context("listening on a TCP port")?;
        }
        Ok(Self {
            socket,
            own: own.ip(),
            context: context.clone(),
            wrap,
        })
    }
}

impl Prepared for Tcp {
    fn endpoint(&self) -> Result<Endpoint> {
        let port = match self.context.role {
            Role::Leader => 0,
            Role::Follower => port_of(&self.socket)?,
        };
        Ok(ip::endpoint(&self.context, SocketAddr::new(self.own, port)))
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let Self {
            socket,
            own,
            context,
            wrap,
        } = *self;
        let socket = match context.role {
            Role::Leader => {
                let address = ip::peers_address(&context, own, peer)?;
                if let Some(name) = &context.interface {
                    Departure::new(name, own, address.ip()).bind(&socket)?;
                }
                connect(&socket, address, context.give_up)?;
                socket
            }
            Role::Follower => {
                wait_for_peer(&socket, context.give_up)?;
                socket.accept()?.0
            }
        };
        let stream = TcpStream::from(socket);
        set_up(&stream, context.options.is_nodelay(), context.give_up)?;
        wrap(stream, &context)
    }
}

fn connect(socket: &Socket, to: SocketAddr, give_up: Duration) -> Result<()> {
    socket
        .connect_timeout(&to.into(), give_up)
        .with_context(|| format!("connecting to {to} by TCP"))
}

/// The port a socket is bound to.
fn port_of(socket: &Socket) -> Result<u16> {
    let address = socket.local_addr()?.as_socket();
    Ok(address.context("a TCP socket without a port")?.port())
}

fn set_up(stream: &TcpStream, nodelay: bool, give_up: Duration) -> io::Result<()> {
    stream.set_nodelay(nodelay)?;
    limit_calls(stream, Some(give_up))
}

/// How many connections wait to be accepted at most.
const BACKLOG: i32 = 1024;

struct Listener {
    socket: Socket,
    ip: IpAddr,
    give_up: Duration,
}

fn listen(context: &StreamContext) -> Result<Box<dyn StreamListener>> {
    let ip = match (&context.interface, context.local) {
        (Some(name), _) => interface_ip(name)?,
        (None, Some(ip)) => ip,
        (None, None) => {
            anyhow::bail!("no address to listen on: name an interface with --interface")
        }
    };
    let address = SocketAddr::new(ip, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // What a listener has, its connections inherit.
    set_congestion(&socket, context.congestion.as_deref())?;
    socket
        .bind(&address.into())
        .and_then(|()| socket.listen(BACKLOG))
        .with_context(|| format!("listening on a TCP port of {ip}"))?;
    Ok(Box::new(Listener {
        socket,
        ip,
        give_up: context.give_up,
    }))
}

impl StreamListener for Listener {
    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            port: port_of(&self.socket)?,
            ip: Some(self.ip),
            ..Endpoint::default()
        })
    }

    fn accept(&self) -> io::Result<Box<dyn StreamSocket>> {
        let stream = TcpStream::from(self.socket.accept()?.0);
        set_up(&stream, true, self.give_up)?;
        Ok(Box::new(stream))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn way_to(context: &StreamContext, server: &Endpoint) -> Result<Connect> {
    let ip = server.ip.context("the server gave no IP address")?;
    let address = SocketAddr::new(ip, server.port);
    let name = context.interface.as_deref();
    let departure = name.map(|name| Departure::towards(name, ip)).transpose()?;
    let (congestion, give_up) = (context.congestion.clone(), context.give_up);
    Ok(Box::new(move || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        set_congestion(&socket, congestion.as_deref())?;
        if let Some(departure) = &departure {
            departure.bind(&socket)?;
        }
        connect(&socket, address, give_up)?;
        let stream = TcpStream::from(socket);
        set_up(&stream, true, give_up)?;
        Ok(Box::new(stream))
    }))
}

impl StreamSocket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}

/// Chooses the congestion control; without a name, the system's stays.
fn set_congestion(socket: &Socket, name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    SockRef::from(socket)
        .set_tcp_congestion(name.as_bytes())
        .with_context(|| match name {
            "reno" => "TCP without congestion control `reno`, which every kernel has".to_owned(),
            _ => format!(
                "the kernel offers no congestion control `{name}` here: run `modprobe tcp_{name}`, \
                 and see net.ipv4.tcp_allowed_congestion_control if you are not root"
            ),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    fn context(congestion: Option<&str>) -> StreamContext {
        StreamContext {
            local: Some(Ipv4Addr::LOCALHOST.into()),
            interface: None,
            give_up: Duration::from_secs(10),
            congestion: congestion.map(str::to_owned),
        }
    }

    #[test]
    fn both_ends_have_the_congestion_control_that_was_asked_for() {
        let context = context(Some("reno"));
        let listener = listen(&context).unwrap();
        let mut client = way_to(&context, &listener.endpoint().unwrap()).unwrap()().unwrap();
        let mut server = listener.accept().unwrap();
        for end in [&client, &server] {
            let name = SockRef::from(end).tcp_congestion().unwrap();
            assert!(name.starts_with(b"reno\0"), "{name:?}");
        }
        client.write_all(b"x").unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn an_absent_congestion_control_names_its_module() {
        let error = listen(&context(Some("absent"))).err().unwrap();
        assert!(error.to_string().contains("modprobe tcp_absent"), "{error}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP, every write sent at once (`TCP_NODELAY`) unless the options say otherwise.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, SockRef, Socket, Type};

use super::ip::{self, Departure};
use super::stream;
use super::streams::{boxed, Connect, StreamContext, StreamKind, StreamListener};
use super::{wait_for_peer, Context, Kind, Prepare, Prepared, Role, Takes, Transport};
use crate::control::Endpoint;
use crate::host::interface_ip;

pub(super) const KIND: Kind = Kind {
    records: true,
    streams: Some(StreamKind {
        congestion: true,
        ..StreamKind::new(listen, way_to)
    }),
    ..kind("tcp", "TCP over IP", |context| {
        prepare(context, |_| Ok(()), stream::boxed)
    })
};

/// A kind of TCP's sockets.
pub(super) const fn kind(name: &'static str, about: &'static str, prepare: Prepare) -> Kind {
    Kind {
        takes: Takes {
            nodelay: Some("TCP_NODELAY"),
            ..Takes::DEVICE
        },
        records: false,
        ..Kind::new(name, about, prepare)
    }
}

/// This side's socket: still to connect, or listening. `enable` looks whether it can do what `wrap`
/// makes of it, a transport, once it is connected.
pub(super) fn prepare(
    context: &Context,
    enable: fn(&Socket) -> Result<()>,
    wrap: fn(TcpStream, &Context) -> Result<Box<dyn Transport>>,
) -> Result<Prepared> {
    let mut own = ip::own_address(context)?;
    let socket = make(own).context("making a TCP socket")?;
    // What a listener has, its connections inherit.
    context.options.apply(&socket)?;
    if context.role == Role::Follower {
        socket
            .bind(&own.into())
            .and_then(|()| socket.listen(1))
            .context("listening on a TCP port")?;
        own.set_port(port_of(&socket)?);
    }
    enable(&socket)?;
    let context = context.clone();
    Prepared::new(ip::endpoint(&context, own), move |peer| {
        let socket = match context.role {
            Role::Leader => {
                let address = ip::peers_address(&context, own.ip(), peer)?;
                if let Some(name) = &context.interface {
                    Departure::new(name, own.ip(), address.ip()).bind(&socket)?;
                }
                connect(&socket, address, context.give_up)?;
                socket
            }
            Role::Follower => {
                wait_for_peer(&socket, context.give_up)?;
                socket.accept()?.0
            }
        };
        wrap(set_up(socket, context.options.is_nodelay())?, &context)
    })
}

fn make(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::STREAM, None)
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

fn set_up(socket: Socket, nodelay: bool) -> io::Result<TcpStream> {
    let stream = TcpStream::from(socket);
    stream.set_nodelay(nodelay)?;
    Ok(stream)
}

/// How many connections wait to be accepted at most.
const BACKLOG: i32 = 1024;

fn listen(context: &StreamContext) -> Result<StreamListener> {
    let ip = match (&context.interface, context.local) {
        (Some(name), _) => interface_ip(name)?,
        (None, Some(ip)) => ip,
        (None, None) => {
            anyhow::bail!("no address to listen on: name an interface with --interface")
        }
    };
    let address = SocketAddr::new(ip, 0);
    let socket = make(address)?;
    // What a listener has, its connections inherit.
    set_congestion(&socket, context.congestion.as_deref())?;
    socket
        .bind(&address.into())
        .and_then(|()| socket.listen(BACKLOG))
        .with_context(|| format!("listening on a TCP port of {ip}"))?;
    let endpoint = Endpoint {
        port: port_of(&socket)?,
        ip: Some(ip),
        ..Endpoint::default()
    };
    StreamListener::new(socket, endpoint, context.give_up, |socket| {
        set_up(socket.accept()?.0, true)
    })
}

fn way_to(context: &StreamContext, server: &Endpoint) -> Result<Connect> {
    let ip = server.ip.context("the server gave no IP address")?;
    let address = SocketAddr::new(ip, server.port);
    let name = context.interface.as_deref();
    let departure = name.map(|name| Departure::towards(name, ip)).transpose()?;
    let (congestion, give_up) = (context.congestion.clone(), context.give_up);
    Ok(Box::new(move || {
        let socket = make(address)?;
        set_congestion(&socket, congestion.as_deref())?;
        if let Some(departure) = &departure {
            departure.bind(&socket)?;
        }
        connect(&socket, address, give_up)?;
        Ok(boxed(set_up(socket, true)?, give_up)?)
    }))
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

    fn context(congestion: Option<&str>) -> StreamContext {
        StreamContext {
            congestion: congestion.map(str::to_owned),
            ..crate::transport::tests::streams()
        }
    }

    #[test]
    fn both_ends_have_the_congestion_control_that_was_asked_for() {
        let context = context(Some("reno"));
        let listener = listen(&context).unwrap();
        let mut client = way_to(&context, &listener.endpoint).unwrap()().unwrap();
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

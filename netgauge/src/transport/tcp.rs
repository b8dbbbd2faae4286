// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over TCP. By default, it sends every write at once (`TCP_NODELAY`).

use std::io;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result};
use socket2::{Domain, SockRef, Socket, Type};

use super::ip::{self, Departure};
use super::kind::{Kind, Prepare};
use super::options::Takes;
use super::packets::{of_tcp, Packets};
use super::stream::{self, Connected};
use super::streams::{pair, Protocol, Way};
use super::Context;
use crate::wire::Endpoint;

pub(super) const KIND: Kind = Kind {
    records: true,
    polled: true,
    streams: Some(&Tcp),
    congestion: true,
    ..kind("tcp", "TCP over IP", |context| {
        pair::<Tcp>(context, stream::boxed)
    })
};

/// Returns a kind of transport over TCP sockets.
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

/// The length of the accept queue, connections.
const BACKLOG: i32 = 1024;

/// The protocol TCP.
#[derive(Debug)]
pub(super) struct Tcp;

impl Protocol for Tcp {
    type Listener = Socket;
    type Stream = TcpStream;

    fn listen(context: &Context) -> Result<(Socket, Endpoint)> {
        let mut own = ip::own_address(context)?;
        let socket = make(own, context)?;
        socket
            .bind(&own.into())
            .and_then(|()| socket.listen(BACKLOG))
            .with_context(|| format!("listening on a TCP port of {}", own.ip()))?;
        let bound = socket.local_addr()?.as_socket();
        own.set_port(bound.context("a TCP socket without a port")?.port());
        Ok((socket, ip::endpoint(context, own)))
    }

    fn caller(context: &Context) -> Result<Endpoint> {
        let own = ip::own_address(context)?;
        make(own, context)?;
        Ok(ip::endpoint(context, own))
    }

    fn accept(listener: &Socket, context: &Context) -> Result<TcpStream> {
        set_up(listener.accept()?.0, context)
    }

    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<TcpStream>> {
        let (context, address) = (context.clone(), ip::peers_address(context, server)?);
        let name = context.interface.as_deref();
        let departure = name.map(|name| Departure::towards(name, address.ip()));
        let departure = departure.transpose()?;
        Ok(Box::new(move || {
            let socket = make(address, &context)?;
            if let Some(departure) = &departure {
                departure.bind(&socket)?;
            }
            socket
                .connect_timeout(&address.into(), context.give_up)
                .with_context(|| format!("connecting to {address} by TCP"))?;
            set_up(socket, &context)
        }))
    }
}

impl Connected for TcpStream {
    const RECORDS: bool = true;

    fn packets(&self) -> io::Result<Option<Packets>> {
        of_tcp(self)
    }
}

/// Makes a socket that will connect or listen. Connections inherit a listener's options.
fn make(address: SocketAddr, context: &Context) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)
        .context("making a TCP socket")?;
    context.options.apply(&socket)?;
    set_congestion(&socket, context.congestion.as_deref())?;
    Ok(socket)
}

fn set_up(socket: Socket, context: &Context) -> Result<TcpStream> {
    let stream = TcpStream::from(socket);
    stream.set_nodelay(context.options.is_nodelay())?;
    Ok(stream)
}

/// Sets the congestion control. Without a name, the socket keeps the system's default.
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

    fn context(congestion: Option<&str>) -> Context {
        Context {
            congestion: congestion.map(str::to_owned),
            ..crate::transport::tests::streams()
        }
    }

    #[test]
    fn both_ends_have_the_congestion_control_that_was_asked_for() {
        let context = context(Some("reno"));
        let streams = KIND.streams.unwrap();
        let listener = streams.listen(&context).unwrap();
        let mut client = streams.way_to(&context, &listener.endpoint).unwrap()().unwrap();
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
        let error = Tcp::listen(&context(Some("absent"))).err().unwrap();
        assert!(error.to_string().contains("modprobe tcp_absent"), "{error}");
    }
}

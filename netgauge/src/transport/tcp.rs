// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP, every write sent at once (`TCP_NODELAY`).

use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context as _, Result};

use super::stream::Stream;
use super::{wait_for_peer, Context, Kind, Prepared, Role, Transport};
use crate::control::Endpoint;

pub(super) const KIND: Kind = Kind {
    name: "tcp",
    about: "TCP over IP, TCP_NODELAY",
    prepare,
};

enum Tcp {
    Connecting(Context),
    Listening(Context, TcpListener),
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let context = context.clone();
    Ok(Box::new(match context.role {
        Role::Leader => Tcp::Connecting(context),
        Role::Follower => {
            let mut address = context.local;
            address.set_port(0);
            let listener = TcpListener::bind(address).context("listening on a TCP port")?;
            Tcp::Listening(context, listener)
        }
    }))
}

impl Prepared for Tcp {
    fn endpoint(&self) -> Result<Endpoint> {
        let port = match self {
            Self::Connecting(_) => 0,
            Self::Listening(_, listener) => listener.local_addr()?.port(),
        };
        Ok(Endpoint { port, mac: None })
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let (context, stream) = match *self {
            Self::Connecting(context) => {
                let mut address: SocketAddr = context.peer;
                address.set_port(peer.port);
                let stream = TcpStream::connect_timeout(&address, context.give_up)
                    .with_context(|| format!("connecting to {address} by TCP"))?;
                (context, stream)
            }
            Self::Listening(context, listener) => {
                wait_for_peer(&listener, context.give_up)?;
                (context, listener.accept()?.0)
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(context.give_up))?;
        stream.set_write_timeout(Some(context.give_up))?;
        Ok(Box::new(Stream(stream)))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server. It takes part in the patterns that clients measure and coordinators direct.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use crate::control::{Control, Message, Open, Step, VERSION};
use crate::group::worker::Worker;
use crate::host::{descriptors_hint, interface_in_use};
use crate::machine::Machine;
use crate::messages::tell;
use crate::pair::{Link, Streams};
use crate::registry::{self, Pattern};
use crate::transport::kinds;
use crate::transport::{self, Context, Role, SocketOptions, Transport};

/// The interval at which the server checks, while no datagram arrives, whether the client has given
/// up.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// The server's options.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the interface to use; without a name, the interface of the control connection.
    pub interface: Option<String>,
    /// The time after which a silent stream is given up.
    pub give_up: Duration,
    /// Whether the server ends after one client.
    pub once: bool,
}

/// Opens the port of the control connection: for IPv6 and IPv4, or for IPv4 where there is no IPv6.
///
/// # Errors
///
/// Fails if the port is taken or not allowed, or if this host does not have the address.
pub fn listen(address: Option<IpAddr>, port: u16) -> Result<TcpListener> {
    let bind = |ip: IpAddr| TcpListener::bind(SocketAddr::new(ip, port));
    let listener = match address {
        Some(ip) => bind(ip),
        None => bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => bind(Ipv4Addr::UNSPECIFIED.into()),
            _ => Err(error),
        }),
    };
    listener.map_err(|error| {
        let what = match (error.raw_os_error(), address) {
            (Some(libc::EADDRNOTAVAIL), Some(ip)) => {
                format!("listening on {ip}: no interface here has this address, and `ip address` lists those there are: give one of them with --listen")
            }
            _ => format!("listening on port {port}: choose another with --port"),
        };
        anyhow::Error::new(error).context(what)
    })
}

/// Serves clients one after the other. With `once`, serves only the first client.
///
/// # Errors
///
/// Fails if the listening socket failed. With `once`, also fails if an error ended the client's
/// session early.
pub fn serve(listener: &TcpListener, options: &ServerOptions) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The client has closed the connection while it was in the accept queue, so the server
            // waits for the next client.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error).context("waiting for clients"),
        };
        // Other clients wait until this client is done. Its greeting must come within `give_up`, so
        // that a silent client does not keep the others waiting.
        let result = Control::new(stream, Some(options.give_up)).and_then(|control| {
            let peer = control.name().to_owned();
            tell(format_args!("client {peer}"));
            converse(control, options).with_context(|| format!("client {peer}"))
        });
        match result {
            result if options.once => return result,
            Ok(()) => {}
            Err(error) => tell(format_args!("{error:#}")),
        }
    }
}

/// Serves the client or coordinator until it ends the connection.
///
/// # Errors
///
/// Fails with the error that ended the session early.
pub fn converse(control: Control, options: &ServerOptions) -> Result<()> {
    let context = Context {
        role: Role::Follower,
        local: control.local(),
        peer: None,
        interface: options.interface.clone(),
        ethertype: 0,
        loss_timeout: LOOK_AROUND,
        give_up: options.give_up,
        options: SocketOptions::default(),
        congestion: None,
    };
    let worker = Worker::new(context.clone());
    Session {
        control,
        context,
        worker,
    }
    .run()
}

/// The session of one client or coordinator.
struct Session {
    control: Control,
    context: Context,
    /// The worker that carries out the coordinator's orders.
    worker: Worker,
}

/// The transport and the pattern that a client has opened.
struct Pair {
    transport: Box<dyn Transport>,
    pattern: &'static Pattern,
    streams: Option<Streams>,
}

impl Session {
    fn run(mut self) -> Result<()> {
        self.greet()?;
        // There is no time limit for messages from here on, because the client may be silent while
        // it measures.
        self.control.set_answer_timeout(None)?;
        let mut pair = None;
        while let Some(message) = self.control.receive_or_end()? {
            match message {
                Message::Open(open) => {
                    pair = None;
                    match self.open(open) {
                        Ok(opened) => {
                            pair = Some(opened);
                            self.control.send(&Message::Opened)?;
                        }
                        Err(error) => self.failed(&error)?,
                    }
                }
                Message::Step(step) => {
                    let result = match &mut pair {
                        None => Err(anyhow::anyhow!("no transport is open")),
                        Some(pair) => self.follow(pair, &step),
                    };
                    if let Err(error) = result {
                        // Closing the transport makes the client's end notice the failure.
                        pair = None;
                        self.failed(&error)?;
                    }
                }
                Message::Close => {
                    pair = None;
                    self.control.send(&Message::Closed)?;
                }
                Message::Order(order) => {
                    pair = None;
                    self.worker.handle(order, &mut self.control)?;
                }
                other => bail!("it said {other:?} out of turn"),
            }
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<()> {
        match self.control.receive()? {
            Message::Hello { version, .. } => {
                let Context {
                    interface, local, ..
                } = &self.context;
                let device = interface_in_use(interface.as_deref(), local.map(|local| local.ip()));
                self.control.send(&Message::Hello {
                    version: VERSION,
                    machine: Some(Box::new(Machine::here(device.as_deref()))),
                })?;
                if version != VERSION {
                    bail!("it speaks version {version} of the control protocol, not {VERSION}");
                }
                Ok(())
            }
            other => bail!("it began with {other:?} instead of a greeting"),
        }
    }

    fn open(&mut self, open: Open) -> Result<Pair> {
        let kind = kinds::find(&open.transport)?;
        let pattern = registry::find(&open.pattern)?;
        let (local, peer) = self.control.addresses()?;
        let context = Context {
            local: Some(local),
            peer: Some(peer),
            ethertype: open.ethertype,
            options: open.options,
            ..self.context.clone()
        };
        pattern.pair()?.suits(kind)?;
        let prepared = (kind.prepare)(&context)?;
        self.control
            .send(&Message::Endpoint(prepared.endpoint.clone()))?;
        Ok(Pair {
            transport: transport::open(
                prepared,
                &open.endpoint,
                Some(self.control.as_fd()),
                &context.options,
            )?,
            pattern,
            streams: Streams::of(kind, &context),
        })
    }

    fn follow(&mut self, pair: &mut Pair, step: &Step) -> Result<()> {
        pair.transport.discard_pending()?;
        self.control.send(&Message::Ready)?;
        let mut link = Link {
            transport: pair.transport.as_mut(),
            control: &mut self.control,
            streams: pair.streams.clone(),
        };
        pair.pattern.follow(&mut link, step)
    }

    fn failed(&mut self, error: &anyhow::Error) -> Result<()> {
        let text = match descriptors_hint(error) {
            Some(hint) => format!("{hint}: {error:#}"),
            None => format!("{error:#}"),
        };
        self.control.send(&Message::Failed(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_address_is_blamed_and_not_the_port() {
        // An address from the block for documentation, which no interface has.
        let foreign = Some(IpAddr::from([192, 0, 2, 1]));
        let error = format!("{:#}", listen(foreign, 0).unwrap_err());
        assert!(
            error.contains("no interface here has this address"),
            "{error}"
        );
        assert!(!error.contains("--port"), "{error}");
    }
}

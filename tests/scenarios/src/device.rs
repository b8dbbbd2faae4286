// SPDX-License-Identifier: GPL-2.0-only

//! Devices that scenarios make beside a host's own, and streams between them.

use std::fmt::Debug;
use std::io;

use anyhow::{ensure, Context, Result};

use crate::address::Address;
use crate::frame::EDP_HEADER;
use crate::lab::{await_events, eventually};
use crate::netns::Netns;
use crate::socket::{interface_index, Socket};
use crate::transfer::{transfer_both_ways, Load};

/// A device in its namespace.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// Where it is.
    pub namespace: &'a Netns,
    /// Its index there.
    pub ifindex: u32,
    /// Its address.
    pub mac: [u8; 6],
}

impl<'a> Device<'a> {
    /// The device `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(namespace: &'a Netns, name: &str) -> Result<Self> {
        let (ifindex, mac) = namespace
            .within(|| {
                Ok::<_, std::io::Error>((
                    interface_index(name)?,
                    Socket::edp()?.hardware_address(name)?,
                ))
            })?
            .with_context(|| name.to_owned())?;
        Ok(Self {
            namespace,
            ifindex,
            mac,
        })
    }

    /// The device `name`, once it can send: its carrier has been noticed.
    ///
    /// # Errors
    /// When there is none, or it cannot for long.
    pub fn ready(namespace: &'a Netns, name: &str) -> Result<Self> {
        await_carrier(namespace, name)?;
        Self::named(namespace, name)
    }

    /// `port` on this device, to bind to.
    pub fn here(&self, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: [0; 6],
        }
    }

    /// `port` of `other`, as one addresses it by this device.
    pub fn to(&self, other: &Device<'_>, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: other.mac,
        }
    }

    /// A new EDP socket bound to `port` of this device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn edp(&self, port: u16) -> Result<Socket> {
        let socket = self.namespace.within(Socket::edp)??;
        socket.bind(&self.here(port)).context("binding for EDP")?;
        Ok(socket)
    }

    /// A new ESP socket listening on `port` of this device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn listener(&self, port: u16) -> Result<Socket> {
        let socket = self.namespace.within(Socket::esp)??;
        socket.bind(&self.here(port)).context("binding for ESP")?;
        socket.listen(16)?;
        Ok(socket)
    }

    /// A stream from here to a new listener on `port` of `other`: both ends.
    ///
    /// # Errors
    /// When a call fails.
    pub fn stream_to(&self, other: &Device<'_>, port: u16) -> Result<(Socket, Socket)> {
        let listener = other.listener(port)?;
        let client = self.namespace.within(Socket::esp)??;
        client
            .connect(&self.to(other, port))
            .context("connecting")?;
        let (server, _) = listener.accept(0).context("accept")?;
        Ok((client, server))
    }

    /// A stream to `other` and back, and a datagram that an MTU of `mtu` just takes.
    ///
    /// # Errors
    /// When a call fails, or something else arrives than was sent.
    pub fn carries_both_protocols_to(&self, other: &Device<'_>, mtu: usize) -> Result<()> {
        const PORT: u16 = 870;
        let (client, server) = self.stream_to(other, PORT)?;
        transfer_both_ways(&client, &server, Load::SMALL)?;
        let (from, to) = (self.edp(PORT)?, other.edp(PORT)?);
        let largest = vec![7; mtu - EDP_HEADER];
        from.send_to(&largest, 0, &self.to(other, PORT))?;
        await_events(&to, libc::POLLIN)?;
        let mut got = vec![0; mtu];
        let length = to.receive(&mut got, 0)?;
        ensure!(got[..length] == largest, "{length} other bytes came");
        Ok(())
    }
}

/// Waits until the carrier of `name` has been noticed.
///
/// # Errors
/// When it is not for long.
pub fn await_carrier(namespace: &Netns, name: &str) -> Result<()> {
    eventually("the carrier", || {
        let state = namespace.run("ip", &["link", "show", name])?;
        Ok(state.contains("LOWER_UP") && !state.contains("state DOWN"))
    })
}

/// Demands that `result` failed with one of `errnos`.
///
/// # Errors
/// When it did not.
pub fn failed<T: Debug>(result: io::Result<T>, errnos: &[i32], what: &str) -> Result<()> {
    let found = result.as_ref().err().and_then(io::Error::raw_os_error);
    ensure!(
        found.is_some_and(|found| errnos.contains(&found)),
        "{what}: {result:?}"
    );
    Ok(())
}

/// Demands that `result` says that the device is gone.
///
/// # Errors
/// When it does not.
pub fn gone<T: Debug>(result: io::Result<T>, what: &str) -> Result<()> {
    failed(result, &[libc::ENETDOWN, libc::ENODEV], what)
}

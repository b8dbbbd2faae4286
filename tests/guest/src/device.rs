// SPDX-License-Identifier: GPL-2.0-only

//! Finds devices that a scenario has created in addition to a host's own, and opens sockets on
//! them.

use std::fmt::Debug;
use std::io;

use anyhow::{ensure, Context, Result};

use crate::address::Address;
use crate::frame::EDP_HEADER;
use crate::lab::{await_events, eventually};
use crate::netns::Netns;
use crate::socket::{interface_index, Socket};
use crate::transfer::{transfer_both_ways, Load};

/// A network device, and the namespace that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// The device's namespace.
    pub namespace: &'a Netns,
    /// The device's index in the namespace.
    pub ifindex: u32,
    /// The device's Ethernet address.
    pub mac: [u8; 6],
}

impl<'a> Device<'a> {
    /// Finds the device `name`.
    ///
    /// # Errors
    /// If there is none.
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

    /// Finds the device `name`, and waits until the kernel has noticed the device's carrier. Before
    /// that, the device sends nothing.
    ///
    /// # Errors
    /// If there is no such device, or it does not become able to send.
    pub fn ready(namespace: &'a Netns, name: &str) -> Result<Self> {
        await_carrier(namespace, name)?;
        Self::named(namespace, name)
    }

    /// Returns the address of `port` on this device, for binding.
    pub fn here(&self, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: [0; 6],
        }
    }

    /// Returns the address of `port` on `other`, as seen through this device.
    pub fn to(&self, other: &Device<'_>, port: u16) -> Address {
        Address {
            port,
            ifindex: self.ifindex,
            mac: other.mac,
        }
    }

    /// Makes an EDP socket bound to `port` of this device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn edp(&self, port: u16) -> Result<Socket> {
        let socket = self.namespace.within(Socket::edp)??;
        socket.bind(&self.here(port)).context("binding for EDP")?;
        Ok(socket)
    }

    /// Makes an ESP socket that listens on `port` of this device.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn listener(&self, port: u16) -> Result<Socket> {
        let socket = self.namespace.within(Socket::esp)??;
        socket.bind(&self.here(port)).context("binding for ESP")?;
        socket.listen(16)?;
        Ok(socket)
    }

    /// Connects a stream from this device to a new listener on `port` of `other`; returns both
    /// ends.
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

    /// Transfers a stream to `other` and back, and sends a datagram that just fits an MTU of `mtu`.
    ///
    /// # Errors
    /// If a call fails, or the bytes that arrive differ from the bytes that were sent.
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

/// Waits until the kernel has noticed the carrier of `name`.
///
/// # Errors
/// If the kernel does not notice it in time.
pub fn await_carrier(namespace: &Netns, name: &str) -> Result<()> {
    eventually("the carrier", || {
        let state = namespace.run("ip", &["link", "show", name])?;
        Ok(state.contains("LOWER_UP") && !state.contains("state DOWN"))
    })
}

/// Checks that `result` failed with one of `errnos`.
///
/// # Errors
/// If it did not.
pub fn failed<T: Debug>(result: io::Result<T>, errnos: &[i32], what: &str) -> Result<()> {
    let found = result.as_ref().err().and_then(io::Error::raw_os_error);
    ensure!(
        found.is_some_and(|found| errnos.contains(&found)),
        "{what}: {result:?}"
    );
    Ok(())
}

/// Checks that `result` is the error of a device that is gone.
///
/// # Errors
/// If it is not.
pub fn gone<T: Debug>(result: io::Result<T>, what: &str) -> Result<()> {
    failed(result, &[libc::ENETDOWN, libc::ENODEV], what)
}

// SPDX-License-Identifier: GPL-2.0-only

//! Plays a host that behaves correctly. It talks to one of the attacked hosts, and none of its
//! bytes may be lost or changed.

use crate::fuzz::world::World;
use guest::device::Device;
use guest::prelude::*;

/// The port on the honest host.
const PORT: u16 = 3000;

/// The amount of traffic that was exchanged intact.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchanged {
    /// Number of connections, which were opened one after the other.
    pub connections: u64,
    /// Number of bytes, summed over both directions.
    pub bytes: u64,
    /// Number of datagrams that arrived.
    pub datagrams: u64,
}

/// The honest host's traffic, over sockets that were made before the attack started.
#[derive(Debug)]
pub struct Honest<'a> {
    world: &'a World,
    /// The devices of host b and of the honest host in the VLAN that only these two hosts use.
    devices: [Device<'a>; 2],
    listener: Socket,
    datagrams: [Socket; 2],
}

impl<'a> Honest<'a> {
    /// Makes the sockets.
    ///
    /// # Errors
    /// If a call fails.
    pub fn new(world: &'a World) -> Result<Self> {
        let (honest, b) = (&world.honest, &world.b);
        // The listener is on the honest host, to which the fuzzer sends no hostile frame.
        let listener = honest.esp()?;
        listener.bind(&honest.anywhere(PORT))?;
        listener.listen(4)?;
        let datagrams = [honest.edp_bound(PORT)?, b.edp_bound(PORT)?];
        datagrams[0].connect(&honest.to(b, PORT))?;
        datagrams[1].connect(&b.to(honest, PORT))?;
        for socket in &datagrams {
            socket.set_nonblocking(true)?;
        }
        Ok(Self {
            world,
            devices: world.honest_devices()?,
            listener,
            datagrams,
        })
    }

    /// Opens connections one after the other and moves bytes both ways, until `stop` is set, but at
    /// least once.
    ///
    /// # Errors
    /// If a call fails, or a byte is wrong.
    pub fn exchange(&self, stop: &AtomicBool) -> Result<Exchanged> {
        let mut done = Exchanged::default();
        loop {
            let number = done.connections;
            self.connection(number)
                .with_context(|| format!("honest connection {number}"))?;
            done.connections += 1;
            done.bytes += 2 * TOTAL as u64;
            done.datagrams += self.some_datagrams(number)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
        }
    }

    fn connection(&self, number: u64) -> Result<()> {
        let (honest, b) = (&self.world.honest, &self.world.b);
        let [near, far] = &self.devices;
        let to = match number % 2 {
            0 => b.to(honest, PORT),
            _ => near.to(far, PORT),
        };
        let client = b.esp_connected(&to).context("connect")?;
        let (server, _) = self.listener.accept(0).context("accept")?;
        let load = Load::of(TOTAL, 3000, number);
        transfer_both_ways(&client, &server, load)
    }

    /// Exchanges datagrams and returns the number that arrived. Datagrams may be lost, but every
    /// datagram that arrives must be intact.
    fn some_datagrams(&self, number: u64) -> Result<u64> {
        let mut came = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            let sent = random(1000, number);
            // An error is ignored: datagrams may be lost, and this one is lost if it cannot be
            // queued.
            let _ = self.datagrams[from].send(&sent, 0);
            let mut bytes = [0; 2000];
            while let Ok(length) = self.datagrams[to].receive(&mut bytes, 0) {
                let known = (number.saturating_sub(8)..=number)
                    .any(|number| bytes[..length] == random(1000, number));
                ensure!(known, "a datagram of {length} bytes that nobody sent");
                came += 1;
            }
        }
        Ok(came)
    }
}

/// Number of bytes of a connection, in each direction.
const TOTAL: usize = 64 << 10;

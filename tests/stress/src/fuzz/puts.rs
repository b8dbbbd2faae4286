// SPDX-License-Identifier: GPL-2.0-only

//! Gives each attacked host memory that its neighbours put to, and checks that nothing else was
//! written.

use std::ops::Range;

use fastrand::Rng;

use guest::channel::{channel, header, region, Memory, PUT, SEND, TELLS};
use guest::prelude::*;

/// The length of the region whose key the peers know, in bytes. It begins and ends amid a page.
pub const LENGTH: usize = 50_001;

/// The length of the memory around the region, and where the region begins in it, in bytes.
const MEMORY: usize = 16 * 4096;
const START: usize = 5_003;

/// The byte of memory that nothing has put to.
const UNTOUCHED: u8 = 0x5a;

/// The memory of a host that its neighbours put to.
#[derive(Debug)]
pub struct Target {
    /// The listener of the host's channels. All of them are of its domain.
    pub listener: Socket,
    key: u64,
    memory: Memory,
    /// Memory whose key no peer knows.
    secret: Memory,
}

impl Target {
    /// Makes the regions of the domain of `socket`, which is made a channel.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(socket: Socket) -> Result<Self> {
        let listener = channel(socket)?;
        let (memory, secret) = (Memory::private(MEMORY)?, Memory::private(MEMORY)?);
        for memory in [&memory, &secret] {
            memory.fill(UNTOUCHED);
        }
        let start = memory.address() + START as u64;
        let key = region(&listener, start, LENGTH as u64).context("a region")?;
        secret.region(&listener).context("a second region")?;
        Ok(Self {
            listener,
            key,
            memory,
            secret,
        })
    }

    /// Returns the header of a message to this host, and how many bytes may follow. In rare cases,
    /// these reach beyond the end of the region.
    pub fn message(&self, rng: &mut Rng) -> (Vec<u8>, usize) {
        let offset = rng.usize(..LENGTH);
        let beyond = [rng.usize(..20), 0][usize::from(rng.u8(..32) > 0)];
        let (operation, flags) = match rng.u8(..8) {
            0 | 1 => (SEND, 0),
            2 | 3 => (PUT, TELLS),
            _ => (PUT, 0),
        };
        let header = header(operation, flags, rng.u32(..), self.key, offset as u64);
        (header, LENGTH - offset + beyond)
    }

    /// Checks that only the region was written to.
    ///
    /// # Errors
    /// If a peer has written to other memory, or nothing was put.
    pub fn check(&self) -> Outcome {
        let end = START + LENGTH;
        let untouched = |memory: &Memory, range: Range<usize>| {
            let bytes = memory.read(range.clone());
            match bytes.iter().position(|byte| *byte != UNTOUCHED) {
                None => Ok(()),
                Some(at) => Err(anyhow!("byte {} was written to", range.start + at)),
            }
        };
        untouched(&self.secret, 0..MEMORY).context("memory of another region")?;
        for range in [0..START, end..MEMORY] {
            untouched(&self.memory, range).context("memory beside the region")?;
        }
        ensure!(
            untouched(&self.memory, START..end).is_err(),
            "nothing was put"
        );
        Ok(())
    }
}

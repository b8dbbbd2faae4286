// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over ESP's records. A message is one record. If the message is longer than the
//! longest record that every host accepts, it is several records.

use std::io::{self, Read, Write};
use std::time::Duration;

use anyhow::Result;
use sockaddr_en::{Address, EspRecordListener, EspRecords};

use super::esp;
use super::kind::Kind;
use super::packets::Packets;
use super::stream::{self, Connected};
use super::streams::{pair, Protocol, Way};
use super::Context;
use crate::wire::Endpoint;

/// Length, in bytes, of the longest record that is accepted by every host.
const LONGEST: usize = 65_536;

pub(super) const KIND: Kind = Kind {
    polled: true,
    ..Kind::new(
        "esp-records",
        "PF_ENET records, Ethernet Streaming Protocol",
        |context| pair::<ByRecords>(context, stream::boxed),
    )
};

/// The protocol ESP, read and written by records.
#[derive(Debug)]
struct ByRecords;

impl Protocol for ByRecords {
    type Listener = EspRecordListener;
    type Stream = Records;

    fn listen(context: &Context) -> Result<(EspRecordListener, Endpoint)> {
        esp::listen(context, EspRecordListener::bind, "for records")
    }

    fn caller(context: &Context) -> Result<Endpoint> {
        esp::caller(context)
    }

    fn accept(listener: &EspRecordListener, _context: &Context) -> Result<Records> {
        Ok(Records(listener.accept()?.0))
    }

    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<Records>> {
        esp::way_to(context, server, Records::connect, "for records")
    }
}

/// A connection, read and written record by record.
struct Records(EspRecords);

impl Records {
    fn connect(address: &Address, give_up: Duration) -> io::Result<Self> {
        EspRecords::connect_timeout(address, give_up).map(Self)
    }
}

impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.recv(buffer)?;
        if length > buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a record is longer than the message that was expected",
            ));
        }
        Ok(length)
    }
}

impl Write for Records {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let record = &data[..data.len().min(LONGEST)];
        self.0.send(record)?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

as_fd!([] Records, 0);

impl Connected for Records {
    const RECORDS: bool = true;
    const LONGEST: usize = LONGEST;

    fn packets(&self) -> io::Result<Option<Packets>> {
        Ok(Some(self.0.stats()?.into()))
    }
}

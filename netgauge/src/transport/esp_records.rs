// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP's records: each message is one, or several if it is longer than every host takes.

use std::io::{self, Read, Write};

use sockaddr_en::{EspRecordListener, EspRecords};

use super::esp::{self, Sockets};
use super::stream::{self, Connected};
use super::{Kind, Packets};

/// Bytes of the longest record that every host takes.
const LONGEST: usize = 65_536;

pub(super) const KIND: Kind = Kind::new(
    "esp-records",
    "PF_ENET records, Ethernet Streaming Protocol",
    |context| {
        esp::prepare(context, &RECORDS, |records, context| {
            stream::boxed(Records(records), context)
        })
    },
);

const RECORDS: Sockets<EspRecordListener, EspRecords> = Sockets {
    by: "for records",
    bind: |local| EspRecordListener::bind(local),
    accept: EspRecordListener::accept,
    connect: EspRecords::connect_timeout,
};

/// A connection, read and written record by record.
struct Records(EspRecords);

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

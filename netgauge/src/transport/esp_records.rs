// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP's records: each message is one, or several if it is longer than every host takes.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspRecordListener, EspRecords, MacAddr};

use super::options::limit_calls;
use super::stream::Stream;
use super::{at_interface, explain_family, packets, peer_address, wait_for_peer};
use super::{Context, Kind, Prepared, Role, Takes};

/// Bytes of the longest record that every host takes.
const LONGEST: usize = 65_536;

pub(super) const KIND: Kind = Kind {
    name: "esp-records",
    about: "PF_ENET records, Ethernet Streaming Protocol",
    prepare,
    takes: Takes::DEVICE,
    interface: true,
    records: true,
    streams: None,
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

impl AsFd for Records {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn prepare(context: &Context) -> Result<Prepared> {
    let interface = context.ethernet()?;
    // The follower's.
    let listener = match context.role {
        Role::Leader => None,
        Role::Follower => {
            let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
            let listener = EspRecordListener::bind(local)
                .map_err(explain_family)
                .with_context(|| format!("listening for records on {}", interface.name))?;
            // Connections inherit the options of their listener.
            context.options.apply(&listener)?;
            Some(listener)
        }
    };
    let port = match &listener {
        None => 0,
        Some(listener) => listener.local_addr()?.port,
    };
    let context = context.clone();
    Prepared::new(at_interface(&interface, port), move |peer| {
        let records = match &listener {
            None => {
                let address = peer_address(peer, &interface)?;
                let records = EspRecords::connect_timeout(&address, context.give_up)
                    .map_err(explain_family)
                    .with_context(|| format!("connecting to {address} for records"))?;
                context.options.apply(&records)?;
                records
            }
            Some(listener) => {
                wait_for_peer(listener, context.give_up)?;
                listener.accept()?.0
            }
        };
        limit_calls(&records, Some(context.give_up))?;
        let stream = Stream::new(Records(records), &context).in_calls_of(LONGEST);
        Ok(Box::new(stream.counted(|Records(records)| {
            Ok(Some(packets::of_stats(records.stats()?)))
        })))
    })
}

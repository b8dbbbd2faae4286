// SPDX-License-Identifier: GPL-2.0-only

//! Tests short messages that join a packet waiting for the window, or that are received into a
//! partly unmapped buffer. The module copies messages of at most 64 bytes through the stack.

use guest::lab::ESP_MSS;
use guest::prelude::*;
use guest::socket::meminfo::WMEM_QUEUED;
use guest::zero_copy::{completed, none_left, switch};

scenarios! {
    direct esp_short_messages_join_the_waiting_packet = joining;
    direct esp_short_messages_up_to_the_packets_end = packets_end;
    direct esp_short_message_in_bad_memory_joins_nothing = bad_memory;
    direct esp_short_message_after_shutdown_joins_nothing = shut_down;
    direct esp_short_messages_behind_zero_copy = behind_in_place;
    direct esp_short_receives_into_bad_memory = bad_room;
}

const LOSING: &[&str] = &["netem", "loss", "100%"];
/// `SIOCOUTQNSD` asks for the number of bytes that were not sent yet.
const SIOCOUTQNSD: libc::c_ulong = 0x894b;
/// Lengths around the longest message that is copied through the stack.
const AROUND: [usize; 5] = [1, 2, 63, 64, 65];

/// A connection whose last packet waits for the window, because all frames are lost.
struct Waiting<'a> {
    lab: &'a Lab,
    client: Socket,
    server: Socket,
    /// The bytes that the other side must receive.
    sent: Vec<u8>,
}

impl<'a> Waiting<'a> {
    /// Sends until a packet with a single byte waits behind at least one other packet. The buffer
    /// of the packet with a single byte has room for a full packet.
    fn new(lab: &'a Lab, port: u16) -> Result<Self> {
        let (client, server) = lab.esp_pair(port)?;
        let sent = Vec::new();
        lab.a.queue("add", LOSING)?;
        let mut waiting = Waiting {
            lab,
            client,
            server,
            sent,
        };
        while waiting.client.queued(SIOCOUTQNSD)? == 0 {
            waiting.send(1000)?;
        }
        waiting.begin_packet()?;
        Ok(waiting)
    }

    /// Sends messages of one byte until one begins a new packet.
    fn begin_packet(&mut self) -> Outcome {
        let before = self.memory()?;
        for _ in 0..=ESP_MSS {
            self.send(1)?;
            if self.memory()? > before {
                return Ok(());
            }
        }
        anyhow::bail!("{ESP_MSS} bytes and more are in one packet");
    }

    /// Sends a message of `length` bytes.
    fn send(&mut self, length: usize) -> Outcome {
        let bytes = random(length, self.sent.len() as u64);
        let sent = self.client.send(&bytes, libc::MSG_NOSIGNAL)?;
        ensure!(sent == length, "{sent} of {length} bytes");
        self.sent.extend_from_slice(&bytes);
        Ok(())
    }

    /// Sends a message that joins the waiting packet.
    fn join(&mut self, length: usize) -> Outcome {
        let before = self.memory()?;
        self.send(length)?;
        let after = self.memory()?;
        same(after, before, &format!("{length} bytes' memory"))?;
        self.is_counted()
    }

    /// Returns the memory that is charged for the write queue. Each new packet adds to it.
    fn memory(&self) -> Result<u32> {
        Ok(self.client.meminfo()?[WMEM_QUEUED])
    }

    /// Checks that each sent byte counts as unacknowledged.
    fn is_counted(&self) -> Outcome {
        let queued = self.client.queued(libc::TIOCOUTQ)? as usize;
        let sent = self.sent.len();
        ensure!(queued == sent, "{queued} bytes queued of {sent}");
        Ok(())
    }

    /// Lets the packets through, and checks that all bytes arrive before the stream ends. Returns
    /// the sender's socket.
    fn arrives(self) -> Result<Socket> {
        self.lab.a.queue("del", &[])?;
        self.client.shutdown(libc::SHUT_WR)?;
        comes_next(&self.server, &self.sent)?;
        let more = self.server.receive(&mut [0; 1], 0)?;
        ensure!(more == 0, "more bytes than were sent");
        Ok(self.client)
    }
}

fn joining(lab: &Lab) -> Outcome {
    let mut waiting = Waiting::new(lab, 1201)?;
    for length in AROUND.into_iter().chain([200, 3]) {
        waiting.join(length)?;
    }
    waiting.arrives().map(drop)
}

/// In this test the last message ends at the end of the packet, or is one byte longer and continues
/// in the next packet.
fn packets_end(lab: &Lab) -> Outcome {
    let mut port = 1202;
    for last in AROUND {
        for beyond in [0, 1] {
            let mut waiting = Waiting::new(lab, port)?;
            port += 1;
            waiting.join(ESP_MSS - 1 - last)?;
            if beyond == 0 {
                waiting.join(last)?;
            }
            let before = waiting.memory()?;
            waiting.send(if beyond == 0 { 1 } else { last + 1 })?;
            ensure!(
                waiting.memory()? > before,
                "a packet of more than {ESP_MSS} bytes, with {last} and {beyond}"
            );
            waiting.join(5)?;
            waiting
                .arrives()
                .with_context(|| format!("{last} and {beyond} bytes"))?;
        }
    }
    Ok(())
}

fn bad_memory(lab: &Lab) -> Outcome {
    let mut waiting = Waiting::new(lab, 1212)?;
    for length in AROUND {
        waiting.join(length)?;
        let before = waiting.memory()?;
        let good = random(length, 1212);
        for pieces in [
            &[Piece::Bad(length)][..],
            &[Piece::Good(&good), Piece::Bad(1)],
            &[
                Piece::Good(&good[..length / 2]),
                Piece::Bad(length - length / 2),
            ],
        ] {
            let sent = (waiting.client).send_message(pieces, libc::MSG_NOSIGNAL, &[]);
            refused(sent, libc::EFAULT, "unreadable memory")?;
            waiting.is_counted()?;
        }
        ensure!(waiting.memory()? == before, "a packet of nothing");
    }
    waiting.arrives().map(drop)
}

fn shut_down(lab: &Lab) -> Outcome {
    let mut waiting = Waiting::new(lab, 1213)?;
    waiting.join(64)?;
    waiting.client.shutdown(libc::SHUT_WR)?;
    for length in AROUND {
        let sent = waiting
            .client
            .send(&random(length, 1213), libc::MSG_NOSIGNAL);
        refused(sent, libc::EPIPE, "a message after the end")?;
        waiting.is_counted()?;
    }
    waiting.arrives().map(drop)
}

/// In this test messages are sent alternately in two ways: some are copied, and the bytes of others
/// stay in the program's memory.
fn behind_in_place(lab: &Lab) -> Outcome {
    let mut waiting = Waiting::new(lab, 1214)?;
    switch(&waiting.client, 1)?;
    let mut in_place = Vec::new();
    for (i, length) in AROUND.into_iter().enumerate() {
        in_place.push(random(100 + i, 1214));
        let bytes = in_place.last().context("none")?;
        let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
        let sent = waiting.client.send(bytes, flags)?;
        ensure!(sent == bytes.len(), "{sent} of {} bytes", bytes.len());
        waiting.sent.extend_from_slice(bytes);
        waiting.is_counted()?;
        for length in [length, 1, length] {
            waiting.send(length)?;
            waiting.is_counted()?;
        }
    }
    none_left(&waiting.client).context("nothing is acknowledged")?;
    let client = waiting.arrives()?;
    completed(&client, in_place.len() as u32)?;
    Ok(())
}

/// The unmapped memory begins at the buffer's start, in its middle, or at its last byte. The
/// receive call fails, and the bytes stay queued for the next call.
fn bad_room(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(1215)?;
    for length in AROUND {
        let bytes = random(length, 1215);
        client.send_all(&bytes)?;
        await_events(&server, libc::POLLIN)?;
        eventually("all bytes", || {
            Ok(server.queued(libc::FIONREAD)? as usize == length)
        })?;
        for good in [0, length / 2, length - 1] {
            for flags in [libc::MSG_PEEK, 0] {
                let mut room = vec![0; good];
                let pieces = &mut [PieceMut::Good(&mut room), PieceMut::Bad(length - good)];
                let got = server.receive_message(pieces, flags | libc::MSG_DONTWAIT);
                refused(got, libc::EFAULT, "memory that is not there")?;
            }
        }
        let queued = server.queued(libc::FIONREAD)? as usize;
        ensure!(queued == length, "{queued} bytes left of {length}");
        comes_next(&server, &bytes)?;
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests the socket calls on an ESP connection: flags, vectors, time limits, readiness, options,
//! ioctls.

use sockaddr_en::EspStats;

use guest::address::{SOL_EP_2006, SO_MTU, SO_STATS};
use guest::lab::ESP_MSS;
use guest::prelude::*;
use guest::processor;
use guest::transfer::fill;

scenarios! {
    direct esp_nonblocking_sender_loses_nothing = nonblocking_sender;
    direct esp_mtu_and_statistics = options;
    direct options_have_their_first_level_too = first_level;
    direct esp_buffer_sizes_limit_the_queues = buffers;
    direct esp_bytes_behind_msg_more_share_its_packet = behind_more;
    direct esp_both_write_before_they_read = write_before_read;
    direct esp_low_water_beyond_the_window_is_no_deadlock = low_water;
}

/// Sends on a non-blocking socket with a small buffer. Exactly the bytes that the send calls
/// accepted must arrive.
fn nonblocking_sender(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(603)?;
    client.set_so(libc::SO_SNDBUF, 4608)?;
    client.set_nonblocking(true)?;
    let message = random(1 << 20, 603);
    let send = || {
        let (mut done, mut refusals) = (0, 0);
        while done < message.len() {
            match client.send(&message[done..], 0) {
                Ok(0) => anyhow::bail!("send returned 0"),
                Ok(took) => done += took,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    refusals += 1;
                    await_events(&client, libc::POLLOUT)?;
                }
                Err(error) => return Err(error).context("send"),
            }
        }
        client.shutdown(libc::SHUT_WR)?;
        Ok(refusals)
    };
    let mut got = vec![0; message.len()];
    let receive = || {
        server.receive_exact(&mut got)?;
        Ok(server.receive(&mut [0; 1], 0)?)
    };
    let (refusals, end) = beside(send, receive)?;
    ensure!(end == 0, "more bytes than were sent");
    ensure!(got == message, "the bytes changed on the way");
    ensure!(refusals > 0, "a tiny buffer never was full");
    Ok(())
}

/// Both ends write until their buffers are full, and only then read. Balaji and others 2002, figure
/// 7, is about this order.
fn write_before_read(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(615)?;
    let ends = [&client, &server];
    let mut sent = Vec::new();
    for (end, seed) in ends.into_iter().zip([615, 616]) {
        let bytes = random(4 << 20, seed);
        end.set_nonblocking(true)?;
        let mut done = 0;
        let full = loop {
            match end.send(&bytes[done..], 0) {
                Ok(0) => bail!("the buffers took {done} bytes"),
                Ok(took) => done += took,
                Err(error) => break error,
            }
        };
        refused::<usize>(Err(full), libc::EAGAIN, "a full buffer")?;
        ensure!(done >= 64 << 10, "only {done} bytes were taken");
        end.set_nonblocking(false)?;
        sent.push(bytes[..done].to_vec());
    }
    for (end, bytes) in ends.into_iter().zip(sent.iter().rev()) {
        let mut got = vec![0; bytes.len()];
        end.receive_exact(&mut got)?;
        ensure!(got == *bytes, "the bytes changed on the way");
    }
    Ok(())
}

/// Two sends, of which the first announces the second (`MSG_MORE`), take as many packets as their
/// bytes need. The bytes of the first are held back only for a limited time. A pause between the
/// two sends may be longer than that, so each shape is tried more than once.
fn behind_more(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(614)?;
    let shapes = [
        (240, 1000, 1),
        (1, ESP_MSS - 1, 1),
        (400, ESP_MSS - 400, 1),
        (240, 3 * ESP_MSS - 240, 3),
    ];
    for (first, second, packets) in shapes {
        let bytes = random(first + second, 614);
        let mut got = vec![0; bytes.len()];
        let mut fewest = u32::MAX;
        for _ in 0..20 {
            let before = client.esp_counters()?;
            client.send(&bytes[..first], libc::MSG_MORE)?;
            client.send_all(&bytes[first..])?;
            server.receive_exact(&mut got)?;
            ensure!(got == bytes, "the bytes changed on the way");
            let after = client.esp_counters()?;
            fewest = fewest.min(after.pkt_tx - before.pkt_tx);
            if fewest == packets {
                break;
            }
        }
        same(
            fewest,
            packets,
            &format!("packets of {first} and {second} bytes"),
        )?;
    }
    Ok(())
}

/// Programs built with the header of Reinhardt 2006 use a different option level.
fn first_level(lab: &Lab) -> Outcome {
    let (client, _server) = lab.esp_pair(613)?;
    let (datagrams, _other) = lab.edp_pair(613)?;
    for (socket, numbers) in [(&client, 8), (&datagrams, 4)] {
        let now = socket.int_option(SOL_EP, SO_MTU)?;
        let then = socket.int_option(SOL_EP_2006, SO_MTU)?;
        same(now, then, "*_SO_MTU, and at the first level")?;
        let room = 4 * numbers;
        let counters = socket.option(SOL_EP_2006, SO_STATS, room, room as i32)?;
        same(counters.len(), room, "bytes of counters")?;
        for level in [SOL_EP_2006, SOL_EP] {
            refused(socket.int_option(level, 99), libc::ENOPROTOOPT, "no option")?;
        }
        for level in [SOL_EP_2006 - 1, SOL_EP_2006 + 1, SOL_EP - 1, SOL_EP + 1] {
            refused(socket.int_option(level, SO_MTU), libc::EOPNOTSUPP, "others")?;
        }
    }
    Ok(())
}

fn options(lab: &Lab) -> Outcome {
    // Packets of two processors may overtake each other, which counts as loss.
    processor::stay()?;
    let (client, server) = lab.esp_pair(606)?;
    for end in [&client, &server] {
        let mtu = end.int_option(SOL_EP, SO_MTU)?;
        ensure!(mtu == ESP_MSS as i32, "ESP_SO_MTU is {mtu}");
    }
    let bytes = random(10 * ESP_MSS, 606);
    let mut got = vec![0; bytes.len()];
    beside(
        || Ok(client.send_all(&bytes)?),
        || Ok(server.receive_exact(&mut got)?),
    )?;
    let (sent, received) = (client.esp_counters()?, server.esp_counters()?);
    let ten = sent.pkt_tx >= 10 && received.pkt_rx >= 10;
    ensure!(ten, "after ten packets of data: {sent:?}, {received:?}");
    ensure!(sent.tx_err == 0, "{sent:?}");
    // If a host pauses for longer than the request timer, its peer repeats a request, so a packet
    // may arrive twice. No packet is missing or dropped.
    ensure!(
        received.pkt_rx_drop == 0 && received.seq_lost == 0,
        "loss on a cable: {received:?}"
    );
    let fresh = lab.a.esp()?.esp_counters()?;
    ensure!(fresh == EspStats::default(), "a fresh socket: {fresh:?}");
    Ok(())
}

fn buffers(lab: &Lab) -> Outcome {
    let filled = |sndbuf: i32| {
        let (client, server) = lab.esp_pair(608)?;
        client.set_so(libc::SO_SNDBUF, sndbuf)?;
        server.set_so(libc::SO_RCVBUF, 4096)?;
        fill(&client)
    };
    let (small, large) = (filled(8192)?, filled(100_000)?);
    ensure!(
        small < large,
        "{small} bytes fit a small buffer, {large} a large one"
    );
    ensure!(
        small < 64 << 10,
        "{small} bytes fit into 8 KiB and 4 KiB of buffers"
    );
    Ok(())
}

/// The reader sleeps until 8 KiB have come. Its buffer is smaller than a burst, so that the sender
/// gets no window until the reader reads.
fn low_water(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(660)?;
    server.set_so(libc::SO_RCVBUF, 16 << 10)?;
    server.set_so(libc::SO_RCVLOWAT, 8 << 10)?;
    let message = random(64 << 10, 660);
    let mut got = Vec::new();
    let receive = || {
        let mut bytes = [0; 4 << 10];
        while got.len() < message.len() {
            await_events(&server, libc::POLLIN)
                .with_context(|| format!("after {} bytes", got.len()))?;
            let length = server.receive(&mut bytes, libc::MSG_DONTWAIT)?;
            got.extend_from_slice(&bytes[..length]);
            if message.len() - got.len() < 8 << 10 {
                // The last bytes are fewer than the low-water mark.
                server.set_so(libc::SO_RCVLOWAT, 1)?;
            }
        }
        Ok(())
    };
    beside(
        || {
            client.send_all(&message)?;
            Ok(())
        },
        receive,
    )?;
    ensure!(got == message, "the bytes changed on the way");
    Ok(())
}

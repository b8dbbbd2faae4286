// SPDX-License-Identifier: GPL-2.0-only

//! Tests devices whose MTU changes while sockets use them.

use guest::frame::ESP_HEADERS;
use guest::harness::ensure_largest_payload;
use guest::prelude::*;
use guest::transfer::{transfer_counting, transfer_while};

scenarios! {
    direct mtu_lowered_by_the_sender_under_a_stream = sender_first, within(120);
    direct mtu_lowered_by_the_receiver_under_a_stream = receiver_first, within(120);
    direct mtu_changed_again_and_again_under_streams = again_and_again, within(120);
    direct mtu_raised_serves_later_connections = raised;
    direct mtu_lowered_while_the_device_is_down = while_down;
    direct mtu_limits_datagrams_at_once = datagrams;
    direct mtu_of_0_does_not_stop_local_streams = of_nothing;
}

/// Runs `change`, which changes the MTU, after a stream's sender has filled all buffers, so that
/// packets are in flight and more are queued.
fn filled(lab: &Lab, port: u16, load: Load, change: impl FnOnce(&Socket) -> Result<()>) -> Outcome {
    let (client, server) = lab.esp_pair(port)?;
    let received = AtomicUsize::new(0);
    let first = guest::transfer::random(load.total, 7);
    let begin = || client.send_all(&first).context("the first message");
    let then = || {
        eventually("a full receive buffer", || {
            Ok(server.queued(libc::FIONREAD)? > 10_000)
        })?;
        eventually("a full send buffer", || {
            Ok(client.queued(libc::TIOCOUTQ)? > 100_000)
        })?;
        change(&client)?;
        let mut got = vec![0; first.len()];
        server
            .receive_exact(&mut got)
            .context("what was sent before the change")?;
        ensure!(got == first, "the bytes changed on the way");
        Ok(())
    };
    beside(begin, then)?;
    let moved = transfer_counting(&client, &server, load, &received);
    note(&format!(
        "client {:?}, server {:?}",
        client.esp_counters()?,
        server.esp_counters()?
    ));
    moved
}

const LOAD: Load = Load::of(1 << 20, 40_000, 840);

fn sender_first(lab: &Lab) -> Outcome {
    filled(lab, 840, LOAD, |client| {
        lab.set_mtu(600)?;
        ensure_largest_payload(client, 589, "the sender")
    })
}

/// In this test packets in flight are lost. They must be cut before they are retransmitted, because
/// they no longer fit the MTU.
fn receiver_first(lab: &Lab) -> Outcome {
    // A veth pair would pass GSO packets whole, whatever the receiver's MTU.
    send_single_packets(&lab.a.namespace)?;
    let (client, server) = lab.esp_pair(841)?;
    let load = Load {
        total: 2 << 20,
        ..LOAD
    };
    let change = |received: &AtomicUsize| {
        eventually("some progress", || {
            Ok(received.load(Ordering::Relaxed) > 200_000)
        })?;
        lab.b.set_mtu(600)?;
        // The receiver's device now drops the large frames.
        let mut before = usize::MAX;
        eventually("a standstill", || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let now = received.load(Ordering::Relaxed);
            Ok(std::mem::replace(&mut before, now) == now)
        })?;
        let wire = lab.b.packets(ETH_P_ESP)?;
        lab.a.set_mtu(600)?;
        let full = wire.wait_for(patience(), |frame| frame.len() > 500)?;
        ensure!(full.len() <= 614, "a frame of {} bytes", full.len());
        Ok(())
    };
    transfer_while(&client, &server, load, change)?;
    note(&format!(
        "client {:?}, server {:?}",
        client.esp_counters()?,
        server.esp_counters()?
    ));
    Ok(())
}

fn again_and_again(lab: &Lab) -> Outcome {
    let received = AtomicUsize::new(0);
    let back = AtomicUsize::new(0);
    let (client, server) = lab.esp_pair(842)?;
    let load = Load {
        total: 3 << 20,
        ..LOAD
    };
    let change = || {
        for (round, mtu) in [1000, 1500, 300, 9000, 700, 1500, 400, 1200]
            .into_iter()
            .enumerate()
        {
            let hosts = if round % 2 == 0 {
                [&lab.a, &lab.b]
            } else {
                [&lab.b, &lab.a]
            };
            for host in hosts {
                host.set_mtu(mtu)?;
            }
            let before = (
                received.load(Ordering::Relaxed),
                back.load(Ordering::Relaxed),
            );
            let moved = |count: &AtomicUsize, before: usize| {
                let now = count.load(Ordering::Relaxed);
                now == load.total || now > before
            };
            eventually("progress both ways", || {
                Ok(moved(&received, before.0) && moved(&back, before.1))
            })
            .with_context(|| format!("with an MTU of {mtu}"))?;
        }
        Ok(())
    };
    let both = || {
        beside(
            || transfer_counting(&server, &client, load, &back),
            || transfer_counting(&client, &server, load, &received),
        )
    };
    beside(change, both)?;
    Ok(())
}

/// An open connection keeps the packet size that its ends have agreed on, as with TCP.
fn raised(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let before = lab.esp_pair(843)?;
    lab.set_mtu(9000)?;
    let later = lab.esp_pair(846)?;
    for ((client, server), payload, what) in [(&before, 1489, "before"), (&later, 8989, "later")] {
        let told = client.largest_payload()?;
        ensure!(told == payload, "opened {what}: ESP_SO_MTU is {told}");
        let wire = lab.b.packets(ETH_P_ESP)?;
        let (_, got) = beside(
            || Ok(client.send_all(&[3; 50_000])?),
            || Ok(server.receive_all(50_000)?),
        )?;
        ensure!(got.iter().all(|byte| *byte == 3), "the bytes changed");
        let full = ESP_HEADERS + payload as usize;
        let frame = wire.wait_for(patience(), |frame| frame.len() > full / 2)?;
        ensure!(frame.len() == full, "opened {what}: {} bytes", frame.len());
    }
    Ok(())
}

/// In this test the MTU changes while the device is down. Queued packets must still be cut to the
/// new size.
fn while_down(lab: &Lab) -> Outcome {
    filled(lab, 844, LOAD, |_| {
        for host in [&lab.a, &lab.b] {
            host.namespace
                .ip("link set eth0 down\nlink set eth0 mtu 500\nlink set eth0 up\n")?;
        }
        Ok(())
    })
}

fn datagrams(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(845)?;
    for (mtu, largest_datagram) in [(1000, 994), (4000, 3994), (1500, 1494)] {
        lab.set_mtu(mtu)?;
        ensure_largest_payload(&a, largest_datagram, "a datagram")?;
        let whole = vec![9; largest_datagram as usize + 1];
        refused(a.send(&whole, 0), libc::EMSGSIZE, "a datagram too large")?;
        a.send(&whole[1..], 0).context("the largest datagram")?;
        let mut got = vec![0; 5000];
        let length = b.receive(&mut got, 0)?;
        ensure!(length as i32 == largest_datagram, "{length} bytes arrived");
    }
    Ok(())
}

/// Dummy devices allow an MTU of 0.
fn of_nothing(lab: &Lab) -> Outcome {
    lab.a
        .namespace
        .ip("link add none0 mtu 0 type dummy\nlink set none0 up\n")?;
    let device = guest::device::Device::named(&lab.a.namespace, "none0")?;
    let (client, server) = device.stream_to(&device, 846)?;
    exchange(&client, &server)?;
    refused(
        device.edp(846)?.send_to(b"x", 0, &device.to(&device, 847)),
        libc::EMSGSIZE,
        "a datagram on a device that takes none",
    )?;
    lab.a.namespace.ip("link set none0 mtu 1500\n")?;
    exchange(&client, &server)?;
    drop((client, server));
    lab.a.namespace.ip("link del none0\n")
}

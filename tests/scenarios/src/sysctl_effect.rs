// SPDX-License-Identifier: GPL-2.0-only

//! Tests the effects of `/proc/sys/esp/` on sockets. Some settings apply to open sockets, the
//! others only to later ones.

use fastrand::Rng;

use guest::lab::ESP_MSS;
use guest::prelude::*;
use guest::station::Station;
use guest::transfer::fill;

scenarios! {
    direct sysctl_burst_length_applies_to_an_open_sender = sender;
    direct sysctl_packets_to_ack_applies_to_an_open_receiver = receiver;
    direct sysctl_windows_smaller_than_packets_to_ack_do_not_stall_a_stream = unequal, within(120);
    direct sysctl_changes_during_a_transfer = changes, within(120);
    direct sysctl_buffer_sizes_apply_to_later_sockets = buffers;
    direct sysctl_burst_length_does_not_outgrow_a_buffer = large_burst;
}

/// In this test a station (a peer that writes its own frames) acknowledges one window at a time,
/// and counts the packets that arrive.
fn sender(lab: &Lab) -> Outcome {
    let knobs = Knobs(&lab.a.namespace);
    // The SYN announces a window of 60, and no later window is larger.
    knobs.set("burst_length", 60)?;
    let (mut station, client) = Station::connect(lab, 77)?;
    knobs.set("burst_length", 21)?;
    client.set_so(libc::SO_SNDBUFFORCE, 4 << 20)?;
    let mut expect_either = |counts: [u16; 2], what: &str| -> Result<u16> {
        let found = station.new_packets()?;
        ensure!(
            counts.contains(&found),
            "{what}: {found} packets, not {counts:?}"
        );
        station.acknowledge()?;
        Ok(found)
    };
    let mut expect = |count, what: &str| expect_either([count; 2], what).map(drop);
    client.send(&vec![1; 200 * ESP_MSS], 0)?;
    expect(2, "an announcement by default")?;
    expect(21, "the window")?;
    knobs.set("packets_to_ack", 1)?;
    knobs.set("burst_length", 5)?;
    expect(21, "a window that was opened before the change")?;
    expect(5, "a smaller window")?;
    knobs.set("burst_length", 1)?;
    expect(5, "a window that was opened before the change")?;
    for round in 0..10 {
        expect(1, "the smallest window").with_context(|| format!("round {round}"))?;
    }
    knobs.set("burst_length", 80)?;
    // A timer of the connection may expire before the packets are counted. Then the sender
    // recomputes its window.
    let first = expect_either([1, 60], "a window that was opened before the change")?;
    let mut expect = |count, what: &str| expect_either([count; 2], what).map(drop);
    expect(60, "a larger window, as large as the SYN told")?;
    let left = 200 - 2 - 21 - 21 - 5 - 5 - 10 - first - 60;
    if left > 60 {
        expect(60, "a larger window, once more")?;
    }
    expect((left - 1) % 60 + 1, "the end of the message")?;
    for initial in [0, 3, 59] {
        knobs.set("initial_ack_burst_length", initial)?;
        client.send(&vec![2; 100 * ESP_MSS], 0)?;
        let packets = 1 + initial as u16;
        expect(packets, "an announcement")?;
        expect(60.min(100 - packets), "the window after it")?;
        if packets < 40 {
            expect(40 - packets, "the rest")?;
        }
    }
    station.reset()
}

/// In this test a station (a peer that writes its own frames) sends packets, and counts the
/// acknowledgements that it gets.
fn receiver(lab: &Lab) -> Outcome {
    let knobs = Knobs(&lab.a.namespace);
    // Only the station's packets, and no timer, may make the receiver acknowledge.
    knobs.set("round_trip_time", 1_000_000)?;
    let (mut station, client) = Station::connect(lab, 78)?;
    let mut next = |flags: u8, acknowledged: bool, what: &str| -> Result<()> {
        station.send_data(flags, &[3; 100])?;
        let found = station
            .sent_so_far()?
            .iter()
            .filter(|header| header.flags & flag::RRQ == 0)
            .count();
        same(found, usize::from(acknowledged), what)
    };
    next(flag::TXS, true, "the announcement")?;
    for (packets_to_ack, rounds) in [(10, 2), (3, 4), (1, 5), (21, 1)] {
        knobs.set("packets_to_ack", packets_to_ack)?;
        for packet in 1..=rounds * packets_to_ack {
            let due = packet % packets_to_ack == 0;
            next(0, due, &format!("packet {packet} of {packets_to_ack} each"))?;
        }
    }
    // The acknowledgement of the message's end may be delayed, so that data of the other direction
    // can carry it.
    station.send_data(flag::TXF, &[3; 100])?;
    let end = station.next;
    station
        .wait_for(|header| header.acknowledgement == end)
        .context("the end")?;
    let bytes = client.receive_all(100 * (1 + 20 + 12 + 5 + 21 + 1))?;
    ensure!(bytes.iter().all(|byte| *byte == 3), "other bytes came");
    station.reset()
}

/// The hosts have different settings, as during a roll-out, so that the sender's window ends before
/// the receiver acknowledges. A probe of the receiver must then open the next window. If the sender
/// waited for its timer instead, a burst would take a second, and the transfer minutes.
fn unequal(lab: &Lab) -> Outcome {
    let load = Load::of(8 << 20, 1 << 16, 81);
    let (here, there) = (Knobs(&lab.a.namespace), Knobs(&lab.b.namespace));
    // This time is longer than most pauses of a busy machine.
    there.set("round_trip_time", 5_000)?;
    here.set("retransmission_time_min", 1_000_000)?;
    // Each pair: the `burst_length` of the sender, and the `packets_to_ack` of the receiver.
    for (port, (burst, to_ack)) in (81..).zip([(32, 32), (21, 32), (8, 10), (1, 32)]) {
        there.set("burst_length", 64)?;
        there.set("packets_to_ack", to_ack)?;
        here.set("packets_to_ack", 1)?;
        here.set("burst_length", burst)?;
        let (client, server) = lab.esp_pair(port)?;
        let before = lab.b.counter("EspOutProbes")?;
        transfer(&client, &server, load)?;
        let probes = lab.b.counter("EspOutProbes")?.wrapping_sub(before);
        let bursts = (load.total / ESP_MSS) as u32 / burst;
        let acknowledgements = server.esp_counters()?.pkt_tx;
        note(&format!(
            "{burst} against {to_ack}: {bursts} bursts, {probes} probes, {acknowledgements} acknowledgements"
        ));
        // Not every burst causes a probe. Some probes come at the beginning, and some when a
        // program was slow.
        ensure!(
            probes < 50 + bursts / 8,
            "{burst} against {to_ack}: {probes} probes for {bursts} bursts"
        );
        // On a slow machine an acknowledgement may be late once or twice, and then a window is
        // retransmitted.
        let resent = client.esp_counters()?.pkt_rtx;
        ensure!(resent < 20 + 2 * burst, "{resent} packets were sent again");
    }
    Ok(())
}

/// While both hosts' settings change all the time, no byte may be lost and no transfer may stall.
fn changes(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(79)?;
    let done = AtomicBool::new(false);
    let disturb = || -> Result<u32> {
        let mut rng = Rng::with_seed(79);
        let mut taken = 0;
        while !done.load(Ordering::Relaxed) {
            let host = [&lab.a, &lab.b][rng.usize(..2)];
            let (name, most) = [
                ("burst_length", 200),
                ("initial_ack_burst_length", 50),
                ("packets_to_ack", 50),
                ("round_trip_time", 1000),
            ][rng.usize(..4)];
            let number = rng.u32(..most).to_string();
            // Many of these numbers do not fit the other settings, so the files refuse them.
            let written = Knobs(&host.namespace).write(name, number.as_bytes())?;
            taken += u32::from(written.is_ok());
        }
        Ok(taken)
    };
    let (taken, ()) = beside(disturb, || {
        let load = Load::of(4 << 20, 100_000, 79);
        let ended = transfer_both_ways(&client, &server, load);
        done.store(true, Ordering::Relaxed);
        ended
    })?;
    ensure!(taken > 10, "only {taken} changes during the transfer");
    Ok(())
}

/// Returns `SO_SNDBUF` and `SO_RCVBUF`.
fn limits(socket: &Socket) -> Result<[i32; 2]> {
    Ok([socket.so(libc::SO_SNDBUF)?, socket.so(libc::SO_RCVBUF)?])
}

fn buffers(lab: &Lab) -> Outcome {
    let has = |socket: &Socket, wanted: [i32; 2], what: &str| -> Outcome {
        let found = limits(socket)?;
        ensure!(found == wanted, "{what} has {found:?}, not {wanted:?}");
        Ok(())
    };
    let usual = limits(&lab.a.esp()?)?;
    let earlier = lab.a.esp()?;
    let listener = lab.b.esp_listener(80, 4)?;
    let fixed = lab.b.esp_listener(81, 4)?;
    fixed.set_so(libc::SO_RCVBUF, 50_000)?;
    for host in [&lab.a, &lab.b] {
        Knobs(&host.namespace).set("send_buff_size", 70_000)?;
        Knobs(&host.namespace).set("recv_buff_size", 90_000)?;
    }
    has(&earlier, usual, "a socket made before")?;
    has(&listener, usual, "a listener made before")?;
    let set = [70_000, 90_000];
    has(&lab.a.esp()?, set, "a socket made later")?;
    has(&lab.b.esp_listener(82, 4)?, set, "a listener made later")?;
    let (client, server) = lab.esp_pair_through(&listener, 80)?;
    has(&client, set, "a connection made later")?;
    has(&server, set, "a connection accepted later")?;
    // Accepted sockets inherit a buffer size that was set on the listener.
    let (_other, server_of_fixed) = lab.esp_pair_through(&fixed, 81)?;
    has(
        &server_of_fixed,
        [70_000, 100_000],
        "a child of a fixed one",
    )?;
    client.set_so(libc::SO_SNDBUF, 40_000)?;
    has(&client, [80_000, 90_000], "a socket with its own wish")?;
    // EDP does not use these settings.
    has(&lab.a.edp()?, usual, "an EDP socket")?;
    exchange(&client, &server)
}

/// A large window must not give a namespace's owner more memory than the buffers give.
fn large_burst(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        let knobs = Knobs(&host.namespace);
        knobs.set("burst_length", 32767)?;
        knobs.set("initial_ack_burst_length", 32767)?;
    }
    let (client, server) = lab.esp_pair(79)?;
    server.set_so(libc::SO_RCVBUF, 16 << 10)?;
    // The exchange opens a large window, which the sender must not use up.
    exchange(&client, &server)?;
    let sent = fill(&client)?;
    let unread = server.queued(libc::FIONREAD)? as usize;
    // The receiver keeps 64 packets in any case; the buffer alone holds fewer.
    ensure!(
        unread <= 64 * ESP_MSS,
        "{unread} bytes are unread in a buffer of 32 KiB"
    );
    let mut all = vec![0; sent];
    server
        .receive_exact(&mut all)
        .context("all that was sent")?;
    ensure!(all.iter().all(|byte| *byte == b'x'), "other bytes came");
    exchange(&client, &server)
}

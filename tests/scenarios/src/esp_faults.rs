// SPDX-License-Identifier: GPL-2.0-only

//! Tests ESP over wires that lose, duplicate, reorder, delay and damage frames.

use guest::prelude::*;
use guest::relay::{Faults, Mode};

scenarios! {
    switched esp_16_mib_intact_over_a_bad_wire = bad_wire, within(300);
    switched esp_intact_when_frames_are_reordered = reordered, within(120);
    switched esp_intact_at_30_percent_loss = terrible_wire, within(120);
    direct esp_intact_over_netem = netem, within(120);
    switched esp_100_connections_over_a_bad_wire = connections_on_bad_wire, within(180);
    switched esp_continues_after_3_s_without_a_link = interruption;
    switched esp_survives_frames_with_changed_bits = damage, within(120);
}

const MIB: usize = 1 << 20;

fn note_faults(lab: &Lab) {
    note(&format!("the wire: {:?}", lab.relay().tally()));
}

/// In this test data move in both directions. The wire loses 5 %, duplicates 1 % and corrupts 1 %
/// of the frames in each direction.
fn bad_wire(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(400)?;
    lab.relay().set_faults(Faults::HARSH);
    let load = Load::of(16 * MIB, 1 << 16, 16);
    let result = transfer_both_ways(&client, &server, load);
    note_faults(lab);
    result?;
    let tally = lab.relay().tally();
    for (what, counter) in [
        ("lost", &tally.lost),
        ("duplicated", &tally.duplicated),
        ("corrupted", &tally.discarded),
    ] {
        ensure!(counter.load(Ordering::Relaxed) > 0, "no frame was {what}");
    }
    let stats = client.esp_counters()?;
    let counted = stats.pkt_rtx > 0 && stats.seq_lost > 0;
    ensure!(counted, "no retransmission or loss was counted: {stats:?}");
    lab.relay().set_faults(Faults::default());
    Ok(())
}

fn reordered(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(401)?;
    lab.relay().set_faults(Faults {
        reorder: 0.05,
        ..Faults::default()
    });
    let load = Load::of(2 * MIB, 50_000, 401);
    let result = transfer_both_ways(&client, &server, load);
    note_faults(lab);
    lab.relay().set_faults(Faults::default());
    result
}

fn terrible_wire(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(402)?;
    lab.relay().set_faults(Faults {
        loss: 0.3,
        duplicate: 0.1,
        reorder: 0.1,
        ..Faults::default()
    });
    let load = Load::of(256 << 10, 5000, 402);
    let result = transfer(&client, &server, load);
    note_faults(lab);
    lab.relay().set_faults(Faults::default());
    result
}

/// Uses the kernel's netem instead of the relay. Netem is not set to damage frames, because only
/// the relay checks frames and discards the damaged ones.
fn netem(lab: &Lab) -> Outcome {
    lab.netem(&["limit", "10000", "loss", "5%", "duplicate", "1%"])?;
    let (client, server) = lab.esp_pair(403)?;
    let load = Load::of(2 * MIB, 1 << 16, 403);
    transfer_both_ways(&client, &server, load)
}

/// In this test the wire also loses and damages the packets that open and close connections.
fn connections_on_bad_wire(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(404, 16)?;
    lab.relay().set_faults(Faults {
        loss: 0.1,
        duplicate: 0.1,
        ..Faults::HARSH
    });
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..10)
            .map(|lane| {
                let clients = scope.spawn(move || -> Outcome {
                    for round in 0..10 {
                        let client = lab.a.esp()?;
                        client
                            .connect(&lab.a.to(&lab.b, 404))
                            .with_context(|| format!("connection {round} of lane {lane}"))?;
                        client.send_all(&random(3000, lane * 16 + round))?;
                        client.shutdown(libc::SHUT_WR)?;
                        let mut echo = vec![0; 3000];
                        client
                            .receive_exact(&mut echo)
                            .with_context(|| format!("echo {round} of lane {lane}"))?;
                        ensure!(echo == random(3000, lane * 16 + round), "bytes changed");
                        let rest = client.receive(&mut echo, 0)?;
                        ensure!(rest == 0, "{rest} bytes too many");
                    }
                    Ok(())
                });
                let servers = scope.spawn(|| -> Outcome {
                    for _ in 0..10 {
                        let (server, _) = listener.accept(0)?;
                        let mut bytes = server.receive_all(3000).context("server")?;
                        server.send_all(&bytes).context("server")?;
                        let end = server.receive(&mut bytes, 0)?;
                        ensure!(end == 0, "the client's end did not come");
                    }
                    Ok(())
                });
                [clients, servers]
            })
            .collect();
        for thread in lanes.into_iter().flatten() {
            let ended = joined(thread)?;
            if let Err(error) = &ended {
                note(&format!("{error:#}"));
            }
            ended?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    note_faults(lab);
    lab.relay().set_faults(Faults::default());
    Ok(())
}

/// The wire loses all frames for 3 s, which is too short a time to end a connection.
fn interruption(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(405)?;
    let message = random(2 * MIB, 405);
    let mut got = vec![0; message.len()];
    let half = got.len() / 2;
    let receive = || {
        server.receive_exact(&mut got[..half])?;
        lab.relay().set_mode(Mode::Cut);
        thread::sleep(Duration::from_secs(3));
        lab.relay().set_mode(Mode::Forward);
        server
            .receive_exact(&mut got[half..])
            .context("after the interruption")
    };
    beside(|| Ok(client.send_all(&message)?), receive)?;
    ensure!(got == message, "the bytes changed on the way");
    Ok(())
}

/// Damaged frames reach the module. The stream's bytes may change and its connection may break, but
/// the kernel and other connections must come to no harm.
fn damage(lab: &Lab) -> Outcome {
    let clean_listener = lab.b.esp_listener(407, 4)?;
    let (client, server) = lab.esp_pair(406)?;
    lab.relay().set_faults(Faults {
        corrupt: 0.3,
        loss: 0.02,
        ..Faults::default()
    });
    let message = random(512 << 10, 406);
    let limit = Duration::from_secs(10);
    client.set_timeout(libc::SO_SNDTIMEO, limit)?;
    server.set_timeout(libc::SO_RCVTIMEO, limit)?;
    let receive = move || {
        let mut got = vec![0; 1 << 16];
        let mut total = 0;
        let end = loop {
            match server.receive(&mut got, 0) {
                Ok(0) => break "the end of the stream".to_owned(),
                Ok(length) => total += length,
                Err(error) => break error.to_string(),
            }
            if total >= 512 << 10 {
                break "everything".to_owned();
            }
        };
        note(&format!("{total} bytes, then {end}"));
        // Closing here resets a sender that is still sending.
        drop(server);
        Ok(())
    };
    let send = || {
        note(&format!("the sender: {:?}", client.send_all(&message)));
        Ok(())
    };
    beside(send, receive)?;
    drop(client);
    note_faults(lab);
    let damaged = lab.relay().tally().damaged.load(Ordering::Relaxed);
    ensure!(damaged > 50, "only {damaged} damaged frames got through");
    lab.relay().set_faults(Faults::default());
    let wire = lab.a.packets(ETH_P_ESP)?;
    let (client, server) = lab.esp_pair_through(&clean_listener, 407)?;
    wire.wait_for(patience(), |frame| EspHeader::of_frame(frame).is_some())?;
    let load = Load::of(1 << 16, 1 << 12, 407);
    transfer(&client, &server, load).context("a new connection over the clean wire")
}

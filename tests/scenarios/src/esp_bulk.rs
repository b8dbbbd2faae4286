// SPDX-License-Identifier: GPL-2.0-only

//! Tests bulk transfers over ESP: between programs, in messages of every size, both ways at once,
//! to slow readers.

use sha2::{Digest, Sha256};

use guest::asleep::{asleep, Sleeper, POLL};
use guest::prelude::*;
use guest::priority::first_of_all;
use guest::processor::run_on;
use guest::program::{pipe_through, socat_address};
use guest::transfer::receive_to_end;

scenarios! {
    direct esp_64_mib_through_a_c_program = c_program, within(180);
    direct esp_64_mib_through_socat = socat_forth, within(180);
    direct esp_64_mib_through_socat_backwards = socat_back, within(180);
    direct esp_two_processes_of_one_host = c_program_on_one_host, within(120);
    direct esp_8_mib_in_one_send = one_big_message;
    direct esp_8_mib_both_ways_at_once = both_ways;
    direct esp_odd_sizes_of_calls = odd_sizes;
    direct esp_slow_reader_with_small_buffer = slow_reader;
    direct esp_10000_one_byte_round_trips = ping_pong, within(180);
    direct esp_8_senders_to_one_host = many_senders;
    direct esp_messages_of_two_writers_stay_whole_in_a_buffer_with_room = two_writers;
}

const MIB: usize = 1 << 20;

fn esp_stream(arguments: &[&str]) -> Command {
    let mut command = Command::new("esp_stream");
    command.args(arguments);
    command
}

fn c_program(lab: &Lab) -> Outcome {
    let mac = print_mac(lab.b.mac);
    pipe_through(
        (&lab.b, esp_stream(&["recv", DEVICE, "2805"])),
        (&lab.a, esp_stream(&["send", DEVICE, &mac, "2805"])),
        64 * MIB,
    )
}

fn c_program_on_one_host(lab: &Lab) -> Outcome {
    let mac = print_mac(lab.a.mac);
    pipe_through(
        (&lab.a, esp_stream(&["recv", DEVICE, "2805"])),
        (&lab.a, esp_stream(&["send", DEVICE, &mac, "2805"])),
        8 * MIB,
    )
}

fn socat(arguments: &[&str]) -> Command {
    let mut command = Command::new("socat");
    command
        .args(["-d", "-d", "-b", "65536", "-u"])
        .args(arguments);
    command
}

fn socat_between(from: &Host, to: &Host) -> Outcome {
    let listen = socat_address("SOCKET-LISTEN:28:0", to.here(2806));
    let connect = socat_address("SOCKET-CONNECT:28:0", from.to(to, 2806));
    let sender = (from, quiet(socat(&["STDIN", &connect])));
    pipe_through((to, socat(&[&listen, "STDOUT"])), sender, 64 * MIB)
}

/// Returns the sender's command without `-d`. The sender must log little, because nothing reads its
/// standard error while it runs.
fn quiet(command: Command) -> Command {
    let mut same = Command::new(command.get_program());
    same.args(command.get_args().filter(|argument| *argument != "-d"));
    same
}

fn socat_forth(lab: &Lab) -> Outcome {
    socat_between(&lab.a, &lab.b)
}

fn socat_back(lab: &Lab) -> Outcome {
    socat_between(&lab.b, &lab.a)
}

fn one_big_message(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(300)?;
    let message = random(8 * MIB, 8);
    let send = || {
        let sent = client.send(&message, 0).context("send")?;
        ensure!(sent == message.len(), "send took only {sent} bytes");
        client.shutdown(libc::SHUT_WR).context("shutdown")
    };
    let ((), (length, sum)) = beside(send, || receive_to_end(&server, 1 << 16))?;
    ensure!(length == message.len(), "{length} bytes arrived");
    let sent: [u8; 32] = Sha256::digest(&message).into();
    ensure!(sum == sent, "the bytes changed on the way");
    Ok(())
}

fn both_ways(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(301)?;
    let load = Load::of(8 * MIB, 1 << 16, 301);
    transfer_both_ways(&client, &server, load)
}

fn odd_sizes(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(302, 4)?;
    // Sizes around the largest payload of a packet, and sizes that match no boundary.
    for chunk in [1, 7, 1488, 1489, 1490, 2978, 2979, 4097, 65_537] {
        let (client, server) = lab.esp_pair_through(&listener, 302)?;
        let load = Load {
            total: chunk * 300 + 1,
            chunk,
            seed: chunk as u64,
        };
        transfer(&client, &server, load).with_context(|| format!("{chunk} bytes per call"))?;
    }
    Ok(())
}

fn slow_reader(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(303, 4)?;
    // An accepted socket inherits the listener's buffer sizes, as with TCP.
    listener.set_so(libc::SO_RCVBUF, 8192)?;
    let (client, server) = lab.esp_pair_through(&listener, 303)?;
    let message = random(4 * MIB, 303);
    let mut got = vec![0; message.len()];
    let half = got.len() / 2;
    let receive = || {
        server
            .receive_exact(&mut got[..half])
            .context("first half")?;
        // During the pause the sender meets a full buffer and its timers run; no byte may be lost.
        thread::sleep(Duration::from_secs(2));
        server
            .receive_exact(&mut got[half..])
            .context("second half")
    };
    beside(|| Ok(client.send_all(&message)?), receive)?;
    ensure!(got == message, "the bytes changed on the way");
    Ok(())
}

fn ping_pong(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(304)?;
    let rounds = 10_000u32;
    let echo = || {
        let mut byte = [0];
        for _ in 0..rounds {
            server.receive_exact(&mut byte).context("the echo")?;
            server.send_all(&[!byte[0]]).context("the echo")?;
        }
        Ok(())
    };
    let ask = || {
        for round in 0..rounds {
            let mut byte = [round as u8];
            client.send_all(&byte)?;
            client
                .receive_exact(&mut byte)
                .with_context(|| format!("round {round}"))?;
            ensure!(byte[0] == !(round as u8), "round {round}: wrong byte");
        }
        Ok(())
    };
    beside(echo, ask)?;
    Ok(())
}

fn many_senders(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(305, 8)?;
    let pairs = (0..8)
        .map(|_| lab.esp_pair_through(&listener, 305))
        .collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let transfers: Vec<_> = pairs
            .iter()
            .zip(0..)
            .map(|((client, server), seed)| {
                let load = Load {
                    total: MIB,
                    chunk: 1 << 15,
                    seed,
                };
                scope.spawn(move || transfer(client, server, load))
            })
            .collect();
        for (number, transfer) in transfers.into_iter().enumerate() {
            joined(transfer)?.with_context(|| format!("sender {number}"))?;
        }
        Ok(())
    })
}

/// Two threads send on one socket, on one processor. The second thread has the higher priority, and
/// calls `send` once the first packet of the first thread's message has arrived. The first thread
/// processes acknowledgements in the middle of its message, and must not let the second message in
/// at that point.
fn two_writers(lab: &Lab) -> Outcome {
    const LENGTH: usize = 100_000;
    let (client, server) = lab.esp_pair(650)?;
    client.set_so(libc::SO_SNDBUFFORCE, 2 << 20)?;
    for round in 0..20 {
        let second = || {
            run_on(0)?;
            first_of_all()?;
            await_events(&server, libc::POLLIN)?;
            client.send_all(&[2; LENGTH]).context("the second")
        };
        let both = |_: &Sleeper| {
            run_on(0)?;
            client.send_all(&[1; LENGTH]).context("the first")?;
            let got = server.receive_all(2 * LENGTH)?;
            let changes = got.windows(2).filter(|pair| pair[0] != pair[1]).count();
            ensure!(
                changes == 1 && got[0] == 1,
                "round {round}: the messages were cut in {changes} places"
            );
            Ok(())
        };
        let (slept, second, ()) = asleep(POLL, second, both)?;
        second?;
        ensure!(slept, "round {round}: something was there already");
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests flow control by the receiver, whose ACK queue gives senders turns to send. Some senders
//! fall silent, and some readers sleep.
//!
//! These scenarios run where the guest's clock counts instructions, so that they can check times,
//! too.

use std::sync::Barrier;

use nix::sys::signal::{kill, Signal};
use sockaddr_en::EspStats;

use guest::harness::remark;
use guest::prelude::*;
use guest::switch::Switch;
use guest::transfer::{counted, counters, receive_counting, send_until_enough, transfer_counting};

scenarios! {
    guest esp_many_senders_cause_no_drop = many_senders, within(180), needs_icount;
    guest esp_silent_sender_does_not_stop_the_others = silent_sender, within(120), needs_icount;
    guest esp_killed_sender_does_not_stop_the_others = killed_sender, within(120), needs_icount;
    guest esp_sender_without_link_does_not_stop_the_others = unlinked_sender, within(120), needs_icount;
    guest esp_sleeping_reader_stops_its_sender = sleeping_reader, within(120), needs_icount;
    guest esp_random_loss = random_loss, within(120), needs_icount;
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// If senders fall silent together, they delay the others by at most this time: `HOLD` in
/// `esp/src/ack_queue.rs`.
const HOLD: Duration = Duration::from_millis(20);

/// The receiver's counter of turns that it has taken from silent senders.
const OVERRUNS: &str = "EspAckQueueOverrun";

/// Sends one message of `total` bytes over each of `pairs`, all at the same time. Returns how long
/// that takes.
///
/// The messages are generated before the transfers and compared after them, so that the guest's
/// only processor does nothing else during the transfers.
fn transfer_together(pairs: &[(Socket, Socket)], total: usize) -> Result<Duration> {
    let messages: Vec<_> = (0..pairs.len())
        .map(|seed| random(total, seed as u64))
        .collect();
    let start = Barrier::new(2 * pairs.len() + 1);
    let start = &start;
    let (time, received) = thread::scope(|scope| -> Result<_> {
        let transfers: Vec<_> = pairs
            .iter()
            .zip(&messages)
            .map(|((client, server), message)| {
                let sender = scope.spawn(move || {
                    start.wait();
                    client.send_all(message)
                });
                let receiver = scope.spawn(move || {
                    let mut got = vec![0; total];
                    start.wait();
                    server.receive_exact(&mut got).map(|()| got)
                });
                (sender, receiver)
            })
            .collect();
        let began = Instant::now();
        start.wait();
        let mut received = Vec::new();
        for (number, (sender, receiver)) in transfers.into_iter().enumerate() {
            joined(sender)?.with_context(|| format!("sender {number}"))?;
            let got = joined(receiver)?;
            received.push(got.with_context(|| format!("receiving from {number}"))?);
        }
        Ok((began.elapsed(), received))
    })?;
    ensure!(received == messages, "the bytes changed on the way");
    Ok(time)
}

fn many_senders() -> Outcome {
    let switch = Switch::up(33, &["--rate", "200mbit", "--buffer", "128k"])?;
    let [receiver, senders @ ..] = switch.hosts::<33>()?;
    for count in [1, 8, 32] {
        let port = 800 + count as u16;
        let listener = receiver.esp_listener(port, 64)?;
        let pairs = receiver.esp_pairs_from(&senders[..count], &listener, port)?;
        let time =
            transfer_together(&pairs, 256 * KIB).with_context(|| format!("{count} senders"))?;
        let overruns = receiver.counter(OVERRUNS)?;
        let share = (count * 256 * KIB * 8) as f64 / 200e6 / time.as_secs_f64();
        remark(&format!(
            "{count} senders: {time:.1?}, threads and all, {share:.3} of the rate; {overruns} turns taken so far"
        ));
        switch
            .ensure_no_drops()
            .with_context(|| format!("{count} senders"))?;
        for (number, (client, server)) in pairs.iter().enumerate() {
            let ends = [client.esp_counters()?, server.esp_counters()?];
            let fine = |stats: &EspStats| stats.pkt_rx_drop == 0 && stats.pkt_rtx == 0;
            ensure!(
                ends.iter().all(fine),
                "{count} senders, number {number}: {ends:?}"
            );
        }
    }
    switch.down()
}

/// A station that writes its own frames, and follows the protocol as far as needed. No device has
/// the station's address. Otherwise the packets for the station would reach the kernel of that
/// device's host. That kernel does not know the station's connection, so it would answer with a
/// reset.
struct HandMade {
    wire: PacketSocket,
    from: [u8; 6],
    to: [u8; 6],
    next: EspHeader,
}

impl HandMade {
    /// Opens a connection to `port` of `to`.
    fn connect(from: &Host, to: &Host, port: u16) -> Result<Self> {
        let wire = from.packets(ETH_P_ESP)?;
        let next = EspHeader {
            source: 4000,
            destination: port,
            sequence: 100,
            ..EspHeader::default()
        };
        let mut peer = Self {
            wire,
            from: [2, 0, 0, 0, 0xde, 0xad],
            to: to.mac,
            next,
        };
        peer.send(flag::SYN, &[])?;
        let wanted = |frame: &[u8]| {
            EspHeader::of_frame(frame).is_some_and(|header| {
                header.source == port
                    && header.destination == next.source
                    && header.flags == flag::SYN | flag::ACK
            })
        };
        let answer = peer.wire.wait_for(patience(), wanted).context("SYN|ACK")?;
        let answer = EspHeader::of_frame(&answer).context("no ESP header")?;
        peer.next.sequence = answer.acknowledgement;
        peer.next.acknowledgement = answer.sequence.wrapping_add(1);
        peer.send(flag::ACK, &[])?;
        Ok(peer)
    }

    fn send(&mut self, flags: u8, payload: &[u8]) -> Result<()> {
        let header = EspHeader {
            flags,
            length: payload.len() as u16,
            ..self.next
        };
        let frame = ethernet(self.to, self.from, ETH_P_ESP, &header.packet(payload));
        self.wire.send(&frame)?;
        if !payload.is_empty() {
            self.next.sequence = self.next.sequence.wrapping_add(1);
        }
        Ok(())
    }
}

/// Checks that the silent sender delays the others only once. The receiver takes the turn away from
/// the silent sender after [`HOLD`].
fn judge_delay(receiver: &Host, alone: Duration, together: Duration) -> Outcome {
    let overruns = receiver.counter(OVERRUNS)?;
    remark(&format!(
        "three senders: {alone:.1?} among themselves, {together:.1?} beside one that fell silent; \
         {overruns} turns were taken from silent senders"
    ));
    ensure!(overruns > 0, "no turn was taken from the silent sender");
    ensure!(overruns == 1, "{overruns} turns were taken, not one");
    // The 2 ms are for the packets that the receiver sends to the silent sender.
    let bound = alone + HOLD + Duration::from_millis(2);
    ensure!(
        together <= bound,
        "{together:?} is more than {alone:?} and {HOLD:?}"
    );
    Ok(())
}

fn silent_sender() -> Outcome {
    let switch = Switch::up(5, &["--rate", "200mbit"])?;
    let [receiver, senders @ .., silent] = switch.hosts::<5>()?;
    let listener = receiver.esp_listener(811, 8)?;
    let three = || receiver.esp_pairs_from(senders, &listener, 811);
    // The result of the first run is ignored, because this run only warms up.
    transfer_together(&three()?, MIB)?;
    let alone = transfer_together(&three()?, MIB).context("among themselves")?;

    let mut silent = HandMade::connect(silent, receiver, 811)?;
    let (silents_end, _) = listener.accept(0).context("accepting the silent one")?;
    silent.send(flag::ACK | flag::TXS, b"!")?;
    // Once the silent sender's byte has arrived, the receiver expects the remaining bytes of the
    // announced transmission.
    silents_end.receive_exact(&mut [0])?;
    let before = receiver.counter(OVERRUNS)?;
    same(before, 0, "turns taken before anyone was silent")?;
    let together = transfer_together(&three()?, MIB).context("beside a silent sender")?;
    judge_delay(receiver, alone, together)?;
    silent.send(flag::RST | flag::ACK, &[])?;
    switch.ensure_no_drops()?;
    drop((silents_end, listener));
    switch.down()
}

/// Moves some megabytes over each of `pairs`, while another stream arrives at the socket `fallen`.
/// Once all streams are under way, `fall` stops the sender of that stream, and the others must
/// finish. Then `recover` makes that stream end, if it has not ended yet.
fn others_finish(
    pairs: &[(Socket, Socket)],
    fallen: &Socket,
    fall: impl FnOnce() -> Result<()>,
    recover: impl FnOnce() -> Result<()>,
) -> Outcome {
    const TOTAL: usize = 4 * MIB;
    let received = &counters(pairs.len() + 1);
    thread::scope(|scope| {
        let unfinished = scope.spawn(|| {
            let ended = receive_counting(fallen, 64 * KIB, &received[pairs.len()]);
            let length = ended.map(|(length, _)| length);
            note(&format!("the fallen one's stream: {length:?}"));
        });
        let transfers: Vec<_> = (0u64..)
            .zip(pairs.iter().zip(received))
            .map(|(seed, ((client, server), received))| {
                let load = Load::of(TOTAL, 64 * KIB, seed);
                scope.spawn(move || transfer_counting(client, server, load, received))
            })
            .collect();
        eventually("all four under way", || {
            Ok(counted(received).iter().all(|count| *count > 0))
        })?;
        fall()?;
        let done = counted(received);
        note(&format!("bytes received when the one fell: {done:?}"));
        ensure!(
            done.iter().take(pairs.len()).all(|count| *count < TOTAL),
            "one was done before the other fell: {done:?}"
        );
        for (number, transfer) in transfers.into_iter().enumerate() {
            joined(transfer)?.with_context(|| format!("sender {number}"))?;
        }
        recover()?;
        joined(unfinished)
    })
}

/// In this test one of the senders is a process that is killed while it sends.
fn killed_sender() -> Outcome {
    let switch = Switch::up(5, &["--rate", "100mbit"])?;
    let [receiver, senders @ .., victim] = switch.hosts::<5>()?;
    let listener = receiver.esp_listener(812, 8)?;
    let child = start_process(|| {
        let send = || -> Result<()> {
            let socket = victim.esp_connected(&victim.to(receiver, 812))?;
            let message = random(MIB, 4);
            loop {
                socket.send_all(&message)?;
            }
        };
        if let Err(error) = send() {
            note(&format!("the victim: {error:#}"));
        }
        1
    })?;
    let (fallen, _) = listener.accept(0).context("accepting the victim")?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 812)?;
    let shoot = || {
        kill(child, Signal::SIGKILL).context("kill")?;
        let end = waitpid(child, None).context("waitpid")?;
        note(&format!("the victim's end: {end:?}"));
        Ok(())
    };
    others_finish(&pairs, &fallen, shoot, || Ok(()))?;
    switch.ensure_no_drops()?;
    drop((pairs, fallen, listener));
    switch.down()
}

/// In this test a sender loses its link, so no packet tells the receiver that the sender is gone.
/// Later the link returns.
fn unlinked_sender() -> Outcome {
    let switch = Switch::up(5, &["--rate", "100mbit"])?;
    let [receiver, senders @ .., victim] = switch.hosts::<5>()?;
    let listener = receiver.esp_listener(813, 8)?;
    let (sender, fallen) = victim.esp_pair_through(receiver, &listener, 813)?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 813)?;
    let before = receiver.counter(OVERRUNS)?;
    let enough = AtomicBool::new(false);
    let plug = || {
        enough.store(true, Ordering::Relaxed);
        victim.link("up")
    };
    let endless = || {
        send_until_enough(&sender, &enough);
        Ok(())
    };
    beside(endless, || {
        others_finish(&pairs, &fallen, || victim.link("down"), plug)
    })?;
    let overruns = receiver.counter(OVERRUNS)? - before;
    ensure!(
        overruns > 0,
        "no turn was taken from the sender without a link"
    );
    remark(&format!("a pulled cable: {overruns} turns were taken"));
    switch.ensure_no_drops()?;
    drop((sender, fallen, pairs, listener));
    switch.down()
}

fn sleeping_reader() -> Outcome {
    let switch = Switch::up(2, &["--rate", "200mbit"])?;
    let [receiver, sender] = switch.hosts()?;
    for (port, room) in [(820, None), (821, Some(8192))] {
        let what = || match room {
            None => "with the receive buffer as it is".to_owned(),
            Some(bytes) => format!("with a receive buffer of {bytes} bytes"),
        };
        let listener = receiver.esp_listener(port, 4)?;
        if let Some(bytes) = room {
            // A buffer of 8192 bytes holds less than a burst. An accepted socket inherits the
            // listener's buffer sizes, as with TCP.
            listener.set_so(libc::SO_RCVBUF, bytes)?;
        }
        let (client, server) = sender.esp_pair_through(receiver, &listener, port)?;
        let message = random(8 * MIB, port.into());
        let mut got = vec![0; message.len()];
        let half = got.len() / 2;
        let mut receive = || {
            server.receive_exact(&mut got[..half])?;
            // During the pause the sender meets a full buffer and has to stop.
            thread::sleep(Duration::from_secs(5));
            server.receive_exact(&mut got[half..])
        };
        beside(
            || client.send_all(&message).context("sending"),
            || receive().context("receiving"),
        )
        .with_context(what)?;
        ensure!(got == message, "the bytes changed on the way, {}", what());
        let ends = [client.esp_counters()?, server.esp_counters()?];
        remark(&format!(
            "{}: sender {:?}, reader {:?}",
            what(),
            ends[0],
            ends[1]
        ));
        for stats in &ends {
            ensure!(
                stats.pkt_rx_drop == 0 && stats.seq_lost == 0 && stats.tx_err == 0,
                "{}: {ends:?}",
                what()
            );
            ensure!(stats.pkt_rtx == 0, "{}: {ends:?}", what());
        }
        switch.ensure_no_drops().with_context(what)?;
    }
    switch.down()
}

/// The switch loses one frame in 2,000, as in Treydte 2007; 32 MiB are some 22,000 frames.
fn random_loss() -> Outcome {
    let switch = Switch::up(2, &["--rate", "400mbit", "--loss", "0.05%"])?;
    let [receiver, sender] = switch.hosts()?;
    let listener = receiver.esp_listener(830, 4)?;
    let (client, server) = sender.esp_pair_through(receiver, &listener, 830)?;
    let load = Load::of(32 * MIB, 64 * KIB, 830);
    transfer(&client, &server, load)?;
    let ports = switch.ports()?;
    remark(&format!(
        "lost: {} of the sender's frames, {} of the receiver's; sender {:?}, receiver {:?}",
        ports[1].lost_packets,
        ports[0].lost_packets,
        client.esp_counters()?,
        server.esp_counters()?
    ));
    ensure!(ports[1].lost_packets > 0, "no frame was lost");
    ensure!(
        client.esp_counters()?.pkt_rtx > 0,
        "no frame was sent again"
    );
    ensure!(server.esp_counters()?.pkt_rx > 0, "no frame was counted");
    switch.ensure_no_drops()?;
    drop((client, server, listener));
    switch.down()
}

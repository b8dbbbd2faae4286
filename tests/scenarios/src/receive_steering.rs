// SPDX-License-Identifier: GPL-2.0-only

//! Tests receive packet steering: a connection's hash chooses the processor that receives its
//! packets.

use std::collections::HashSet;

use guest::contention::Contention;
use guest::harness::{growth, remark};
use guest::prelude::*;
use guest::processor::{run_on, taken_in};

scenarios! {
    direct esp_connections_spread_over_processors = spread;
    direct esp_connections_spread_over_four_processors = four, needs_smp;
    direct esp_ack_queue_has_little_contention_on_four_processors = contended, within(120), needs_smp;
    direct esp_connections_stay_on_one_processor_without_steering = together;
}

/// The number of connections. With this number of random hashes, each bound in the tests is five
/// standard deviations away from the expected share.
const CONNECTIONS: u16 = 256;
const MESSAGES: usize = 5;

/// The streams that share an ACK queue, and what each carries.
const STREAMS: u16 = 16;
const LOAD: Load = Load::of(4 << 20, 1 << 16, 0);

/// Sends over all connections, from a task on the first processor. Returns the share of the
/// connections whose data the second processor receives. Acknowledgements are not steered.
fn share_of_the_other(lab: &Lab, steering: bool) -> Result<f64> {
    ensure!(taken_in()?.len() >= 2, "a guest with one processor");
    run_on(0)?;
    // Make the veth device poll, like the driver of a network card, and hand packets over to other
    // processors. A veth device polls only if its peer does not segment TCP.
    send_single_packets(&lab.a.namespace)?;
    lab.a
        .namespace
        .run("ethtool", &["-K", DEVICE, "tso", "off"])?;
    lab.b
        .namespace
        .run("ethtool", &["-K", DEVICE, "gro", "on"])?;
    if steering {
        lab.b.namespace.within_sys(|sys| {
            let file = sys
                .join("class/net")
                .join(DEVICE)
                .join("queues/rx-0/rps_cpus");
            fs::write(&file, "3\n").with_context(|| file.display().to_string())
        })?;
    }
    let listener = lab.b.esp_listener(500, CONNECTIONS.into())?;
    let mut others = 0;
    for _ in 0..CONNECTIONS {
        let (client, server) = lab.esp_pair_through(&listener, 500)?;
        let mut on_other = 0;
        for _ in 0..MESSAGES {
            client.send(b"steer", 0)?;
            await_events(&server, libc::POLLIN)?;
            ensure!(server.receive(&mut [0; 8], 0)? == 5, "not the message");
            let processor = server.int_option(libc::SOL_SOCKET, libc::SO_INCOMING_CPU)?;
            on_other += usize::from(processor == 1);
        }
        // On a busy machine, this task may process a retransmission that finds the socket locked.
        others += u16::from(on_other * 2 > MESSAGES);
    }
    let share = f64::from(others) / f64::from(CONNECTIONS);
    note(&format!(
        "{share:.2} of the connections on the other processor"
    ));
    Ok(share)
}

/// Spreads the packets that a device receives over four processors.
pub fn steer(host: &Netns, device: &str) -> Outcome {
    host.within_sys(|sys| {
        let queues = sys.join("class/net").join(device).join("queues");
        for queue in fs::read_dir(&queues).context("queues")? {
            let file = queue?.path().join("rps_cpus");
            if file.exists() {
                fs::write(&file, "f\n").with_context(|| file.display().to_string())?;
            }
        }
        Ok(())
    })
}

/// Makes connections from one device to another with steering, and checks that no processor takes
/// in more than 40 % of the frames.
pub fn spread_over_four(near: &Device<'_>, far: &Device<'_>, port: u16) -> Outcome {
    let mut pairs = Vec::new();
    for number in 0..CONNECTIONS {
        pairs.push(near.stream_to(far, port + number)?);
    }
    let before = taken_in()?;
    ensure!(before.len() == 4, "{} processors", before.len());
    for _ in 0..MESSAGES {
        for (client, server) in &pairs {
            exchange(client, server)?;
        }
    }
    let frames = growth(&before, &taken_in()?);
    note(&format!("{frames:?} frames on the processors"));
    let all: u64 = frames.iter().sum();
    let most = frames.iter().max().copied().unwrap_or(0);
    ensure!(
        all >= MESSAGES as u64 * u64::from(CONNECTIONS),
        "{all} frames"
    );
    ensure!(
        most * 5 <= all * 2,
        "one processor has {most} of {all} frames"
    );
    Ok(())
}

/// Makes a pair of devices with four queues each, one in each host, whose packets are steered to
/// four processors.
fn steered_devices(lab: &Lab) -> Result<[Device<'_>; 2]> {
    let [a, b]: [&Netns; 2] = [&lab.a.namespace, &lab.b.namespace];
    a.ip(&format!(
        "link add multi0 numtxqueues 4 numrxqueues 4 type veth peer name multi0 \
         numtxqueues 4 numrxqueues 4 netns {}\nlink set multi0 up\n",
        b.path()
    ))?;
    b.ip("link set multi0 up\n")?;
    for host in [a, b] {
        host.run("ethtool", &["-K", "multi0", "gro", "on"])?;
        steer(host, "multi0")?;
    }
    Ok([Device::ready(a, "multi0")?, Device::ready(b, "multi0")?])
}

fn four(lab: &Lab) -> Outcome {
    let [near, far] = steered_devices(lab)?;
    spread_over_four(&near, &far, 600)?;
    lab.await_no_sockets()?;
    lab.a.namespace.ip("link del multi0\n")
}

/// Sixteen streams to one host on four processors. All of them use the lock of the receiving
/// device's ACK queue.
fn contended(lab: &Lab) -> Outcome {
    let [near, far] = steered_devices(lab)?;
    let pairs = (0..STREAMS)
        .map(|number| near.stream_to(&far, 700 + number))
        .collect::<Result<Vec<_>>>()?;
    let before = lab.b.counter("EspInPkts")?;
    let taken = taken_in()?;
    let Some(contention) = Contention::start()? else {
        remark("not counted: this kernel has no probe for waits");
        return Ok(());
    };
    thread::scope(|scope| {
        let transfers: Vec<_> = pairs
            .iter()
            .zip(0..)
            .map(|((client, server), seed)| {
                let load = Load { seed, ..LOAD };
                scope.spawn(move || transfer(client, server, load))
            })
            .collect();
        transfers
            .into_iter()
            .try_for_each(|transfer| joined(transfer)?)
    })?;
    let places = contention.places()?;
    let packets = lab.b.counter("EspInPkts")? - before;
    note(&format!(
        "{:?} frames on the processors",
        growth(&taken, &taken_in()?)
    ));
    // The functions of `stream::ack_queue` take no other spin lock themselves. Sockets' locks are
    // taken by functions of the kernel.
    let queues = places.iter().filter(|place| {
        let mut functions = place.functions.iter();
        let waiting = functions.find(|name| !name.starts_with("_raw_spin_lock"));
        waiting.is_some_and(|name| name.contains("stream9ack_queue"))
    });
    let queues: HashSet<&str> = queues.map(|place| place.lock.as_str()).collect();
    let of_queues = places
        .iter()
        .filter(|place| queues.contains(place.lock.as_str()));
    let of_queues: u64 = of_queues.map(|place| place.waits).sum();
    let all: u64 = places.iter().map(|place| place.waits).sum();
    remark(&format!(
        "{packets} packets, {all} waits for spin locks, {of_queues} of them for {} ACK queues",
        queues.len()
    ));
    ensure!(all > 0, "no wait of the whole kernel was counted");
    ensure!(
        of_queues * 100 <= packets.into(),
        "{of_queues} waits for ACK queues, {packets} packets"
    );
    Ok(())
}

fn spread(lab: &Lab) -> Outcome {
    let share = share_of_the_other(lab, true)?;
    ensure!(
        (0.34..0.66).contains(&share),
        "{share:.2} of the connections on the other processor"
    );
    Ok(())
}

fn together(lab: &Lab) -> Outcome {
    let share = share_of_the_other(lab, false)?;
    ensure!(
        share < 0.1,
        "{share:.2} of the connections on the other processor"
    );
    Ok(())
}

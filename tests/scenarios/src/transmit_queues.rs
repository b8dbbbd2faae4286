// SPDX-License-Identifier: GPL-2.0-only

//! Tests devices with several transmit queues, used directly and below other devices. Packets of
//! one queue may overtake packets of another queue, so a stream keeps to one queue.

use guest::harness::growth;
use guest::prelude::*;
use guest::processor::run_on;
use guest::team;

scenarios! {
    guest stream_stays_in_one_transmit_queue = || one_queue(&PLAIN);
    guest stream_stays_in_one_queue_below_a_vlan = || one_queue(&VLAN);
    guest stream_stays_in_one_queue_below_a_macvlan = || one_queue(&MACVLAN);
    guest stream_stays_in_one_queue_below_a_bridge = || one_queue(&BRIDGE);
    guest stream_stays_in_one_queue_below_macsec = || one_queue(&MACSEC);
    guest stream_stays_in_one_queue_below_a_bond = || one_queue(&BOND);
    guest stream_stays_in_one_queue_below_a_team = || one_queue(&TEAM);
    direct stream_keeps_to_its_pacing_rate = pacing;
}

/// A device on top of `eth0`. `eth0` has two transmit queues.
struct Kind {
    /// The two devices between which the stream runs: the device of the sender's host, and the
    /// device of the receiver's host.
    ends: [&'static str; 2],
    /// Lines for `ip` to set up `eth0` of the sender and of the receiver. The sender's `eth0` is
    /// down when they run.
    make: [&'static str; 2],
}

const PLAIN: Kind = Kind {
    ends: ["eth0", "eth0"],
    make: ["", ""],
};
const VLAN: Kind = Kind {
    ends: ["top", "top"],
    make: ["link add link eth0 name top type vlan id 10\n"; 2],
};
const MACVLAN: Kind = Kind {
    ends: ["top", "top"],
    make: ["link add link eth0 name top type macvlan mode bridge\n"; 2],
};
const BRIDGE: Kind = Kind {
    ends: ["top", "eth0"],
    make: ["link add top type bridge\nlink set eth0 master top\n", ""],
};
const BOND: Kind = Kind {
    ends: ["top", "eth0"],
    make: [
        "link add top type bond mode active-backup miimon 20\nlink set eth0 master top\n",
        "",
    ],
};
const TEAM: Kind = Kind {
    ends: ["top", "eth0"],
    make: ["link add top type team\n", ""],
};
const MACSEC: Kind = Kind {
    ends: ["top", "top"],
    make: [
        "link add link eth0 name top type macsec port 1 encrypt on\n\
         macsec add top tx sa 0 pn 1 on key 00 00112233445566778899aabbccddeeff\n\
         macsec add top rx port 1 address 02:00:00:00:00:02\n\
         macsec add top rx port 1 address 02:00:00:00:00:02 sa 0 pn 1 on key 01 ffeeddccbbaa99887766554433221100\n",
        "link add link eth0 name top type macsec port 1 encrypt on\n\
         macsec add top tx sa 0 pn 1 on key 00 ffeeddccbbaa99887766554433221100\n\
         macsec add top rx port 1 address 02:00:00:00:00:01\n\
         macsec add top rx port 1 address 02:00:00:00:00:01 sa 0 pn 1 on key 01 00112233445566778899aabbccddeeff\n",
    ],
};

/// Gives each processor a transmit queue of `eth0` (XPS).
fn queue_per_processor(host: &Netns) -> Outcome {
    host.within_sys(|sys| {
        (0..2).try_for_each(|queue| {
            let file = sys.join(format!("class/net/eth0/queues/tx-{queue}/xps_cpus"));
            std::fs::write(&file, format!("{}\n", 1 << queue))
                .with_context(|| file.display().to_string())
        })
    })
}

/// Returns the two hosts, with the devices of `kind`.
fn hosts(kind: &Kind) -> Result<[Netns; 2]> {
    let [a, b] = [Netns::create()?, Netns::create()?];
    a.ip(&format!(
        "link add eth0 address 02:00:00:00:00:01 numtxqueues 2 numrxqueues 2 type veth peer name eth0 \
         address 02:00:00:00:00:02 numtxqueues 2 numrxqueues 2 netns {}\n",
        b.path()
    ))?;
    // With TSO off at the sender and GRO on at the receiver, a veth device has a receive queue for
    // each transmit queue of its peer. The frames of one transmit queue then arrive in order,
    // whichever processors send them. With TSO on, each frame would go to the backlog queue of the
    // processor that sends it, and could overtake frames that wait in another processor's backlog.
    a.run("ethtool", &["-K", "eth0", "tso", "off"])?;
    b.run("ethtool", &["-K", "eth0", "gro", "on"])?;
    for (host, (make, end)) in [&a, &b].into_iter().zip(kind.make.iter().zip(kind.ends)) {
        host.ip(make)?;
        if make.ends_with("type team\n") {
            team::set_mode(host, end, "roundrobin")?;
            host.ip("link set eth0 master top\n")?;
        }
        host.ip(&format!("link set eth0 up\nlink set {end} up\n"))?;
    }
    a.run(
        "tc",
        &["qdisc", "add", "dev", "eth0", "root", "handle", "1:", "mq"],
    )?;
    // After the first few packets, each small packet takes some 10 ms.
    let slow = "qdisc add dev eth0 parent 1:2 tbf rate 20kbit burst 104 limit 1000000";
    a.run("tc", &slow.split(' ').collect::<Vec<_>>())?;
    queue_per_processor(&a)?;
    Ok([a, b])
}

/// Returns the number of packets that have left by each of the two queues of `host`'s `eth0`.
fn sent_by_queue(host: &Netns) -> Result<[u64; 2]> {
    let text = host.run("tc", &["-statistics", "qdisc", "show", "dev", "eth0"])?;
    let count = |class: &str| {
        let (_, behind) = text
            .split_once(&format!("parent {class} "))
            .context(class.to_owned())?;
        let mut words = behind
            .split_whitespace()
            .skip_while(|word| *word != "bytes");
        let number = words.nth(1).context("a number of packets")?;
        Ok::<u64, anyhow::Error>(number.parse()?)
    };
    Ok([count("1:1")?, count("1:2")?])
}

/// In this test one of the two queues is slow, and the sender changes its processor between
/// packets. No packet may overtake another one.
fn one_queue(kind: &Kind) -> Outcome {
    const ROUNDS: u32 = 24;
    let [a, b] = hosts(kind)?;
    let near = Device::ready(&a, kind.ends[0])?;
    let far = Device::ready(&b, kind.ends[1])?;
    let (client, server) = near.stream_to(&far, 880)?;
    let before = sent_by_queue(&a)?;
    for round in 0..ROUNDS {
        let byte = round as u8;
        // The processor of the first packet chooses the queue for the packets that follow.
        let first = round as usize % 2;
        // The byte of each send call is a packet of its own, or joins a packet that has not left
        // yet.
        for processor in [first, 1 - first, first, 1 - first] {
            run_on(processor)?;
            client.send_all(&[byte])?;
        }
        comes_next(&server, &[byte; 4])?;
        eventually("everything to be acknowledged", || {
            let waiting = server.events()?;
            ensure!(waiting == 0, "round {round}: more bytes than were sent");
            Ok(client.queued(libc::TIOCOUTQ)? == 0)
        })?;
    }
    let by_queue = growth(&before, &sent_by_queue(&a)?);
    // A late packet may be retransmitted. But no packet may arrive before an earlier one, because
    // the receiver would count the earlier one as lost.
    let (sent, received) = (client.esp_counters()?, server.esp_counters()?);
    note(&format!(
        "client {sent:?}, server {received:?}, by queue {by_queue:?}"
    ));
    // A stream without unacknowledged packets may change its queue, so every round begins in the
    // queue of its first processor.
    let least = u64::from(ROUNDS / 2);
    ensure!(
        by_queue.iter().all(|count| *count >= least),
        "{by_queue:?} packets left by the two queues"
    );
    same(received.seq_lost, 0, "packets overtaken")
}

/// The queueing discipline `fq` reads `SO_MAX_PACING_RATE` from the socket of a frame.
fn pacing(lab: &Lab) -> Outcome {
    const RATE: i32 = 500_000;
    const BYTES: usize = 400_000;
    let (client, server) = lab.esp_pair(881)?;
    lab.a.queue("add", &["fq"])?;
    client.set_so(libc::SO_MAX_PACING_RATE, RATE)?;
    let load = Load::of(BYTES, 40_000, 881);
    let start = Instant::now();
    transfer(&client, &server, load)?;
    let took = start.elapsed();
    // At this rate the bytes would take 800 ms. But `fq` lets a new flow send some of the bytes at
    // once, so the transfer takes less time.
    let least = Duration::from_millis(600);
    ensure!(took >= least, "{BYTES} bytes took only {took:?}");
    Ok(())
}

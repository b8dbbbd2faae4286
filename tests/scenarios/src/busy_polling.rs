// SPDX-License-Identifier: GPL-2.0-only

//! Tests `SO_BUSY_POLL`: a reader receives frames from the device itself.

use guest::device::await_carrier;
use guest::prelude::*;
use guest::setting::Setting;

scenarios! {
    direct reader_of_a_stream_polls_the_device = |lab| polls(lab, &stream(lab)?, receive);
    direct reader_of_datagrams_polls_the_device = |lab| polls(lab, &datagrams(lab)?, receive);
    direct poll_of_a_stream_polls_the_device = |lab| polls(lab, &stream(lab)?, poll);
    direct poll_of_datagrams_polls_the_device = |lab| polls(lab, &datagrams(lab)?, poll);
}

/// How long a reader polls, in microseconds. The other side sends within this time.
const LONG: i32 = 50_000;
/// The largest number of round trips after which a frame must have been received by polling.
const ROUNDS: usize = 2000;

/// A function that waits on a socket for a byte and receives it.
type Wait = fn(&Socket) -> Outcome;

fn stream(lab: &Lab) -> Result<[Socket; 2]> {
    let (client, server) = lab.esp_pair(70)?;
    Ok([client, server])
}

fn datagrams(lab: &Lab) -> Result<[Socket; 2]> {
    let (a, b) = lab.edp_pair(71)?;
    Ok([a, b])
}

fn receive(socket: &Socket) -> Outcome {
    ensure!(socket.receive(&mut [0; 4], 0)? == 1, "no byte came");
    Ok(())
}

fn poll(socket: &Socket) -> Outcome {
    await_events(socket, libc::POLLIN)?;
    receives(socket, &[0])
}

/// Returns how many frames the tasks of `host` received by polling, as the kernel counts them.
fn polled(host: &Host) -> Result<u64> {
    let text = host.namespace.proc_net("netstat")?;
    let mut rows = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = rows.next().context("names")?.split_whitespace();
    let values = rows.next().context("values")?.split_whitespace();
    let mut pairs = names.zip(values);
    let (_, value) = pairs
        .find(|(name, _)| *name == "BusyPollRxPackets")
        .context("no such counter")?;
    Ok(value.parse()?)
}

/// Sends a byte back and forth until the reader of `far` has received a frame by polling. If a
/// frame arrives before the reader waits, a softirq receives it instead, and another round is
/// needed.
fn polls(lab: &Lab, [near, far]: &[Socket; 2], wait: Wait) -> Outcome {
    // If a veth device segments packets, its peer has no queue that a reader could poll.
    lab.a
        .namespace
        .run("ethtool", &["-K", "eth0", "tso", "off"])?;
    lab.b
        .namespace
        .run("ethtool", &["-K", "eth0", "gro", "on"])?;
    await_carrier(&lab.b.namespace, "eth0")?;
    // `poll(2)` polls a device only with this setting.
    let _setting = Setting::set("/proc/sys/net/core/busy_poll", LONG)?;
    same(polled(&lab.b)?, 0, "polled without SO_BUSY_POLL")?;
    far.set_so(libc::SO_BUSY_POLL, LONG)?;
    let answer = || {
        for round in 1..=ROUNDS {
            wait(far)?;
            let done = polled(&lab.b)? > 0;
            far.send(&[u8::from(done)], 0)?;
            if done {
                note(&format!("polled in round {round}"));
                break;
            }
        }
        Ok(())
    };
    let ask = || {
        for _ in 0..ROUNDS {
            near.send(&[0], 0)?;
            let mut answer = [0];
            near.receive(&mut answer, 0)?;
            if answer == [1] {
                break;
            }
        }
        Ok(())
    };
    beside(answer, ask)?;
    let frames = polled(&lab.b)?;
    ensure!(frames > 0, "the reader took in no frame itself");
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! `make performance`: measures the figures of `docs/performance.md`, in two guests whose clock
//! counts instructions. The crate `performance` writes the page from the results.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use performance::results::{Results, Series, ESP, EZDP, PLAIN_TCP, TCP};
use performance::topics::{
    transports, Topic, ACKS, BUFFER, BUFFERS, CONGESTIONS, LONG_CABLE, LOSS, MARKS, OTHERS, RATE,
};
use serde_json::Value;

use crate::bench::{self, shares};
use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::profile::Tracer;
use crate::qemu::Clock;
use crate::step;

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Measures everything, and stores the results in `build/performance.json`.
///
/// # Errors
/// If something does not build, a guest does not boot, its kernel reports a fault, netgauge has no
/// report, or the results cannot be written.
pub fn run(layout: &Layout) -> Result<()> {
    everything(layout)?.save(&layout.build().join("performance.json"))
}

fn everything(layout: &Layout) -> Result<Results> {
    let mut results = Results {
        release: layout.release.clone(),
        ..Results::default()
    };
    let boot = |name, verb| Commands::boot(layout, name, verb, Clock::Instructions, PATIENCE);
    let mut guest = boot("performance-cable", Verb::Bench)?;
    cable(&mut guest, &mut results)?;
    guest.end()?;
    let mut guest = boot("performance-switch", Verb::Commands)?;
    switch(&mut guest, &mut results)?;
    guest.end()?;
    Ok(results)
}

/// Runs a command in the guest. The command must succeed.
fn done(guest: &mut Commands, line: &str) -> Result<()> {
    let ended = guest.ask(line)?;
    ensure!(ended.status == 0, "{line}:\n{}", ended.text);
    Ok(())
}

/// Returns a command that runs `command` in each of `hosts`. The hosts are namespaces.
fn on_each(hosts: &str, command: &str) -> String {
    format!("for host in {hosts}; do ip netns exec $host {command} || exit; done")
}

/// Returns a command that disables offloads, so that packets pass through the kernel one by one.
fn without_offloads(device: &str) -> String {
    format!("ethtool -K {device} tso off gso off gro off")
}

/// Measures between two namespaces with a veth pair, as for `make bench`.
fn cable(guest: &mut Commands, results: &mut Results) -> Result<()> {
    let hosts = "a b";
    step::say("a cable: first runs, not counted");
    let warm_up = format!(
        "-m {} {} -x one-one -s 1,64K -c 50",
        transports(&OTHERS),
        bench::to_server()
    );
    guest.ask(&warm_up)?;
    let mut tracer = Tracer::new(guest)?;
    on_cable(guest, results, &mut tracer, &OTHERS)?;
    step::say("a cable: datagrams that are sent without a copy");
    to_server(guest, results, Topic::Dialogue, &[EZDP])?;
    step::say("a cable: calls that do not block");
    to_server(guest, results, Topic::Nonblocking, &OTHERS)?;
    for kib in BUFFERS {
        step::say(&format!("a cable: buffers of {kib} KiB"));
        to_server(guest, results, Topic::Buffers(kib), &[ESP, TCP])?;
    }
    long_cable(guest, results)?;
    // `packets_to_ack` is not restored, because only TCP is measured after this loop.
    for value in ACKS {
        step::say(&format!("a cable: packets_to_ack {value}"));
        let command = format!("sysctl -q -w esp.packets_to_ack={value}");
        done(guest, &format!("! {}", on_each(hosts, &command)))?;
        to_server(guest, results, Topic::Acks(value), &[ESP])?;
    }
    step::say("a cable: TCP without offloads");
    let command = on_each(hosts, &without_offloads("veth0"));
    done(guest, &format!("! {command}"))?;
    on_cable(guest, results, &mut tracer, &[PLAIN_TCP])
}

/// Measures new connections over a cable with a delay.
fn long_cable(guest: &mut Commands, results: &mut Results) -> Result<()> {
    step::say(&format!("a cable with {LONG_CABLE}"));
    let hosts = "a b";
    let delay = format!("tc qdisc add dev veth0 root netem {LONG_CABLE} limit 10000");
    done(guest, &format!("! {}", on_each(hosts, &delay)))?;
    to_server(guest, results, Topic::RampUp, &OTHERS)?;
    let usual = on_each(hosts, "tc qdisc del dev veth0 root");
    done(guest, &format!("! {usual}"))
}

fn on_cable(
    guest: &mut Commands,
    results: &mut Results,
    tracer: &mut Tracer,
    series: &[Series],
) -> Result<()> {
    for topic in [
        Topic::Dialogue,
        Topic::LargeDialogue,
        Topic::Bulk,
        Topic::LogP,
        Topic::Flood,
        Topic::Records,
    ] {
        step::say(&format!("a cable: {}", topic.arguments()));
        to_server(guest, results, topic, series)?;
    }
    step::say(&format!("a cable that loses {LOSS} %"));
    let loss = "ip netns exec a tc qdisc";
    done(
        guest,
        &format!("! {loss} add dev veth0 root netem loss {LOSS}% seed 1"),
    )?;
    to_server(guest, results, Topic::Loss, series)?;
    done(guest, &format!("! {loss} del dev veth0 root"))?;
    for one in series {
        step::say(&format!(
            "a cable: where {}'s instructions are executed",
            one.name
        ));
        let times = if *one == TCP {
            shares::MANY_AT_A_TIME
        } else {
            1
        };
        for (figure, shares) in shares::measure(guest, tracer, one.transport, times)? {
            let mut note = |part: &str, share| {
                results
                    .numbers
                    .insert(format!("{part}-{figure}/{}", one.key), share);
            };
            note("kernel", shares.kernel);
            note("softirq", shares.softirq);
        }
    }
    Ok(())
}

/// Measures a topic (one of the page's measurements) between the two ends of the cable.
fn to_server(
    guest: &mut Commands,
    results: &mut Results,
    topic: Topic,
    series: &[Series],
) -> Result<()> {
    measure(guest, results, topic, series, |names| {
        format!("-m {names} {} {}", bench::to_server(), topic.arguments())
    })
}

/// Runs netgauge in the guest for a topic, with those of `series` that suit the topic. `line`
/// returns netgauge's command line for the names of the series' transports.
fn measure(
    guest: &mut Commands,
    results: &mut Results,
    topic: Topic,
    series: &[Series],
    line: impl Fn(&str) -> String,
) -> Result<()> {
    let series: Vec<_> = series.iter().copied().filter(|s| topic.suits(*s)).collect();
    if series.is_empty() {
        return Ok(());
    }
    // The report includes failures of transports, so the exit status is ignored.
    let report: Value = guest.ask(&line(&transports(&series)))?.report()?;
    results.take(&topic.key(), &series, &report);
    Ok(())
}

/// Measures between three hosts on a switch.
fn switch(guest: &mut Commands, results: &mut Results) -> Result<()> {
    let hosts = "h0 h1 h2";
    // Removes the kernel's limit on the time of real-time processes. Processes of one real-time
    // priority take turns and do not preempt each other.
    done(guest, "echo -1 >/proc/sys/kernel/sched_rt_runtime_us")?;
    let up = format!(
        "enet-switch up --hosts 3 --rate {} --buffer {BUFFER}",
        RATE.0
    );
    done(guest, &up)?;
    done(
        guest,
        "ip netns exec h0 chrt -f 1 netgauge --server </dev/null >/tmp/server 2>&1 & \
         for try in $(seq 600); do \
         ip netns exec h0 cat /proc/net/tcp /proc/net/tcp6 | grep -q ':0AF5 .* 0A ' && exit; usleep 100000; done; \
         cat /tmp/server; exit 1",
    )?;
    on_switch(guest, results, &OTHERS)?;
    step::say("a switch: ESP over its parameters");
    let line = format!(
        "netgauge {} --plot /tmp/parameters.svg --format json 2>/tmp/errors || {{ cat /tmp/errors; false; }}",
        Topic::Parameters.arguments()
    );
    let report: Value = guest.ask(&line)?.report()?;
    let picture = guest.ask("cat /tmp/parameters.svg")?;
    ensure!(
        picture.text.trim_start().starts_with("<svg"),
        "netgauge drew nothing: {report}"
    );
    results
        .pictures
        .insert("parameters".to_owned(), picture.text);
    results.parameters = report["cells"].as_array().cloned().context("no cells")?;
    step::say("a switch: TCP without offloads");
    done(guest, &on_each(hosts, &without_offloads("eth0")))?;
    on_switch(guest, results, &[PLAIN_TCP])?;
    CONGESTIONS
        .iter()
        .try_for_each(|congestion| beside(guest, results, congestion))
}

/// Measures two streams that end at the same host: a stream of ESP from a second host, and a stream
/// of TCP from a third host. TCP's congestion control is `congestion`. Each stream is measured
/// while the other one runs.
fn beside(guest: &mut Commands, results: &mut Results, congestion: &str) -> Result<()> {
    step::say(&format!("a switch: ESP beside TCP with {congestion}"));
    let marks = if congestion == "dctcp" {
        format!(" --ecn {MARKS}")
    } else {
        String::new()
    };
    let up = format!(
        "modprobe -q tcp_{congestion}; enet-switch down && enet-switch up --hosts 3 --rate {} --buffer {BUFFER}{marks}",
        RATE.0
    );
    done(guest, &up)?;
    let measured = Topic::Beside.arguments();
    // The other stream comes from the third host, h2, and reaches its full rate during the warm-up.
    let endless = "-x one-many --netns h0,h2 --server-index 0 --clients 1 -s 8M -c 100000";
    for [one, other] in [[ESP, TCP], [TCP, ESP]] {
        let mode = |series: Series| {
            if series == TCP {
                format!("-m tcp --congestion {congestion}")
            } else {
                format!("-m {}", series.transport)
            }
        };
        let line = format!(
            "chrt -f 1 netgauge {endless} {} </dev/null >/dev/null 2>&1 & endless=$!; \
             chrt -f 1 netgauge {measured} {} --format json 2>/tmp/errors || {{ cat /tmp/errors; false; }}; \
             status=$?; kill $endless; wait; exit $status",
            mode(other),
            mode(one)
        );
        let report: Value = guest.ask(&line)?.report()?;
        let topic = format!("{}-{congestion}", Topic::Beside.key());
        results.take(&topic, &[one], &report);
    }
    Ok(())
}

fn on_switch(guest: &mut Commands, results: &mut Results, series: &[Series]) -> Result<()> {
    for topic in [Topic::Link, Topic::LargeLink] {
        step::say(&format!("a switch: {}", topic.arguments()));
        measure(guest, results, topic, series, |names| {
            format!(
                "ip netns exec h1 chrt -f 1 netgauge -m {names} --connect 10.0.0.1 --interface eth0 --format json {} \
                 2>/tmp/errors || {{ cat /tmp/errors; false; }}",
                topic.arguments()
            )
        })?;
    }
    let topic = Topic::Many;
    step::say(&format!("a switch: {}", topic.arguments()));
    measure(guest, results, topic, series, |names| {
        format!(
            "netgauge -m {names} --format json {} 2>/tmp/errors || {{ cat /tmp/errors; false; }}",
            topic.arguments()
        )
    })
}

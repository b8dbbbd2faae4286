//! Measures what the figures show, in two guests whose clock counts instructions.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use super::results::{Results, Series, EDP, ESP, PLAIN_TCP, RAW, TCP, UDP};
use crate::bench::{self, shares, UNLIMITED};
use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::profile::Tracer;
use crate::qemu::Clock;
use crate::step;

/// How long one measurement may take; many times of what it does.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Of each port of the switch, as `enet-switch` writes it, as netgauge does, and in bits per second.
pub const RATE: (&str, &str, f64) = ("200mbit", "200M", 200e6);
/// Of each port of the switch.
pub const BUFFER: &str = "128k";

/// Values of `packets_to_ack`.
pub const ACKS: [u32; 5] = [1, 2, 5, 10, 15];
/// Frames that the lossy cable loses, percent.
pub const LOSS: u32 = 2;
/// Packets of a message on the lossy cable.
pub const PACKETS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Payload that every transport puts into one packet.
pub const PAYLOAD: u32 = 1448;

/// All that go with offloads as they are.
const OTHERS: [Series; 5] = [TCP, UDP, RAW, EDP, ESP];

/// Something that netgauge measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Dialogues.
    Dialogue,
    /// Dialogues of messages that only streams carry.
    LargeDialogue,
    /// One way.
    Bulk,
    /// Dialogues over ESP with a value of `packets_to_ack`.
    Acks(u32),
    /// Overheads.
    LogP,
    /// Many small messages.
    Flood,
    /// The same, each in a packet of its own.
    Records,
    /// Messages over the lossy cable.
    Loss,
    /// Dialogues over the switch.
    Link,
    /// Of messages that only streams carry.
    LargeLink,
    /// Two senders to one receiver over the switch.
    Many,
    /// One ESP stream over its parameters.
    Parameters,
}

impl Topic {
    /// Its key in the results; what only streams carry continues the same lines.
    pub fn key(self) -> String {
        match self {
            Self::Dialogue | Self::LargeDialogue => "dialogue".to_owned(),
            Self::Bulk => "bulk".to_owned(),
            Self::Acks(value) => format!("acks-{value}"),
            Self::LogP => "logp".to_owned(),
            Self::Flood => "flood".to_owned(),
            Self::Records => "records".to_owned(),
            Self::Loss => "loss".to_owned(),
            Self::Link | Self::LargeLink => "link".to_owned(),
            Self::Many => "many".to_owned(),
            Self::Parameters => "parameters".to_owned(),
        }
    }

    /// What netgauge is told, beside transports and addresses. Calls go without time limits only where no datagram gets
    /// lost.
    pub fn arguments(self) -> String {
        match self {
            Self::Dialogue => format!("-x one-one -s 1-64K -c 30 --warmup 5 {UNLIMITED}"),
            Self::LargeDialogue => format!("-x one-one -s 128K-1M -c 5 --warmup 1 {UNLIMITED}"),
            Self::Bulk => format!("-x bulk -s 4M -c 3 --warmup 1 {UNLIMITED}"),
            Self::Acks(_) => format!("-x one-one -s 1-1M -c 5 --warmup 1 {UNLIMITED}"),
            Self::LogP => "-x logp -s 1,16,256,1K,4K,16K,64K -c 10 --warmup 2".to_owned(),
            Self::Flood => "-x flood -s 1,4,16,64,256,1K -c 3000 --warmup 100".to_owned(),
            Self::Records => format!("{} --eor", Self::Flood.arguments()),
            Self::Loss => {
                let sizes = PACKETS.map(|packets| (packets * PAYLOAD).to_string());
                format!("-x recovery -s {} -c 200 --warmup 0", sizes.join(","))
            }
            Self::Link => "-x one-one -s 1K-64K -c 5 --warmup 1".to_owned(),
            Self::LargeLink => "-x one-one -s 128K-1M -c 3 --warmup 1".to_owned(),
            Self::Many => format!(
                "-x one-many --netns h0,h1,h2 --server-index 0 --clients 2 -s 1K-1M -c 5 --warmup 1 --rate {}",
                RATE.1
            ),
            Self::Parameters => {
                let values = "1,2,3,4,6,8,10,12,16,21,24,28,32";
                format!(
                    "-x esp-params --netns h0,h1 --server-index 0 --burst {values} --ack {values} -s 512K -c 1 \
                     --warmup 0 --rate {}",
                    RATE.1
                )
            }
        }
    }

    /// netgauge's command line between two hosts, for people.
    pub fn command(self) -> String {
        format!("netgauge --connect HOST -m TRANSPORTS {}", self.arguments())
    }

    /// Whether a transport can do it.
    fn suits(self, series: Series) -> bool {
        match self {
            Self::Acks(_) | Self::Parameters => series == ESP,
            Self::LargeDialogue | Self::LargeLink | Self::Records | Self::Many => {
                matches!(series, ESP | TCP | PLAIN_TCP)
            }
            _ => true,
        }
    }
}

/// Measures everything.
///
/// # Errors
/// When something does not build, a guest does not boot, its kernel reports a fault, or netgauge has no report.
pub fn everything(layout: &Layout) -> Result<Results> {
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

/// Has the guest do something that must succeed.
fn done(guest: &mut Commands, line: &str) -> Result<()> {
    let ended = guest.ask(line)?;
    ensure!(ended.status == 0, "{line}:\n{}", ended.text);
    Ok(())
}

/// A command for each of `hosts`, which are namespaces.
fn on_each(hosts: &str, command: &str) -> String {
    format!("for host in {hosts}; do ip netns exec $host {command} || exit; done")
}

/// Without offloads every packet passes the kernel alone.
fn without_offloads(device: &str) -> String {
    format!("ethtool -K {device} tso off gso off gro off")
}

/// Two namespaces with a veth pair between them, as for `make bench`.
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

/// The transports' names, for netgauge.
pub fn transports(series: &[Series]) -> String {
    let names: Vec<_> = series.iter().map(|one| one.transport).collect();
    names.join(",")
}

/// Measures between the cable's ends.
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

/// Has the guest run netgauge with those of `series` that the topic suits; `line` makes the command of their names.
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
    // What a transport could not do is in the report.
    let report: Value = guest.ask(&line(&transports(&series)))?.report()?;
    results.take(&topic.key(), &series, &report);
    Ok(())
}

/// Three hosts on a switch.
fn switch(guest: &mut Commands, results: &mut Results) -> Result<()> {
    let hosts = "h0 h1 h2";
    // Processes of one real-time priority take turns instead of displacing each other.
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
    on_switch(guest, results, &[PLAIN_TCP])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_measured_over_what_can_do_them() {
        let all = |topic: Topic| OTHERS.iter().filter(|one| topic.suits(**one)).count();
        assert_eq!(all(Topic::Dialogue), 5);
        assert_eq!(all(Topic::LargeDialogue), 2);
        assert_eq!(all(Topic::Acks(1)), 1);
        assert!(Topic::Many.suits(PLAIN_TCP) && !Topic::Many.suits(EDP));
        assert_eq!(transports(&[ESP, PLAIN_TCP]), "esp,tcp");
        assert_eq!(Topic::LargeDialogue.key(), Topic::Dialogue.key());
        assert!(Topic::Loss.arguments().contains("-s 1448,2896,"));
        assert!(Topic::Records.arguments().ends_with("--eor"));
    }
}

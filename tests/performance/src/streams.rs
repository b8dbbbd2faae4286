// SPDX-License-Identifier: GPL-2.0-only

//! Redraws the figures of dialogues and streams: latency, throughput, acknowledgements, losses,
//! parameters, and many senders to one receiver.

use anyhow::Result;
use netgauge::plot::axis::{Scale, Unit};
use netgauge::plot::chart::Line;
use serde_json::Value;

use crate::page::{ahead, chart, line, lines, over_sizes, table, Section};
use crate::results::{at, Points, Results, Series, EDP, ESP, EZDP, PLAIN_TCP, RAW, TCP, UDP};
use crate::topics::{Topic, ACKS, BUFFER, BUFFERS, LOSS, PACKETS, PAYLOAD, RATE};
use crate::words::{beside, list, number, Better, KIB, MIB};

/// The unit of throughput on a clock that counts instructions.
const CLOCKED: &str = "Mbit/s at 10^9 instructions per second";

/// Formats the value of each series at `size`, as in `ESP 11,238, EDP 11,061`.
fn each(results: &Results, topic: &str, path: &str, size: f64) -> String {
    let told: Vec<_> = crate::results::ALL
        .into_iter()
        .filter_map(|series| {
            let value = at(&results.points(topic, series, path), size)?;
            Some(format!("{} {}", series.name, number(value)))
        })
        .collect();
    list(&told)
}

/// Returns text that compares the value of the series `one` with the value of each of `others`, for
/// messages of `size` bytes.
fn compared(
    results: &Results,
    (topic, path): (&str, &str),
    one: Series,
    others: &[Series],
    size: f64,
) -> String {
    let value = |series| at(&results.points(topic, series, path), size);
    let told: Vec<_> = others
        .iter()
        .filter_map(|other| {
            Some(format!(
                "{} {}",
                beside(value(one)?, value(*other)?),
                other.name
            ))
        })
        .collect();
    list(&told)
}

/// Redraws figures 4.3.1, 4.3.3, 4.4.1, 4.4.3, 5.3.1 and 5.3.3 of Reinhardt (2006).
pub fn latency(results: &Results) -> Result<Section> {
    let (topic, path) = ("dialogue", "half_rtt_ns.median");
    let lines = lines(results, topic, path);
    let mut section = Section {
        title: "Latency over message size".to_owned(),
        sources: "Reinhardt 2006, figures 4.3.1 and 4.3.3 (EDP), 4.4.1 and 4.4.3 (EZDP), 5.3.1 and 5.3.3 (ESP): half a round trip. \
                  EZDP is EDP that sends from the program's pages; a veth pair needs a copy of them, which a network card does not."
            .to_owned(),
        commands: vec![Topic::Dialogue.command(), Topic::LargeDialogue.command()],
        table: Some(table(
            &lines,
            "instructions",
            &[1.0, 64.0, KIB, 4.0 * KIB, 64.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes(
        "Half a round trip",
        "instructions",
        Scale::Logarithmic,
        lines,
    );
    section.draw("latency", &chart)?;
    let others = [TCP, UDP, RAW];
    for one in [EDP, ESP] {
        section.sentences.push(format!(
            "A message of one byte over {} takes {}.",
            one.name,
            compared(results, (topic, path), one, &others, 1.0)
        ));
    }
    let zero_copy = |size| compared(results, (topic, path), EZDP, &[EDP], size);
    section.sentences.push(format!(
        "Over EZDP a message of one byte takes {}, and one of 64 KiB {}.",
        zero_copy(1.0),
        zero_copy(64.0 * KIB)
    ));
    let others = [TCP, PLAIN_TCP, RAW];
    section
        .sentences
        .extend(ahead(results, (topic, path), ESP, &others, Better::Less));
    Ok(section)
}

/// Redraws figures 4.3.2, 4.3.4, 4.4.2, 4.4.4, 5.3.2 and 5.3.4 of Reinhardt (2006).
pub fn throughput(results: &Results) -> Result<Section> {
    let (topic, path) = ("dialogue", "mbit_per_s");
    let lines = lines(results, topic, path);
    let mut section = Section {
        title: "Throughput over message size".to_owned(),
        sources: "Reinhardt 2006, figures 4.3.2 and 4.3.4 (EDP), 4.4.2 and 4.4.4 (EZDP), 5.3.2 and 5.3.4 (ESP): the size divided by \
                  half a round trip, of the same measurement."
            .to_owned(),
        commands: vec![Topic::Dialogue.command(), Topic::LargeDialogue.command()],
        table: Some(table(
            &lines,
            CLOCKED,
            &[KIB, 4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes(
        "Size by half a round trip",
        CLOCKED,
        Scale::Logarithmic,
        lines,
    );
    section.draw("throughput", &chart)?;
    section.sentences.push(format!(
        "At 64 KiB, in Mbit/s of this clock: {}.",
        each(results, topic, path, 64.0 * KIB)
    ));
    let others = [TCP, PLAIN_TCP, UDP, RAW];
    section
        .sentences
        .extend(ahead(results, (topic, path), ESP, &others, Better::More));
    Ok(section)
}

/// Shows the effect of non-blocking calls, as sections 4.3 and 5.3 of Reinhardt (2006) do.
pub fn nonblocking(results: &Results) -> Result<Section> {
    let (topic, path) = ("nonblocking", "half_rtt_ns.median");
    let mut drawn = lines(results, topic, path);
    for line in &mut drawn {
        line.label += ", nonblocking";
    }
    let blocking = |series| results.points("dialogue", series, path);
    let mut section = Section {
        title: "Calls that do not block".to_owned(),
        sources: "Reinhardt 2006, the nonblocking series of figures 4.3.1 to 4.3.4 and 5.3.1 to 5.3.4: half a round trip, where each \
                  call that would block waits in `poll` instead."
            .to_owned(),
        commands: vec![Topic::Nonblocking.command()],
        table: Some(table(
            &drawn,
            "instructions",
            &[1.0, 64.0, KIB, 4.0 * KIB, 64.0 * KIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes(
        "Half a round trip, calls that do not block",
        "instructions",
        Scale::Logarithmic,
        drawn,
    );
    section.draw("nonblocking", &chart)?;
    let told: Vec<_> = [ESP, EDP, TCP]
        .into_iter()
        .filter_map(|series| {
            let waits = at(&results.points(topic, series, path), 1.0)?;
            let blocks = at(&blocking(series), 1.0)?;
            Some(format!("{} over {}", beside(waits, blocks), series.name))
        })
        .collect();
    section.sentences.push(format!(
        "A message of one byte takes {} with calls that block: the thesis' programs polled the socket without a pause, these sleep in `poll`.",
        list(&told)
    ));
    Ok(section)
}

/// Returns the throughput of `series` by the buffers' sizes, with a line for each size. `value` is
/// the value of half a round trip that the throughput is calculated from, such as `avg`.
fn by_buffers(results: &Results, series: Series, value: &str) -> Vec<Line> {
    let path = format!("half_rtt_ns.{value}");
    let drawn = BUFFERS.iter().map(|kib| {
        let points = results.points(&Topic::Buffers(*kib).key(), series, &path);
        // `ns` is half a round trip in nanoseconds. `size` bytes cross in that time.
        let in_mbit = points.into_iter().map(|(size, ns)| (size, size * 8e3 / ns));
        let label = format!("{}, {kib} KiB", series.name);
        line(label, series, in_mbit.collect())
    });
    drawn.collect()
}

/// Returns a sentence that compares the throughput of `series` with the smallest and the largest
/// buffers.
fn least_and_most(series: Series, lines: &[Line]) -> Option<String> {
    let of = |line: Option<&Line>| at(&line?.points, MIB);
    let (least, most) = (of(lines.first())?, of(lines.last())?);
    Some(format!(
        "At 1 MiB {} carries {} Mbit/s on average with buffers of {} KiB, {} the {} with {} KiB.",
        series.name,
        number(least),
        BUFFERS[0],
        beside(least, most),
        number(most),
        BUFFERS[BUFFERS.len() - 1]
    ))
}

/// Redraws the figures of sections 5.3.6 and 5.3.7 of Reinhardt (2006), and figure 5 of Treydte
/// (2007).
pub fn buffers(results: &Results) -> Result<Section> {
    let average = by_buffers(results, ESP, "avg");
    let tcp = by_buffers(results, TCP, "avg");
    let mut section = Section {
        title: "Influence of the socket buffers' sizes".to_owned(),
        sources: "Reinhardt 2006, figures 5.3.6 (the most) and 5.3.7 (averages): ESP's throughput by the sizes of the send and the \
                  receive buffer. Treydte 2007, figure 5, and Balaji and others 2002, 7.2: TCP's, whose window the two buffers limit."
            .to_owned(),
        commands: BUFFERS
            .iter()
            .map(|kib| Topic::Buffers(*kib).command())
            .collect(),
        table: Some(table(
            &[&average[..], &tcp[..]].concat(),
            &format!("average, {CLOCKED}"),
            &[4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    for (series, lines) in [(ESP, &average), (TCP, &tcp)] {
        section.sentences.extend(least_and_most(series, lines));
    }
    let most = by_buffers(results, ESP, "min");
    for (name, title, lines) in [
        ("buffers-most", "The most throughput", most),
        ("buffers-average", "Average throughput", average),
        ("buffers-tcp", "TCP's average throughput", tcp),
    ] {
        let title = format!("{title} by the buffers' sizes");
        section.draw(name, &over_sizes(&title, CLOCKED, Scale::FromZero, lines))?;
    }
    Ok(section)
}

/// Returns ESP's values at `path`, by size, from the runs with `packets_to_ack` set to `value`.
fn with_acks(results: &Results, value: u32, path: &str) -> Points {
    results.points(&Topic::Acks(value).key(), ESP, path)
}

/// Redraws the figures of section 5.3.5 of Reinhardt (2006).
pub fn acknowledgements(results: &Results) -> Result<Section> {
    let (latency, throughput) = ("half_rtt_ns.median", "mbit_per_s");
    let by_acks = |path| -> Vec<Line> {
        let values = ACKS.iter().map(|value| {
            let label = format!("ESP, packets_to_ack {value}");
            line(label, ESP, with_acks(results, *value, path))
        });
        let others = lines(results, "dialogue", path).into_iter();
        let others = others.filter(|line| line.label != ESP.name);
        values.chain(others).collect()
    };
    let mut section = Section {
        title: "Influence of acknowledgements".to_owned(),
        sources: "Reinhardt 2006, figure 5.3.5: ESP with an acknowledgement for every 1, 2, 5, 10 or 15 packets; the other protocols \
                  as above."
            .to_owned(),
        commands: vec![
            "sysctl -w esp.packets_to_ack=1        # on both hosts; then 2, 5, 10, 15".to_owned(),
            Topic::Acks(1).command(),
        ],
        table: Some(table(
            &by_acks(throughput),
            CLOCKED,
            &[KIB, 16.0 * KIB, 64.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    for (name, title, y, path) in [
        ("latency", "Half a round trip", "instructions", latency),
        ("throughput", "Throughput", CLOCKED, throughput),
    ] {
        let title = format!("{title} by packets_to_ack");
        let chart = over_sizes(&title, y, Scale::Logarithmic, by_acks(path));
        section.draw(&format!("acknowledgements-{name}"), &chart)?;
    }
    let one_and_ten = |path, size| {
        let with = |value| at(&with_acks(results, value, path), size);
        Some((with(1)?, with(10)?))
    };
    if let Some((one, ten)) = one_and_ten(throughput, MIB) {
        section.sentences.push(format!(
            "At 1 MiB ESP reaches {} Mbit/s with an acknowledgement for every packet, {} the {} with one for every 10 packets.",
            number(one),
            beside(one, ten),
            number(ten)
        ));
    }
    if let Some((one, ten)) = one_and_ten(latency, 1.0) {
        section.sentences.push(format!(
            "A message of one byte takes {} instructions with an acknowledgement for every packet, {} with one for every 10 packets ({}).",
            number(one),
            beside(one, ten),
            number(ten)
        ));
    }
    Ok(section)
}

/// Returns p_rrq of Treydte (2007, 6.1.1) for windows of `packets` packets. It is the share of
/// windows in which one or more packets at the end are lost, and all packets before them arrive.
fn tail_lost(loss: f64, packets: f64) -> f64 {
    (loss * (1.0 - loss).powf(packets) - loss.powf(packets + 1.0)) / (1.0 - 2.0 * loss)
}

/// Formats microseconds; values from 10 on are rounded to whole ones.
fn micros(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        number(value)
    }
}

/// Returns the curve that Treydte's formula (2007, 6.1.1) gives for the lossy cable.
fn formula() -> Line {
    let loss = f64::from(LOSS) / 100.0;
    let packets = PACKETS.map(f64::from).into_iter();
    Line {
        label: "Treydte's formula".to_owned(),
        transport: "formula".to_owned(),
        points: packets.map(|n| (n, tail_lost(loss, n))).collect(),
        bars: Vec::new(),
    }
}

/// Returns the share of messages that either stall or are lost.
fn stalled(row: &Value) -> Option<f64> {
    // A message whose datagram is lost is counted in `lost`, and not in `stalls`.
    let stalls = row["stalls"].as_f64()? + row["lost"].as_f64()?;
    Some(stalls / row["tests"].as_f64()?)
}

/// Returns by how much the mean time of an exchange exceeds the median, in us; `None` if the
/// transport may lose messages.
fn late(row: &Value) -> Option<f64> {
    let exchange = &row["exchange_ns"];
    let more = exchange["avg"].as_f64()? - exchange["median"].as_f64()?;
    row["lost_share"]
        .is_null()
        .then_some((more / 1000.0).max(0.0))
}

/// Returns a curve for each series on the lossy cable. The horizontal axis shows the packets of a
/// message instead of its bytes.
fn by_packets(results: &Results, value: fn(&Value) -> Option<f64>) -> Vec<Line> {
    let point = |row: &Value| Some((row["size"].as_f64()? / f64::from(PAYLOAD), value(row)?));
    let drawn = crate::results::ALL.into_iter().map(|series| {
        let rows = results.rows("loss", series);
        line(series.name, series, rows.filter_map(point).collect())
    });
    drawn.collect()
}

/// Returns sentences that compare what losses cost each series.
fn loss_sentences(shares: &[Line], times: &[Line]) -> Vec<String> {
    let of = |lines: &[Line], series: Series, packets| {
        let line = lines.iter().find(|line| line.label == series.name)?;
        at(&line.points, packets)
    };
    let most = f64::from(PACKETS[PACKETS.len() - 1]);
    let mut sentences = Vec::new();
    let share = |series| Some(format!("{:.1} %", of(shares, series, most)? * 100.0));
    if let (Some(esp), Some(tcp), Some(udp)) = (share(ESP), share(TCP), share(UDP)) {
        sentences.push(format!(
            "Of messages of {most} packets {esp} stall over ESP and {tcp} over TCP, and {udp} are incomplete over UDP, which retransmits nothing."
        ));
    }
    for packets in [1.0, most] {
        let time = |series| Some(micros(of(times, series, packets)?));
        if let (Some(esp), Some(tcp)) = (time(ESP), time(TCP)) {
            sentences.push(format!(
                "On average a message of {packets} packet{} takes {esp} us longer than the median over ESP, and {tcp} us over TCP.",
                if packets == 1.0 { "" } else { "s" }
            ));
        }
    }
    sentences
}

/// Redraws figure 11 of Treydte (2007).
pub fn losses(results: &Results) -> Result<Section> {
    let mut shares = by_packets(results, stalled);
    let times = by_packets(results, late);
    let mut section = Section {
        title: "Losses that only a timer detects".to_owned(),
        sources: format!(
            "Treydte 2007, figure 11: the probability that only a timer recovers a loss, over the window. Messages of 1 to {} packets, \
             each answered with a byte, on a link that loses {LOSS} % of the frames in one direction. A stall is an exchange that takes \
             four times the median and at least 1 ms longer; for datagrams, a message without an answer.",
            PACKETS[PACKETS.len() - 1]
        ),
        commands: vec![
            format!("tc qdisc add dev DEVICE root netem loss {LOSS}% seed 1"),
            Topic::Loss.command(),
        ],
        sentences: loss_sentences(&shares, &times),
        ..Section::default()
    };
    shares.push(formula());
    for (name, title, y, lines) in [
        ("losses", "Messages that stall or are lost", "share", shares),
        (
            "losses-time",
            "Mean time that losses cost a message",
            "us",
            times,
        ),
    ] {
        let x = ("packets of a message", Unit::Count);
        section.draw(name, &chart(title, x, (y, Scale::FromZero), lines))?;
    }
    Ok(section)
}

/// Redraws figure 12 of Treydte (2007).
pub fn parameters(results: &Results) -> Result<Section> {
    let cells: Vec<_> = results
        .parameters
        .iter()
        .filter_map(|cell| {
            let number = |name: &str| cell[name].as_f64();
            Some((
                number("burst_length")?,
                number("packets_to_ack")?,
                cell["goodput_bit_per_s"]["median"].as_f64()?,
            ))
        })
        .collect();
    let mut section = Section {
        title: "ESP's parameter space".to_owned(),
        sources: "Treydte 2007, figure 12: goodput of one stream over `burst_length` (w) and `packets_to_ack` (r), over the switch."
            .to_owned(),
        commands: vec![format!("netgauge {}", Topic::Parameters.arguments())],
        ..Section::default()
    };
    if let Some(svg) = results.pictures.get("parameters") {
        let title = "Goodput over burst_length and packets_to_ack";
        section
            .pictures
            .push(("parameters".to_owned(), title.to_owned(), svg.clone()));
    }
    let best = cells.iter().map(|cell| cell.2).fold(0.0, f64::max);
    let plateau = |ack_below: f64, least_burst: f64| {
        let on = cells
            .iter()
            .filter(|(burst, ack, _)| *burst >= least_burst && ack + ack_below <= *burst);
        on.map(|cell| cell.2 / best).fold(f64::INFINITY, f64::min)
    };
    let thesis = plateau(8.0, 16.0);
    if best > 0.0 && thesis.is_finite() {
        section.sentences.push(format!(
            "The best pair carries {} Mbit/s of {}. On Treydte's plateau (w >= 16, r <= w - 8) every pair reaches at least \
             {:.1} % of that.",
            number(best / 1e6),
            number(RATE.2 / 1e6),
            thesis * 100.0
        ));
        let worst = cells
            .iter()
            .map(|cell| cell.2 / best)
            .fold(f64::INFINITY, f64::min);
        section.sentences.push(format!(
            "The worst pair reaches {:.1} %. Other protocols have no such parameters to compare.",
            worst * 100.0
        ));
    }
    Ok(section)
}

/// Redraws figure 19 of Treydte (2007).
pub fn single_sender(results: &Results) -> Result<Section> {
    let (topic, path) = ("link", "mbit_per_s");
    let lines = lines(results, topic, path);
    let mut section = Section {
        title: "Throughput of a single sender over a switch".to_owned(),
        sources: format!(
            "Treydte 2007, figure 19: the size divided by half a round trip, on links of {} Mbit/s.",
            number(RATE.2 / 1e6)
        ),
        commands: vec![
            format!("enet-switch up --hosts 3 --rate {} --buffer {BUFFER}", RATE.0),
            Topic::Link.command(),
            Topic::LargeLink.command(),
        ],
        table: Some(table(
            &lines,
            "Mbit/s",
            &[KIB, 4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes("One sender", "Mbit/s", Scale::FromZero, lines);
    section.draw("single-sender", &chart)?;
    section.sentences.push(format!(
        "At 64 KiB, in Mbit/s: {}.",
        each(results, topic, path, 64.0 * KIB)
    ));
    let others = [TCP, PLAIN_TCP, UDP, EDP];
    section
        .sentences
        .extend(ahead(results, (topic, path), ESP, &others, Better::More));
    Ok(section)
}

/// Redraws figure 20 of Treydte (2007).
pub fn congestion(results: &Results) -> Result<Section> {
    let (topic, path) = ("many", "goodput_bit_per_s.median");
    let in_mbit = |points: Points| -> Points {
        points
            .into_iter()
            .map(|(size, bits)| (size, bits / 1e6))
            .collect()
    };
    let lines: Vec<_> = lines(results, topic, path)
        .into_iter()
        .map(|line| Line {
            points: in_mbit(line.points),
            ..line
        })
        .collect();
    let mut section = Section {
        title: "Two senders to one receiver".to_owned(),
        sources: format!(
            "Treydte 2007, figure 20: goodput of both together, on links of {} Mbit/s with a 128 KiB buffer in the receiver's \
             port. Datagrams are left out: they have no flow control.",
            number(RATE.2 / 1e6)
        ),
        commands: vec![
            format!("enet-switch up --hosts 3 --rate {} --buffer {BUFFER}", RATE.0),
            format!("netgauge -m esp,tcp {}", Topic::Many.arguments()),
        ],
        table: Some(table(
            &lines,
            "Mbit/s",
            &[KIB, 16.0 * KIB, 64.0 * KIB, 128.0 * KIB, 256.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes("Two senders", "Mbit/s", Scale::FromZero, lines);
    section.draw("congestion", &chart)?;
    let goodput = |series, size| at(&results.points(topic, series, path), size);
    if let (Some(esp), Some(tcp)) = (goodput(ESP, MIB), goodput(TCP, MIB)) {
        section.sentences.push(format!(
            "At 1 MiB from each sender ESP carries {} Mbit/s, {} TCP's {}.",
            number(esp / 1e6),
            beside(esp, tcp),
            number(tcp / 1e6)
        ));
    }
    section.sentences.extend(ahead(
        results,
        (topic, path),
        ESP,
        &[TCP, PLAIN_TCP],
        Better::More,
    ));
    Ok(section)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn datagrams_without_a_copy_are_in_the_figures_of_dialogues() {
        let mut results = Results::default();
        for (series, ns) in [(EDP, 1000), (EZDP, 1200), (ESP, 1100)] {
            let row = |size: u32| {
                let time = json!({ "median": ns * size });
                json!({"size": size, "half_rtt_ns": time, "mbit_per_s": 8000.0 / f64::from(ns)})
            };
            let runs = [json!({"transport": series.transport, "rows": [row(1), row(1 << 16)]})];
            results.take("dialogue", &[series], &json!({ "runs": runs }));
        }
        let section = latency(&results).unwrap();
        assert!(section.table.unwrap().contains("\n| EZDP | 1,200 |"));
        let told = section.sentences.join("\n");
        assert!(
            told.contains("of one byte takes 20 % more than EDP, and"),
            "{told}"
        );
        let section = throughput(&results).unwrap();
        assert!(section.table.unwrap().contains("\n| EZDP |"));
        assert!(section.pictures[0].2.contains("EZDP"));
    }

    #[test]
    fn throughput_by_buffers_is_shown_for_esp_and_tcp() {
        let mut results = Results::default();
        for (index, kib) in (1u32..).zip(BUFFERS) {
            let run = |transport: &str, ns: u32| {
                json!({"transport": transport, "rows": [
                    {"size": 1 << 20, "half_rtt_ns": {"min": ns, "avg": ns}}]})
            };
            let runs = [run("esp", 1_048_576 / index), run("tcp", 2_097_152 / index)];
            let report = json!({ "runs": runs });
            results.take(&Topic::Buffers(kib).key(), &[ESP, TCP], &report);
        }
        let section = buffers(&results).unwrap();
        let table = section.table.unwrap();
        for row in ["| ESP, 512 KiB |", "| TCP, 16 KiB |", "| TCP, 512 KiB |"] {
            assert!(table.contains(row), "{row}: {table}");
        }
        let sentence = "At 1 MiB TCP carries 4,000 Mbit/s on average with buffers of 16 KiB";
        let told = section.sentences.join("\n");
        assert!(told.contains(sentence), "{told}");
        let names: Vec<_> = section
            .pictures
            .iter()
            .map(|(name, ..)| &name[..])
            .collect();
        assert_eq!(names, ["buffers-most", "buffers-average", "buffers-tcp"]);
    }

    #[test]
    fn the_formula_equals_the_thesis_sum() {
        for (loss, packets) in [(0.02_f64, 1), (0.02, 8), (0.3, 5)] {
            let terms =
                (0..packets).map(|whole| (1.0 - loss).powi(whole) * loss.powi(packets - whole));
            let sum: f64 = terms.sum();
            assert!((tail_lost(loss, f64::from(packets)) - sum).abs() < 1e-12);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The page: functions that all figures share, and below them the sections in order.

use std::fmt::Write as _;

use anyhow::{ensure, Result};
use netgauge::picture;
use netgauge::plot::axis::{Axis, Scale, Unit};
use netgauge::plot::chart::{Chart, Line};

use crate::results::{at, Points, Results, Series, ALL};
use crate::{overheads, shares, streams, words};

/// The directory of the pictures, next to the page.
pub const PICTURES: &str = "performance";

/// The page and its pictures.
#[derive(Debug)]
pub struct Page {
    /// Markdown.
    pub text: String,
    /// Names and contents of the pictures.
    pub pictures: Vec<(String, String)>,
}

/// A section with one figure, or several of the same kind.
#[derive(Debug, Default)]
pub struct Section {
    /// The title.
    pub title: String,
    /// The figures of Reinhardt (2006) or Treydte (2007) that the section redraws.
    pub sources: String,
    /// The commands that measured the figures.
    pub commands: Vec<String>,
    /// For each picture its file name without extension, its alternative text, and its contents.
    pub pictures: Vec<(String, String, String)>,
    /// A table in Markdown.
    pub table: Option<String>,
    /// Sentences that describe the result.
    pub sentences: Vec<String>,
}

impl Section {
    /// Adds a picture.
    ///
    /// # Errors
    /// If nothing was measured for the picture, or it cannot be drawn.
    pub fn draw(&mut self, name: &str, chart: &Chart) -> Result<()> {
        ensure!(
            !chart.lines.is_empty(),
            "{}: nothing was measured to draw",
            chart.title
        );
        let mut svg = picture::svg(chart)?;
        svg.push('\n');
        self.pictures
            .push((name.to_owned(), chart.title.clone(), svg));
        Ok(())
    }
}

/// Returns a chart of the `lines` that have points, over a logarithmic axis.
pub fn chart(
    title: &str,
    (x, unit): (&str, Unit),
    (y, scale): (&str, Scale),
    mut lines: Vec<Line>,
) -> Chart {
    if scale == Scale::Logarithmic {
        for line in &mut lines {
            // A logarithmic axis cannot show 0.
            line.points.retain(|point| point.1 > 0.0);
        }
    }
    lines.retain(|line| !line.points.is_empty());
    let points = || lines.iter().flat_map(|line| &line.points);
    let heights = points().map(|point| point.1);
    Chart {
        title: title.to_owned(),
        notes: Vec::new(),
        x: Axis::new(x, unit, points().map(|point| point.0)),
        y: match scale {
            Scale::Logarithmic => Axis::new(y, Unit::Number, heights),
            Scale::FromZero => Axis::from_zero(y, heights),
        },
        base: None,
        lines,
    }
}

/// Returns a chart over the size of messages.
pub fn over_sizes(title: &str, y: &str, scale: Scale, lines: Vec<Line>) -> Chart {
    chart(title, ("message size", Unit::Bytes), (y, scale), lines)
}

/// Returns the line of a series.
pub fn line(label: impl Into<String>, series: Series, points: Points) -> Line {
    Line {
        label: label.into(),
        transport: series.transport.to_owned(),
        points,
        bars: Vec::new(),
    }
}

/// Returns a line for each series.
pub fn lines(results: &Results, topic: &str, path: &str) -> Vec<Line> {
    ALL.into_iter()
        .map(|series| line(series.name, series, results.points(topic, series, path)))
        .collect()
}

/// Returns a table of the measured lines, with a column for each of `sizes`.
pub fn table(lines: &[Line], heading: &str, sizes: &[f64]) -> String {
    let mut text = format!("| {heading} |");
    for size in sizes {
        let _ = write!(text, " {} |", words::size(*size));
    }
    text += "\n|---|";
    text += &"---:|".repeat(sizes.len());
    for line in lines.iter().filter(|line| !line.points.is_empty()) {
        let _ = write!(text, "\n| {} |", line.label);
        for size in sizes {
            let value = at(&line.points, *size).map_or_else(String::new, words::number);
            let _ = write!(text, " {value} |");
        }
    }
    text
}

/// Returns sentences about the sizes at which each of `others` is ahead of `one`.
pub fn ahead(
    results: &Results,
    (topic, path): (&str, &str),
    one: Series,
    others: &[Series],
    better: words::Better,
) -> Vec<String> {
    let points = |series: Series| -> Points { results.points(topic, series, path) };
    let mine = points(one);
    let sentence = |other: &Series| {
        let theirs = points(*other);
        words::ahead((one.name, &mine), (other.name, &theirs), better)
    };
    others.iter().filter_map(sentence).collect()
}

/// Writes all sections.
///
/// # Errors
/// If a picture cannot be drawn.
pub fn write(results: &Results) -> Result<Page> {
    let sections = [
        streams::latency(results)?,
        streams::throughput(results)?,
        streams::nonblocking(results)?,
        streams::acknowledgements(results)?,
        streams::buffers(results)?,
        streams::losses(results)?,
        streams::parameters(results)?,
        overheads::logp(results)?,
        overheads::hidden(results),
        streams::single_sender(results)?,
        streams::congestion(results)?,
        shares::ramp_up(results)?,
        shares::beside_tcp(results),
        overheads::flood(results)?,
    ];
    let mut text = INTRODUCTION.replace("RELEASE", &results.release);
    let mut pictures = Vec::new();
    for section in sections {
        let _ = write!(text, "\n## {}\n\n{}\n", section.title, section.sources);
        text += "\n```sh\n";
        for command in &section.commands {
            let _ = writeln!(text, "{command}");
        }
        text += "```\n\n";
        for (name, title, svg) in section.pictures {
            let file = format!("{name}.svg");
            let _ = writeln!(text, "![{title}]({PICTURES}/{file})\n");
            pictures.push((file, svg));
        }
        if let Some(table) = section.table {
            let _ = writeln!(text, "{table}\n");
        }
        text += &section.sentences.join("\n");
        text.push('\n');
    }
    Ok(Page { text, pictures })
}

const INTRODUCTION: &str = "\
# Performance: the theses' figures, today

The figures of Reinhardt (2006) and Treydte (2007), measured again on Debian's stock kernel RELEASE, beside TCP with the kernel's
defaults, TCP without TSO, GSO and GRO, UDP, and packet sockets (`AF_PACKET`). One command writes this page, its numbers,
comparisons and pictures; do not edit it by hand:

```sh
make performance                        # measures, draws and writes
make performance OPTIONS=--redraw       # draws and writes again from the last results
```

## How to read the figures

**All figures are counted instructions, not times on hardware.** Every host runs in one guest with one emulated processor whose
clock counts instructions: one instruction is one nanosecond. That processor does the work of all hosts, one after the
other. So between two hosts joined by a veth pair \"half a round trip\" is not a network's latency: it is the number of
instructions that both hosts together execute for a message. Throughput is that of a processor which executes 10^9
instructions per second and is both hosts. The numbers repeat on any machine to some tenths of a percent, and show which
protocol takes less work.

They leave out memory and caches, the bus, the network card and its interrupts, and two hosts that work at the same time.
A veth pair passes TCP's segments of up to 64 KiB whole. A network card splits them at no cost to the processor, but
merging them again (GRO) takes instructions of the receiver that are missing here: for large messages TCP's figures are a
little too low. \"TCP without offloads\" passes each packet alone. Figures over the switch, `enet-switch` with ports of
200 Mbit/s and 128 KiB, contain the times of its links, beside which the processor is fast.

Datagrams are measured up to 64 KiB, where a message is a burst of them that fits the receiver's buffer; larger messages need
flow control. Each group of commands shows netgauge's part of the measurement.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ESP, TCP};

    fn drawn(scale: Scale, lines: Vec<Line>) -> Result<String> {
        let mut section = Section::default();
        section.draw("name", &over_sizes("Title", "instructions", scale, lines))?;
        Ok(section.pictures.remove(0).2)
    }

    #[test]
    fn a_picture_has_its_lines_names_and_axes() {
        let points = vec![(1.0, 10.0), (1024.0, 20.0), (65536.0, 3000.0)];
        for scale in [Scale::FromZero, Scale::Logarithmic] {
            let lines = [ESP, TCP].map(|series| line(series.name, series, points.clone()));
            let svg = drawn(scale, lines.into()).unwrap();
            for text in [
                "Title",
                "message size",
                "instructions",
                "ESP",
                "TCP",
                "64 KiB",
            ] {
                assert!(svg.contains(text), "{scale:?}: {text} is missing:\n{svg}");
            }
        }
    }

    #[test]
    fn zeros_and_missing_lines_do_not_spoil_it() {
        let none = line("none", ESP, Vec::new());
        let zeros = line("zeros", TCP, vec![(1.0, 0.0), (2.0, 0.0), (4.0, 5.0)]);
        for scale in [Scale::FromZero, Scale::Logarithmic] {
            let svg = drawn(scale, vec![none.clone(), zeros.clone()]).unwrap();
            assert!(svg.contains("zeros") && !svg.contains("none<"), "{svg}");
        }
        assert!(drawn(Scale::FromZero, vec![none]).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The forms of reports on patterns of more than two.

use std::io::{self, Write};
#[cfg(feature = "pictures")]
use std::path::Path;

#[cfg(feature = "pictures")]
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::esp_params::ParamsReport;
use super::patterns::{self, Rounds};
use super::plan::Roles;
use super::report::GroupReport;
use super::Results;
use crate::report::fields::{self, column, mbit, shown, write_table, Line};
use crate::report::{self, Format, LeftOut, Outcome};
use crate::sizes::human;
use crate::transport::medium;

impl Results for GroupReport {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let record = self.record.as_ref();
        report::write(self, record, format, (group_table, group_csv), out)
    }

    fn errors(&self) -> Vec<String> {
        report::errors(&self.runs)
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    #[cfg(feature = "pictures")]
    fn draw(&self, path: &Path) -> Result<()> {
        crate::plot::goodput::draw(self, path)
    }
}

impl Results for ParamsReport {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let record = self.record.as_ref();
        report::write(self, record, format, (params_table, params_csv), out)
    }

    fn errors(&self) -> Vec<String> {
        match &self.outcome {
            Outcome::Ok => Vec::new(),
            Outcome::Failed { error } => vec![format!("{}: {error}", self.pattern)],
        }
    }

    #[cfg(feature = "pictures")]
    fn draw(&self, path: &Path) -> Result<()> {
        super::heat_map::write(self, path)
    }
}

/// Names of comma-separated values where there are clients, and where all do the same.
const OF_CLIENTS: &str =
    "transport,congestion,clients,server,size,rounds,errors,worst_bit_per_s,median_bit_per_s,best_bit_per_s,\
     worst_share,median_share,best_share,worst_fairness,median_fairness,error";
const OF_HOSTS: &str =
    "transport,congestion,hosts,size,rounds,errors,worst_bit_per_s,average_bit_per_s,median_bit_per_s,\
     best_bit_per_s,average_share,total_bit_per_s,bisection_bit_per_s,worst_fairness,median_fairness,error";

/// The same of questions beside streams.
const OF_QUESTIONS: &str =
    "transport,congestion,clients,server,size,rounds,errors,alone_median_ns,alone_p99_ns,median_ns,p90_ns,p99_ns,max_ns,\
     median_slowdown,p99_slowdown,longest_pause_ns,median_bit_per_s,median_share,error";

/// The names of what a pattern's rows have.
fn names(rounds: &Rounds) -> &'static str {
    match rounds.roles {
        _ if rounds.name == patterns::BESIDE.name => OF_QUESTIONS,
        Roles::Alike => OF_HOSTS,
        _ => OF_CLIENTS,
    }
}

/// The rows, each with what is known of its run; behind those of a run that failed, its error.
fn lines(report: &GroupReport) -> Vec<Line> {
    let mut lines = Vec::new();
    for run in &report.runs {
        let mut of_run = fields::of(run);
        of_run.insert("hosts".to_owned(), report.participants.len().into());
        fields::add_lines(&mut lines, of_run, run.rows.iter().map(line));
    }
    lines
}

/// The fields of a row, those of what is summed up in it by their own names: `worst` of
/// `goodput_bit_per_s` is `worst_bit_per_s`.
fn line(row: &impl Serialize) -> Line {
    let mut line = Line::new();
    for (name, value) in fields::of(row) {
        let whole = name.split_once('_').map_or(&name[..], |(_, whole)| whole);
        match value {
            Value::Object(parts) => {
                let parts = parts.into_iter();
                line.extend(parts.map(|(part, value)| (format!("{part}_{whole}"), value)));
            }
            share if name == "share" => drop(line.insert("average_share".to_owned(), share)),
            value => drop(line.insert(name, value)),
        }
    }
    line
}

/// For people: one table of all runs, since what grows with the clients shows only there.
fn group_table(report: &GroupReport, out: &mut dyn Write) -> io::Result<()> {
    let rounds = patterns::named(&report.pattern);
    let hosts = report.participants.len().to_string();
    let head = rounds.head.replace("{hosts}", &hosts);
    writeln!(out, "{}: {head}", rounds.name)?;
    if let Some(rate) = report.rate_bit_per_s {
        writeln!(out, "  shares are of {} Mbit/s", mbit(rate))?;
    }
    let mut lines = lines(report);
    lines.retain(|line| !line.contains_key("error"));
    // Shares of nothing are not shown, nor what another pattern has.
    let other = match rounds.name {
        "bisection" => &["total_bit_per_s", "worst_fairness", "median_fairness"][..],
        _ => &["bisection_bit_per_s"],
    };
    let is_shown = |name: &&str| {
        let share = name.ends_with("_share") && report.rate_bit_per_s.is_none();
        !share && !other.contains(name) && !["congestion", "hosts", "error"].contains(name)
    };
    let columns = names(rounds).split(',').filter(is_shown).map(|name| {
        let title = match name {
            "rounds" if rounds.name == "bisection" => "pairings".to_owned(),
            name => name.replace("_bit_per_s", " Mbit/s").replace('_', " "),
        };
        column(title, move |line: &Line| {
            let text = |name| line.get(name).and_then(Value::as_str);
            match name {
                "transport" => medium(text(name).unwrap_or_default(), text("congestion")),
                _ => shown(name, line.get(name)),
            }
        })
    });
    write_table(&columns.collect::<Vec<_>>(), &lines, out)?;
    write_errors(report, out)?;
    for left_out in &report.left_out {
        writeln!(out, "  {left_out}")?;
    }
    Ok(())
}

fn write_errors(report: &dyn Results, out: &mut dyn Write) -> io::Result<()> {
    let mut errors = report.errors().into_iter();
    errors.try_for_each(|error| writeln!(out, "  FAILED: {error}"))
}

/// For programs. A run that failed ends with a line that has its error and no numbers.
fn group_csv(report: &GroupReport, out: &mut dyn Write) -> io::Result<()> {
    let names = names(patterns::named(&report.pattern));
    fields::write_csv(names, &lines(report), out)
}

/// `esp-params` for people: `burst_length` downwards, `packets_to_ack` to the right.
fn params_table(report: &ParamsReport, out: &mut dyn Write) -> io::Result<()> {
    let clients = match report.clients {
        1 => "one client".to_owned(),
        clients => format!("{clients} clients"),
    };
    writeln!(
        out,
        "esp-params: {clients}, {} each; goodput in Mbit/s, median, by burst_length (down) and \
         packets_to_ack (right)",
        human(report.size)
    )?;
    let mut columns = vec![column("", u32::to_string)];
    columns.extend(report.packets_to_ack.iter().map(|ack| {
        column(ack.to_string(), move |burst: &u32| {
            let cell = report.cell(*burst, *ack);
            cell.map_or(String::new(), |cell| {
                let goodput = cell.goodput_bit_per_s;
                goodput.map_or("-".to_owned(), |goodput| mbit(goodput.median))
            })
        })
    }));
    write_table(&columns, &report.burst_length, out)?;
    write_errors(report, out)
}

/// `esp-params` for programs. A run that failed ends with a line that has its error and no numbers.
fn params_csv(report: &ParamsReport, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = Vec::new();
    let cells = report.cells.iter().map(line);
    fields::add_lines(&mut lines, fields::of(report), cells);
    let names =
        "clients,size,burst_length,packets_to_ack,rounds,errors,worst_bit_per_s,median_bit_per_s,\
                 best_bit_per_s,worst_share,median_share,best_share,error";
    fields::write_csv(names, &lines, out)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use serde_json::json;

    const ERROR: &str = "h1: no module, run `modprobe enet`";

    fn goodput(median: u64) -> Value {
        json!({"worst": median - 1_000_000, "median": median, "best": median + 2_000_000})
    }

    /// One of three hosts, whose links have 200 Mbit/s.
    fn of_three(pattern: &str, runs: Value) -> GroupReport {
        let report = json!({
            "netgauge": "0.1.0", "pattern": pattern, "participants": ["h0", "h1", "h2"], "seed": 7,
            "rate_bit_per_s": 200_000_000, "runs": runs,
        });
        serde_json::from_value(report).unwrap()
    }

    pub(crate) fn many() -> GroupReport {
        let row = |size: u64, median| {
            let goodput = goodput(median);
            let share = |name: &str| goodput[name].as_f64().unwrap() / 2e8;
            json!({
                "size": size, "rounds": 20, "errors": 0, "goodput_bit_per_s": goodput,
                "share": {"worst": share("worst"), "median": share("median"), "best": share("best")},
                "fairness": {"worst": 0.75, "median": 0.875},
            })
        };
        let runs = json!([
            {"transport": "tcp", "about": "", "congestion": "reno", "status": "ok",
             "clients": 2, "server": "h0", "server_index": 0,
             "rows": [row(1024, 80_000_000), row(1 << 16, 190_000_000)]},
            {"transport": "esp", "about": "", "status": "failed", "error": ERROR,
             "clients": 1, "server": "h0", "server_index": 0,
             "rows": [{"size": 1024, "rounds": 0, "errors": 1}]},
        ]);
        of_three("one-many", runs)
    }

    pub(crate) fn all() -> GroupReport {
        let row = |size: u64, median: u64| {
            let average = median - 1_000_000;
            let (worst, best) = (median - 3_000_000, median + 2_000_000);
            let host = json!({"worst": worst, "average": average, "median": median, "best": best});
            json!({
                "size": size, "rounds": 20, "errors": 0, "host_bit_per_s": host,
                "share": average as f64 / 2e8, "total_bit_per_s": average * 3,
                "fairness": {"worst": 0.75, "median": 0.875},
            })
        };
        let rows = [row(1024, 70_000_000), row(1 << 16, 180_000_000)];
        let run = json!({
            "transport": "tcp", "about": "", "congestion": "reno", "status": "ok", "rows": rows,
        });
        of_three("all-to-all", json!([run]))
    }

    pub(crate) fn params() -> ParamsReport {
        let cell = |burst_length: u32, packets_to_ack: u32, median| {
            json!({
                "burst_length": burst_length, "packets_to_ack": packets_to_ack,
                "rounds": 5, "errors": 0, "goodput_bit_per_s": goodput(median),
            })
        };
        let cells = [
            cell(1, 1, 20_000_000),
            cell(16, 1, 150_000_000),
            cell(16, 8, 190_000_000),
        ];
        let report = json!({
            "netgauge": "0.1.0", "pattern": "esp-params", "participants": ["h0", "h1"], "seed": 7,
            "server": "h0", "server_index": 0, "clients": 1, "size": 4 << 20,
            "burst_length": [1, 16, 32], "packets_to_ack": [1, 8],
            "status": "failed", "error": ERROR, "cells": cells,
        });
        serde_json::from_value(report).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record;
    use serde_json::json;

    /// A report as it is printed.
    fn printed<R>(report: R, print: fn(&R, &mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_many_is_one_table() {
        let expected = "\
  shares are of 200.0 Mbit/s
  transport  clients  server    size  rounds  errors  worst Mbit/s  median Mbit/s  best Mbit/s  worst share  median share  best share  worst fairness  median fairness
  --------------------------------------------------------------------------------------------------------------------------------------------------------------------
  tcp reno         2      h0   1 KiB      20       0         79.00          80.00        82.00        0.395         0.400       0.410           0.750            0.875
  tcp reno         2      h0  64 KiB      20       0         189.0          190.0        192.0        0.945         0.950       0.960           0.750            0.875
  esp              1      h0   1 KiB       0       1             -              -            -            -             -           -               -                -
  FAILED: esp, 1 client: h1: no module, run `modprobe enet`
";
        let text = printed(samples::many(), group_table);
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn what_fails_alike_is_told_once() {
        let mut report = samples::many();
        let mut run = report.runs.pop().unwrap();
        run.rows.clear();
        for clients in [2, 4] {
            run.cast.as_mut().unwrap().clients = clients;
            report.runs.push(run.clone());
        }
        let mut out = Vec::new();
        group_table(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected =
            "\n  FAILED: esp, 2 clients; esp, 4 clients: h1: no module, run `modprobe enet`\n";
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(text.matches("FAILED").count(), 1, "{text}");
    }

    #[test]
    fn esp_params_is_a_table_with_gaps_where_there_is_nothing() {
        let expected = "
          1      8
  ----------------
  1   20.00
  16  150.0  190.0
  32
  FAILED: esp-params: h1: no module, run `modprobe enet`
";
        let text = printed(samples::params(), params_table);
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn every_line_of_values_has_every_field() {
        let many = printed(samples::many(), group_csv);
        let params = printed(samples::params(), params_csv);
        for text in [&many, &params] {
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.len(), 5, "{text}");
            let fields = lines[0].split(',').count();
            for line in &lines[..4] {
                assert_eq!(line.split(',').count(), fields, "{line}");
            }
            // The error has a comma, within its quotation marks.
            assert_eq!(lines[4].split(',').count(), fields + 1, "{}", lines[4]);
            assert!(lines[4].ends_with("`modprobe enet`\""), "{}", lines[4]);
        }
        assert!(many.contains(
            "\ntcp,reno,2,h0,1024,20,0,79000000,80000000,82000000,0.3950,0.4000,0.4100,0.7500,0.8750,\n"
        ));
        assert!(params.contains("\n1,4194304,16,8,5,0,189000000,190000000,192000000,,,,\n"));
    }

    #[test]
    fn json_has_the_documented_names() {
        let report = serde_json::to_value(samples::many()).unwrap();
        assert_eq!(report["pattern"], "one-many");
        assert_eq!(report["rate_bit_per_s"], 200_000_000);
        let run = &report["runs"][0];
        assert_eq!(
            (&run["congestion"], &run["clients"]),
            (&json!("reno"), &json!(2))
        );
        assert_eq!(
            (&run["server"], &run["server_index"]),
            (&json!("h0"), &json!(0))
        );
        assert_eq!(run["status"], "ok");
        let expected = json!({
            "size": 1024, "rounds": 20, "errors": 0,
            "goodput_bit_per_s": {"worst": 79_000_000, "median": 80_000_000, "best": 82_000_000},
            "share": {"worst": 0.395, "median": 0.4, "best": 0.41},
            "fairness": {"worst": 0.75, "median": 0.875},
        });
        assert_eq!(run["rows"][0], expected);
        let failed = &report["runs"][1];
        assert_eq!(
            (&failed["status"], failed.get("congestion")),
            (&json!("failed"), None)
        );
        assert!(failed["error"].as_str().unwrap().contains("modprobe"));
        assert_eq!(
            failed["rows"][0],
            json!({"size": 1024, "rounds": 0, "errors": 1})
        );

        let report = serde_json::to_value(samples::params()).unwrap();
        assert_eq!(report["burst_length"], json!([1, 16, 32]));
        assert_eq!(report["status"], "failed");
        let expected = json!({
            "burst_length": 16, "packets_to_ack": 8, "rounds": 5, "errors": 0,
            "goodput_bit_per_s": {"worst": 189_000_000, "median": 190_000_000, "best": 192_000_000},
        });
        assert_eq!(report["cells"][2], expected);
    }

    fn recorded(report: &impl Results, format: Format) -> String {
        let mut out = Vec::new();
        report.write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn group(mut report: GroupReport) -> GroupReport {
        report.record = Some(record::tests::sample());
        report
    }

    fn params() -> ParamsReport {
        let record = Some(record::tests::sample());
        let report = samples::params();
        ParamsReport { record, ..report }
    }

    #[test]
    fn the_record_is_in_every_form() {
        let table = recorded(&group(samples::many()), Format::Table);
        assert!(
            table.starts_with("2026-11-21T16:00:00Z: netgauge"),
            "{table}"
        );
        let csv = recorded(&params(), Format::Csv);
        assert!(
            csv.starts_with("# started: 2026-11-21T16:00:00Z\n"),
            "{csv}"
        );
        assert!(csv.contains("\nclients,size,burst_length,"), "{csv}");
    }

    #[test]
    fn json_reads_back_as_the_report_and_as_the_record() {
        let json = recorded(&group(samples::many()), Format::Json);
        let report: GroupReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, group(samples::many()));
        let json = recorded(&group(samples::all()), Format::Json);
        let report: GroupReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, group(samples::all()));
        let json = recorded(&params(), Format::Json);
        let report: ParamsReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, params());
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let found: record::Record = serde_json::from_value(value["record"].clone()).unwrap();
        assert_eq!(found, record::tests::sample());
    }
}

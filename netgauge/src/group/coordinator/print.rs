// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reports on patterns between more than two hosts, in each output format.

use std::io::{self, Write};
#[cfg(feature = "pictures")]
use std::path::Path;

use super::esp_params::{Cell, ParamsReport};
use super::figures::Goodput;
use super::patterns::{self, Rounds};
use super::plan::Roles;
use super::report::{GroupReport, GroupRow, GroupRun};
use super::Results;
use crate::group::net::rpc::RpcFigures;
use crate::pattern::LOADED_LATENCY;
use crate::report::columns::{self, column, field, mbit, write_table, Field, Rest, Value};
use crate::report::format::{self, Format};
use crate::report::{self, LeftOut, Outcome};
use crate::sizes::human;
#[cfg(feature = "pictures")]
use anyhow::Result;

impl Results for GroupReport {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let record = self.record.as_ref();
        format::write(self, record, format, (group_table, group_csv), out)
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
        format::write(self, record, format, (params_table, params_csv), out)
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

/// A line of a report: a row of a run, or the run's error.
struct Line<'a> {
    run: &'a GroupRun,
    rest: Rest<'a, &'a GroupRow>,
}

/// Returns the rows, each with its run. The rows of a failed run are followed by the run's error.
fn lines(report: &GroupReport) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for run in &report.runs {
        let rests = columns::lines(&run.outcome, &run.rows).into_iter();
        lines.extend(rests.map(|rest| Line { run, rest }));
    }
    lines
}

type GroupField<'a> = Field<'a, Line<'a>>;

/// Returns a column that shows, on each line, a value of the line's run.
fn of_run<'a, V: Into<Value>>(
    name: &'static str,
    value: impl Fn(&GroupRun) -> V + 'a,
) -> GroupField<'a> {
    field(name, move |line: &Line<'_>| value(line.run).into())
}

/// Returns a column that shows, on each line, a value of the line's row.
fn of_row<'a, V: Into<Value>>(
    name: &'static str,
    value: impl Fn(&GroupRow) -> V + 'a,
) -> GroupField<'a> {
    field(name, move |line: &Line<'_>| {
        line.rest.row().map(|row| value(row).into())
    })
}

/// Returns a column that shows, on each line, a figure of the row's remote calls.
fn of_calls<'a, V: Into<Value>>(
    name: &'static str,
    value: impl Fn(&RpcFigures) -> V + 'a,
) -> GroupField<'a> {
    of_row(name, move |row| {
        row.rpc.as_ref().map(|calls| value(calls).into())
    })
}

/// Returns a column that shows, on each line, one rate of the row's goodput.
fn of_goodput<'a>(
    name: &'static str,
    rate: impl Fn(&Goodput) -> Option<u64> + 'a,
) -> GroupField<'a> {
    of_row(name, move |row| {
        let goodput = row.goodput_bit_per_s.or(row.host_bit_per_s);
        Value::rate(goodput.as_ref().and_then(&rate))
    })
}

/// Returns the columns for results of the pattern `rounds` among `hosts` hosts.
fn fields<'a>(rounds: &Rounds, hosts: usize) -> Vec<GroupField<'a>> {
    let cast = |run: &GroupRun| run.cast.clone();
    let mut fields = vec![
        of_run("transport", |run| Value::from(&*run.transport)),
        of_run("congestion", |run| {
            run.congestion.as_deref().map(Value::from)
        }),
    ];
    match rounds.roles {
        Roles::Alike => fields.push(of_run("hosts", move |_| hosts)),
        Roles::Clients | Roles::Grid => fields.extend([
            of_run("clients", move |run| cast(run).map(|cast| cast.clients)),
            of_run("server", move |run| {
                cast(run).map(|cast| Value::Text(cast.server))
            }),
        ]),
    }
    fields.extend([
        of_row("size", |row| Value::Size(row.size)),
        of_row("rounds", |row| row.rounds),
        of_row("errors", |row| row.errors),
    ]);
    fields.extend(match rounds.roles {
        _ if rounds.name == LOADED_LATENCY => of_loaded_latency(),
        Roles::Alike => of_hosts(),
        Roles::Clients | Roles::Grid => of_clients(),
    });
    fields.push(field("error", |line: &Line<'_>| {
        line.rest.error().map(Value::from)
    }));
    fields
}

/// Returns the columns for the results of patterns with clients and a server, such as one-many.
fn of_clients<'a>() -> Vec<GroupField<'a>> {
    vec![
        of_goodput("worst_bit_per_s", |rates| Some(rates.worst)),
        of_goodput("median_bit_per_s", |rates| Some(rates.median)),
        of_goodput("best_bit_per_s", |rates| Some(rates.best)),
        of_row("worst_share", |row| {
            row.share.and_then(|share| share.worst())
        }),
        of_row("median_share", |row| {
            row.share.and_then(|share| share.median())
        }),
        of_row("best_share", |row| row.share.and_then(|share| share.best())),
        of_row("worst_fairness", |row| {
            row.fairness.map(|index| index.worst)
        }),
        of_row("median_fairness", |row| {
            row.fairness.map(|index| index.median)
        }),
    ]
}

/// Returns the columns for the results of patterns in which all hosts do the same, such as
/// all-to-all.
fn of_hosts<'a>() -> Vec<GroupField<'a>> {
    vec![
        of_goodput("worst_bit_per_s", |rates| Some(rates.worst)),
        of_goodput("average_bit_per_s", |rates| rates.average),
        of_goodput("median_bit_per_s", |rates| Some(rates.median)),
        of_goodput("best_bit_per_s", |rates| Some(rates.best)),
        of_row("average_share", |row| {
            row.share.and_then(|share| share.average())
        }),
        of_row("total_bit_per_s", |row| Value::rate(row.total_bit_per_s)),
        of_row("bisection_bit_per_s", |row| {
            Value::rate(row.bisection_bit_per_s)
        }),
        of_row("worst_fairness", |row| {
            row.fairness.map(|index| index.worst)
        }),
        of_row("median_fairness", |row| {
            row.fairness.map(|index| index.median)
        }),
    ]
}

/// Returns two groups of columns: the times of remote calls, and the figures of the streams that
/// load the server.
fn of_loaded_latency<'a>() -> Vec<GroupField<'a>> {
    vec![
        of_calls("alone_median_ns", |calls| calls.alone_median_ns),
        of_calls("alone_p99_ns", |calls| calls.alone_p99_ns),
        of_calls("median_ns", |calls| calls.median_ns),
        of_calls("p90_ns", |calls| calls.p90_ns),
        of_calls("p99_ns", |calls| calls.p99_ns),
        of_calls("max_ns", |calls| calls.max_ns),
        of_calls("median_slowdown", |calls| calls.median_slowdown),
        of_calls("p99_slowdown", |calls| calls.p99_slowdown),
        of_calls("longest_pause_ns", |calls| calls.longest_pause_ns),
        of_goodput("median_bit_per_s", |rates| Some(rates.median)),
        of_row("median_share", |row| {
            row.share.and_then(|share| share.median())
        }),
    ]
}

/// Prints all runs for people, in one table, which shows the effect of the number of clients.
fn group_table(report: &GroupReport, out: &mut dyn Write) -> io::Result<()> {
    let rounds = patterns::named(&report.pattern);
    let hosts = report.participants.len().to_string();
    let head = rounds.head.replace("{hosts}", &hosts);
    writeln!(out, "{}: {head}", rounds.name)?;
    if let Some(rate) = report.rate_bit_per_s {
        writeln!(out, "  shares are of {} Mbit/s", mbit(rate))?;
    }
    let mut lines = lines(report);
    lines.retain(|line| line.rest.row().is_some());
    // The columns that only other patterns fill are hidden.
    let other = match rounds.name {
        "bisection" => &["total_bit_per_s", "worst_fairness", "median_fairness"][..],
        _ => &["bisection_bit_per_s"],
    };
    let is_shown = |name: &str| {
        // The columns of shares are hidden if the link's rate is unknown.
        let share = name.ends_with("_share") && report.rate_bit_per_s.is_none();
        !share && !other.contains(&name) && !["congestion", "hosts", "error"].contains(&name)
    };
    let fields = fields(rounds, report.participants.len()).into_iter();
    let columns = fields.filter(|field| is_shown(&field.name)).map(|field| {
        let title = match &field.name[..] {
            "rounds" if rounds.name == "bisection" => "pairings".to_owned(),
            name => name.replace("_bit_per_s", " Mbit/s").replace('_', " "),
        };
        column(title, move |line: &Line<'_>| match &field.name[..] {
            "transport" => line.run.medium(),
            _ => (field.value)(line).shown(),
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

/// Prints comma-separated values for programs. A failed run ends with a line that has the run's
/// error and no numbers.
fn group_csv(report: &GroupReport, out: &mut dyn Write) -> io::Result<()> {
    let rounds = patterns::named(&report.pattern);
    let fields = fields(rounds, report.participants.len());
    columns::write_csv(&fields, &lines(report), out)
}

/// Prints `esp-params` for people: a row per `burst_length`, a column per `packets_to_ack`.
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

/// Prints `esp-params` for programs. A failed run ends with a line that has the run's error and no
/// numbers.
fn params_csv(report: &ParamsReport, out: &mut dyn Write) -> io::Result<()> {
    type OfCell<'a> = Rest<'a, &'a Cell>;
    fn of_cell<'a, V: Into<Value>>(
        name: &'static str,
        value: impl Fn(&Cell) -> V + 'a,
    ) -> Field<'a, OfCell<'a>> {
        field(name, move |line: &OfCell<'_>| {
            line.row().map(|cell| value(cell).into())
        })
    }
    let rate =
        |cell: &Cell, rate: fn(Goodput) -> u64| Value::rate(cell.goodput_bit_per_s.map(rate));
    let fields = [
        field("clients", |_: &OfCell<'_>| report.clients),
        field("size", |_: &OfCell<'_>| Value::Size(report.size)),
        of_cell("burst_length", |cell| cell.parameters.burst_length),
        of_cell("packets_to_ack", |cell| cell.parameters.packets_to_ack),
        of_cell("rounds", |cell| cell.rounds),
        of_cell("errors", |cell| cell.errors),
        of_cell("worst_bit_per_s", |cell| rate(cell, |rates| rates.worst)),
        of_cell("median_bit_per_s", |cell| rate(cell, |rates| rates.median)),
        of_cell("best_bit_per_s", |cell| rate(cell, |rates| rates.best)),
        of_cell("worst_share", |cell| {
            cell.share.and_then(|share| share.worst())
        }),
        of_cell("median_share", |cell| {
            cell.share.and_then(|share| share.median())
        }),
        of_cell("best_share", |cell| {
            cell.share.and_then(|share| share.best())
        }),
        field("error", |line: &OfCell<'_>| line.error().map(Value::from)),
    ];
    columns::write_csv(
        &fields,
        &columns::lines(&report.outcome, &report.cells),
        out,
    )
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use serde_json::{json, Value};

    const ERROR: &str = "h1: no module, run `modprobe enet`";

    fn goodput(median: u64) -> Value {
        json!({"worst": median - 1_000_000, "median": median, "best": median + 2_000_000})
    }

    /// Returns a report of three hosts, whose links have 200 Mbit/s.
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

    /// Returns the output of `print` for a report.
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
    fn equal_failures_are_reported_once() {
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
            // The error contains a comma, within its quotation marks, so the line has one part more
            // than there are fields.
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

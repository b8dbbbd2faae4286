// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables and comma-separated values of the patterns of more than two.

use std::io::{self, Write};

use super::esp_params::ParamsReport;
use super::figures::Goodput;
use super::many_one;
use super::one_many::{ManyReport, ManyRow};
use crate::report::csv::quote;
use crate::report::table::write_aligned;
use crate::report::Outcome;
use crate::sizes::human;

/// Mbit/s of bit/s.
pub(super) fn mbit(bit_per_s: u64) -> String {
    let mbit = bit_per_s as f64 / 1e6;
    // Small numbers have something behind the point to tell apart.
    let decimals = if mbit < 100.0 { 2 } else { 1 };
    format!("{mbit:.decimals$}")
}

pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// `one-many` for people: one table of all runs, since what grows with the clients shows only there.
pub(super) fn many_table(report: &ManyReport, out: &mut dyn Write) -> io::Result<()> {
    if report.pattern == many_one::NAME {
        writeln!(
            out,
            "many-one: one server sends to clients in rounds; goodput of all together, fairness \
             (Jain) of the times at which they have it"
        )?;
    } else {
        writeln!(
            out,
            "one-many: clients send to one server in rounds; goodput of all together, fairness \
             (Jain) when the first is done"
        )?;
    }
    if let Some(rate) = report.rate_bit_per_s {
        writeln!(out, "  shares are of {} Mbit/s", mbit(rate))?;
    }
    let mut header: Vec<String> = ["transport", "clients", "server", "size", "rounds", "errors"]
        .map(str::to_owned)
        .to_vec();
    header.extend(["worst", "median", "best"].map(|name| format!("{name} Mbit/s")));
    if report.rate_bit_per_s.is_some() {
        header.extend(["worst", "median", "best"].map(|name| format!("{name} share")));
    }
    header.extend(["worst", "median"].map(|name| format!("{name} fairness")));
    let mut lines = vec![header];
    for run in &report.runs {
        for row in &run.rows {
            let mut line = vec![run.medium(), run.clients.to_string(), run.server.clone()];
            line.extend(many_cells(row, report.rate_bit_per_s.is_some()));
            lines.push(line);
        }
    }
    if lines.len() > 1 {
        write_aligned(&lines, out)?;
    }
    for error in report.errors() {
        writeln!(out, "  FAILED: {error}")?;
    }
    for left_out in &report.left_out {
        writeln!(out, "  {left_out}")?;
    }
    Ok(())
}

fn many_cells(row: &ManyRow, with_share: bool) -> Vec<String> {
    let mut cells = vec![
        human(row.size),
        row.rounds.to_string(),
        row.errors.to_string(),
    ];
    let goodput = row.goodput_bit_per_s;
    let values = goodput.map(|goodput| [goodput.worst, goodput.median, goodput.best]);
    cells.extend((0..3).map(|index| or_dash(values.map(|values| mbit(values[index])))));
    if with_share {
        let values = row
            .share
            .map(|share| [share.worst, share.median, share.best]);
        let share = |index: usize| values.map(|values| format!("{:.3}", values[index]));
        cells.extend((0..3).map(|index| or_dash(share(index))));
    }
    let values = row
        .fairness
        .map(|fairness| [fairness.worst, fairness.median]);
    let fairness = |index: usize| values.map(|values| format!("{:.3}", values[index]));
    cells.extend((0..2).map(|index| or_dash(fairness(index))));
    cells
}

/// `one-many` for programs. A run that failed ends with a line that has its error and no numbers.
pub(super) fn many_csv(report: &ManyReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "transport,congestion,clients,server,size,rounds,errors,worst_bit_per_s,median_bit_per_s,best_bit_per_s,\
         worst_share,median_share,best_share,worst_fairness,median_fairness,error"
    )?;
    for run in &report.runs {
        let start = format!(
            "{},{},{},{}",
            run.transport,
            quote(run.congestion.as_deref().unwrap_or_default()),
            run.clients,
            quote(&run.server)
        );
        for row in &run.rows {
            let share = row
                .share
                .map(|share| [share.worst, share.median, share.best]);
            let fairness = row
                .fairness
                .map(|fairness| [fairness.worst, fairness.median]);
            writeln!(
                out,
                "{start},{},{},{},{},{},{},",
                row.size,
                row.rounds,
                row.errors,
                goodput_fields(row.goodput_bit_per_s),
                real_fields(share),
                real_fields(fairness),
            )?;
        }
        if let Outcome::Failed { error } = &run.outcome {
            writeln!(out, "{start},,,,,,,,,,,,{}", quote(error))?;
        }
    }
    Ok(())
}

/// Worst, median, best; empty fields if there is nothing.
fn goodput_fields(goodput: Option<Goodput>) -> String {
    match goodput {
        Some(goodput) => format!("{},{},{}", goodput.worst, goodput.median, goodput.best),
        None => ",,".to_owned(),
    }
}

fn real_fields<const N: usize>(values: Option<[f64; N]>) -> String {
    let field =
        |index: usize| values.map_or(String::new(), |values| format!("{:.4}", values[index]));
    (0..N).map(field).collect::<Vec<_>>().join(",")
}

/// `esp-params` for people: `burst_length` downwards, `packets_to_ack` to the right.
pub(super) fn params_table(report: &ParamsReport, out: &mut dyn Write) -> io::Result<()> {
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
    let mut header = vec![String::new()];
    header.extend(report.packets_to_ack.iter().map(u32::to_string));
    let mut lines = vec![header];
    for burst in &report.burst_length {
        let mut line = vec![burst.to_string()];
        line.extend(report.packets_to_ack.iter().map(|ack| {
            let cell = report.cell(*burst, *ack);
            match cell.map(|cell| cell.goodput_bit_per_s) {
                None => String::new(),
                Some(goodput) => or_dash(goodput.map(|goodput| mbit(goodput.median))),
            }
        }));
        lines.push(line);
    }
    write_aligned(&lines, out)?;
    for error in report.errors() {
        writeln!(out, "  FAILED: {error}")?;
    }
    Ok(())
}

/// `esp-params` for programs. A run that failed ends with a line that has its error and no numbers.
pub(super) fn params_csv(report: &ParamsReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "clients,size,burst_length,packets_to_ack,rounds,errors,worst_bit_per_s,median_bit_per_s,best_bit_per_s,\
         worst_share,median_share,best_share,error"
    )?;
    for cell in &report.cells {
        let share = cell
            .share
            .map(|share| [share.worst, share.median, share.best]);
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},",
            report.clients,
            report.size,
            cell.parameters.burst_length,
            cell.parameters.packets_to_ack,
            cell.rounds,
            cell.errors,
            goodput_fields(cell.goodput_bit_per_s),
            real_fields(share),
        )?;
    }
    if let Outcome::Failed { error } = &report.outcome {
        let (clients, size) = (report.clients, report.size);
        writeln!(out, "{clients},{size},,,,,,,,,,,{}", quote(error))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod samples {
    use super::super::all::{AllReport, AllRow, AllRun};
    use super::super::esp_params::Cell;
    use super::super::figures::{Fairness, HostRate};
    use super::super::one_many::ManyRun;
    use super::super::parameters::EspParameters;
    use super::*;

    fn goodput(median: u64) -> Goodput {
        Goodput {
            worst: median - 1_000_000,
            median,
            best: median + 2_000_000,
        }
    }

    fn failed() -> Outcome {
        Outcome::Failed {
            error: "h1: no module, run `modprobe enet`".to_owned(),
        }
    }

    pub(crate) fn many() -> ManyReport {
        let rate = 200_000_000;
        let row = |size, median| ManyRow {
            size,
            rounds: 20,
            errors: 0,
            goodput_bit_per_s: Some(goodput(median)),
            share: Some(goodput(median).share(rate)),
            fairness: Some(Fairness {
                worst: 0.75,
                median: 0.875,
            }),
        };
        let run = |transport: &str, clients, outcome, rows| ManyRun {
            transport: transport.to_owned(),
            about: String::new(),
            congestion: (transport == "tcp").then(|| "reno".to_owned()),
            clients,
            server: "h0".to_owned(),
            server_index: 0,
            outcome,
            rows,
        };
        let broken = ManyRow {
            size: 1024,
            rounds: 0,
            errors: 1,
            goodput_bit_per_s: None,
            share: None,
            fairness: None,
        };
        ManyReport {
            netgauge: "0.1.0".to_owned(),
            pattern: "one-many".to_owned(),
            participants: ["h0", "h1", "h2"].map(str::to_owned).to_vec(),
            seed: 7,
            rate_bit_per_s: Some(rate),
            runs: vec![
                run(
                    "tcp",
                    2,
                    Outcome::Ok,
                    vec![row(1024, 80_000_000), row(1 << 16, 190_000_000)],
                ),
                run("esp", 1, failed(), vec![broken]),
            ],
            left_out: Vec::new(),
        }
    }

    pub(crate) fn all() -> AllReport {
        let rate = 200_000_000;
        let row = |size, median: u64| {
            let host = HostRate {
                worst: median - 3_000_000,
                average: median - 1_000_000,
                median,
                best: median + 2_000_000,
            };
            AllRow {
                size,
                rounds: 20,
                errors: 0,
                host_bit_per_s: Some(host),
                share: Some(host.average as f64 / rate as f64),
                total_bit_per_s: Some(host.average * 3),
                bisection_bit_per_s: None,
                fairness: Some(Fairness {
                    worst: 0.75,
                    median: 0.875,
                }),
            }
        };
        AllReport {
            netgauge: "0.1.0".to_owned(),
            pattern: "all-to-all".to_owned(),
            participants: ["h0", "h1", "h2"].map(str::to_owned).to_vec(),
            seed: 7,
            rate_bit_per_s: Some(rate),
            left_out: Vec::new(),
            runs: vec![AllRun {
                transport: "tcp".to_owned(),
                about: String::new(),
                congestion: Some("reno".to_owned()),
                outcome: Outcome::Ok,
                rows: vec![row(1024, 70_000_000), row(1 << 16, 180_000_000)],
            }],
        }
    }

    pub(crate) fn params() -> ParamsReport {
        let cell = |burst_length, packets_to_ack, median| Cell {
            parameters: EspParameters {
                burst_length,
                packets_to_ack,
            },
            rounds: 5,
            errors: 0,
            goodput_bit_per_s: Some(goodput(median)),
            share: None,
        };
        ParamsReport {
            netgauge: "0.1.0".to_owned(),
            pattern: "esp-params".to_owned(),
            participants: ["h0", "h1"].map(str::to_owned).to_vec(),
            seed: 7,
            server: "h0".to_owned(),
            server_index: 0,
            clients: 1,
            size: 4 << 20,
            rate_bit_per_s: None,
            burst_length: vec![1, 16, 32],
            packets_to_ack: vec![1, 8],
            outcome: failed(),
            cells: vec![
                cell(1, 1, 20_000_000),
                cell(16, 1, 150_000_000),
                cell(16, 8, 190_000_000),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is printed of a report.
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
        let text = printed(samples::many(), many_table);
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn what_fails_alike_is_told_once() {
        let mut report = samples::many();
        let mut run = report.runs.pop().unwrap();
        run.rows.clear();
        for clients in [2, 4] {
            run.clients = clients;
            report.runs.push(run.clone());
        }
        let mut out = Vec::new();
        many_table(&report, &mut out).unwrap();
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
        let many = printed(samples::many(), many_csv);
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
}

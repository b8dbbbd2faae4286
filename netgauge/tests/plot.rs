// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests `netgauge plot`: measures on loopback, and draws pictures of every kind.
#![cfg(feature = "pictures")]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{netgauge, run, succeed, text, Server};

/// A report on esp-params as `netgauge --format json` prints it.
const PARAMS: &str = r#"{
  "netgauge": "0.1.0", "pattern": "esp-params", "participants": ["h0", "h1"], "seed": 7, "server": "h0",
  "server_index": 0, "clients": 1, "size": 4194304, "burst_length": [2, 4], "packets_to_ack": [1, 2], "status": "ok",
  "cells": [
    { "burst_length": 2, "packets_to_ack": 1, "rounds": 5, "errors": 0,
      "goodput_bit_per_s": { "worst": 100000000, "median": 150000000, "best": 180000000 } },
    { "burst_length": 4, "packets_to_ack": 2, "rounds": 5, "errors": 0,
      "goodput_bit_per_s": { "worst": 170000000, "median": 190000000, "best": 195000000 } }
  ]
}"#;

/// A report on a pattern that measures overheads.
const OVERHEADS: &str = r#"{
  "netgauge": "0.1.0", "peer": "10.0.0.2:2805", "runs": [
    { "transport": "tcp", "pattern": "flood", "status": "ok", "rows": [
      { "size": 1, "send_overhead_ns": { "min": 400, "avg": 520, "median": 500, "max": 9000 } },
      { "size": 64, "send_overhead_ns": { "min": 500, "avg": 620, "median": 600, "max": 9000 } } ] },
    { "transport": "esp", "pattern": "flood", "status": "failed", "error": "no module", "rows": [] }
  ]
}"#;

/// A directory that is removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netgauge-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The error is ignored, because files that are left behind among temporary files do no
        // harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the command that draws `files` as this picture.
fn plot(files: &[impl AsRef<OsStr>], options: &str, picture: &str) -> Command {
    let mut command = netgauge(&format!("plot {options} -o"));
    command.arg(picture).args(files);
    command
}

/// Draws `files` as SVG and as PNG, and returns the SVG.
fn draw(directory: &Directory, files: &[impl AsRef<OsStr>], options: &str) -> String {
    for form in ["svg", "png"] {
        let picture = directory.path(&format!("picture.{form}"));
        assert_eq!(text(&succeed(plot(files, options, &picture))), "");
    }
    let png = fs::read(directory.path("picture.png")).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(png))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width > 600 && info.height > 400, "{options}: {info:?}");
    let dark = pixels
        .chunks_exact(3)
        .filter(|pixel| pixel.iter().all(|part| *part < 80));
    assert!(
        dark.count() > 500,
        "{options}: there is no text in the picture"
    );
    fs::read_to_string(directory.path("picture.svg")).unwrap()
}

#[test]
fn results_of_loopback_are_drawn_as_every_kind() {
    let directory = Directory::new("plot");
    let server = Server::start("");
    let measured = |name: &str, options: &str| {
        let client = server.client(&format!("{options} --format json"));
        directory.file(name, succeed(client))
    };
    let first = measured("first.json", "-m tcp,udp -x all -s 1-1024 -c 5");
    let second = measured("second.json", "-m tcp -s 1-1024 -c 5");

    let latency = draw(&directory, &[&first], "");
    for expected in [
        "Latency",
        "message size",
        "udp, one-one",
        "tcp, one-one",
        "Linux ",
    ] {
        assert!(latency.contains(expected), "{expected}: {latency}");
    }
    let throughput = draw(
        &directory,
        &[&first],
        "--kind throughput -m udp --title Loopback",
    );
    assert!(throughput.contains("Loopback") && throughput.contains("Mbit/s"));
    assert!(!throughput.contains("tcp"), "{throughput}");
    let change = draw(&directory, &[&first, &second], "--kind comparison");
    assert!(change.contains("Comparison with first"), "{change}");
    let compared = draw(&directory, &[&first], "--kind comparison");
    assert!(compared.contains("Comparison with tcp"), "{compared}");

    let params = directory.file("params.json", PARAMS);
    let map = draw(&directory, &[&params], "");
    assert!(
        map.contains("packets_to_ack") && map.contains("190"),
        "{map}"
    );
    let overheads = directory.file("overheads.json", OVERHEADS);
    let overhead = draw(&directory, &[&overheads], "--kind overhead");
    assert!(overhead.contains("time in the call"), "{overhead}");
}

#[test]
fn files_that_cannot_be_drawn_are_refused_without_a_picture() {
    let directory = Directory::new("refused");
    let picture = directory.path("picture.svg");
    let params = directory.file("params.json", PARAMS);
    let overheads = directory.file("overheads.json", OVERHEADS);
    let table = directory.file("table.txt", "tcp: TCP over IP\n");
    let binary = directory.file("binary", [0xff, 0xfe, 0]);
    let absent = directory.path("absent.json");
    for (files, options, expected) in [
        (&[&table][..], "", "not a JSON object: save results with"),
        (&[&binary], "", "binary"),
        (&[&absent], "", "absent.json"),
        (&[&overheads], "--kind heat-map", "-x esp-params"),
        (&[&overheads], "--kind throughput", "--kind"),
        (&[&overheads], "--kind comparison", "several"),
        (&[&overheads], "-m udp", "there are esp, tcp"),
        (&[&params], "--kind latency", "--kind heat-map"),
        (&[&params, &params], "", "of one file"),
    ] {
        let output = run(plot(files, options, &picture));
        assert_eq!(output.status.code(), Some(1), "{options}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{options}: {stderr}");
        assert!(!Path::new(&picture).exists(), "{options}");
    }
    for line in [
        "plot",
        "plot a.json",
        "plot -o a.svg",
        "plot a.json -o a.pdf",
    ] {
        assert_eq!(run(netgauge(line)).status.code(), Some(2), "{line}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Output that cannot be written: a lost message does not change the outcome, and lost output is a
//! failure.

use std::fs::File;
use std::process::Command;

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn switch(argument: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enet-switch"));
    command.arg(argument);
    command
}

#[test]
fn a_lost_message_does_not_change_the_outcome() {
    for (argument, wanted) in [("nonsense", &[2][..]), ("drops", &[0, 1])] {
        let status = switch(argument).stderr(full()).status().unwrap();
        let code = status.code().unwrap_or(-1);
        assert!(wanted.contains(&code), "{argument}: {status}");
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    for argument in ["--help", "--version"] {
        let status = switch(argument).stdout(full()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{argument}");
    }
}

#[test]
fn a_buffer_and_a_mark_below_a_frame_are_wrong_on_the_command_line() {
    for (options, bound) in [
        (["--buffer", "1"], "1514"),
        (["--buffer", "0"], "1514"),
        (["--ecn", "0"], "1515"),
        (["--ecn", "1514"], "1515"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_enet-switch"));
        let output = command.arg("up").args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(bound), "{said}");
    }
}

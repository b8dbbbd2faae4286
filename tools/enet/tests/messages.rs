// SPDX-License-Identifier: MIT OR Apache-2.0

//! Output that cannot be written: a lost message does not change the outcome, and lost output is a
//! failure.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

/// Returns a command of the program. `enet run --by preload` needs no privileges, and an empty file
/// stands in for its library. If the module is not loaded, `enet run` warns and maps nothing.
fn enet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_enet"));
    command.args(arguments).env("ENET_PRELOAD", "/dev/null");
    command
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Returns the write end of a pipe whose reader is gone.
fn closed() -> Stdio {
    pipe2(OFlag::O_CLOEXEC).unwrap().1.into()
}

#[test]
fn run_starts_the_command_although_its_messages_are_lost() {
    for stderr in [full(), closed()] {
        let ran = enet(&[
            "run",
            "--by",
            "preload",
            "--",
            "sh",
            "-c",
            "echo ran; exit 7",
        ])
        .stderr(stderr)
        .output()
        .unwrap();
        assert_eq!(ran.stdout, b"ran\n");
        assert_eq!(ran.status.code(), Some(7));
    }
}

#[test]
fn the_exit_status_does_not_depend_on_messages() {
    for (arguments, wanted) in [
        (&["run", "--by", "preload", "--", "/nonexistent"][..], 127),
        (&["run", "--by", "preload", "--", "/etc"], 126),
        (&["ping", "02:00:00:00:00:02"], 2),
        (&["ss", "-i", "nosuch0"], 1),
        (&["nonsense"], 2),
    ] {
        for stderr in [full(), closed()] {
            let status = enet(arguments).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(wanted), "{arguments:?}: {status}");
            assert_eq!(status.signal(), None);
        }
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    for (arguments, wanted) in [
        (&["--help"][..], 1),
        (&["--version"], 1),
        (&["run", "--help"], 125),
        (&["completions", "bash"], 1),
        (&["exporter", "--once"], 1),
    ] {
        let Output { status, stderr, .. } = enet(arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(wanted), "{arguments:?}: {said}");
        assert!(said.contains("writing the output: No space"), "{said}");
        // A reader that has seen enough, such as `head`, is no failure.
        let status = enet(arguments).stdout(closed()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// Programs that run a command, such as `env` and `timeout`, exit with 125 for errors of their own,
/// because commands themselves exit with 1 or 2.
#[test]
fn a_wrong_line_of_run_is_125_and_of_others_2() {
    for (arguments, wanted) in [
        (&["run"][..], 125),
        (&["run", "--nonsense", "--", "true"], 125),
        (&["run", "--by", "magic", "--", "true"], 125),
        (&["run", "--allow", "10.0.0", "--", "true"], 125),
        (&["run", "--help"], 0),
        (&["help", "run"], 0),
        (&[], 2),
        (&["ss", "--nonsense"], 2),
        (&["map", "--allow", "10.0.0"], 2),
        (&["running"], 2),
    ] {
        let Output { status, stderr, .. } = enet(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(wanted), "{arguments:?}: {said}");
    }
}

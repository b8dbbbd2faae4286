// SPDX-License-Identifier: MIT OR Apache-2.0

//! A command that `enet run` starts has the signal dispositions and the signal mask of the caller.

use std::process::Command;

/// Starts `grep` with these options of `env`, through the command line `wrapper` if it is not
/// empty. Returns the lines of its `/proc/PID/status` about ignored, blocked and caught signals.
fn signals(options: &[&str], wrapper: &[&str]) -> String {
    let output = Command::new("env")
        .args(options)
        .arg("ENET_PRELOAD=/dev/null")
        .args(wrapper)
        .args(["grep", "-E", "^Sig(Ign|Blk|Cgt):", "/proc/self/status"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_command_inherits_dispositions_and_mask() {
    let run = [env!("CARGO_BIN_EXE_enet"), "run", "--by", "preload", "--"];
    for options in [
        &["--default-signal"][..],
        &["--ignore-signal=PIPE"],
        &["--ignore-signal=PIPE,HUP,TERM,INT,QUIT,USR1,CHLD,SEGV,BUS"],
        &["--default-signal=PIPE", "--ignore-signal=HUP"],
        &["--block-signal=PIPE,TERM,USR2"],
        &["--ignore-signal=PIPE", "--block-signal=PIPE,CHLD"],
    ] {
        assert_eq!(signals(options, &run), signals(options, &[]), "{options:?}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Checks the sizes of the stack frames of the module's functions. A kernel thread has 16 KiB of
//! stack. The module's functions share it with the functions that call them, and with softirqs.

use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::step;

/// The largest frame that the kernel's own build accepts without a warning on 64-bit machines
/// (`CONFIG_FRAME_WARN`), in bytes.
const LARGEST: u64 = 2048;

/// Checks that no function of the module has a stack frame of more than [`LARGEST`] bytes.
///
/// # Errors
/// If a function has a larger frame, or if the module cannot be read.
pub fn check(module: &Path) -> Result<()> {
    let disassembly = step::output(
        Command::new("objdump")
            .args(["--disassemble", "--no-show-raw-insn"])
            .arg(module),
    )?;
    let frames = frames(&disassembly)?;
    ensure!(!frames.is_empty(), "no function reserves stack");
    let large: Vec<String> = frames
        .iter()
        .filter(|(_, bytes)| *bytes > LARGEST)
        .map(|(function, bytes)| format!("{bytes} bytes in {function}"))
        .collect();
    ensure!(
        large.is_empty(),
        "stack frames of more than {LARGEST} bytes: {}",
        large.join(", ")
    );
    Ok(())
}

/// Returns each function that reserves stack, with the number of bytes. `disassembly` is of x86-64
/// or arm64. A function that reserves its frame in several steps is listed once for each step.
fn frames(disassembly: &str) -> Result<Vec<(String, u64)>> {
    let mut function = "";
    let mut frames = Vec::new();
    for line in disassembly.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            function = name;
        } else if let Some(bytes) = reserved(line)? {
            frames.push((function.to_owned(), bytes));
        }
    }
    Ok(frames)
}

/// Returns how many bytes of stack an instruction reserves; `None` if it reserves none.
fn reserved(line: &str) -> Result<Option<u64>> {
    let Some((_, instruction)) = line.split_once(":\t") else {
        return Ok(None);
    };
    let words: Vec<&str> = instruction.split_whitespace().collect();
    let bytes = match words[..] {
        ["sub", operands] => operands
            .strip_suffix(",%rsp")
            .and_then(|bytes| bytes.strip_prefix("$0x")),
        ["sub", "sp,", "sp,", bytes, ..] => bytes.trim_end_matches(',').strip_prefix("#0x"),
        _ => None,
    };
    // On arm64, the operand may be in units of 4 KiB.
    let unit = if words.ends_with(&["lsl", "#12"]) {
        4096
    } else {
        1
    };
    let parse = |bytes| u64::from_str_radix(bytes, 16).context("the operand of an instruction");
    Ok(bytes.map(parse).transpose()?.map(|bytes| bytes * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "
0000000000000010 <small>:
      10:\tpush   %rbx
      14:\tsub    $0x18,%rsp
      20:\tsub    %rax,%rsp
      24:\tsub    $0x18,%rax
0000000000000040 <large>:
      44:\tsub    $0xc80,%rsp
";

    const ARM: &str = "
0000000000000010 <small>:
      10:\tsub\tsp, sp, #0x40
      14:\tsub\tx0, sp, #0x40
0000000000000040 <large>:
      44:\tsub\tsp, sp, #0x1, lsl #12
";

    #[test]
    fn frames_are_found_by_function() {
        let small = |bytes| ("small".to_owned(), bytes);
        let large = |bytes| ("large".to_owned(), bytes);
        assert_eq!(frames(X86).unwrap(), [small(0x18), large(0xc80)]);
        assert_eq!(frames(ARM).unwrap(), [small(0x40), large(0x1000)]);
    }
}

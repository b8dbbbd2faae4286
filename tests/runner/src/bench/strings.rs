// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the guest's kernel does not set or copy memory with byte-wise string instructions.
//!
//! A kernel that assumes fast string instructions (ERMS, FSRM, FSRS) sets or copies in steps of one
//! byte. QEMU counts each step as an instruction; a real processor counts one instruction for all
//! steps. An unrolled loop moves 8 bytes with one to three instructions.

use anyhow::{ensure, Context, Result};

use crate::commands::Commands;

/// The kernel functions that set or copy memory, each with the number of instructions per byte that
/// it may take. Steps of 8 bytes take 0.13 instructions per byte. Unrolled loops take 0.18 to set
/// and 0.38 to copy. Steps of one byte take 1. The measurement of `clear_page` also counts the page
/// fault that allocates the page: 1.76 with steps of one byte, and 0.92 with the faster ways.
const MOST: [(&str, f64); 6] = [
    ("memset", 0.25),
    ("memcpy", 0.5),
    ("clear_user", 0.3),
    ("copy_to_user", 0.3),
    ("copy_from_user", 0.3),
    ("clear_page", 1.3),
];

/// Measures the functions in the guest, and checks all figures against [`MOST`].
///
/// # Errors
/// If a figure is too high (the message then names the remedy), or if the guest does not report.
pub fn check(guest: &mut Commands) -> Result<()> {
    let ended = guest.shell("chrt -f 1 scenarios --scale strings")?;
    ensure!(ended.status == 0, "setting and copying: {}", ended.text);
    judge(&ended.text)
}

fn judge(text: &str) -> Result<()> {
    let cost = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .parse::<f64>()
                .ok()
        })
    };
    let mut dear = Vec::new();
    for (name, most) in MOST {
        let cost = cost(name).with_context(|| format!("no cost of {name}: {text}"))?;
        if cost > most {
            dear.push(format!("{name} {cost:.3} (at most {most})"));
        }
    }
    ensure!(
        dear.is_empty(),
        "the guest's kernel sets or copies by steps of one byte, each of which QEMU counts as an instruction, so that no figure \
         is that of a processor. Instructions per byte: {}. The emulated processor has a feature by which kernels choose string \
         instructions, as ERMS, FSRM and FSRS are: find it in arch/x86/lib and arch/x86/include/asm of the kernel, or among what \
         is new in QEMU's model \"max\", and take it out in counted_processor() of tests/runner/src/architecture.rs",
        dear.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "memset 0.177\nmemcpy 0.374\nclear_user 0.188\ncopy_to_user 0.125\ncopy_from_user 0.125\nclear_page 0.918\n";

    #[test]
    fn bytewise_string_instructions_fail() {
        judge(GOOD).unwrap();
        for (good, bad) in [
            ("memset 0.177", "memset 1.001"),
            ("memcpy 0.374", "memcpy 1.001"),
            ("copy_to_user 0.125", "copy_to_user 1.000"),
            ("clear_page 0.918", "clear_page 1.756"),
        ] {
            let error = judge(&GOOD.replace(good, bad)).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad} (at most")), "{error}");
            assert_eq!(error.matches("at most").count(), 1, "{error}");
            assert!(error.contains("counted_processor"), "{error}");
        }
    }

    #[test]
    fn a_missing_cost_fails() {
        let error = judge(&GOOD.replace("memcpy", "memcopy")).unwrap_err();
        assert!(error.to_string().contains("no cost of memcpy"), "{error}");
    }
}

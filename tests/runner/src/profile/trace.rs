// SPDX-License-Identifier: GPL-2.0-only

//! Parses QEMU's log of executed blocks of instructions, and counts them by address.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use anyhow::{ensure, Context, Result};

/// Numbers of executed instructions. The key says in which block they were executed, and whether a
/// softirq was being handled.
pub type Counts = HashMap<Place, u64>;

/// The place where an instruction was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The block's address.
    pub address: u64,
    /// Whether a softirq was being handled.
    pub softirq: bool,
}

/// The parser of the log. It stores the blocks that QEMU has translated.
#[derive(Debug)]
pub struct Trace {
    /// The addresses of the function that handles softirqs. Its calls do not nest.
    handler: Range<u64>,
    /// Whether the handler, or a function that it called, is running.
    in_handler: bool,
    /// Blocks by QEMU's own address. A block may run at several guest addresses.
    blocks: HashMap<u64, Contents>,
    /// Blocks that QEMU has translated and not executed yet, by guest address.
    fresh: HashMap<u64, Contents>,
    /// The start of the block whose instructions are being listed.
    listed: Listed,
    /// Number of executed blocks whose contents are unknown.
    unlisted: u64,
}

/// The contents of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Contents {
    instructions: u64,
    end: End,
}

/// The kind of a block's last instruction.
#[derive(Clone, Copy, Debug, Default)]
enum End {
    Return,
    /// A jump to a known address.
    Jump(u64),
    #[default]
    Other,
}

/// The parser's state: whether the lines that it reads list the instructions of a block.
#[derive(Debug, Default)]
enum Listed {
    #[default]
    No,
    /// The block's first instruction is still to come.
    Empty,
    From(u64),
}

/// An executed block.
#[derive(Clone, Copy, Debug)]
struct Entered {
    place: Place,
    contents: Contents,
    /// [`Trace::in_handler`] before the block was executed.
    was_in_handler: bool,
}

impl Trace {
    /// Returns a parser for a kernel whose softirq handler is at `handler`.
    pub fn new(handler: Range<u64>) -> Self {
        Self {
            handler,
            in_handler: false,
            blocks: HashMap::new(),
            fresh: HashMap::new(),
            listed: Listed::No,
            unlisted: 0,
        }
    }

    /// Returns how often QEMU executed a block that it had not listed. Each such block counts as
    /// one instruction.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Reads QEMU's log up to the line `end`.
    ///
    /// # Errors
    /// If the log ends before that line, or has a malformed line.
    pub fn read(&mut self, pipe: File, end: &[u8]) -> Result<Counts> {
        let mut log = BufReader::with_capacity(1 << 20, pipe);
        let mut counts = Counts::new();
        let mut last = None;
        let mut line = Vec::new();
        let mut result = Ok(());
        loop {
            line.clear();
            ensure!(log.read_until(b'\n', &mut line)? > 0, "QEMU's log ended");
            if line == end {
                return result.map(|()| counts);
            }
            // After an error the rest of the log is still read, because QEMU would otherwise block.
            if result.is_ok() {
                result = self.take(&line, &mut counts, &mut last);
            }
        }
    }

    fn take(&mut self, line: &[u8], counts: &mut Counts, last: &mut Option<Entered>) -> Result<()> {
        if line.starts_with(b"0x") {
            self.list(line);
            return Ok(());
        }
        self.listed = Listed::No;
        if line.starts_with(b"IN:") {
            self.listed = Listed::Empty;
        } else if line.starts_with(b"Trace ") {
            let entered = self.enter(line)?;
            *counts.entry(entered.place).or_default() += entered.contents.instructions;
            *last = Some(entered);
        } else if line.starts_with(b"Stopped execution") {
            // QEMU logged the last block but did not execute it, and will log it again.
            if let Some(entered) = last.take() {
                self.in_handler = entered.was_in_handler;
                if let Some(count) = counts.get_mut(&entered.place) {
                    *count = count.saturating_sub(entered.contents.instructions);
                }
            }
        }
        Ok(())
    }

    /// Parses an instruction of a block that is translated: `0xffffffff81000000:  55    pushq
    /// %rbp`. The bytes of a long instruction continue in a second line, without a name.
    fn list(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let Some((address, rest)) = text.split_once(':') else {
            return;
        };
        let is_byte = |word: &&str| word.len() == 2 && u8::from_str_radix(word, 16).is_ok();
        let mut words = rest.split_whitespace().skip_while(is_byte);
        let Some(name) = words.next() else {
            return;
        };
        let start = match self.listed {
            Listed::No => return,
            Listed::Empty => {
                let Some(address) = hexadecimal(address) else {
                    return;
                };
                self.listed = Listed::From(address);
                self.fresh.insert(address, Contents::default());
                address
            }
            Listed::From(address) => address,
        };
        let contents = self.fresh.entry(start).or_default();
        contents.instructions += 1;
        contents.end = match name {
            "ret" | "retq" => End::Return,
            "jmp" | "jmpq" => match words.next().and_then(hexadecimal) {
                Some(target) => End::Jump(target),
                None => End::Other,
            },
            _ => End::Other,
        };
    }

    /// Parses the execution of a block: `Trace 0: 0x7f..
    /// [00000000/ffffffff81000000/00000000/ff000000] `.
    fn enter(&mut self, line: &[u8]) -> Result<Entered> {
        let text = String::from_utf8_lossy(line);
        let read = || {
            let (own, place) = text.split_once(": ")?.1.split_once(" [")?;
            Some((hexadecimal(own)?, hexadecimal(place.split('/').nth(1)?)?))
        };
        let (own, address) = read().with_context(|| format!("QEMU's log: {text}"))?;
        if let Some(contents) = self.fresh.remove(&address) {
            self.blocks.insert(own, contents);
        }
        let contents = self.blocks.get(&own).copied().unwrap_or_else(|| {
            // The block was translated before QEMU was asked to list translations. It counts as one
            // instruction, because every block has at least one.
            self.unlisted += 1;
            Contents {
                instructions: 1,
                end: End::Other,
            }
        });
        let was_in_handler = self.in_handler;
        let within = self.handler.contains(&address);
        // Programs never run within the handler. If the parser missed the handler's end, a
        // program's block shows that the handler has ended.
        self.in_handler = within || (self.in_handler && is_kernel(address));
        let place = Place {
            address,
            softirq: self.in_handler,
        };
        let leaves = match contents.end {
            End::Return => true,
            End::Jump(target) => !self.handler.contains(&target),
            End::Other => false,
        };
        if within && leaves {
            self.in_handler = false;
        }
        Ok(Entered {
            place,
            contents,
            was_in_handler,
        })
    }
}

/// Returns whether an address belongs to the kernel.
pub fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// Parses a number as QEMU and the kernel write addresses.
pub fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "----------------
IN: 
0xffffffff81000010:  48 89 e5                 movq     %rsp, %rbp
0xffffffff81000013:  48 c7 05 00 00 00 00 01  movq     $1, (%rip)
0xffffffff8100001b:  00 00 00
0xffffffff8100001e:  c3                       retq

Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
Stopped execution of TB chain before 0x7f00000001c0 [ffffffff81000010] 
Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
";

    fn read(trace: &mut Trace, log: &str) -> Counts {
        let mut counts = Counts::new();
        let mut last = None;
        for line in log.lines() {
            trace.take(line.as_bytes(), &mut counts, &mut last).unwrap();
        }
        counts
    }

    fn place(address: u64, softirq: bool) -> Place {
        Place { address, softirq }
    }

    #[test]
    fn blocks_that_ran_are_counted_by_their_instructions() {
        let mut trace = Trace::new(0..0);
        let counts = read(&mut trace, LOG);
        assert_eq!(
            counts,
            Counts::from([(place(0xffff_ffff_8100_0010, false), 6)])
        );
        let unknown = "Trace 0: 0x7f0 [00000000/ffffffff81000020/0040c0b0/ff020200] ";
        let counts = read(&mut trace, unknown);
        assert_eq!(
            counts,
            Counts::from([(place(0xffff_ffff_8100_0020, false), 1)])
        );
        assert_eq!(trace.unlisted(), 1);
        let torn = "Trace 0: 0x7f0 [00000000";
        assert!(trace
            .take(torn.as_bytes(), &mut Counts::new(), &mut None)
            .is_err());
    }

    /// The start of the kernel's code.
    const CODE: u64 = 0xffff_ffff_8100_0000;
    const HANDLER: Range<u64> = CODE + 0x1000..CODE + 0x1100;

    /// Returns a log in which QEMU executes code at 0x3000, then the softirq handler at 0x1000,
    /// then code at `next`. The handler calls 0x2000, which returns; the handler's last
    /// instruction, at 0x1010, is `last`.
    fn handler(last: &str, next: u64) -> String {
        let listed = |address: u64, text: &str| format!("IN: \n{address:#x}:  {text}\n");
        let entered = |own: u64, address: u64| format!("Trace 0: {own:#x} [0/{address:x}/0/0] \n");
        let steps = [
            listed(CODE + 0x3000, "90  nop"),
            entered(0xd, CODE + 0x3000),
            listed(CODE + 0x1000, "e8 fb 0f 00 00  callq    0xffffffff81002000"),
            entered(0xa, CODE + 0x1000),
            listed(CODE + 0x2000, "c3  retq"),
            entered(0xb, CODE + 0x2000),
            "Stopped execution of TB chain before 0xb [ffffffff81002000] \n".to_owned(),
            entered(0xb, CODE + 0x2000),
            listed(CODE + 0x1010, last),
            entered(0xc, CODE + 0x1010),
            listed(next, "90  nop"),
            entered(0xe, next),
        ];
        steps.concat()
    }

    #[test]
    fn softirq_code_is_counted_until_its_handler_returns() {
        let expected = |next: u64, softirq: bool| {
            Counts::from([
                (place(CODE + 0x3000, false), 1),
                (place(CODE + 0x1000, true), 1),
                (place(CODE + 0x2000, true), 1),
                (place(CODE + 0x1010, true), 1),
                (place(next, softirq), 1),
            ])
        };
        let counted = |last: &str, next: u64| read(&mut Trace::new(HANDLER), &handler(last, next));
        let kernel = CODE + 0x4000;
        for last in ["c3  retq", "e9 00 00 00 00  jmpq     0xffffffff81004000"] {
            assert_eq!(counted(last, kernel), expected(kernel, false), "{last}");
        }
        // The parser sees the handler's end only by a return, or by a jump out of the handler.
        // After these two instructions it takes kernel code for softirq code, but not the code of a
        // program.
        for last in ["eb 10  jmp      0xffffffff81001020", "90  nop"] {
            assert_eq!(counted(last, kernel), expected(kernel, true), "{last}");
            assert_eq!(counted(last, 0x4000), expected(0x4000, false), "{last}");
        }
    }
}

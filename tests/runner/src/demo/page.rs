// SPDX-License-Identifier: GPL-2.0-only

//! The panels of the demonstration, and their printed form.

use std::fmt::Write as _;
use std::path::Path;

/// A panel of the picture: a title, and bars that all show the same quantity.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The measured quantity.
    pub title: String,
    /// The bars in display order.
    pub bars: Vec<Bar>,
    /// The value of a bar of full length.
    pub longest: f64,
}

/// A bar, which shows one number.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The bar's name.
    pub name: String,
    /// The number with its unit.
    pub value: String,
    /// The number, in the unit of [`Panel::longest`].
    pub length: f64,
    /// A further remark; may be empty.
    pub note: String,
}

impl Panel {
    /// Returns a panel whose longest bar has full length.
    pub fn new(title: String, bars: Vec<Bar>) -> Self {
        let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
        Self {
            title,
            bars,
            longest,
        }
    }

    /// Returns this panel, scaled so that a bar of the value `longest` has full length.
    pub fn of(self, longest: f64) -> Self {
        Self { longest, ..self }
    }

    /// Returns the length of a bar relative to the full length.
    pub fn share(&self, bar: &Bar) -> f64 {
        if self.longest > 0.0 {
            (bar.length / self.longest).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Describes the emulation and its limits.
pub fn emulated(release: &str) -> [String; 3] {
    [
        format!("Emulated, with Linux {release}: time is counted instructions, 1 ns each, of one"),
        "processor; hosts are network namespaces, linked by a switch with ports of 200 Mbit/s and 128 KiB.".to_owned(),
        "Left out: misses of caches, what devices and their interrupts cost, several processors at once.".to_owned(),
    ]
}

const NEXT: &str = "\
Next:
  make shell      a shell in such a guest, to try it by hand
  make bench      the same for more sizes and links; make incast for more senders and other TCPs
  make programs   more programs, unchanged
  make install    the module for this machine's kernel; then README.md, \"Install\"";

/// Formats the page; `file` is the path of the picture.
pub fn page(release: &str, panels: &[Panel], file: &Path) -> String {
    let mut text = format!("\n{}\n", emulated(release).join("\n"));
    for panel in panels {
        let _ = writeln!(text, "\n{}", panel.title);
        for bar in &panel.bars {
            let line = format!(
                "  {:8} {:>8}  {:40}  {}",
                bar.name,
                bar.value,
                marks(panel.share(bar)),
                bar.note
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let _ = write!(text, "\nAs a picture: {}\n\n{NEXT}", file.display());
    text
}

/// Returns a bar of characters with `share` of the full length.
fn marks(share: f64) -> String {
    const LONGEST: f64 = 40.0;
    "#".repeat((share * LONGEST).round() as usize)
}

/// Formats a whole number with commas between its thousands.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (16_179.0, "16,179"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }
}

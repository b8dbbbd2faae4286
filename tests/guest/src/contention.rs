// SPDX-License-Identifier: GPL-2.0-only

//! Counts the times that a processor waits for a spin lock, by the functions that wait.

use std::io::Write;
use std::path::Path;

use crate::prelude::*;
use crate::tracer::TRACEFS;

/// The kernel's function that waits for a spin lock which is taken.
const WAITS: &str = "native_queued_spin_lock_slowpath";

/// The probe's system and name.
const PROBE: &str = "enet_locks/waits";

/// The histogram of the probe's hits by lock, which is the function's first argument, and callers.
const HISTOGRAM: &str = "hist:keys=lock.hex,common_stacktrace:size=8192";

/// A count of the waits for spin locks in the whole kernel, which ends when this value is dropped.
#[derive(Debug)]
pub struct Contention(());

/// The waits for one lock in one place of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The lock's address.
    pub lock: String,
    /// The functions on the stack, beginning with the one that waits.
    pub functions: Vec<String>,
    /// Number of waits.
    pub waits: u64,
}

fn append(file: &str, text: &str) -> Result<()> {
    let path = Path::new(TRACEFS).join(file);
    let open = fs::OpenOptions::new().append(true).open(&path);
    open.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{text} to {}", path.display()))
}

impl Contention {
    /// Starts to count. Returns `None` if the kernel has no probes, like the one of `make
    /// test-debug`, or another architecture's function waits.
    ///
    /// # Errors
    /// If there is no tracefs.
    pub fn start() -> Result<Option<Self>> {
        let has_probes = Path::new(TRACEFS).join("kprobe_events").exists();
        if !cfg!(target_arch = "x86_64") || !has_probes {
            return Ok(None);
        }
        // A killed scenario may have left its probe behind.
        stop();
        append("kprobe_events", &format!("p:{PROBE} {WAITS} lock=%di:x64"))?;
        let count = Self(());
        append(&format!("events/{PROBE}/trigger"), HISTOGRAM)?;
        Ok(Some(count))
    }

    /// Returns the waits so far, by place.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn places(&self) -> Result<Vec<Place>> {
        let path = Path::new(TRACEFS).join(format!("events/{PROBE}/hist"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(parse(&text))
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        stop();
    }
}

/// Removes the probe, if there is one.
fn stop() {
    let _ = append(&format!("events/{PROBE}/trigger"), &format!("!{HISTOGRAM}"));
    let _ = append("kprobe_events", &format!("-:{PROBE}"));
}

/// Parses a histogram. An entry has a line with the lock, one line for each function on the stack,
/// and a line with the number of hits.
fn parse(text: &str) -> Vec<Place> {
    let mut places = Vec::new();
    let mut lock = String::new();
    let mut functions = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(keys) = line.strip_prefix("{ lock:") {
            lock = keys.trim().split(',').next().unwrap_or("").to_owned();
            functions.clear();
        } else if let Some((_, count)) = line.split_once("hitcount:") {
            if let Ok(waits) = count.trim().parse() {
                let functions = std::mem::take(&mut functions);
                let lock = std::mem::take(&mut lock);
                places.push(Place {
                    lock,
                    functions,
                    waits,
                });
            }
        } else if let Some((function, _)) = line.split_once('+') {
            // The probe's own functions come before the one that waits.
            if function == WAITS {
                functions.clear();
            } else {
                functions.push(function.to_owned());
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_understood() {
        let text = "# event histogram\n#\n\n{ lock: ffff888004c2a0c0, common_stacktrace:\n         \
                    kprobe_ftrace_handler+0x10d/0x2b0\n         \
                    native_queued_spin_lock_slowpath+0x5/0x300\n         \
                    _raw_spin_lock+0x2f/0x40\n         esp_rx+0x10/0x20 [enet]\n} hitcount:         \
                    12\n\nTotals:\n    Hits: 12\n";
        let place = Place {
            lock: "ffff888004c2a0c0".to_owned(),
            functions: ["_raw_spin_lock", "esp_rx"].map(String::from).to_vec(),
            waits: 12,
        };
        assert_eq!(parse(text), [place]);
    }
}

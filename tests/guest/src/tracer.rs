// SPDX-License-Identifier: GPL-2.0-only

//! Records trace events in a tracefs instance of its own.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::prelude::*;

/// The mount point of tracefs.
pub const TRACEFS: &str = "/sys/kernel/tracing";

/// A trace event.
#[derive(Clone)]
pub struct Event {
    /// The name and number of the task that caused the event: "name-1".
    pub task: String,
    /// The event's name, without the system.
    pub name: String,
    /// The event's printed text, and the text's fields by name.
    text: String,
    fields: HashMap<String, String>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.text)
    }
}

/// Returns the 20 most recent events, for error messages.
pub fn last(events: &[Event]) -> &[Event] {
    &events[events.len().saturating_sub(20)..]
}

impl Event {
    /// Parses a line of `trace` or of trace-cmd's output: `task-1 [000] ..s. 12.3456: name:
    /// key=value key=value`.
    pub fn parse(line: &str) -> Option<Self> {
        let (task, event) = line
            .match_indices(": ")
            .map(|(at, colon)| (&line[..at], &line[at + colon.len()..]))
            .find(|(before, _)| {
                let time = before.rsplit(' ').next();
                time.is_some_and(|time| time.contains('.') && time.parse::<f64>().is_ok())
            })?;
        let (name, text) = event.trim_start().split_once(':')?;
        let mut fields = HashMap::new();
        // The kernel core's own trace events print their reasons as "reason: NAME".
        for word in text.replace("reason: ", "reason=").split_whitespace() {
            if let Some((key, value)) = word.split_once('=') {
                fields.insert(key.to_owned(), value.to_owned());
            }
        }
        let task = task.split_once(" [").map_or(task, |(task, _)| task);
        Some(Self {
            task: task.trim().to_owned(),
            name: name.to_owned(),
            text: text.trim().to_owned(),
            fields,
        })
    }

    /// Returns the field `key`, or an empty string if the event has no such field.
    pub fn get(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }

    /// Returns whether the event has all of `fields`, each a field's name and value.
    pub fn has(&self, fields: &[(&str, &str)]) -> bool {
        fields.iter().all(|(key, value)| self.get(key) == *value)
    }

    /// Returns whether the event happened on `host`.
    pub fn is_of(&self, host: &Host) -> Result<bool> {
        Ok(self.get("netns") == host.namespace.number()?.to_string())
    }
}

/// A recording of events, which ends when this value is dropped.
#[derive(Debug)]
pub struct Tracer {
    directory: PathBuf,
}

impl Tracer {
    /// Starts recording `events`. Each has the form "system" or "system/event".
    ///
    /// # Errors
    /// If there is no such event, or no tracefs.
    pub fn start(events: &[&str]) -> Result<Self> {
        let directory = Path::new(TRACEFS).join("instances/scenario");
        // The error is ignored: the instance exists only if a killed scenario has left it behind.
        let _ = fs::remove_dir(&directory);
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let tracer = Self { directory };
        tracer.set("trace_clock", "mono")?;
        tracer.set("buffer_size_kb", "4096")?;
        for event in events {
            tracer.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(tracer)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())
    }

    /// Returns whether `event`, of the form "system/event", exists and is recorded.
    pub fn records(&self, event: &str) -> bool {
        let path = self.directory.join(format!("events/{event}/enable"));
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
    }

    /// Returns the events recorded so far, in the order in which they happened.
    ///
    /// # Errors
    /// If they cannot be read, or events were lost because the buffer was full.
    pub fn events(&self) -> Result<Vec<Event>> {
        let path = self.directory.join("trace");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        // "# entries-in-buffer/entries-written: 10/10   #P:1"
        let counts = text
            .lines()
            .find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "))
            .and_then(|rest| rest.split_whitespace().next()?.split_once('/'))
            .context("a trace that does not say how long it is")?;
        ensure!(counts.0 == counts.1, "events were lost: {counts:?}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines.filter_map(Event::parse).collect())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Removing the instance also ends the recording. No file of the instance is open, so the
        // removal succeeds.
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_trace_are_understood() {
        let line = "  scenarios-77  [000] ..s1.   12.345678: esp_drop: skaddr=0000000012ab ino=0 \
                    peer=02:00:00:00:00:01 flags=ACK|TXS reason=no-socket";
        let event = Event::parse(line).expect("an event");
        assert_eq!(
            (event.task.as_str(), event.name.as_str()),
            ("scenarios-77", "esp_drop")
        );
        assert!(event.has(&[("peer", "02:00:00:00:00:01"), ("reason", "no-socket")]));
        assert_eq!(event.get("flags"), "ACK|TXS");
        assert_eq!(event.get("absent"), "");
    }

    #[test]
    fn lines_of_trace_cmd_are_understood() {
        let line = "mine: scenarios-130 [001] ..s2. 16.836184: esp_retransmit: seq=9424 flags=ACK";
        let event = Event::parse(line).expect("an event");
        assert_eq!(
            (event.name.as_str(), event.get("seq")),
            ("esp_retransmit", "9424")
        );
        assert!(Event::parse("cpus=2").is_none());
    }

    #[test]
    fn reasons_of_the_core_are_understood() {
        let line = "x-1 [000] ..s1. 1.5: kfree_skb: skbaddr=0 protocol=34997 location=f+0x1/0x2 reason: NO_SOCKET";
        let event = Event::parse(line).expect("an event");
        assert!(event.has(&[("protocol", "34997"), ("reason", "NO_SOCKET")]));
    }
}

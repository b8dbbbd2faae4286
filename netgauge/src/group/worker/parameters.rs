// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP's parameters of this network namespace (`/proc/sys/esp/*`), which are set for a time and
//! then restored.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{anyhow, Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::group::net::orders::EspParameters;
use crate::messages::tell;

/// The directory of the parameters' files.
const DIRECTORY: &str = "/proc/sys/esp";

/// Parameters whose ranges depend on each other: `packets_to_ack` and `initial_ack_burst_length`
/// must not exceed `burst_length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    burst_length: u32,
    packets_to_ack: u32,
    initial_ack_burst_length: u32,
}

/// A store of ESP's parameters, which are read and written by name.
trait Store {
    fn read(&self, name: &str) -> Result<u32>;
    fn write(&mut self, name: &str, value: u32) -> Result<()>;
}

/// The store `/proc/sys/esp`, in the network namespace of the calling thread.
struct Sysctl;

impl Store for Sysctl {
    fn read(&self, name: &str) -> Result<u32> {
        let path = path(name);
        let text = fs::read_to_string(&path).map_err(|error| explain(error, &path))?;
        let value = text.trim().parse();
        value.with_context(|| format!("{} holds {text:?}, no number", path.display()))
    }

    fn write(&mut self, name: &str, value: u32) -> Result<()> {
        let path = path(name);
        fs::write(&path, format!("{value}\n"))
            .map_err(|error| explain(error, &path))
            .with_context(|| format!("setting esp.{name} to {value}"))
    }
}

fn path(name: &str) -> PathBuf {
    [DIRECTORY, name].iter().collect()
}

fn explain(error: io::Error, path: &std::path::Path) -> anyhow::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no {}: load the kernel module here with `modprobe enet`",
            path.display()
        ),
        io::ErrorKind::PermissionDenied => format!("{} is root's to write", path.display()),
        _ => path.display().to_string(),
    };
    anyhow!(error).context(text)
}

impl Values {
    fn read(store: &dyn Store) -> Result<Self> {
        Ok(Self {
            burst_length: store.read("burst_length")?,
            packets_to_ack: store.read("packets_to_ack")?,
            initial_ack_burst_length: store.read("initial_ack_burst_length")?,
        })
    }

    /// Writes the values in an order that keeps each of them in range: `burst_length` first if it
    /// grows, otherwise last.
    fn write(&self, store: &mut dyn Store) -> Result<()> {
        let grows = self.burst_length >= store.read("burst_length")?;
        if grows {
            store.write("burst_length", self.burst_length)?;
        }
        store.write("packets_to_ack", self.packets_to_ack)?;
        store.write("initial_ack_burst_length", self.initial_ack_burst_length)?;
        if !grows {
            store.write("burst_length", self.burst_length)?;
        }
        Ok(())
    }

    /// Returns a copy of these values, in which the values of `parameters` replace the copied ones.
    /// Lowers `initial_ack_burst_length` if it would exceed `burst_length`.
    fn with(&self, parameters: EspParameters) -> Self {
        Self {
            burst_length: parameters.burst_length,
            packets_to_ack: parameters.packets_to_ack,
            initial_ack_burst_length: self.initial_ack_burst_length.min(parameters.burst_length),
        }
    }
}

/// The values that this process has to restore before it ends, even if a signal ends it.
static SAVED: Mutex<Option<Values>> = Mutex::new(None);

fn saved() -> MutexGuard<'static, Option<Values>> {
    // The value is valid even if a thread panicked while it held the lock.
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parameters of this process's network namespace. They are restored when this value is
/// dropped, and also when SIGINT or SIGTERM ends the process.
#[derive(Debug)]
pub struct Parameters(());

impl Parameters {
    /// Saves the present values of the parameters.
    ///
    /// # Errors
    ///
    /// Fails if the module is not loaded, or if signals cannot be handled.
    pub fn save() -> Result<Self> {
        let values = Values::read(&Sysctl)?;
        let mut saved = saved();
        restore_on_signals()?;
        saved.get_or_insert(values);
        Ok(Self(()))
    }

    /// Sets the parameters.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error if a value is out of range, or if the process is not root.
    pub fn set(&mut self, parameters: EspParameters) -> Result<()> {
        let saved = saved();
        let before = (*saved).context("the parameters were restored already")?;
        before.with(parameters).write(&mut Sysctl)
    }

    /// Restores the saved values.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error. The error text includes the saved values.
    pub fn restore(self) -> Result<()> {
        restore()
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        if let Err(error) = restore() {
            tell(format_args!("{error:#}"));
        }
    }
}

fn restore() -> Result<()> {
    let mut saved = saved();
    let Some(values) = saved.take() else {
        return Ok(());
    };
    values.write(&mut Sysctl).with_context(|| {
        format!(
            "ESP's parameters could not be restored: set esp.burst_length={}, esp.packets_to_ack={} and \
             esp.initial_ack_burst_length={} with sysctl",
            values.burst_length, values.packets_to_ack, values.initial_ack_burst_length
        )
    })
}

/// Starts a thread that restores the parameters when a signal ends the process, unless the thread
/// exists already. The thread is in the network namespace of its creator.
fn restore_on_signals() -> Result<()> {
    static WAITING: AtomicBool = AtomicBool::new(false);
    if WAITING.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("handling signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if let Err(error) = restore() {
                tell(format_args!("{error:#}"));
            }
            // The error is ignored, because this call does not return. It ends the process, as the
            // signal would without a handler.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;

    /// A store with the kernel's rules: 1 <= packets_to_ack <= burst_length, and
    /// initial_ack_burst_length <= burst_length.
    struct Kernel(Values);

    impl Store for Kernel {
        fn read(&self, name: &str) -> Result<u32> {
            Ok(match name {
                "burst_length" => self.0.burst_length,
                "packets_to_ack" => self.0.packets_to_ack,
                "initial_ack_burst_length" => self.0.initial_ack_burst_length,
                _ => panic!("{name}"),
            })
        }

        fn write(&mut self, name: &str, value: u32) -> Result<()> {
            let mut next = self.0;
            match name {
                "burst_length" => next.burst_length = value,
                "packets_to_ack" => next.packets_to_ack = value,
                "initial_ack_burst_length" => next.initial_ack_burst_length = value,
                _ => panic!("{name}"),
            }
            let in_range = (1..=next.burst_length).contains(&next.packets_to_ack)
                && next.initial_ack_burst_length <= next.burst_length;
            ensure!(in_range, "EINVAL: {next:?}");
            self.0 = next;
            Ok(())
        }
    }

    fn all(most: u32) -> Vec<Values> {
        let mut all = Vec::new();
        for burst_length in 1..=most {
            for packets_to_ack in 1..=burst_length {
                for initial_ack_burst_length in 0..=burst_length {
                    all.push(Values {
                        burst_length,
                        packets_to_ack,
                        initial_ack_burst_length,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn every_step_from_any_values_to_any_others_is_in_range() {
        for from in all(5) {
            for to in all(5) {
                let mut kernel = Kernel(from);
                to.write(&mut kernel).unwrap();
                assert_eq!(kernel.0, to);
            }
        }
    }

    #[test]
    fn the_announcements_window_is_kept_where_it_fits() {
        let before = Values {
            burst_length: 21,
            packets_to_ack: 10,
            initial_ack_burst_length: 4,
        };
        let with = |burst_length| {
            let parameters = EspParameters {
                burst_length,
                packets_to_ack: 1,
            };
            let mut kernel = Kernel(before);
            before.with(parameters).write(&mut kernel).unwrap();
            let then = kernel.0;
            before.write(&mut kernel).unwrap();
            assert_eq!(kernel.0, before);
            then.initial_ack_burst_length
        };
        assert_eq!([1, 2, 4, 32].map(with), [1, 2, 4, 4]);
    }

    #[test]
    fn an_absent_module_is_answered_with_what_to_do() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let error = explain(missing, &path("burst_length")).to_string();
        assert!(error.contains("/proc/sys/esp/burst_length"), "{error}");
        assert!(error.contains("modprobe enet"), "{error}");
    }
}

//! Network namespaces that begin, and the module's share of them: every allocation fails in its turn.

use std::fs;
use std::io;
use std::thread;

use anyhow::{anyhow, ensure};
use nix::sched::{unshare, CloneFlags};

use super::memory_fails::on_hosts;
use crate::harness::{Outcome, Scenario};
use crate::lab::Wiring;
use crate::memory::{Injection, Trial, Within};
use crate::socket::Socket;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::guest("memory_fails_in_new_namespaces", namespaces)
        .within(240)
        .starved(),
];

/// Gives the thread a new network namespace.
fn leave() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

fn namespaces() -> Outcome {
    on_hosts(Wiring::Direct, |_| {
        let injection = Injection::new(Within::Module)?;
        let trial = || -> Outcome {
            let made = Trial {
                what: "a new namespace",
                prepare: &|| Ok(()),
                call: &|()| leave(),
                judge: &|()| {
                    Socket::esp()?;
                    Socket::edp()?;
                    for file in ["edp", "esp", "enet"] {
                        fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
                    }
                    let text = fs::read_to_string("/proc/sys/esp/burst_length")?;
                    ensure!(text.trim() == "21", "burst_length is {text:?}");
                    Ok(())
                },
            };
            let tally = made.run(&injection)?;
            ensure!(tally.refused > 10, "{tally:?}");
            Ok(())
        };
        thread::scope(|scope| scope.spawn(trial).join())
            .map_err(|_| anyhow!("a thread panicked"))?
    })
}

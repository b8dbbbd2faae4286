// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moves threads into network namespaces of this host.

use std::fs::File;

use anyhow::{Context as _, Result};
use nix::sched::{setns, CloneFlags};

/// The directory in which `ip netns` keeps the names of network namespaces.
const NAMESPACES: &str = "/run/netns";

/// The namespace of the calling thread.
const HERE: &str = "/proc/thread-self/ns/net";

/// Moves the calling thread into the network namespace `name`. The name is one of `ip netns`, or a
/// path.
///
/// # Errors
///
/// Fails if there is no such namespace, or if this process may not enter it.
pub fn enter(name: &str) -> Result<()> {
    let path = match name.contains('/') {
        true => name.to_owned(),
        false => format!("{NAMESPACES}/{name}"),
    };
    let file = File::open(&path)
        .with_context(|| format!("{path}: `ip netns list` lists the namespaces there are"))?;
    go_to(&file, name)
}

fn go_to(namespace: &File, name: &str) -> Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("entering network namespace {name}, which is root's to do"))
}

/// Calls `work` in the network namespace `name` (see [`enter`]), and moves the thread back. Without
/// a name, calls `work` in the current namespace.
///
/// # Errors
///
/// Fails like [`enter`], or with the error of `work`.
pub fn within<T>(name: Option<&str>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(name) = name else { return work() };
    let home = File::open(HERE).context(HERE)?;
    enter(name)?;
    let result = work();
    go_to(&home, HERE)?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_namespace_says_what_to_do() {
        let error = format!("{:#}", enter("absent-namespace").unwrap_err());
        assert!(error.contains("/run/netns/absent-namespace"), "{error}");
        assert!(error.contains("ip netns list"), "{error}");
        let result = within(Some("absent-namespace"), || Ok(()));
        assert!(result.is_err());
    }

    #[test]
    fn without_a_name_the_work_is_done_here() {
        assert_eq!(within(None, || Ok(7)).unwrap(), 7);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Whom the memory of queues is charged to.

use std::path::PathBuf;

use nix::mount::{mount, umount, MsFlags};

use crate::denial::victim::unsent;
use crate::prelude::*;

scenarios! {
    direct memory_of_queues_is_charged_to_the_senders_cgroup = charged;
}

/// A memory cgroup that the process is in.
struct Group(PathBuf);

const ROOT: &str = "/tmp/cgroup";

impl Group {
    fn enter() -> Result<Self> {
        fs::create_dir_all(ROOT)?;
        let nothing = None::<&str>;
        mount(
            Some("none"),
            ROOT,
            Some("cgroup2"),
            MsFlags::empty(),
            nothing,
        )
        .context("mount")?;
        let group = Self(PathBuf::from(ROOT).join("scenario"));
        fs::write(format!("{ROOT}/cgroup.subtree_control"), "+memory").context("+memory")?;
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("cgroup.procs"), "0").context("cgroup.procs")?;
        Ok(group)
    }

    /// Kernel memory that it is charged for, bytes.
    fn kernel(&self) -> Result<u64> {
        let text = fs::read_to_string(self.0.join("memory.stat"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("kernel "));
        line.context("no kernel memory in memory.stat")?
            .parse()
            .context("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The next scenario finds none of it; if this fails, that one says so.
        let _ = fs::write(format!("{ROOT}/cgroup.procs"), "0");
        let _ = fs::remove_dir(&self.0);
        let _ = umount(ROOT);
    }
}

/// Writes until the send buffer is full.
fn fill(socket: &Socket) -> Result<()> {
    socket.set_nonblocking(true)?;
    while socket.send(&[1; 3000], libc::MSG_NOSIGNAL).is_ok() {}
    Ok(())
}

fn charged(lab: &Lab) -> Outcome {
    let group = Group::enter()?;
    let listener = lab.b.esp_listener(990, 16)?;
    let mut pairs = Vec::new();
    for _ in 0..10 {
        pairs.push(lab.esp_pair_through(&listener, 990)?);
    }
    let before = group.kernel()?;
    let mut queued = 0;
    for (client, _) in &pairs {
        fill(client)?;
        queued += u64::from(unsent(client)?);
    }
    let grown = group.kernel()?.saturating_sub(before);
    note(&format!("{queued} bytes queued, {grown} charged"));
    ensure!(queued > 500_000, "only {queued} bytes were queued");
    // Statistics are flushed late, but by less than this.
    ensure!(
        grown >= queued / 2,
        "{queued} bytes are queued, and the cgroup is charged for {grown}"
    );
    Ok(())
}

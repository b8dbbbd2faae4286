// SPDX-License-Identifier: MIT OR Apache-2.0

//! Control groups of version 2.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// A control group: a directory.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    directory: File,
}

impl Group {
    /// The group with this directory.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let context = || format!("the control group {}", path.display());
        let directory = File::open(path).with_context(context)?;
        // Every group but the root has it.
        fs::metadata(path.join("cgroup.procs")).with_context(context)?;
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    /// The group that this process is in.
    ///
    /// # Errors
    /// When the file system of control groups is not mounted.
    pub fn own() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let path = own_path(&mounts, &groups)
            .context("control groups of version 2 (cgroup2) are not mounted")?;
        Self::open(&path)
    }

    /// Makes a group in this one.
    ///
    /// # Errors
    /// When this user may not.
    pub fn child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Self::open(&path)
    }

    /// The number by which the kernel knows it.
    ///
    /// # Errors
    /// When the directory cannot be asked.
    pub fn id(&self) -> io::Result<u64> {
        // The inode of a group's directory has its number.
        Ok(self.directory.metadata()?.ino())
    }

    /// Moves this process there.
    ///
    /// # Errors
    /// When this user may not.
    pub fn join(&self) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, "0").with_context(|| format!("writing {}", path.display()))
    }

    /// Waits until no process is in the group.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn await_empty(&self) -> Result<()> {
        let path = self.path.join("cgroup.events");
        let mut events = File::open(&path).with_context(|| path.display().to_string())?;
        loop {
            let mut text = String::new();
            events.rewind()?;
            events.read_to_string(&mut text)?;
            if text.lines().any(|line| line == "populated 0") {
                return Ok(());
            }
            let mut watched = [PollFd::new(events.as_fd(), PollFlags::POLLPRI)];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes it; it has to be empty.
    ///
    /// # Errors
    /// When it is not.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The directory of this process's group, by `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn own_path(mounts: &str, groups: &str) -> Option<PathBuf> {
    let (root, mount) = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split_whitespace().skip(3);
        let found = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup2 ").then_some(found)
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let inside = Path::new(group).strip_prefix(root).ok()?;
    Some(Path::new(mount).join(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_is_found() {
        const MOUNTS: &str = "\
22 1 0:20 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
        let found = own_path(MOUNTS, "1:name=x:/y\n0::/system.slice/redis.service\n");
        let wanted = Path::new("/sys/fs/cgroup/system.slice/redis.service");
        assert_eq!(found.as_deref(), Some(wanted));
        let root = own_path(MOUNTS, "0::/\n");
        assert_eq!(root.as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(
            own_path("22 1 0:20 / /proc rw - proc proc rw\n", "0::/\n"),
            None
        );
        // A container that sees only a part of the groups.
        let part = MOUNTS.replace("0:26 / ", "0:26 /box ");
        let found = own_path(&part, "0::/box/a\n");
        assert_eq!(found.as_deref(), Some(Path::new("/sys/fs/cgroup/a")));
        assert_eq!(own_path(&part, "0::/elsewhere\n"), None);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opens, creates, joins and removes control groups, version 2.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use procfs::process::{MountInfo, MountInfos, Process};
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};

/// A control group, represented by its directory.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    directory: File,
}

impl Group {
    /// Opens the control group whose directory is `path`.
    ///
    /// # Errors
    /// If the directory is no control group.
    pub fn open(path: &Path) -> Result<Self> {
        let context = || format!("the control group {}", path.display());
        let directory = File::open(path).with_context(context)?;
        // Every control group has this file, and no other directory does.
        fs::metadata(path.join("cgroup.procs")).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("{} is no control group of version 2", path.display()),
            _ => anyhow!(error).context(context()),
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    /// Returns the group that this process is in.
    ///
    /// # Errors
    /// If the cgroup file system is not visible and this user may not mount it.
    pub fn own() -> Result<Self> {
        Self::around(|group| group)
    }

    /// Returns the group of the unit that this process is in. In units with `Delegate=`, systemd
    /// starts the programs of `ExecStartPost=` and `ExecStopPost=` in a group below the unit's.
    ///
    /// # Errors
    /// The errors of [`own`](Self::own).
    pub fn of_unit() -> Result<Self> {
        Self::around(without_control)
    }

    /// Passes the path of this process's group to `choose`, and opens the group whose path it
    /// returns.
    fn around(choose: impl Fn(&Path) -> &Path) -> Result<Self> {
        let mounts = own_mounts()?;
        let groups = read("/proc/self/cgroup")?;
        let group = inside_hierarchy(&groups)
            .context("this process is in no control group of version 2 (cgroup2)")?;
        let group = choose(group);
        // Another mount may hide the directory. For instance, `ip netns exec` mounts a /sys of its
        // own.
        let shown = own_paths(&mounts, group).find_map(|path| Self::open(&path).ok());
        shown.map_or_else(|| Self::in_own_mount(group), Ok)
    }

    /// Opens `group` through a private mount.
    fn in_own_mount(group: &Path) -> Result<Self> {
        let root = own_mount().context(
            "control groups of version 2 (cgroup2) are not mounted, or another mount hides them, and mounting them failed",
        )?;
        // The mount ends when its last descriptor is closed, so the descriptor stays open until the
        // process ends.
        let root = format!("/proc/self/fd/{}", root.into_raw_fd());
        Self::open(&Path::new(&root).join(group.strip_prefix("/").unwrap_or(group)))
    }

    /// Returns the directory of the hierarchy's root.
    ///
    /// # Errors
    /// If a mount that shows all control groups is not visible.
    pub fn root() -> Result<PathBuf> {
        let mounts = own_mounts()?;
        let shown = own_paths(&mounts, Path::new("/")).find(|path| {
            // A container may show a lower group as the root. A lower group has the file
            // `cgroup.events`, but the real root does not.
            Self::open(path).is_ok() && !path.join("cgroup.events").exists()
        });
        shown.context("no mount shows all control groups of version 2 (cgroup2)")
    }

    /// Creates a child group. If a group with this name exists already, as former processes may
    /// have left it, a number is appended to the name.
    ///
    /// # Errors
    /// If this user may not create groups here.
    pub fn child(&self, name: &str) -> Result<Made> {
        let mut path = self.path.join(name);
        let mut number = 0;
        while let Err(error) = fs::create_dir(&path) {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(error).context(format!("making {}", path.display()));
            }
            number += 1;
            path = self.path.join(format!("{name}-{number}"));
        }
        match Self::open(&path) {
            Ok(group) => Ok(Made(group)),
            Err(error) => {
                // Errors of this clean-up are ignored: the first error is returned.
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Removes the group, which must be empty.
    ///
    /// # Errors
    /// If the group is not empty.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }

    /// Returns the kernel's number of the group.
    ///
    /// # Errors
    /// If the directory's metadata cannot be read.
    pub fn id(&self) -> io::Result<u64> {
        // The inode number of a group's directory is the group's number.
        Ok(self.directory.metadata()?.ino())
    }

    /// Moves this process into the group.
    ///
    /// # Errors
    /// If this user may not move the process.
    pub fn join(&self) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, "0").with_context(|| format!("writing {}", path.display()))
    }

    /// Waits until the group has no process.
    ///
    /// # Errors
    /// If the group's events cannot be watched.
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

    /// Returns the group's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A group that this program has created. It is removed on drop, unless it has processes.
#[derive(Debug)]
pub struct Made(Group);

impl Deref for Made {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The error is ignored: if the group still has processes, the keeper removes it later.
        let _ = self.remove();
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

/// Mounts the cgroup file system without attaching it to a path.
fn own_mount() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
}

/// Returns this process's group in the hierarchy of version 2, from `/proc/self/cgroup`.
fn inside_hierarchy(groups: &str) -> Option<&Path> {
    groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(Path::new)
}

/// Returns the group of a unit from the group of one of its programs.
fn without_control(group: &Path) -> &Path {
    match group.parent() {
        Some(unit) if group.ends_with(".control") => unit,
        _ => group,
    }
}

/// Returns the mounts that this process sees.
fn own_mounts() -> Result<MountInfos> {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    mounts.context("reading this process's mounts")
}

/// Returns the paths at which `mounts` show the directory of `group`.
fn own_paths<'a>(mounts: &'a MountInfos, group: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let shows_groups = |mount: &&MountInfo| mount.fs_type == "cgroup2";
    mounts.iter().filter(shows_groups).filter_map(move |mount| {
        let inside = group.strip_prefix(&mount.root).ok()?;
        Some(mount.mount_point.join(inside))
    })
}

#[cfg(test)]
mod tests {
    use procfs::FromRead;

    use super::*;

    #[test]
    fn a_units_group_is_that_of_all_its_programs() {
        for (of_program, of_unit) in [
            ("/system.slice/a.service", "/system.slice/a.service"),
            (
                "/system.slice/a.service/.control",
                "/system.slice/a.service",
            ),
            ("/system.slice/a.control", "/system.slice/a.control"),
            ("/.control/a", "/.control/a"),
            ("/.control", "/"),
            ("/", "/"),
        ] {
            assert_eq!(without_control(Path::new(of_program)), Path::new(of_unit));
        }
    }

    fn shown(mounts: &str, groups: &str) -> Vec<PathBuf> {
        let mounts = MountInfos::from_read(mounts.as_bytes()).unwrap();
        inside_hierarchy(groups).map_or_else(Vec::new, |group| own_paths(&mounts, group).collect())
    }

    #[test]
    fn own_group_is_found() {
        const MOUNTS: &str = "\
22 1 0:20 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
        let found = shown(MOUNTS, "1:name=x:/y\n0::/system.slice/redis.service\n");
        let wanted = Path::new("/sys/fs/cgroup/system.slice/redis.service");
        assert_eq!(found, [wanted]);
        assert_eq!(shown(MOUNTS, "0::/\n"), [Path::new("/sys/fs/cgroup")]);
        let none: [&Path; 0] = [];
        assert_eq!(
            shown("22 1 0:20 / /proc rw - proc proc rw\n", "0::/\n"),
            none
        );
        assert_eq!(shown(MOUNTS, "1:name=x:/y\n"), none);
        // In a container, mounts may show only part of the hierarchy.
        let part = MOUNTS.replace("0:26 / ", "0:26 /box ");
        let box_a = "0::/box/a\n";
        assert_eq!(shown(&part, box_a), [Path::new("/sys/fs/cgroup/a")]);
        assert_eq!(shown(&part, "0::/elsewhere\n"), none);
        let twice = format!("{part}40 23 0:26 / /run/cgroup rw - cgroup2 cgroup2 rw\n");
        let both = [
            Path::new("/sys/fs/cgroup/a"),
            Path::new("/run/cgroup/box/a"),
        ];
        assert_eq!(shown(&twice, box_a), both);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Finds the files of the project, its products, and the guests' kernel.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::fcntl::{Flock, FlockArg};

use crate::architecture::Architecture;
use crate::step;

/// The kind of the guests' kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Debian's stock kernel, the default.
    Stock,
    /// Another kernel of Debian's, named by `RELEASE`.
    Other,
    /// The kernel of `mk/debug-kernel`, which has run-time checkers and is slow.
    Debug,
}

/// Finds paths in the directories of the project and of the guests' kernel.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The root of the project.
    pub project: PathBuf,
    /// The directory printed by `mk/kernel path` or `mk/debug-kernel path`. It has `vmlinuz`,
    /// `release`, `lib/modules/` and `tree/`.
    pub kernel: PathBuf,
    /// The kind of the kernel.
    pub purpose: Purpose,
    /// The guest's `uname -r`.
    pub release: String,
    /// The architecture of the kernel.
    pub architecture: Architecture,
    /// Whether to use the module and the programs of the most recent build, without building them
    /// again.
    pub as_built: bool,
}

impl Layout {
    /// Finds the project from the current directory upwards and reads the kernel's release.
    ///
    /// # Errors
    /// If the current directory is not in the project, or `kernel` is no directory made by
    /// `mk/kernel`.
    pub fn new(kernel: &Path, purpose: Purpose, as_built: bool) -> Result<Self> {
        let here = env::current_dir().context("current directory")?;
        let project = here
            .ancestors()
            .find(|directory| directory.join("mk/kernel").exists())
            .with_context(|| {
                format!(
                    "{} is not inside the project: run this by make",
                    here.display()
                )
            })?
            .to_owned();
        let release = fs::read_to_string(kernel.join("release"))
            .with_context(|| {
                format!(
                    "{} holds no kernel; mk/kernel path prints where one is",
                    kernel.display()
                )
            })?
            .trim()
            .to_owned();
        ensure!(!release.is_empty(), "{} is empty", kernel.display());
        Ok(Self {
            project,
            kernel: kernel.to_owned(),
            purpose,
            architecture: Architecture::of(&release),
            release,
            as_built,
        })
    }

    /// Returns whether the kernel has PREEMPT_RT, by the name of Debian's flavour.
    pub fn is_realtime(&self) -> bool {
        self.release.contains("-rt-")
    }

    /// Returns the directory of everything built from the project.
    pub fn build(&self) -> PathBuf {
        self.project.join("build")
    }

    /// Returns the directory for the logs of steps and of guests' consoles.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn logs(&self) -> Result<PathBuf> {
        let logs = self.build().join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        Ok(logs)
    }

    /// Locks the build of the guests' contents, because two runs of this project would write the
    /// same files. Waits until no other run holds the lock. The lock is released when the returned
    /// value is dropped, or when this process ends for whatever reason.
    ///
    /// # Errors
    /// If the lock file cannot be created.
    pub fn lock(&self) -> Result<Flock<File>> {
        let build = self.build();
        fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
        let path = build.join("guest.lock");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .or_else(|(file, _)| {
                step::say(&format!(
                    "waiting for another build that holds {}",
                    path.display()
                ));
                Flock::lock(file, FlockArg::LockExclusive)
            })
            .map_err(|(_, error)| error)
            .with_context(|| path.display().to_string())
    }

    /// Returns cargo's target directory.
    pub fn cargo_target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.build().join("cargo"), PathBuf::from)
    }

    /// Returns cargo's directory of products for the guests.
    fn cargo_release(&self) -> PathBuf {
        self.cargo_target()
            .join(self.architecture.target().unwrap_or_default())
            .join("release")
    }

    /// Returns a program built by cargo for the guests.
    pub fn program(&self, name: &str) -> PathBuf {
        self.cargo_release().join(name)
    }

    /// Returns QEMU's plugin that counts a guest's memory accesses, built for the host.
    pub fn plugin(&self) -> PathBuf {
        self.cargo_target().join("release/libqemu_memory.so")
    }

    /// Returns an example of a crate, built by cargo for the guests.
    pub fn example(&self, name: &str) -> PathBuf {
        self.cargo_release().join("examples").join(name)
    }

    /// Returns the module, built by `mk/module`.
    pub fn module(&self) -> PathBuf {
        self.made("module").join("enet.ko")
    }

    /// Returns the directory in which the guests' file system and its archive are built.
    pub fn guest(&self) -> PathBuf {
        self.made("guest")
    }

    /// Returns the path of `what` below `build/` for this kernel.
    fn made(&self, what: &str) -> PathBuf {
        self.build().join(match self.purpose {
            Purpose::Stock => what.to_owned(),
            Purpose::Other => format!("{what}-{}", self.release),
            Purpose::Debug => format!("{what}-debug"),
        })
    }

    /// Returns the prefix of the names of guests with this kernel.
    pub fn prefix(&self) -> String {
        match self.purpose {
            Purpose::Stock => String::new(),
            Purpose::Other => format!("{}-", self.release),
            Purpose::Debug => "debug-".to_owned(),
        }
    }

    /// Returns the factor by which timeouts are longer than with the default kernel.
    pub fn patience(&self) -> u32 {
        match (self.purpose, self.architecture) {
            (Purpose::Debug, _) => 5,
            (_, Architecture::Arm64) => 2,
            (_, Architecture::Amd64) => 1,
        }
    }

    /// Scales `time` from the stock kernel to this kernel.
    pub fn allow(&self, time: Duration) -> Duration {
        time.saturating_mul(self.patience())
    }
}

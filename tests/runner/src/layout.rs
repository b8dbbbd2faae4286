// SPDX-License-Identifier: GPL-2.0-only

//! Where things are: the project, its products, the guests' kernel.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::fcntl::{Flock, FlockArg};

use crate::architecture::Architecture;
use crate::step;

/// What the guests' kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Debian's own, for which everything is made.
    Stock,
    /// Another one of Debian's, which `RELEASE` names.
    Other,
    /// The one of `mk/debug-kernel`, which looks for faults and is slow.
    Debug,
}

/// The directories everything else is found in.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The root of the project.
    pub project: PathBuf,
    /// What `mk/kernel path` or `mk/debug-kernel path` prints: `vmlinuz`, `release`,
    /// `lib/modules/`, `tree/`.
    pub kernel: PathBuf,
    /// What that kernel is for.
    pub purpose: Purpose,
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The architecture of that kernel.
    pub architecture: Architecture,
    /// Take the module and the programs as they were built last.
    pub as_built: bool,
}

impl Layout {
    /// Finds the project from the current directory upwards and reads the kernel's release.
    ///
    /// # Errors
    /// When this is not the project, or `kernel` is not a directory that `mk/kernel` made.
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

    /// Whether the kernel is one of PREEMPT_RT, by the name of Debian's flavour.
    pub fn is_realtime(&self) -> bool {
        self.release.contains("-rt-")
    }

    /// Everything made from the project.
    pub fn build(&self) -> PathBuf {
        self.project.join("build")
    }

    /// Where logs of steps and consoles of guests go.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn logs(&self) -> Result<PathBuf> {
        let logs = self.build().join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        Ok(logs)
    }

    /// Waits until no other run of this project builds what guests need, and keeps others from it:
    /// they would write the same files. It is let go of when dropped, or by the end of this
    /// process, however that comes.
    ///
    /// # Errors
    /// When the file that stands for it cannot be made.
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

    /// Where cargo puts its products.
    pub fn cargo_target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.build().join("cargo"), PathBuf::from)
    }

    /// Where cargo puts what is for the guests.
    fn cargo_release(&self) -> PathBuf {
        self.cargo_target()
            .join(self.architecture.target().unwrap_or_default())
            .join("release")
    }

    /// A program built by cargo for the guests.
    pub fn program(&self, name: &str) -> PathBuf {
        self.cargo_release().join(name)
    }

    /// The plugin of QEMU's that counts what a guest does to memory; it is the host's.
    pub fn plugin(&self) -> PathBuf {
        self.cargo_target().join("release/libqemu_memory.so")
    }

    /// An example of a crate, built by cargo for the guests.
    pub fn example(&self, name: &str) -> PathBuf {
        self.cargo_release().join("examples").join(name)
    }

    /// The module, built by `mk/module`.
    pub fn module(&self) -> PathBuf {
        self.made("module").join("enet.ko")
    }

    /// The guests' file system as a directory, and its archive beside it.
    pub fn guest(&self) -> PathBuf {
        self.made("guest")
    }

    /// A directory of what is made for this kernel.
    fn made(&self, what: &str) -> PathBuf {
        self.build().join(match self.purpose {
            Purpose::Stock => what.to_owned(),
            Purpose::Other => format!("{what}-{}", self.release),
            Purpose::Debug => format!("{what}-debug"),
        })
    }

    /// What the names of guests with this kernel begin with.
    pub fn prefix(&self) -> String {
        match self.purpose {
            Purpose::Stock => String::new(),
            Purpose::Other => format!("{}-", self.release),
            Purpose::Debug => "debug-".to_owned(),
        }
    }

    /// How many times as long as in the default kernel things may take.
    pub fn patience(&self) -> u32 {
        match (self.purpose, self.architecture) {
            (Purpose::Debug, _) => 5,
            (_, Architecture::Arm64) => 2,
            (_, Architecture::Amd64) => 1,
        }
    }

    /// `time`, given to the stock kernel, for this one.
    pub fn allow(&self, time: Duration) -> Duration {
        time.saturating_mul(self.patience())
    }
}

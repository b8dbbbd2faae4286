// SPDX-License-Identifier: GPL-2.0-only

//! The differences between the architectures of guests. The differences between the guests' kernels
//! are in `mk/lib.sh`.
//!
//! For a guest of another architecture than the host's, the toolbox has a cross compiler and a
//! separate directory with the guest's programs. Programs that must report something before the
//! guest boots run in QEMU's user emulation.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architecture of a kernel and of the programs in its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// The host's architecture.
    Amd64,
    /// A foreign architecture, for which the programs are cross-built.
    Arm64,
}

impl Architecture {
    /// Returns the architecture of the kernel `release`, whose suffix is the name of Debian's
    /// flavour.
    pub fn of(release: &str) -> Self {
        if release.ends_with("-arm64") {
            Self::Arm64
        } else {
            Self::Amd64
        }
    }

    /// Returns the name of the QEMU program that emulates this architecture.
    pub fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Returns QEMU's options for the machine.
    pub fn machine(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &[],
            Self::Arm64 => &["-machine", "virt"],
        }
    }

    /// Returns QEMU's name for the processor to emulate. On Arm, pointer authentication uses an
    /// implementation-defined algorithm, because emulating the architected one would take most of
    /// the guest's time.
    pub fn processor(self) -> &'static str {
        match self {
            Self::Amd64 => "max",
            Self::Arm64 => "max,pauth-impdef=on",
        }
    }

    /// Returns the processor for a guest whose clock counts instructions. QEMU counts each step of
    /// a repeated string instruction. With the features ERMS and FSRM, the kernel would copy memory
    /// by a string instruction that takes a step per byte. With FSRS, it would set memory by such
    /// an instruction. The processor therefore has none of these features.
    pub fn counted_processor(self) -> &'static str {
        match self {
            Self::Amd64 => "max,-erms,-fsrm,-fsrs",
            Self::Arm64 => self.processor(),
        }
    }

    /// Returns the name of the guest's serial ports without their numbers.
    pub fn serial_ports(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS",
            Self::Arm64 => "ttyAMA",
        }
    }

    /// Returns options for the kernel's command line. On a busy host the emulated timer may fail
    /// the kernel's timer check, and the kernel would then panic.
    pub fn kernel_options(self) -> &'static str {
        match self {
            Self::Amd64 => "no_timer_check ",
            Self::Arm64 => "",
        }
    }

    /// Returns cargo's name of the target; `None` if the target is the host's own architecture.
    pub fn target(self) -> Option<&'static str> {
        match self {
            Self::Amd64 => None,
            Self::Arm64 => Some("aarch64-unknown-linux-gnu"),
        }
    }

    /// Returns a `cargo build` command for this architecture.
    pub fn cargo_build(self) -> Command {
        let mut command = Command::new("cargo");
        command.arg("build");
        if let Some(target) = self.target() {
            let variable = target.replace('-', "_").to_uppercase();
            command.args(["--target", target]).env(
                format!("CARGO_TARGET_{variable}_LINKER"),
                self.tool("gcc-14").get_program(),
            );
        }
        command
    }

    /// Returns the compiler or another program of the toolchain, by its name without a prefix.
    pub fn tool(self, name: &str) -> Command {
        match self {
            Self::Amd64 => Command::new(name),
            Self::Arm64 => Command::new(format!("aarch64-linux-gnu-{name}")),
        }
    }

    /// Returns the toolbox's directory that holds the guest's programs.
    pub fn root(self) -> &'static Path {
        Path::new(match self {
            Self::Amd64 => "/",
            Self::Arm64 => "/guest",
        })
    }

    /// Returns where the toolbox has the file that a guest has at `path`.
    pub fn in_toolbox(self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns a command that runs one of the guest's programs on the host.
    pub fn run(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Amd64 => Command::new(program),
            Self::Arm64 => {
                let mut command = Command::new("qemu-aarch64");
                command.arg("-L").arg(self.root()).arg(program);
                command
            }
        }
    }

    /// Returns a command that lists the libraries of a program, like `ldd`.
    pub fn list_libraries(self, program: &Path) -> Command {
        match self {
            Self::Amd64 => {
                let mut command = Command::new("ldd");
                command.arg(program);
                command
            }
            Self::Arm64 => {
                let mut command = self.run(self.in_toolbox("lib/ld-linux-aarch64.so.1"));
                command.arg("--list").arg(program);
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_name_their_architecture() {
        for (release, architecture) in [
            ("7.3.4+deb13-cloud-amd64", Architecture::Amd64),
            ("7.3.4+deb13-cloud-arm64", Architecture::Arm64),
            ("7.3.4+deb13-arm64", Architecture::Arm64),
            ("7.2.12-enet-debug", Architecture::Amd64),
        ] {
            assert_eq!(Architecture::of(release), architecture, "{release}");
        }
    }

    #[test]
    fn files_of_guests_are_in_the_toolbox() {
        let shell = Path::new("/usr/bin/dash");
        assert_eq!(Architecture::Amd64.in_toolbox(shell), shell);
        let cross = Architecture::Arm64.in_toolbox(shell);
        assert_eq!(cross, Path::new("/guest/usr/bin/dash"));
    }
}

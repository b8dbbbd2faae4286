// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet run`, `enet map` and `enet unmap`, which make the kernel create mapped sockets when
//! programs ask for TCP sockets.
//!
//! A BPF program maps the sockets of the programs in a control group. If that is not possible, a
//! preloaded library replaces the protocol number in `socket()`.

mod bpf;
mod btf;
mod group;
mod keeper;
mod rules;
mod signals;
mod stale;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::{Args, ValueEnum};
use rustix::io::Errno;
use rustix::net::{socket_with, AddressFamily, Protocol, SocketFlags, SocketType};
use sockaddr_en::constants::IPPROTO_ENET;

use self::bpf::Link;
use self::group::{Group, Made};
use self::rules::Rules;
use crate::{module, output, proc_file};

/// The directory of pins. A pin keeps a BPF program attached without a process.
const PINS: &str = "/sys/fs/bpf";

/// The start of a pin's name; the number of the control group follows.
const PIN_PREFIX: &str = "enet_";

/// The library that maps sockets without BPF.
const PRELOAD: &str = "libenet_preload.so";

/// The environment variable that names a library to use instead of the installed library.
const PRELOAD_VARIABLE: &str = "ENET_PRELOAD";

/// The way in which the sockets of a command are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// By BPF, for all programs; by a library if the kernel or the user's rights do not allow BPF
    Auto,
    /// By BPF
    Bpf,
    /// By a library: for programs that are linked dynamically, and call socket() of the C library
    Preload,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    rules: Rules,

    /// How sockets are mapped
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Way::Auto)]
    by: Way,

    /// Fail if the module is not loaded, instead of running the command over TCP
    #[arg(short, long)]
    require: bool,

    /// Do not say how sockets are mapped
    #[arg(short, long)]
    quiet: bool,

    /// The command, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArgs {
    /// Executes the command in this process.
    ///
    /// # Errors
    /// If no way to map is possible, or the module is required but missing.
    pub fn run(&self) -> Result<ExitCode> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        match hold_module() {
            Ok(module) => self.map(&mut command, module)?,
            // Without the module the command still runs, over TCP.
            Err(error) if is_missing(error) && !self.require => output::message(format_args!(
                "warning: {:#}; TCP carries all connections of {}",
                explain(error),
                self.command[0].to_string_lossy()
            )),
            Err(error) => return Err(explain(error)),
        }
        let error = signals::exec(&mut command);
        let code = match error.kind() {
            ErrorKind::NotFound => 127,
            _ => 126,
        };
        output::message(format_args!(
            "{}: {error}",
            self.command[0].to_string_lossy()
        ));
        Ok(ExitCode::from(code))
    }

    /// Arranges that the sockets of this process are mapped. This process will execute the command.
    fn map(&self, command: &mut Command, module: OwnedFd) -> Result<()> {
        // Rules apply to control groups, so with rules a group is needed even if the library maps
        // the sockets.
        let group = (self.by != Way::Preload || !self.rules.is_empty()).then(make_group);
        let link = match (&group, self.by) {
            (_, Way::Preload) | (None, _) => Err(anyhow!("as demanded")),
            (Some(Ok(group)), _) => Link::attach(group.as_fd()),
            (Some(Err(error)), _) => Err(anyhow!("{error:#}")),
        };
        let said = match &link {
            Ok(_) => "by BPF".to_owned(),
            Err(error) if self.by == Way::Bpf => bail!("not possible by BPF: {error:#}"),
            Err(error) => {
                let library = preload().map_err(|other| {
                    anyhow!("sockets cannot be mapped: not by BPF: {error:#}; nor by a library: {other:#}")
                })?;
                let said = format!("by {}, not by BPF: {error:#}", library.display());
                let present = env::var_os("LD_PRELOAD").unwrap_or_default();
                command.env("LD_PRELOAD", preloaded(&library, &present));
                said
            }
        };
        match group {
            Some(Ok(group)) => keeper::start(group, &self.rules, link.ok(), module)?,
            Some(Err(error)) if !self.rules.is_empty() => {
                return Err(error.context("--allow and --deny need a control group"))
            }
            _ => {}
        }
        if !self.quiet {
            output::message(format_args!("TCP sockets are mapped {said}"));
        }
        Ok(())
    }
}

/// Creates a group for the command.
fn make_group() -> Result<Made> {
    Group::own()?.child(&format!("enet-run-{}", std::process::id()))
}

/// Opens a mapped socket, which keeps the module loaded while it is open.
fn hold_module() -> Result<OwnedFd, Errno> {
    let protocol = u32::try_from(IPPROTO_ENET)
        .ok()
        .and_then(|number| number.try_into().ok());
    let protocol = protocol.map(Protocol::from_raw);
    socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        protocol,
    )
}

/// Returns whether `error` means that the module is not loaded, and could not be loaded.
fn is_missing(error: Errno) -> bool {
    error == Errno::PROTONOSUPPORT
}

fn explain(error: Errno) -> anyhow::Error {
    if is_missing(error) {
        anyhow!(module::missing())
    } else {
        anyhow!(error).context("making a mapped socket")
    }
}

/// Finds the library. It is next to this program after a build, or in a directory where packages
/// install it.
fn preload() -> Result<PathBuf> {
    let named = env::var_os(PRELOAD_VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = named.map(PathBuf::from) {
        // The file is opened to fail early. The loader would only print a warning about a file that
        // it cannot open, and the command would run over TCP.
        fs::File::open(&path)
            .with_context(|| format!("{PRELOAD_VARIABLE} names {}", path.display()))?;
        return Ok(path);
    }
    let program = env::current_exe().context("finding this program")?;
    let directory = program.parent().unwrap_or(Path::new("/usr/bin"));
    let places = [
        directory.join(PRELOAD),
        directory.join("../lib/enet").join(PRELOAD),
    ];
    let found = places.into_iter().find(|place| place.exists());
    let found = found.with_context(|| format!("{PRELOAD} is not installed"))?;
    Ok(found.canonicalize()?)
}

/// Returns the value of `LD_PRELOAD`: `library`, then the libraries that are `present`. If these
/// contain `library` already, as within another `enet run`, returns `present`.
fn preloaded(library: &Path, present: &OsStr) -> OsString {
    let mut names = present
        .as_encoded_bytes()
        .split(|byte| b": ".contains(byte));
    if names.any(|name| name == library.as_os_str().as_encoded_bytes()) {
        return present.to_owned();
    }
    let mut value = library.as_os_str().to_owned();
    if !present.is_empty() {
        value.push(":");
        value.push(present);
    }
    value
}

/// Arguments of `map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    #[command(flatten)]
    rules: Rules,

    /// Directory of the control group; default: the caller's group
    group: Option<PathBuf>,
}

impl MapArgs {
    /// Maps the sockets that the processes of a group create from now on, until `enet unmap`.
    ///
    /// # Errors
    /// If the module is not loaded, or BPF is not possible.
    pub fn run(&self) -> Result<()> {
        let _module = hold_module().map_err(explain)?;
        let group = find_group(self.group.as_deref())?;
        let pin = pin(&group)?;
        ensure!(
            !pin.exists(),
            "{} is mapped already",
            group.path().display()
        );
        let id = group.id()?;
        if !self.rules.is_empty() {
            self.rules.keep(id)?;
        }
        let mapped = Link::attach(group.as_fd()).and_then(|link| link.pin(&pin));
        if mapped.is_err() && !self.rules.is_empty() {
            // Errors of this clean-up are ignored: the first error is returned.
            let _ = rules::forget(id);
        }
        mapped
    }
}

/// Arguments of `unmap`.
#[derive(Debug, Args)]
pub struct UnmapArgs {
    /// Directory of the control group; default: the caller's group
    group: Option<PathBuf>,

    /// Remove what is left of control groups that exist no longer
    #[arg(long, conflicts_with = "group")]
    stale: bool,
}

impl UnmapArgs {
    /// Ends `enet map`, and removes the group's rules. Existing sockets stay mapped.
    ///
    /// # Errors
    /// If the group was not mapped. Rules are removed nevertheless.
    pub fn run(&self) -> Result<()> {
        if self.stale {
            let gone = stale::forget()?;
            return output::print(&format!(
                "removed the rules and mappings of {} former groups\n",
                gone.len()
            ));
        }
        let group = find_group(self.group.as_deref())?;
        let pin = pin(&group)?;
        let was_mapped = match fs::remove_file(&pin) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(|| pin.display().to_string()),
        };
        // If the module is not loaded, there are no rules to remove.
        if proc_file::module_is_loaded() {
            rules::forget(group.id()?)?;
        }
        ensure!(was_mapped, "{} is not mapped", group.path().display());
        Ok(())
    }
}

fn find_group(path: Option<&Path>) -> Result<Group> {
    path.map_or_else(Group::of_unit, Group::open)
}

fn pin(group: &Group) -> io::Result<PathBuf> {
    Ok(Path::new(PINS).join(format!("{PIN_PREFIX}{}", group.id()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_preloaded_once() {
        let library = Path::new("/l/enet.so");
        for (present, wanted) in [
            ("", "/l/enet.so"),
            ("/a.so:b.so", "/l/enet.so:/a.so:b.so"),
            ("/a.so /l/enet.so", "/a.so /l/enet.so"),
            ("/l/enet.so2", "/l/enet.so:/l/enet.so2"),
        ] {
            assert_eq!(preloaded(library, OsStr::new(present)), OsStr::new(wanted));
        }
    }
}

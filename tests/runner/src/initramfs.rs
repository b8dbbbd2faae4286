// SPDX-License-Identifier: GPL-2.0-only

//! Builds the guests' file system: an initramfs with the programs, the libraries and modules that
//! the programs need, and an init.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::{ensure, Context, Result};

use crate::architecture::Architecture;
use crate::layout::Layout;
use crate::programs;
use crate::step;

/// The script that runs in the guest as init.
const INIT: &str = include_str!("../guest/init");

/// The start-up file of the shells of `make shell`.
const SHELL: &str = include_str!("../guest/shell");

/// The script that makes the two hosts of `make shell`.
const SHELL_SETUP: &str = include_str!("../guest/shell-setup");

/// Programs of the toolbox that scenarios call, besides busybox.
const TOOLS: [&str; 14] = [
    "/usr/bin/bash",
    "/usr/bin/busybox",
    "/usr/bin/chrt",
    "/usr/bin/dash",
    "/usr/bin/kmod",
    "/usr/bin/ip",
    "/usr/sbin/sysctl",
    "/usr/sbin/tc",
    "/usr/bin/ss",
    "/usr/sbin/bridge",
    "/usr/sbin/tipc",
    "/usr/sbin/ethtool",
    "/usr/bin/socat",
    "/usr/bin/trace-cmd",
];

/// Names of kmod, which chooses its function by the name under which it is called. The kernel
/// itself calls `/sbin/modprobe`.
const KMOD_NAMES: &[&str] = &["modprobe", "insmod", "rmmod", "lsmod", "modinfo", "depmod"];

/// Modules that the guests require.
const REQUIRED: &[&str] = &[
    "8021q",
    "bonding",
    "bridge",
    "ctr",
    "dummy",
    "gcm",
    "macsec",
    "macvlan",
    "sch_netem",
    "sch_red",
    "sch_tbf",
    "sctp",
    "team",
    "team_mode_roundrobin",
    "tipc",
    "veth",
    "virtio_net",
    "virtio_pci",
];

/// Modules that some scenarios use. A kernel may have them built in, or may lack them.
const WELCOME: &[&str] = &[
    "9p",
    "9pnet_fd",
    "act_gact",
    "act_mirred",
    "act_mpls",
    "af_packet",
    "brd",
    "cls_matchall",
    "cls_u32",
    "drbd",
    "failover",
    "geneve",
    "ifb",
    "igb",
    "ip6_gre",
    "ip_gre",
    "ipvlan",
    "iscsi_tcp",
    "kcm",
    "loop",
    "mpls_gso",
    "nbd",
    "net_failover",
    "nfsd",
    "nlmon",
    "overlay",
    "sch_etf",
    "sch_fq",
    "sch_fq_codel",
    "sch_ingress",
    "sch_prio",
    "sd_mod",
    "sit",
    "tcp_dctcp",
    "tcp_diag",
    "tcp_highspeed",
    "tcp_vegas",
    "tun",
    "vcan",
    "vhost_net",
    "vrf",
    "vxlan",
    "xfrm_user",
];

/// The contents of the archive in addition to the tools: the programs, other files, and the module
/// if it exists already.
#[derive(Debug)]
pub struct Contents {
    /// The directory in which the archive is built.
    pub place: PathBuf,
    /// Programs to put into `/bin`.
    pub programs: Vec<PathBuf>,
    /// Other files, each with its path relative to the root.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// The path of `enet.ko`. In the archive, the module is in the directory of out-of-tree
    /// modules.
    pub module: PathBuf,
}

/// Builds the module, and an archive with the tools, the module, `programs` and `files`. The
/// archive is in the directory `place` of `build/`.
///
/// # Errors
/// If the module does not build, and the errors of [`build`].
pub fn with_module(
    layout: &Layout,
    place: &str,
    programs: Vec<PathBuf>,
    files: Vec<(PathBuf, PathBuf)>,
) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    programs::build_module(layout)?;
    build(
        layout,
        &Contents {
            place: layout.build().join(place),
            programs,
            files,
            module: layout.module(),
        },
    )
}

/// Builds the archive if any of its inputs changed, and returns its path.
///
/// # Errors
/// If a tool, a library or a required module is missing, or the disk is full.
pub fn build(layout: &Layout, contents: &Contents) -> Result<PathBuf> {
    let place = &contents.place;
    let archive = place.join("initramfs.cpio");
    let stamp = place.join("initramfs.inputs");
    fs::create_dir_all(place).with_context(|| place.display().to_string())?;
    let inputs = describe_inputs(layout, contents)?;
    if archive.exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == inputs) {
        return Ok(archive);
    }
    step::say("building the guests' file system");
    let root = place.join("root");
    let _ = fs::remove_file(&stamp);
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
    }
    lay_out(&root)?;
    add_programs(layout, &root, contents)?;
    add_modules(layout, &root, &contents.module)?;
    pack(&root, &archive)?;
    fs::write(&stamp, inputs)?;
    Ok(archive)
}

/// Returns a line for each input, with its size and modification time. The runner's own program is
/// an input, too.
fn describe_inputs(layout: &Layout, contents: &Contents) -> Result<String> {
    let own = std::env::current_exe().context("own path")?;
    let kernel = layout.kernel.join("release");
    let mut text = String::new();
    let tools = TOOLS.map(|tool| layout.architecture.in_toolbox(tool));
    let built = contents.programs.iter().map(PathBuf::as_path);
    let files = contents.files.iter().map(|(from, _)| from.as_path());
    for path in built
        .chain(files)
        .chain([contents.module.as_path(), &own, &kernel])
        .chain(tools.iter().map(PathBuf::as_path))
    {
        let data = fs::metadata(path).with_context(|| path.display().to_string())?;
        let changed = data.modified()?.duration_since(UNIX_EPOCH)?;
        text += &format!("{} {} {}\n", path.display(), data.len(), changed.as_nanos());
    }
    Ok(text)
}

/// Makes the directories that Debian has had since it merged `/bin`, `/sbin` and `/lib` into
/// `/usr`.
fn lay_out(root: &Path) -> Result<()> {
    for directory in [
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "dev",
        "proc",
        "sys",
        "tmp",
        "run",
        "etc",
        "root",
        "mnt",
        "var/tmp",
    ] {
        fs::create_dir_all(root.join(directory))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    symlink("../run", root.join("var/run"))?;
    symlink("/proc/mounts", root.join("etc/mtab"))?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    fs::write(root.join("etc/shell"), SHELL)?;
    fs::write(root.join("etc/shell-setup"), SHELL_SETUP)?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn add_programs(layout: &Layout, root: &Path, contents: &Contents) -> Result<()> {
    let architecture = layout.architecture;
    let mut libraries = BTreeSet::new();
    for name in TOOLS {
        let tool = architecture.in_toolbox(name);
        fs::copy(&tool, root.join(name.trim_start_matches('/')))
            .with_context(|| format!("{}: not in the toolbox", tool.display()))?;
        libraries.append(&mut shared_libraries(architecture, &tool)?);
    }
    for program in &contents.programs {
        let name = program.file_name().context("a program without a name")?;
        let copy = root.join("usr/bin").join(name);
        step::output(
            architecture
                .tool("strip")
                .args(["--strip-debug", "-o"])
                .arg(&copy)
                .arg(program),
        )?;
        libraries.append(&mut shared_libraries(architecture, program)?);
    }
    for (file, place) in &contents.files {
        copy(file, &root.join(place))?;
        if is_elf(file)? {
            libraries.append(&mut shared_libraries(architecture, file)?);
        }
    }
    for library in libraries {
        let place = root.join(library.strip_prefix("/")?);
        copy(&architecture.in_toolbox(&library), &place)?;
    }
    for name in KMOD_NAMES {
        symlink("../bin/kmod", root.join("usr/sbin").join(name))?;
    }
    // The guest's sh is dash, because Debian's busybox, as a shell, would prefer its own ip and
    // modprobe to the programs in the PATH.
    symlink("dash", root.join("usr/bin/sh"))?;
    // busybox provides the programs that are not in the archive yet.
    for name in step::output(Command::new("busybox").arg("--list"))?.lines() {
        let places = ["usr/bin", "usr/sbin"].map(|directory| root.join(directory).join(name));
        if !places.iter().any(|place| place.symlink_metadata().is_ok()) {
            symlink("busybox", &places[0])?;
        }
    }
    Ok(())
}

/// Copies a file and creates its parent directories.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a directory")?)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Returns whether a file is a program or a library.
fn is_elf(file: &Path) -> Result<bool> {
    let mut magic = Vec::new();
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    opened.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"\x7fELF")
}

/// Returns the loader and the libraries that `program` needs, by their paths in the guest.
fn shared_libraries(architecture: Architecture, program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = architecture
        .list_libraries(program)
        .output()
        .context("listing libraries")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // For a static program ldd fails and prints a message without paths.
    let mut found = BTreeSet::new();
    for line in text.lines() {
        ensure!(
            !line.contains("not found"),
            "{}: {}",
            program.display(),
            line.trim()
        );
        let path = line
            .split_whitespace()
            .find(|word| word.starts_with('/') && architecture.in_toolbox(word).exists());
        found.extend(path.map(PathBuf::from));
    }
    Ok(found)
}

/// Copies and decompresses the kernel modules that guests need, and makes an index of them for
/// modprobe.
fn add_modules(layout: &Layout, root: &Path, ours: &Path) -> Result<()> {
    let from = layout.kernel.join("lib/modules").join(&layout.release);
    let to = root.join("lib/modules").join(&layout.release);
    fs::create_dir_all(to.join("updates"))?;
    for name in REQUIRED {
        let found = resolve(layout, name)?;
        ensure!(
            found.is_some(),
            "{} has no module {name}, which the guests need",
            layout.release
        );
    }
    let mut files = BTreeSet::new();
    for name in REQUIRED.iter().chain(WELCOME) {
        files.extend(resolve(layout, name)?.unwrap_or_default());
    }
    for file in files {
        let copy = to.join(file.strip_prefix(&from)?);
        fs::create_dir_all(copy.parent().context("a module without a directory")?)?;
        if file.extension().is_some_and(|extension| extension == "xz") {
            let status = Command::new("xz")
                .args(["--decompress", "--stdout"])
                .arg(&file)
                .stdout(File::create(copy.with_extension(""))?)
                .status()
                .context("xz")?;
            ensure!(status.success(), "xz: {}: {status}", file.display());
        } else {
            fs::copy(&file, &copy)?;
        }
    }
    for list in [
        "modules.builtin",
        "modules.builtin.modinfo",
        "modules.order",
    ] {
        fs::copy(from.join(list), to.join(list)).with_context(|| list.to_owned())?;
    }
    fs::copy(ours, to.join("updates/enet.ko")).with_context(|| ours.display().to_string())?;
    step::output(
        Command::new("depmod")
            .arg("-b")
            .arg(root)
            .arg(&layout.release),
    )?;
    Ok(())
}

/// Returns whether the kernel has the module `name`, built in or not.
///
/// # Errors
/// If `modprobe` is missing.
pub fn has_module(layout: &Layout, name: &str) -> Result<bool> {
    Ok(resolve(layout, name)?.is_some())
}

/// Returns the files of module `name` and of its dependencies. Returns no files if the module is
/// built in, and `None` if it does not exist.
fn resolve(layout: &Layout, name: &str) -> Result<Option<Vec<PathBuf>>> {
    let output = Command::new("modprobe")
        .args(["--show-depends", "-S", &layout.release, "-d"])
        .arg(&layout.kernel)
        .arg(name)
        .output()
        .context("modprobe")?;
    if !output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8(output.stdout)?;
    let files = text
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|line| PathBuf::from(line.trim()))
        .collect();
    Ok(Some(files))
}

/// Packs `root` into an archive for the kernel. The archive is not compressed, because emulated
/// processors unpack slowly.
fn pack(root: &Path, archive: &Path) -> Result<()> {
    let names = step::output(Command::new("find").current_dir(root).arg("."))?;
    let partial = archive.with_extension("partial");
    let mut cpio = Command::new("cpio")
        .args(["--create", "--quiet", "--format=newc", "--owner=0:0"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(File::create(&partial)?)
        .spawn()
        .context("cpio")?;
    cpio.stdin
        .take()
        .context("cpio without an input")?
        .write_all(names.as_bytes())?;
    let status = cpio.wait()?;
    ensure!(status.success(), "cpio: {status}");
    fs::rename(&partial, archive)?;
    Ok(())
}

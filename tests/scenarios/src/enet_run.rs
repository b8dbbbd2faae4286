// SPDX-License-Identifier: GPL-2.0-only

//! Tests `enet run`, which maps the sockets of unchanged programs, and the rules that decide
//! whether ESP may carry a connection.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{mount, umount, MsFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use super::enet_tool::NoAutoload;
use guest::mapped::{dial, is_esp, known, listener, MAPPED, PLAIN, POLICY};
use guest::prelude::*;
use guest::privilege::without_capabilities;

scenarios! {
    direct enet_run_maps_programs_by_bpf = by_bpf;
    direct enet_run_finds_its_control_group_where_a_mount_hides_it = hidden;
    direct enet_run_keeps_rules_for_its_programs = own_rules;
    direct enet_run_removes_its_rules_although_its_unit_is_stopped = stopped_unit;
    direct enet_run_holds_no_descriptor_of_its_command = descriptors;
    direct enet_map_and_unmap_leave_no_rules = no_rules_left;
    direct enet_unmap_removes_what_is_left_of_former_groups = former_groups;
    direct enet_policy_holds_for_both_ends = policy;
    direct enet_policy_refuses_what_it_does_not_know = bad_rules;
    direct enet_mapped_says_what_carries_a_connection = carriers;
    direct enet_run_says_both_reasons_if_no_way_is_possible = no_way;
    guest enet_run_without_the_module_warns_and_leaves_all_to_tcp = no_module;
}

/// The mount point of the control groups.
pub const GROUPS: &str = "/sys/fs/cgroup";
/// The mount point of the BPF file system, which guests do not mount.
const PINS: &str = "/sys/fs/bpf";
/// The kernel's type information, which `enet run` needs and the debug kernel lacks.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Returns whether the kernel has the type information with which `enet run` and `enet map` map
/// sockets by BPF.
pub fn has_types() -> bool {
    let exists = Path::new(TYPES).exists();
    if !exists {
        note("this kernel has no BTF");
    }
    exists
}

/// Mounts the control groups unless they are mounted already.
///
/// # Errors
/// When the mount fails.
pub fn mount_groups() -> Outcome {
    if Path::new(GROUPS).join("cgroup.procs").exists() {
        return Ok(());
    }
    let none: Option<&str> = None;
    mount(
        Some("cgroup2"),
        GROUPS,
        Some("cgroup2"),
        MsFlags::empty(),
        none,
    )
    .context("cgroup2")
}

/// Returns the number of control groups that `enet run` has created.
fn groups_of_runs() -> Result<usize> {
    let names = fs::read_dir(GROUPS)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let of_runs = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("enet-run-");
    Ok(names.iter().filter(of_runs).count())
}

/// Runs a statically linked program on host `a` by `enet run` with `options`. The program connects
/// to `port` of `b`. Returns whether ESP carries the connection.
fn connects_by_esp(lab: &Lab, options: &str, port: u16) -> Result<bool> {
    let listener = listener(&lab.b, MAPPED, port, 4)?;
    let mut command = Command::new("enet");
    command
        .args(["run", "--by", "bpf"])
        .args(options.split_whitespace())
        .args(["--", "busybox", "nc", "10.0.0.2", &port.to_string()])
        .stderr(Stdio::piped());
    let (by_esp, said) = is_carried_by_esp(&lab.a.namespace, &mut command, &listener)?;
    ensure!(said.contains("mapped by BPF"), "it says {said:?}");
    Ok(by_esp)
}

/// Runs a command in `namespace` that connects to `listener` until its input ends. Returns whether
/// ESP carries the connection, and what the command says on its standard error if that is a pipe.
pub fn is_carried_by_esp(
    namespace: &Netns,
    command: &mut Command,
    listener: &Socket,
) -> Result<(bool, String)> {
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = namespace.within(|| command.spawn())??;
    let came = listener.poll(libc::POLLIN, patience());
    let accepted = came.and_then(|_| listener.accept(libc::SOCK_NONBLOCK));
    drop(child.stdin.take());
    let (server, _) = accepted?;
    let by_esp = is_esp(&server);
    drop(server);
    let ended = child.wait_with_output()?;
    Ok((by_esp, String::from_utf8_lossy(&ended.stderr).into_owned()))
}

fn by_bpf(lab: &Lab) -> Outcome {
    if !has_types() {
        return Ok(());
    }
    mount_groups()?;
    known(lab)?;
    ensure!(connects_by_esp(lab, "", 980)?, "TCP carries the connection");
    // When the command has ended, its control group is removed, and a plain connection uses TCP as
    // before.
    eventually("the control group goes", || Ok(groups_of_runs()? == 0))?;
    let listener = listener(&lab.b, PLAIN, 981, 4)?;
    let client = dial(&lab.a, PLAIN, 981)?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)
}

/// `enet run` also works if `/sys` has no control groups, for example after `ip netns exec` has
/// mounted a new `/sys`.
fn hidden(_lab: &Lab) -> Outcome {
    if !has_types() {
        return Ok(());
    }
    mount_groups()?;
    let line =
        "umount -l /sys && mount -t sysfs sysfs /sys && ! test -e /sys/fs/cgroup/cgroup.procs && \
                exec enet run --by bpf --require -- echo it runs";
    let ended = Command::new("busybox")
        .args(["unshare", "-m", "sh", "-c", line])
        .output()
        .context("unshare")?;
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    ensure!(ended.status.success() && said.contains("it runs"), "{said}");
    Ok(())
}

fn own_rules(lab: &Lab) -> Outcome {
    if !has_types() {
        return Ok(());
    }
    mount_groups()?;
    known(lab)?;
    for (options, port, wanted) in [
        ("--allow :982", 982, true),
        ("--allow :982", 983, false),
        ("--allow 10.0.0.0/24:980-990", 984, true),
        ("--deny 10.0.0.2", 985, false),
        ("--deny 10.0.0.3", 986, true),
        ("--allow 10.0.0.0/24 --deny :987", 987, false),
    ] {
        let by_esp = connects_by_esp(lab, options, port)?;
        ensure!(by_esp == wanted, "{options}: port {port}: ESP {by_esp}");
    }
    ensure!(lab.a.counter("MappedTcpPolicy")? == 3);
    // The rules apply only to the programs that `enet run` started, and are removed when these
    // programs have ended.
    let rules = || lab.a.namespace.proc_net("enet_policy");
    eventually("the rules go", || Ok(rules()?.is_empty()))?;
    eventually("the control groups go", || Ok(groups_of_runs()? == 0))
}

/// A control group that is removed, with the group `.control` below it and with empty groups above
/// it, when this value is dropped.
pub struct Unit(PathBuf);

impl Unit {
    /// Makes the group `name`, which is a path below [`GROUPS`].
    ///
    /// # Errors
    /// If the control groups cannot be mounted, or the group cannot be made.
    pub fn make(name: &str) -> Result<Self> {
        mount_groups()?;
        let unit = Self(Path::new(GROUPS).join(name));
        fs::create_dir_all(unit.0.join(".control"))?;
        Ok(unit)
    }

    /// Returns the group's directory.
    pub fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Returns the kernel's number of the group.
    fn id(&self) -> Result<u64> {
        Ok(fs::metadata(&self.0)?.ino())
    }

    /// Sends SIGTERM to each process of the group and of the groups below it, as systemd does when
    /// it stops a unit.
    fn stop(&self) -> Outcome {
        let groups = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.path()));
        let mut groups = groups.collect::<Result<Vec<_>>>()?;
        groups.retain(|path| path.is_dir());
        groups.push(self.0.clone());
        for group in groups {
            for process in fs::read_to_string(group.join("cgroup.procs"))?.lines() {
                kill(Pid::from_raw(process.parse()?), Signal::SIGTERM).context("kill")?;
            }
        }
        Ok(())
    }

    /// Returns a command that runs `line` in the group, or in the group `below` it.
    pub fn shell(&self, below: &str, line: &str) -> Command {
        let group = self.0.join(below).join("cgroup.procs");
        let mut command = Command::new("busybox");
        let line = format!("echo 0 >{} && exec {line}", group.display());
        command.args(["sh", "-c", &line]);
        // If the kernel has no BTF, `enet run` needs a library that maps sockets. Any existing file
        // suffices here, because none of the programs loads the library.
        command.env("ENET_PRELOAD", "/dev/null");
        command
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        for group in [self.0.join(".control"), self.0.clone()] {
            if let Err(error) = fs::remove_dir(&group) {
                note(&format!("{}: {error}", group.display()));
            }
        }
        let above = self.0.ancestors().skip(1);
        for group in above.take_while(|group| *group != Path::new(GROUPS)) {
            // A group that others use stays.
            let _ = fs::remove_dir(group);
        }
    }
}

/// Returns the rules of host `a`.
fn rules_of(lab: &Lab) -> Result<String> {
    lab.a.namespace.proc_net("enet_policy")
}

/// When systemd stops a unit, it sends SIGTERM to all of the unit's processes. One of them is the
/// process of `enet run` that removes the rules, so it must survive the signal.
fn stopped_unit(lab: &Lab) -> Outcome {
    let unit = Unit::make("stopped.service")?;
    let line = "enet run --allow :982 -- busybox sh -c 'echo ready; exec busybox sleep 1000'";
    let mut command = unit.shell("", line);
    command.stdout(Stdio::piped());
    let mut child = lab.a.namespace.within(|| command.spawn())??;
    let mut ready = [0; 6];
    let out = child.stdout.as_mut().context("no standard output")?;
    out.read_exact(&mut ready).context("the command's output")?;
    ensure!(!rules_of(lab)?.is_empty(), "there are no rules to remove");
    unit.stop()?;
    let ended = child.wait()?;
    ensure!(
        ended.signal() == Some(libc::SIGTERM),
        "the command: {ended}"
    );
    eventually("the rules go", || Ok(rules_of(lab)?.is_empty()))?;
    eventually("the unit's group is empty", || {
        let events = fs::read_to_string(unit.0.join("cgroup.events"))?;
        Ok(events.contains("populated 0") && fs::read_dir(&unit.0)?.all(no_run))
    })
}

/// Returns whether a directory entry is something other than a control group of `enet run`.
fn no_run(entry: std::io::Result<fs::DirEntry>) -> bool {
    entry.is_ok_and(|entry| !entry.file_name().to_string_lossy().starts_with("enet-run-"))
}

/// A process of `enet run` lives as long as the command, but does not keep the command's pipe open.
/// When the command closes the pipe, the pipe's reader therefore sees the end.
fn descriptors(lab: &Lab) -> Outcome {
    let unit = Unit::make("pipe.service")?;
    let inner = "exec 5>&- >&-; exec busybox sleep 60";
    let line = format!("enet run --quiet -- busybox sh -c '{inner}' 5>&1");
    let mut command = unit.shell("", &line);
    command.stdout(Stdio::piped());
    let mut child = lab.a.namespace.within(|| command.spawn())??;
    let mut out = child.stdout.take().context("no standard output")?;
    out.read_to_end(&mut Vec::new())?;
    let early = child.try_wait()?;
    unit.stop()?;
    child.wait()?;
    ensure!(early.is_none(), "the pipe ends with the command: {early:?}");
    eventually("the unit's group is empty", || {
        Ok(fs::read_dir(&unit.0)?.all(no_run))
    })
}

/// `enet unmap --stale` removes the rules and the pin of a control group that no longer exists. It
/// leaves the rules of existing groups alone.
fn former_groups(lab: &Lab) -> Outcome {
    let stale = || -> Result<(Option<i32>, String)> {
        let mut command = Command::new("enet");
        let output = lab
            .a
            .namespace
            .within(|| command.args(["unmap", "--stale"]).output())??;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.code(), said))
    };
    let living = Unit::make("living.service")?;
    let kept = format!("allow 0.0.0.0/0 983-983 {}", living.id()?);
    rule(lab, false, &kept)??;
    rule(lab, false, "deny 0.0.0.0/0 984-984 0")??;
    let has_types = has_types();
    let _mounted = Mounted::pins()?;
    let former = Unit::make("former.service")?;
    let id = former.id()?;
    rule(lab, false, &format!("allow 0.0.0.0/0 982-982 {id}"))??;
    if has_types {
        let path = former.0.display().to_string();
        let mut command = Command::new("enet");
        command.args(["map", "--allow", ":985", &path]);
        let status = lab.a.namespace.within(|| command.status())??;
        ensure!(status.success(), "enet map: {status}");
        ensure!(fs::read_dir(PINS)?.next().is_some(), "nothing is pinned");
    }
    drop(former);
    ensure!(rules_of(lab)?.contains(&id.to_string()), "the rules went");
    for wanted in ["of 1 former", "of 0 former"] {
        let (code, said) = stale()?;
        same(code, Some(0), &said)?;
        ensure!(said.contains(wanted), "{wanted:?} is missing: {said}");
        let rules = rules_of(lab)?;
        same(rules.lines().count(), 2, &rules)?;
        ensure!(rules.contains(&kept), "the living group's rule is gone");
        ensure!(fs::read_dir(PINS)?.next().is_none(), "a pin is left");
    }
    for group in [living.id()?, 0] {
        rule(lab, false, &format!("flush {group}"))??;
    }
    Ok(())
}

fn no_rules_left(lab: &Lab) -> Outcome {
    let unit = Unit::make("mapped.service")?;
    let ended = |below: &str, line: &str| -> Result<(Option<i32>, String)> {
        let mut command = unit.shell(below, line);
        let output = lab.a.namespace.within(|| command.output())??;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), said))
    };
    // Where no BPF file system is mounted, nothing can be pinned, so mapping fails.
    let (code, said) = ended("", "enet map --allow :982")?;
    same(code, Some(1), &said)?;
    ensure!(
        rules_of(lab)?.is_empty(),
        "a failed map leaves rules: {said}"
    );
    // Add a rule for the unit without mapping the unit, as if `enet run` had been killed. Then run
    // `enet unmap` in the unit's group, or in `.control`, where systemd runs ExecStopPost= of a
    // unit with Delegate=.
    for below in ["", ".control"] {
        rule(
            lab,
            false,
            &format!("allow 0.0.0.0/0 982-982 {}", unit.id()?),
        )??;
        let (code, said) = ended(below, "enet unmap")?;
        same(code, Some(1), &said)?;
        ensure!(said.contains("mapped.service is not mapped"), "{said}");
        ensure!(rules_of(lab)?.is_empty(), "unmap in {below:?} leaves rules");
    }
    if !has_types() {
        return Ok(());
    }
    let _mounted = Mounted::pins()?;
    for below in ["", ".control"] {
        let (code, said) = ended("", "enet map --allow :982")?;
        same(code, Some(0), &said)?;
        let id = unit.id()?;
        let wanted = format!("allow 0.0.0.0/0 982-982 {id}\nallow ::/0 982-982 {id}\n");
        same(rules_of(lab)?, wanted, "the rules")?;
        let (code, said) = ended(below, "enet unmap")?;
        same(code, Some(0), &said)?;
        ensure!(rules_of(lab)?.is_empty(), "unmap in {below:?} leaves rules");
        ensure!(fs::read_dir(PINS)?.next().is_none(), "a pin is left");
    }
    Ok(())
}

/// A mount that ends when this value is dropped.
pub struct Mounted(&'static str);

impl Mounted {
    /// Mounts the BPF file system.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn pins() -> Result<Self> {
        let none: Option<&str> = None;
        mount(Some("bpf"), PINS, Some("bpf"), MsFlags::empty(), none).context(PINS)?;
        Ok(Self(PINS))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = umount(self.0) {
            note(&format!("{}: {error}", self.0));
        }
    }
}

/// Writes a line to the policy of `a` or `b`.
fn rule(lab: &Lab, on_b: bool, line: &str) -> Result<std::io::Result<()>> {
    let host = if on_b { &lab.b } else { &lab.a };
    host.namespace.within(|| fs::write(POLICY, line))
}

fn policy(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 990, 8)?;
    let connect = |by_esp: bool| -> Outcome {
        let client = dial(&lab.a, MAPPED, 990)?;
        let (server, _) = listener.accept(0)?;
        ensure!(is_esp(&client) == by_esp, "ESP: {}", !by_esp);
        exchange(&client, &server)
    };
    connect(true)?;
    rule(lab, false, "deny 10.0.0.0/30 990-990 0")??;
    connect(false)?;
    ensure!(lab.a.counter("MappedTcpPolicy")? == 1);
    rule(lab, false, "flush 0\n")??;
    // This rule applies to a control group that no socket here belongs to.
    rule(lab, false, "deny 0.0.0.0/0 0-65535 4711")??;
    connect(true)?;
    // The server's only rule allows another host, so the server refuses the client, which falls
    // back to TCP.
    rule(lab, true, "allow 10.0.0.7/32 0-65535 0")??;
    connect(false)?;
    ensure!(lab.b.counter("MappedInPolicy")? == 1);
    ensure!(lab.a.counter("MappedTcpRefused")? == 1);
    Ok(())
}

fn bad_rules(lab: &Lab) -> Outcome {
    let rules = || lab.a.namespace.proc_net("enet_policy");
    for line in [
        "",
        "\n",
        "permit 10.0.0.0/24 0-1 0",
        "allow",
        "allow 10.0.0.0 0-1 0",
        "allow 10.0.0.0/33 0-1 0",
        "allow 10.0.0/8 0-1 0",
        "allow fd00:: 0-1 0",
        "allow fd00::/129 0-1 0",
        "allow [fd00::]/64 0-1 0",
        "allow fe80::%2/64 0-1 0",
        "deny ::ffff:10.0.0.0/120 0-1 0",
        "allow 10.0.0.0/24 2-1 0",
        "allow 10.0.0.0/24 0-65536 0",
        "allow 10.0.0.0/24 0-1",
        "allow 10.0.0.0/24 0-1 0 more",
        "allow 10.0.0.0/24 0-1 -1",
        "flush",
        "flush all",
        "flush 0 0",
        "allow \u{fc}",
    ] {
        // Writing an empty string makes no system call.
        if !line.is_empty() {
            refused(rule(lab, false, line)?, libc::EINVAL, line)?;
        }
    }
    ensure!(rules()?.is_empty());
    for number in 0..256 {
        rule(
            lab,
            false,
            &format!("deny 0.0.0.0/0 {number}-{number} {}", number % 7),
        )??;
    }
    let last = rule(lab, false, "deny 0.0.0.0/0 256-256 0")?;
    refused(last, libc::ENOSPC, "the rule after the last")?;
    let text = rules()?;
    ensure!(text.lines().count() == 256, "{text}");
    // The rules of a group are listed together, in the order in which they were written.
    let first = text.lines().take(2).collect::<Vec<_>>();
    same(first, ["deny 0.0.0.0/0 0-0 0", "deny 0.0.0.0/0 7-7 0"], "")?;
    rule(lab, false, "flush 0")??;
    ensure!(rules()?.lines().count() == 256 - 37);
    let user = lab
        .a
        .namespace
        .within(|| without_capabilities(|| fs::write(POLICY, "flush 1")))??;
    ensure!(
        user.is_err(),
        "a user without capabilities changes the rules"
    );
    Ok(())
}

fn carriers(lab: &Lab) -> Outcome {
    known(lab)?;
    let lines = |on_b: bool| -> Result<Vec<String>> {
        let host = if on_b { &lab.b } else { &lab.a };
        let text = host.namespace.proc_net("enet_mapped")?;
        // Leaves out the inode, which comes first.
        let words = |line: &str| {
            line.split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        };
        // The file lists connections by inode number, and each processor assigns numbers from its
        // own range. So the order of the lines is not predictable.
        let mut lines: Vec<_> = text.lines().skip(1).map(words).collect();
        lines.sort();
        Ok(lines)
    };
    let takes_both = listener(&lab.b, MAPPED, 995, 4)?;
    let plain = listener(&lab.b, PLAIN, 996, 4)?;
    let by_esp = dial(&lab.a, MAPPED, 995)?;
    let (server, from) = takes_both.accept(0)?;
    let port = u16::from_be_bytes([from[2], from[3]]);
    let (own, far) = (format!("10.0.0.1:{port}"), "10.0.0.2:995");
    ensure!(lines(false)? == [format!("esp - {own} {far}")]);
    ensure!(lines(true)? == [format!("esp - {far} {own}")]);
    let refused = dial(&lab.a, MAPPED, 996)?;
    let again = dial(&lab.a, PLAIN, 995)?;
    let (by_peer, _) = takes_both.accept(0)?;
    let (_plain_server, _) = plain.accept(0)?;
    same(&lines(false)?[1..], ["tcp refused - -"], "at a")?;
    same(&lines(true)?[1..], ["tcp by-peer - -"], "at b")?;
    let listed = lab.a.namespace.run("enet", &["ss", "--mapped", "-H"])?;
    let wanted = [
        "esp ",
        "10.0.0.2:995 ",
        "tcp ",
        "10.0.0.2:996 ",
        "no mapped listener",
    ];
    ensure!(wanted.iter().all(|word| listed.contains(word)), "{listed}");
    // This process owns both ends of each connection.
    let own = format!("[{}]:", std::process::id());
    for (host, count) in [(&lab.a, 2), (&lab.b, 2)] {
        let listed = (host.namespace).run("enet", &["ss", "-m", "-P", "-H"])?;
        let owned = listed.lines().filter(|line| line.contains(&own));
        ensure!(owned.count() == count, "processes: {listed}");
    }
    // The same by program, for people and for Prometheus.
    let name = fs::read_to_string("/proc/self/comm")?;
    let name = name.trim_end();
    let sums = lab.a.namespace.run("enet", &["stats", "--why"])?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines_of_sums: Vec<_> = sums.lines().skip(1).map(words).collect();
    let why = "the peer has no mapped listener on that port";
    let wanted = [format!("1 {name} esp"), format!("1 {name} tcp {why}")];
    same(&lines_of_sums[..], wanted, "stats --why")?;
    let metrics = lab.b.namespace.run("enet", &["exporter", "--once"])?;
    let metric = format!(
        "enet_mapped_connections{{program=\"{name}\",carrier=\"tcp\",reason=\"by-peer\"}} 1\n"
    );
    ensure!(metrics.contains(&metric), "{metrics}");
    // A socket's line disappears when its descriptor is closed.
    drop((by_esp, refused, again));
    ensure!(lines(false)?.is_empty());
    drop((server, by_peer));
    ensure!(lines(true)?.is_empty());
    Ok(())
}

/// Runs `enet run` with these arguments. Returns its exit status, and the output of `enet run` and
/// of the command.
fn runs(arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = Command::new("enet")
        .arg("run")
        .args(arguments)
        .output()
        .context("enet run")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(said)?))
}

/// A user without capabilities may not use BPF, and guests have no preload library. So `enet run`
/// has no way to map the program's sockets, and fails.
fn no_way(lab: &Lab) -> Outcome {
    let run = || without_capabilities(|| runs(&["--", "true"]));
    let (code, said) = lab.a.namespace.within(run)???;
    same(code, Some(125), &said)?;
    for words in ["not by BPF: ", "nor by a library: ", "libenet_preload.so"] {
        ensure!(said.contains(words), "{words:?} is missing: {said}");
    }
    // The error occurs before `enet run` starts the process that later removes the control group.
    // So `enet run` must remove the group itself.
    same(groups_of_runs()?, 0, "groups that are left")
}

fn no_module() -> Outcome {
    let _restore = module::Restore;
    let _autoload = NoAutoload::begin()?;
    module::unload()?;
    let (code, said) = runs(&["--", "sh", "-c", "echo it runs; exit 7"])?;
    same(code, Some(7), &said)?;
    for words in ["it runs", "warning", "modprobe enet", "TCP carries all"] {
        ensure!(said.contains(words), "{words:?} is missing: {said}");
    }
    let (code, said) = runs(&["--require", "--", "sh", "-c", "echo it runs"])?;
    same(code, Some(125), &said)?;
    ensure!(
        !said.contains("it runs") && said.contains("modprobe enet"),
        "--require: {said}"
    );
    for (command, wanted) in [("/nonexistent", 127), ("/etc", 126)] {
        let (code, said) = runs(&["--", command])?;
        same(code, Some(wanted), &said)?;
    }
    Ok(())
}

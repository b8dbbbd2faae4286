// SPDX-License-Identifier: GPL-2.0-only

//! Tests the files of `/proc/sys/esp/`: names, ranges, formats, rights, namespaces, and removal.

use std::fs::read_to_string;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};

use nix::sched::{unshare, CloneFlags};

use guest::harness::well_in_process;
use guest::knobs::{path, write, DIRECTORY};
use guest::prelude::*;
use guest::privilege::become_nobody;
use guest::setting::Setting;

scenarios! {
    guest sysctl_names_and_defaults = defaults;
    guest sysctl_refuses_values_out_of_range = ranges;
    guest sysctl_window_is_checked_together = together;
    guest sysctl_two_writers_make_no_invalid_window = two_writers, within(180);
    guest sysctl_refuses_texts_that_are_no_number = texts;
    guest sysctl_is_per_namespace = own_sets;
    guest sysctl_writing_needs_cap_net_admin = rights;
    guest sysctl_tool_and_sample_file = tool;
    guest sysctl_files_open_across_unload = across_unload;
    guest sysctl_files_in_use_while_module_reloads = in_use, within(90);
}

/// All files, with their defaults, except the files of the buffers.
const DEFAULTS: [(&str, u32); 11] = [
    ("burst_length", 21),
    ("burst_length_max", 2040),
    ("initial_ack_burst_length", 1),
    ("packets_to_ack", 10),
    ("round_trip_time", 200),
    ("retransmission_time_min", 10_000),
    ("user_timeout", 15_000),
    ("checksum", 2),
    ("mapped", 1),
    ("mapped_wait", 1000),
    ("selective", 2),
];

/// For each buffer: its file, its name in `net.core`, and its socket option.
const BUFFERS: [(&str, &str, i32); 2] = [
    ("send_buff_size", "wmem", libc::SO_SNDBUF),
    ("recv_buff_size", "rmem", libc::SO_RCVBUF),
];

/// Returns `net.core.NAME` of the initial namespace, in bytes.
fn core(name: &str) -> Result<u32> {
    let path = format!("/proc/sys/net/core/{name}");
    let text = read_to_string(&path).context(path)?;
    text.trim().parse().context("a number of bytes")
}

/// Sets `net.core.NAME` of the initial namespace.
fn set_core(name: &str, bytes: u32) -> Result<Setting> {
    Setting::set(format!("/proc/sys/net/core/{name}"), bytes)
}

fn defaults() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    let mut names: Vec<_> = DEFAULTS.iter().map(|(name, _)| *name).collect();
    names.extend(BUFFERS.iter().map(|(name, _, _)| *name));
    names.sort_unstable();
    let listed = namespace.within(|| -> Result<Vec<String>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(DIRECTORY).context(DIRECTORY)? {
            let entry = entry?;
            let mode = entry.metadata()?.permissions().mode();
            let name = entry.file_name().to_string_lossy().into_owned();
            ensure!(mode & 0o7777 == 0o644, "{name} has mode {mode:o}");
            listed.push(name);
        }
        listed.sort();
        Ok(listed)
    })??;
    ensure!(listed == names, "{DIRECTORY} holds {listed:?}");
    for (name, default) in DEFAULTS {
        let found = knobs.get(name)?;
        ensure!(found == default, "{name} is {found}, not {default}");
    }
    // A buffer's file follows the core's default until a value is written to the file.
    for (name, core_name, option) in BUFFERS {
        let usual = core(&format!("{core_name}_default"))?;
        let same = |expected: u32| -> Outcome {
            let shown = knobs.get(name)?;
            ensure!(shown == expected, "{name} is {shown}, not {expected}");
            let socket = namespace.within(Socket::esp)??;
            let has = socket.so(option)?;
            same(has, expected as i32, &format!("a socket's {name}"))
        };
        same(usual)?;
        let setting = set_core(&format!("{core_name}_default"), usual - 4096)?;
        same(usual - 4096).context("with another default of the core's")?;
        knobs.set(name, usual - 8192)?;
        same(usual - 8192)?;
        drop(setting);
        same(usual - 8192).context("after the core's default changed again")?;
    }
    Ok(())
}

/// Checks that the file `name` accepts both ends of its range, and rejects values outside of the
/// range.
fn spans(knobs: Knobs, name: &str, least: u32, most: u32) -> Outcome {
    for end in [least, most] {
        knobs.set(name, end)?;
        for beyond in [i64::from(least) - 1, i64::from(most) + 1, 0xffff_ffff] {
            knobs.rejects(name, beyond.to_string().as_bytes())?;
        }
    }
    Ok(())
}

fn ranges() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    knobs.set("packets_to_ack", 1)?;
    spans(knobs, "burst_length", 1, 32767)?;
    // `burst_length` is checked above; the ranges of the next two files end at `burst_length`.
    for burst in [32767, 21] {
        knobs.set("burst_length", burst)?;
        spans(knobs, "packets_to_ack", 1, burst)?;
        spans(knobs, "initial_ack_burst_length", 0, burst)?;
        knobs.set("packets_to_ack", 1)?;
        knobs.set("initial_ack_burst_length", 0)?;
    }
    // The window is fixed at 21 now, and the host grants no other window until `burst_length_max`
    // is written.
    let largest = knobs.get("burst_length_max")?;
    ensure!(largest == 21, "burst_length_max is {largest}");
    spans(knobs, "burst_length_max", 21, 2040)?;
    knobs.set("burst_length", 2100)?;
    knobs.accepts("burst_length_max", "2100", 2100)?;
    knobs.rejects("burst_length_max", b"2040")?;
    knobs.rejects("burst_length_max", b"2101")?;
    knobs.set("burst_length", 21)?;
    // Numbers that would be valid if they were truncated to 16 bits are rejected.
    for name in ["burst_length", "packets_to_ack", "initial_ack_burst_length"] {
        for number in [65536 + 5, 0xffff, 32768] {
            knobs.rejects(name, format!("{number}").as_bytes())?;
        }
    }
    spans(knobs, "round_trip_time", 10, 1_000_000)?;
    spans(knobs, "retransmission_time_min", 2_000, 1_000_000)?;
    spans(knobs, "user_timeout", 100, 86_400_000)?;
    spans(knobs, "checksum", 0, 2)?;
    spans(knobs, "mapped", 0, 1)?;
    spans(knobs, "mapped_wait", 0, 100_000)?;
    spans(knobs, "selective", 0, 2)?;
    for (name, core_name, option) in BUFFERS {
        // The file's least value is the size that the core sets when `setsockopt` asks for the
        // smallest size.
        let socket = namespace.within(Socket::esp)??;
        socket.set_so(option, 1)?;
        let least = socket.so(option)? as u32;
        let most = core(&format!("{core_name}_max"))?;
        spans(knobs, name, least, most)?;
        let _setting = set_core(&format!("{core_name}_max"), most - 4096)?;
        spans(knobs, name, least, most - 4096).context("with a lower limit of the core's")?;
    }
    Ok(())
}

fn together() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    let all = || -> Result<[u32; 3]> {
        Ok([
            knobs.get("burst_length")?,
            knobs.get("initial_ack_burst_length")?,
            knobs.get("packets_to_ack")?,
        ])
    };
    // By default `burst_length` is 21, `initial_ack_burst_length` 1 and `packets_to_ack` 10.
    knobs.rejects("packets_to_ack", b"22")?;
    knobs.rejects("initial_ack_burst_length", b"22")?;
    knobs.rejects("burst_length", b"9")?;
    ensure!(all()? == [21, 1, 10], "{:?}", all()?);
    knobs.set("burst_length", 10)?;
    knobs.rejects("packets_to_ack", b"11")?;
    knobs.set("packets_to_ack", 3)?;
    knobs.set("initial_ack_burst_length", 7)?;
    knobs.rejects("burst_length", b"6")?;
    knobs.set("burst_length", 7)?;
    knobs.set("initial_ack_burst_length", 0)?;
    knobs.rejects("burst_length", b"2")?;
    knobs.set("burst_length", 3)?;
    ensure!(all()? == [3, 0, 3], "{:?}", all()?);
    Ok(())
}

/// Two concurrent writes are each valid alone, but not together. So exactly one of them must
/// succeed.
fn two_writers() -> Outcome {
    const ROUNDS: u32 = 3000;
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    let (mut wide, mut narrow) = (0, 0);
    for round in 0..ROUNDS {
        knobs.set("packets_to_ack", 1)?;
        knobs.set("burst_length", 20)?;
        let writes = thread::scope(|scope| {
            let other = scope.spawn(|| knobs.write("packets_to_ack", b"20"));
            let here = knobs.write("burst_length", b"10");
            (here, other.join().expect("a write does not panic"))
        });
        let taken = (writes.0?.is_ok(), writes.1?.is_ok());
        let found = (knobs.get("burst_length")?, knobs.get("packets_to_ack")?);
        match (taken, found) {
            ((true, false), (10, 1)) => narrow += 1,
            ((false, true), (20, 20)) => wide += 1,
            _ => bail!("round {round}: taken {taken:?}, numbers {found:?}"),
        }
    }
    note(&format!(
        "{narrow} times the first was taken, {wide} times the second"
    ));
    Ok(())
}

fn texts() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    let name = "burst_length";
    for (text, number) in [
        ("32", 32),
        ("33\n", 33),
        ("  34", 34),
        ("\t35 \n", 35),
        ("36\n\n", 36),
        ("0x25", 37),
        ("00046", 38),
    ] {
        knobs.accepts(name, text, number)?;
    }
    let long = [b"0".repeat(30), b"40".to_vec()].concat();
    let number_and_much = [b"40 ".to_vec(), b"x".repeat(5000)].concat();
    let rejected: [&[u8]; 22] = [
        b"\n",
        b" ",
        b" \t\n",
        b"-1",
        b"-40",
        b"- 40",
        b"+40",
        b"forty",
        b"40x",
        b"4O",
        b"40,",
        b"40.0",
        b"40 41",
        b"40\n41\n",
        b"40 packets",
        b"40\0",
        b"\xff\xfe",
        b"4294967336",
        b"18446744073709551656",
        b"99999999999999999999999999999999",
        &long,
        &number_and_much,
    ];
    for text in rejected {
        knobs.rejects(name, text)?;
    }
    // As with all numbers under /proc/sys, an empty write changes nothing, and only a write at the
    // start of the file takes effect.
    knobs.accepts(name, "", 38)?;
    let file = namespace.within(|| fs::OpenOptions::new().write(true).open(path(name)))??;
    ensure!(file.write_at(b"40", 1)? == 2, "a write behind the start");
    ensure!(knobs.get(name)? == 38, "a write behind the start counts");
    Ok(())
}

fn own_sets() -> Outcome {
    let (a, b) = (Netns::create()?, Netns::create()?);
    let numbers = |offset: u32| {
        [
            ("burst_length", 100 + offset),
            ("initial_ack_burst_length", 2 + offset),
            ("packets_to_ack", 30 + offset),
            ("round_trip_time", 400 + offset),
            ("send_buff_size", 50_000 + offset),
            ("recv_buff_size", 60_000 + offset),
        ]
    };
    for (namespace, offset) in [(&a, 0), (&b, 7)] {
        for (name, number) in numbers(offset) {
            Knobs(namespace).set(name, number)?;
        }
    }
    for (namespace, offset) in [(&a, 0), (&b, 7)] {
        for (name, number) in numbers(offset) {
            let found = Knobs(namespace).get(name)?;
            ensure!(found == number, "{name} is {found}, not {number}");
        }
        for (name, _, option) in BUFFERS {
            let socket = namespace.within(Socket::esp)??;
            let has = socket.so(option)? as u32;
            let set = Knobs(namespace).get(name)?;
            ensure!(has == set, "{name} is {set}, but a socket there has {has}");
        }
    }
    // The initial namespace and a new one still have the defaults.
    let later = Netns::create()?;
    for (name, default) in DEFAULTS {
        let first: u32 = read_to_string(path(name))?.trim().parse()?;
        let new = Knobs(&later).get(name)?;
        same((first, new), (default, default), name)?;
    }
    Ok(())
}

/// Runs `work` as a user without rights, and checks that it succeeds.
fn as_nobody(work: impl FnOnce() -> Outcome) -> Outcome {
    well_in_process("a user without rights", || {
        become_nobody()?;
        work()
    })
}

fn rights() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    knobs.set("burst_length", 50)?;
    namespace.within(|| {
        as_nobody(|| {
            let text = read_to_string(path("burst_length")).context("reading")?;
            ensure!(text == "50\n", "read {text:?}");
            refused(write("burst_length", b"60"), libc::EACCES, "writing")
        })
    })??;
    ensure!(knobs.get("burst_length")? == 50, "written without rights");
    // A namespace's owner may tune the namespace, but not beyond the limits of the machine's
    // administrator.
    let most = core("rmem_max")?;
    as_nobody(|| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).context("unshare")?;
        write("burst_length", b"60").context("writing as the owner")?;
        let text = read_to_string(path("burst_length"))?;
        ensure!(text == "60\n", "read {text:?}");
        refused(
            write("recv_buff_size", (most + 1).to_string().as_bytes()),
            libc::EINVAL,
            "a buffer beyond net.core.rmem_max",
        )
    })?;
    ensure!(knobs.get("burst_length")? == 50, "written from elsewhere");
    Ok(())
}

/// Returns the blocks of the sample file: for each, its heading and its settings, which are
/// commented out.
fn blocks() -> Vec<(&'static str, Vec<&'static str>)> {
    let sample = include_str!("../../../docs/sysctl.d/90-esp.conf");
    let blocks = sample.split("\n## ").skip(1).map(|block| {
        let mut lines = block.lines();
        let heading = lines.next().unwrap_or_default();
        let settings = lines
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| line.starts_with("esp."));
        (heading, settings.collect())
    });
    blocks.collect()
}

fn tool() -> Outcome {
    let namespace = Netns::create()?;
    let knobs = Knobs(&namespace);
    namespace.run("sysctl", &["-w", "esp.burst_length=32"])?;
    ensure!(knobs.get("burst_length")? == 32, "sysctl -w did nothing");
    let shown = namespace.run("sysctl", &["-n", "esp.burst_length"])?;
    ensure!(shown == "32\n", "sysctl -n shows {shown:?}");
    ensure!(
        namespace
            .run("sysctl", &["-w", "esp.packets_to_ack=33"])
            .is_err(),
        "sysctl -w says nothing of a number that was refused"
    );
    let blocks = blocks();
    let headings: Vec<_> = blocks.iter().map(|(heading, _)| *heading).collect();
    let expected = [
        "Bounds",
        "Links that lose or reorder frames",
        "TCP programs",
        "Fixed windows",
    ];
    same(headings, expected, "the sample file")?;
    let directory = "/etc/sysctl.d";
    fs::create_dir_all(directory)?;
    let file = format!("{directory}/90-esp.conf");
    for (heading, settings) in blocks {
        fs::write(&file, settings.join("\n") + "\n")?;
        // `sysctl --system` runs as at boot, on a host where nothing has been set yet.
        let fresh = Netns::create()?;
        fresh
            .run("sysctl", &["--system"])
            .with_context(|| format!("the block {heading}"))?;
        for line in settings {
            let (name, number) = line.split_once('=').context("a line without =")?;
            let name = name.trim().trim_start_matches("esp.");
            let found = Knobs(&fresh).get(name)?;
            let number: u32 = number.trim().parse()?;
            same(found, number, &format!("{heading}: {name}"))?;
        }
    }
    fs::remove_file(&file)?;
    Ok(())
}

fn read_again(file: &File) -> io::Result<String> {
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn across_unload() -> Outcome {
    let _restore = Restore;
    let namespace = Netns::create()?;
    let open = || {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path("burst_length"))
    };
    let files = [open()?, namespace.within(open)??];
    let directory = File::open(DIRECTORY)?;
    for file in &files {
        ensure!(read_again(file)? == "21\n", "a fresh file");
    }
    // An open file does not keep the module loaded.
    module::unload()?;
    for round in ["without the module", "with the module loaded anew"] {
        for file in &files {
            refused(read_again(file), libc::ENOENT, round)?;
            refused(file.write_at(b"30", 0), libc::ENOENT, round)?;
        }
        let inside = format!("/proc/self/fd/{}/burst_length", directory.as_raw_fd());
        refused(read_to_string(inside), libc::ENOENT, round)?;
        if !module::loaded() {
            refused(read_to_string(path("burst_length")), libc::ENOENT, round)?;
            module::load(&[])?;
        }
    }
    ensure!(read_again(&open()?)? == "21\n", "the new module's file");
    Ok(())
}

/// The files are read and written without a pause while the module is reloaded.
fn in_use() -> Outcome {
    let _restore = Restore;
    let namespace = Netns::create()?;
    let done = AtomicBool::new(false);
    let busy = || -> Result<u32> {
        let mut served = 0;
        while !done.load(Ordering::Relaxed) {
            let names = DEFAULTS.iter().map(|(name, _)| *name);
            for name in names.chain(BUFFERS.iter().map(|(name, _, _)| *name)) {
                let read = read_to_string(path(name));
                match read.and_then(|text| write(name, text.as_bytes())) {
                    Ok(()) => served += 1,
                    // The module is being reloaded, so the file does not exist.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    Err(error) => bail!("{name}: {error}"),
                }
            }
        }
        Ok(served)
    };
    let served = thread::scope(|scope| {
        let here = scope.spawn(busy);
        let there = scope.spawn(|| namespace.within(busy)?);
        let reloads = (0..10)
            .try_for_each(|round| module::reload().with_context(|| format!("round {round}")));
        done.store(true, Ordering::Relaxed);
        let served = [here, there].map(|thread| thread.join().expect("no panic"));
        reloads.map(|()| served)
    })?;
    for served in served {
        ensure!(served? > 0, "no file was ever there");
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests memory control groups: how much of the module's memory is charged to a group.

use std::any::Any;
use std::path::PathBuf;

use nix::mount::{mount, umount, MsFlags};

use crate::denial::victim::unsent;
use guest::address::{internet, EP_SO_RECEIVE_RING, IPPROTO_ENET};
use guest::channel::{channel, Memory};
use guest::meminfo::free_memory;
use guest::patience::factor;
use guest::prelude::*;
use guest::socket::interface_index;

scenarios! {
    direct memory_of_queues_is_charged_to_the_senders_cgroup = charged;
    direct memory_of_every_call_is_charged_or_bounded = every_call, within(120);
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

    /// Limits the group's memory to `bytes`.
    fn limit(&self, bytes: u64) -> Outcome {
        fs::write(self.0.join("memory.max"), bytes.to_string()).context("memory.max")
    }

    /// Returns how many bytes of memory of all kinds are charged to the group. The lines of
    /// `memory.stat` add up to this number, but they lag by some pages.
    fn all(&self) -> Result<i64> {
        let text = fs::read_to_string(self.0.join("memory.current"))?;
        text.trim().parse().context("memory.current")
    }

    /// Returns the number of bytes of kernel memory that the group is charged for.
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
        // Errors are ignored. If a step fails, the next scenario that makes a group fails, too.
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
    // `memory.stat` lags, but by less than half of the queued bytes.
    ensure!(
        grown >= queued / 2,
        "{queued} bytes are queued, and the cgroup is charged for {grown}"
    );
    Ok(())
}

/// The results of calls. Each result keeps the memory that its call took, until the result is
/// dropped.
type Kept = Vec<Box<dyn Any>>;

/// A call that takes memory, and how much of the memory may remain uncharged.
struct Trial {
    what: &'static str,
    /// How many times the call is made.
    count: u16,
    /// The number of bytes that each call takes without a charge to the group. `docs/security.md`
    /// says what limits them instead.
    uncharged: i64,
    call: fn(&Lab, u16) -> Result<Kept>,
}

/// The memory limit of the control group, in bytes.
const LIMIT: u64 = 64 << 20;

/// The number of devices through which the test makes connection attempts.
const DEVICES: u16 = 100;

/// The tolerance for other changes of free memory, in bytes. Parts of slabs stay free.
const SLACK: i64 = 1 << 20;

/// The size of a `struct sk_buff`, in bytes. If the core allocates the `sk_buff` separately from
/// the packet's data, it charges the `sk_buff` to no group.
const DESCRIPTOR: i64 = 256;

const TRIALS: &[Trial] = &[
    // This trial must be the first, since each other trial leaves free room in the slab caches.
    Trial {
        what: "connections, both ends",
        count: 1500,
        // The uncharged memory holds the connection's entries in the tables of both hosts, and the
        // data that security modules keep for the accepted socket.
        uncharged: 512,
        call: |lab, count| {
            let listener = lab.b.esp_listener(990, 16)?;
            kept(count, |_| lab.esp_pair_through(&listener, 990))
        },
    },
    Trial {
        what: "datagram sockets",
        count: 1000,
        uncharged: 0,
        call: |lab, count| kept(count, |_| lab.a.edp()),
    },
    Trial {
        what: "stream sockets",
        count: 1000,
        uncharged: 0,
        call: |lab, count| kept(count, |_| lab.a.esp()),
    },
    Trial {
        what: "listeners with a backlog of 4096",
        count: 100,
        uncharged: 0,
        call: |lab, count| kept(count, |i| lab.a.esp_listener(2000 + i, 4096)),
    },
    Trial {
        what: "listeners of mapped sockets",
        count: 100,
        uncharged: 0,
        call: |lab, count| kept(count, |i| mapped_listener(lab, 2000 + i)),
    },
    Trial {
        what: "attempts to connect, each by a device of its own",
        count: DEVICES,
        // The uncharged memory is the device's ACK queue.
        uncharged: 4096,
        call: attempts,
    },
    Trial {
        what: "receive rings",
        count: 20,
        uncharged: 0,
        call: |lab, count| {
            kept(count, |_| {
                let socket = lab.a.esp()?;
                socket.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, 1 << 20)?;
                Ok(socket)
            })
        },
    },
    Trial {
        what: "regions of channels",
        count: 20,
        uncharged: 0,
        call: |lab, count| kept(count, |_| regions(&lab.a)),
    },
    Trial {
        what: "datagrams that wait for more",
        count: 1000,
        uncharged: DESCRIPTOR,
        call: |lab, count| {
            let there = lab.a.to_nobody(991);
            kept(count, |_| {
                let socket = lab.a.edp()?;
                socket.send_to(b"x", libc::MSG_MORE, &there)?;
                Ok(socket)
            })
        },
    },
    Trial {
        what: "datagrams that wait in a queue",
        count: 40,
        // The uncharged memory holds the `sk_buff`s of the datagrams that fit into the send buffer
        // of 212,992 bytes, where each datagram takes 768 bytes.
        uncharged: 212_992 / 768 * DESCRIPTOR,
        call: |lab, count| {
            let there = nobody_by(lab, "slow0")?;
            kept(count, |_| {
                let socket = lab.a.edp()?;
                socket.set_nonblocking(true)?;
                while socket.send_to(b"x", 0, &there).is_ok() {}
                Ok(socket)
            })
        },
    },
    Trial {
        what: "datagrams that wait in a queue, each in a page of its own",
        count: 400,
        uncharged: DESCRIPTOR,
        call: |lab, count| {
            let waiting = nobody_by(lab, "slow0")?;
            let passing = nobody_by(lab, "free0")?;
            let socket = lab.a.edp()?;
            socket.set_so(libc::SO_SNDBUFFORCE, 4 << 20)?;
            kept(count, |_| {
                socket.send_to(b"x", 0, &waiting)?;
                for _ in 0..100 {
                    socket.send_to(b"x", 0, &passing)?;
                }
                socket.duplicate().map_err(Into::into)
            })
        },
    },
    Trial {
        what: "bytes that wait for a reader",
        count: 20,
        // The uncharged memory holds a receive buffer and a window.
        uncharged: 256 << 10,
        call: |lab, count| {
            let listener = lab.b.esp_listener(992, 16)?;
            kept(count, |_| {
                let pair = lab.esp_pair_through(&listener, 992)?;
                fill(&pair.0)?;
                Ok(pair)
            })
        },
    },
];

/// Makes `count` calls, and returns their results.
fn kept<T: 'static>(count: u16, mut call: impl FnMut(u16) -> Result<T>) -> Result<Kept> {
    (0..count)
        .map(|i| Ok(Box::new(call(i)?) as Box<dyn Any>))
        .collect()
}

/// Makes a domain with a region of a mebibyte.
fn regions(host: &Host) -> Result<(Socket, Memory)> {
    let make = || Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0);
    let socket = channel(host.namespace.within(make)??)?;
    let memory = Memory::private(1 << 20)?;
    memory.fill(1);
    memory.region(&socket)?;
    Ok((socket, memory))
}

fn mapped_listener(lab: &Lab, port: u16) -> Result<Socket> {
    let make = || Socket::new(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_ENET);
    let socket = lab.a.namespace.within(make)??;
    socket.bind_bytes(&internet([0; 4], port))?;
    socket.listen(4096)?;
    Ok(socket)
}

/// Makes `count` connection attempts, each through a different device that [`devices`] has created.
/// Returns their sockets.
fn attempts(lab: &Lab, count: u16) -> Result<Kept> {
    kept(count, |i| {
        let there = nobody_by(lab, &format!("many{i}"))?;
        lab.a.esp_attempt(&there)
    })
}

/// Returns the address of a port of a station that does not exist, on the device `name`.
fn nobody_by(lab: &Lab, name: &str) -> Result<Address> {
    let ifindex = lab.a.namespace.within(|| interface_index(name))??;
    Ok(Address {
        ifindex,
        ..lab.a.to_nobody(991)
    })
}

/// Creates `count` dummy devices, and two more devices: `free0`, which frees frames at once, and
/// `slow0`, whose queue holds frames.
fn devices(lab: &Lab, count: u16) -> Outcome {
    let names = (0..count).map(|i| format!("many{i}"));
    let lines: Vec<_> = names
        .chain(["free0".to_owned(), "slow0".to_owned()])
        .map(|name| format!("link add {name} type dummy\nlink set {name} up\n"))
        .collect();
    lab.a.namespace.ip(&lines.concat())?;
    let slow = "qdisc add dev slow0 root tbf rate 100bit burst 1600 limit 100mb";
    let words: Vec<_> = slow.split(' ').collect();
    lab.a.namespace.run("tc", &words).map(drop)
}

/// Waits until the memory of closed sockets is uncharged. Sockets are freed after a grace period.
/// If the memory were uncharged during the next trial, that trial's charge would seem lower.
fn settle(group: &Group) -> Outcome {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    let mut charged = group.all()?;
    loop {
        // Each call waits for a grace period. On an idle host the callbacks of the first period
        // have run by the end of the second period.
        for _ in 0..2 {
            // SAFETY: The call takes three integers and no pointer.
            check(unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) })
                .context("membarrier")?;
        }
        let now = group.all()?;
        if now >= charged {
            return Ok(());
        }
        charged = now;
    }
}

fn every_call(lab: &Lab) -> Outcome {
    devices(lab, DEVICES)?;
    let group = Group::enter()?;
    group.limit(LIMIT)?;
    let mut failed = Vec::new();
    for trial in TRIALS {
        let count = (trial.count / factor() as u16).max(4);
        // The first calls fill caches, whose memory stays allocated.
        drop((trial.call)(lab, 2).with_context(|| trial.what)?);
        settle(&group)?;
        let (before, charged) = (free_memory()?, group.all()?);
        let kept = (trial.call)(lab, count).with_context(|| trial.what)?;
        let gone = before - free_memory()?;
        let charged = group.all()? - charged;
        let bound = i64::from(count) * trial.uncharged + SLACK;
        let line = format!(
            "{count} {}: {gone} bytes gone, {charged} charged, {bound} need not be",
            trial.what
        );
        drop(kept);
        note(&line);
        // On a debug kernel, the scenario only checks that the calls succeed within the limit. Such
        // a kernel keeps freed memory (KASAN's quarantine) and a record of each allocation
        // (kmemleak), and charges neither to the group. `max` is for a negative charge: memory of
        // the previous trial may be uncharged only now.
        if factor() == 1 && gone - charged.max(0) > bound {
            failed.push(line);
        }
    }
    // The removal of the device frees the packets in its queue.
    lab.a.namespace.ip("link del slow0\n")?;
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Runs in a process of its own, and makes random calls from several threads until the process is
//! killed.

use std::sync::atomic::AtomicI32;

use fastrand::Rng;
use io_uring::{cqueue, opcode, squeue, types, IoUring};
use libc::c_int;
use nix::sched::{setns, CloneFlags};

use super::arena::Arena;
use super::calls::{Caller, Common, Kind, SLOTS};
use super::mapped;
use super::tally::Tally;
use guest::prelude::*;

/// Number of threads that make calls.
const THREADS: usize = 3;

/// The interval of the signal that interrupts sleeping calls, in microseconds.
const ALARM: i64 = 3_000;

/// The parameters of a worker.
#[derive(Debug)]
pub struct Orders<'a> {
    /// The host on which the worker makes sockets.
    pub host: &'a Host,
    /// The other host, to which the worker's sockets send and connect.
    pub other: &'a Host,
    /// The last byte of the other host's IP addresses.
    pub other_number: u8,
    /// The seed, which determines the worker's calls.
    pub seed: u64,
    /// Both ends of the Unix socket pair that all workers share.
    pub post: [c_int; 2],
    /// The counters of calls, which all workers share.
    pub tally: &'static Tally,
}

/// Makes calls until the process is killed; returns only if the worker cannot start.
///
/// # Errors
/// If the worker cannot start.
pub fn run(orders: &Orders<'_>) -> Result<()> {
    let common = prepare(orders)?;
    interrupt_often()?;
    thread::scope(|scope| {
        for number in 0..THREADS {
            let mut caller = Caller {
                common: &common,
                rng: Rng::with_seed(orders.seed.wrapping_add(number as u64)),
            };
            scope.spawn(move || loop {
                caller.call();
                match caller.rng.u8(..64) {
                    0 => caller.meet(),
                    1 => caller.meet_over_the_wire().unwrap_or_else(|error| {
                        note(&format!("a namespace: {error:#}"));
                    }),
                    _ => {}
                }
            });
        }
        let caller = Caller {
            common: &common,
            rng: Rng::with_seed(!orders.seed),
        };
        ring(caller)
    })
}

fn prepare(orders: &Orders<'_>) -> Result<Common> {
    let open = |host: &Host| File::open(host.namespace.path()).context("the namespace");
    let namespaces = [open(orders.host)?, open(orders.other)?];
    setns(&namespaces[0], CloneFlags::CLONE_NEWNET).context("setns")?;
    let arena = Arena::map()?;
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    check(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK) }).context("pipe2")?;
    // SAFETY: The name is a string that ends with a zero byte.
    let file = check(unsafe { libc::memfd_create(c"bytes".as_ptr(), 0) }).context("memfd")?;
    // SAFETY: `ftruncate` takes two integers and no pointer.
    check(unsafe { libc::ftruncate(file as c_int, 1 << 17) }).context("ftruncate")?;
    // SAFETY: `epoll_create1` takes an integer and no pointer.
    let epoll = check(unsafe { libc::epoll_create1(0) }).context("epoll")?;
    let mut addresses = Vec::new();
    // There are only a few ports, so that sockets find each other.
    let ports = [0, 1, 2001, 2002, 2003];
    for port in ports {
        for mac in [
            orders.other.mac,
            orders.host.mac,
            orders.other.mac,
            [0xff; 6],
        ] {
            for ifindex in [orders.host.ifindex, 0] {
                addresses.push(Address { port, ifindex, mac }.to_bytes().to_vec());
            }
        }
    }
    addresses.extend(mapped::names([1, 2], &ports));
    Ok(Common {
        arena,
        slots: [const { AtomicI32::new(-1) }; SLOTS],
        pipe,
        file: file as c_int,
        epoll: epoll as c_int,
        post: orders.post,
        own: Address {
            port: 0,
            ifindex: orders.host.ifindex,
            mac: orders.host.mac,
        },
        addresses,
        namespaces,
        other: orders.other_number,
        keys: Default::default(),
        tally: orders.tally,
    })
}

extern "C" fn nothing(_: c_int) {}

/// Sends the process a signal periodically. Its only effect is to interrupt a call in which a
/// thread sleeps.
fn interrupt_often() -> Result<()> {
    // SAFETY: The handler does nothing. All-zero bytes are a valid `sigaction`; without
    // `SA_RESTART`, interrupted calls are not restarted. The pointers are to local variables.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        for signal in [libc::SIGALRM, libc::SIGIO, libc::SIGURG, libc::SIGPIPE] {
            check(libc::sigaction(signal, &action, std::ptr::null_mut())).context("sigaction")?;
        }
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: ALARM,
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        check(libc::setitimer(
            libc::ITIMER_REAL,
            &timer,
            std::ptr::null_mut(),
        ))
        .context("setitimer")?;
    }
    Ok(())
}

/// Starts operations of `io_uring` without waiting for their completion.
fn ring(mut caller: Caller<'_>) -> Result<()> {
    let mut ring = IoUring::new(32).context("io_uring_setup")?;
    let common = caller.common;
    loop {
        // This call slows the thread down. Otherwise it would start more operations than the other
        // threads make calls.
        caller.call();
        let rng = &mut caller.rng;
        let slot = common.slots[rng.usize(..SLOTS)].load(std::sync::atomic::Ordering::Relaxed);
        let entry = operation(common, rng, types::Fd(slot));
        common.tally.begin(Kind::Uring);
        // SAFETY: The operation points to memory in the arena. The arena exists until the process
        // ends, and contains no Rust object.
        let pushed = unsafe { ring.submission().push(&entry) }.is_ok();
        // A failure is ignored: while completions overflow, the kernel refuses the call. The loop
        // below takes the completions.
        let _ = ring.submit();
        for completion in ring.completion() {
            common.tally.end(Kind::Uring, is_good(&completion));
        }
        // Cancel all sleeping operations now and then, and whenever the submission queue is full.
        if !pushed || rng.u8(..8) == 0 {
            let all = types::CancelBuilder::any();
            let _ = ring.submitter().register_sync_cancel(None, all);
        }
    }
}

fn is_good(completion: &cqueue::Entry) -> bool {
    completion.result() >= 0
}

fn operation(common: &Common, rng: &mut Rng, fd: types::Fd) -> squeue::Entry {
    let length = rng.usize(..5000);
    let place = common.arena.pointer(rng, length).cast::<u8>();
    let flags = *rng
        .choice(&[0, libc::MSG_WAITALL, libc::MSG_PEEK, libc::MSG_MORE])
        .unwrap_or(&0);
    let address = &common.addresses[rng.usize(..common.addresses.len())];
    let entry = match rng.u8(..8) {
        0 | 1 => opcode::Recv::new(fd, place, length as u32)
            .flags(flags)
            .build(),
        2 | 3 => opcode::Send::new(fd, place, length as u32)
            .flags(flags | libc::MSG_NOSIGNAL)
            .build(),
        4 => opcode::PollAdd::new(fd, rng.u32(..0x4000))
            .multi(rng.bool())
            .build(),
        5 => {
            let name = common.arena.put(rng, address);
            opcode::Connect::new(fd, name.cast(), address.len() as u32).build()
        }
        6 => opcode::Shutdown::new(fd, rng.i32(0..3)).build(),
        _ => opcode::SendZc::new(fd, place, length as u32)
            .flags(libc::MSG_NOSIGNAL)
            .build(),
    };
    if rng.u8(..4) == 0 {
        return entry.flags(squeue::Flags::ASYNC);
    }
    entry
}

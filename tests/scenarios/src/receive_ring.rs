// SPDX-License-Identifier: GPL-2.0-only

//! Tests receiving by a mapped ring: the bytes and their order, flow control, readiness, what a
//! program may do to the ring, and when its memory ends.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::sys::mman::{mmap, mprotect, munmap, MapFlags, ProtFlags};
use nix::sys::wait::WaitStatus;
use nix::unistd::{fork, ForkResult};
use sockaddr_en::{EspStream, ReceiveRing};

use guest::address::EP_SO_RECEIVE_RING;
use guest::meminfo::kib;
use guest::prelude::*;
use guest::privilege::{become_nobody, may_lock};

scenarios! {
    direct receive_ring_gives_all_bytes_in_order = in_order;
    direct receive_ring_needs_no_call_while_its_bytes_are_taken = without_calls;
    direct receive_ring_that_nobody_empties_stops_the_peer = stops;
    direct receive_ring_has_the_readiness_of_a_socket = readiness;
    direct receive_ring_tells_of_the_end_and_of_errors = ends;
    direct receive_ring_with_unread_bytes_is_closed_by_a_reset = reset;
    direct receive_ring_serves_a_second_connection = another_connection;
    direct receive_ring_is_made_once_and_mapped_whole = refusals;
    direct receive_ring_is_not_inherited_by_a_child = forked;
    direct receive_ring_of_random_counts_harms_only_its_program = hostile;
    direct receive_ring_counts_as_locked_memory = locked;
    guest receive_ring_keeps_the_module_while_it_is_mapped = module_stays;
}

const PAGE: usize = 4096;
const SIZE: usize = 64 << 10;

/// The end of a connection that receives by a ring.
struct End {
    socket: Socket,
    ring: ReceiveRing,
}

impl End {
    /// Makes a ring of `size` bytes.
    fn new(socket: Socket, size: usize) -> Result<Self> {
        let stream = EspStream::from(OwnedFd::from(socket.duplicate()?));
        let ring = ReceiveRing::new(&stream, size)?;
        Ok(Self { socket, ring })
    }

    /// Reads `length` bytes. Sleeps in `poll` while there are none.
    fn read(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.ring.read(&mut bytes[filled..]) {
                Ok(0) => bail!("the stream ended after {filled} bytes"),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    await_events(&self.socket, libc::POLLIN)?;
                }
                Err(error) => return Err(error).context("read"),
            }
        }
        Ok(bytes)
    }

    /// Waits until the ring has `length` bytes.
    fn holds(&self, length: usize) -> Outcome {
        let there = || Ok(self.ring.bytes().len() == length);
        eventually("the bytes in the ring", there)
    }
}

/// Returns a connection whose second end has a ring of `size` bytes.
fn pair(lab: &Lab, port: u16, size: usize) -> Result<(Socket, End)> {
    let (client, server) = lab.esp_pair(port)?;
    Ok((client, End::new(server, size)?))
}

fn in_order(lab: &Lab) -> Outcome {
    for (port, size, total) in [
        (620, PAGE, 300_000),
        (621, SIZE, 4 << 20),
        (622, 1 << 20, 8 << 20),
    ] {
        let (client, mut server) = pair(lab, port, size)?;
        let bytes = random(total, port.into());
        let (_, got) = beside(|| Ok(client.send_all(&bytes)?), || server.read(bytes.len()))?;
        ensure!(got == bytes, "the bytes changed on the way, ring of {size}");
    }
    // Bytes that came before the ring was made are read by a call.
    let (client, server) = lab.esp_pair(623)?;
    client.send_all(b"early ")?;
    arrived(&server, 6)?;
    let mut server = End::new(server, SIZE)?;
    client.send_all(b"and late")?;
    ensure!(server.read(14)? == b"early and late");
    client.send_all(b"and last")?;
    server.holds(8)?;
    ensure!(
        server.ring.bytes() == b"and last",
        "queued, though the queue was empty"
    );
    // A second mapping goes on where the first one ended.
    server.ring.consume(4);
    let End { socket, ring } = server;
    drop(ring);
    client.send_all(b" of all")?;
    let mut server = End::new(socket, SIZE)?;
    ensure!(server.read(11)? == b"last of all", "another mapping");
    Ok(())
}

fn another_connection(lab: &Lab) -> Outcome {
    let (client, mut server) = pair(lab, 638, SIZE)?;
    client.send_all(b"of the first")?;
    server.holds(12)?;
    let listener = Device::ready(&lab.a.namespace, DEVICE)?.listener(639)?;
    let to = lab.b.to(&lab.a, 639);
    server.socket.connect_bytes(&[0; 16])?;
    refused(server.socket.connect(&to), libc::EBUSY, "bytes are left")?;
    server.ring.consume(12);
    server.socket.connect(&to)?;
    let (second, _) = listener.accept(0)?;
    second.send_all(b"of the second")?;
    ensure!(server.read(13)? == b"of the second");
    let fresh = Socket::esp()?;
    fresh.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, SIZE as i32)?;
    refused(fresh.listen(1), libc::EOPNOTSUPP, "a listener with a ring")
}

fn without_calls(lab: &Lab) -> Outcome {
    let (client, mut server) = pair(lab, 624, SIZE)?;
    // Each round fills most of the ring, so that bytes wrap around its end.
    for round in 0..20 {
        let bytes = random(40_000, round);
        client.send_all(&bytes)?;
        server.holds(bytes.len())?;
        ensure!(server.ring.bytes() == bytes, "the bytes changed on the way");
        server.ring.consume(bytes.len());
        ensure!(server.ring.bytes().is_empty(), "bytes behind the last one");
    }
    let queued = server.socket.receive(&mut [0; 1], libc::MSG_PEEK);
    refused(queued, libc::EAGAIN, "nothing is queued")
}

fn stops(lab: &Lab) -> Outcome {
    let (client, mut server) = pair(lab, 625, SIZE)?;
    client.set_nonblocking(true)?;
    let bytes = random(32 << 20, 625);
    let mut sent = 0;
    loop {
        match client.send(&bytes[sent..], 0) {
            Ok(count) => sent += count,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if client.poll(libc::POLLOUT, Duration::from_millis(300))? == 0 {
                    break;
                }
            }
            Err(error) => return Err(error).context("send"),
        }
        ensure!(sent < bytes.len(), "nothing stopped the sender");
    }
    // A receive call must not overtake the bytes in the ring.
    ensure!(!server.ring.bytes().is_empty(), "an empty ring");
    let first = server.socket.receive(&mut [0; 1], 0);
    refused(first, libc::EAGAIN, "the ring comes first")?;
    ensure!(server.read(sent)? == bytes[..sent], "the bytes changed");
    client.set_nonblocking(false)?;
    client.send_all(b"it goes on")?;
    ensure!(server.read(10)? == b"it goes on");
    Ok(())
}

fn readiness(lab: &Lab) -> Outcome {
    let (client, mut server) = pair(lab, 626, SIZE)?;
    same(
        server.socket.events()? & libc::POLLIN,
        0,
        "readable without bytes",
    )?;
    same(server.socket.queued(libc::FIONREAD)?, 0, "unread bytes")?;
    client.send_all(&[7; 100])?;
    await_events(&server.socket, libc::POLLIN)?;
    same(server.socket.queued(libc::FIONREAD)?, 100, "unread bytes")?;
    server.socket.set_so(libc::SO_RCVLOWAT, 101)?;
    same(
        server.socket.events()? & libc::POLLIN,
        0,
        "readable below the mark",
    )?;
    server.socket.set_so(libc::SO_RCVLOWAT, 1)?;
    server.ring.consume(40);
    same(server.socket.queued(libc::FIONREAD)?, 60, "unread bytes")?;
    refused(
        server.socket.receive(&mut [0; 9], 0),
        libc::EAGAIN,
        "a call",
    )?;
    server.ring.consume(1000);
    same(
        server.socket.events()? & libc::POLLIN,
        0,
        "readable once taken",
    )?;
    refused(
        server.socket.receive(&mut [0; 9], 0),
        libc::EAGAIN,
        "a call that waits",
    )?;
    let waits = || {
        await_events(&server.socket, libc::POLLIN)?;
        Ok(())
    };
    beside(waits, || Ok(client.send_all(b"wake up")?))?;
    Ok(())
}

fn ends(lab: &Lab) -> Outcome {
    let (client, mut server) = pair(lab, 627, SIZE)?;
    client.send_all(b"last words")?;
    client.shutdown(libc::SHUT_WR)?;
    ensure!(server.read(10)? == b"last words");
    eventually("the end", || {
        Ok(matches!(server.ring.read(&mut [0; 9]), Ok(0)))
    })?;

    let (client, mut server) = pair(lab, 628, SIZE)?;
    client.send_all(b"last words")?;
    server.holds(10)?;
    client.set_linger(Some(0))?;
    drop(client);
    await_events(&server.socket, libc::POLLHUP)?;
    ensure!(server.read(10)? == b"last words", "bytes before the reset");
    let error = server.ring.read(&mut [0; 9]).err().context("no error")?;
    same(error.raw_os_error(), Some(libc::ECONNRESET), "the reset")?;
    same(
        server.ring.read(&mut [0; 9]).ok(),
        Some(0),
        "the end behind it",
    )
}

fn reset(lab: &Lab) -> Outcome {
    let (client, server) = pair(lab, 629, SIZE)?;
    client.send_all(b"nobody reads this")?;
    server.holds(17)?;
    drop(server);
    let error = client.receive(&mut [0; 9], 0);
    refused(error, libc::ECONNRESET, "unread bytes were lost")
}

/// Maps `length` bytes of the socket from `offset` on.
fn map(
    socket: &impl AsFd,
    length: usize,
    access: ProtFlags,
    how: MapFlags,
    offset: i64,
) -> nix::Result<NonNull<libc::c_void>> {
    let length = NonZeroUsize::new(length).ok_or(nix::errno::Errno::EINVAL)?;
    // SAFETY: the kernel chooses the place, so the call replaces no mapping.
    unsafe { mmap(None, length, access, how, socket, offset) }
}

fn refusals(lab: &Lab) -> Outcome {
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let (client, server) = lab.esp_pair(630)?;
    same(
        map(&server, PAGE, both, MapFlags::MAP_SHARED, 0).err(),
        Some(nix::errno::Errno::ENODEV),
        "no ring",
    )?;
    let ring = |socket: &Socket, size: i32| socket.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, size);
    for size in [0, 1, 2048, 4097, 12 << 10, 32 << 20, -1, i32::MIN] {
        refused(ring(&server, size), libc::EINVAL, "a size that is none")?;
    }
    refused(
        server.set_option(SOL_EP, EP_SO_RECEIVE_RING, &[0, 16]),
        libc::EINVAL,
        "a short value",
    )?;
    same(server.int_option(SOL_EP, EP_SO_RECEIVE_RING)?, 0, "no ring")?;
    ring(&server, SIZE as i32)?;
    same(
        server.int_option(SOL_EP, EP_SO_RECEIVE_RING)?,
        SIZE as i32,
        "its size",
    )?;
    refused(ring(&server, SIZE as i32), libc::EBUSY, "a second ring")?;

    let whole = PAGE + 2 * SIZE;
    let shared = MapFlags::MAP_SHARED;
    for (length, access, how, offset, error) in [
        (PAGE, both, shared, 0, nix::errno::Errno::EINVAL),
        (whole - PAGE, both, shared, 0, nix::errno::Errno::EINVAL),
        (whole + PAGE, both, shared, 0, nix::errno::Errno::EINVAL),
        (whole, both, shared, PAGE as i64, nix::errno::Errno::EINVAL),
        (
            whole,
            both,
            MapFlags::MAP_PRIVATE,
            0,
            nix::errno::Errno::EINVAL,
        ),
        (
            whole,
            both | ProtFlags::PROT_EXEC,
            shared,
            0,
            nix::errno::Errno::EPERM,
        ),
    ] {
        same(
            map(&server, length, access, how, offset).err(),
            Some(error),
            &format!("{length} from {offset}, {access:?}, {how:?}"),
        )?;
    }
    let place = map(&server, whole, ProtFlags::PROT_READ, shared, 0)?;
    let also = map(&server, whole, both, shared, 0)?;
    // SAFETY: the mapping is this function's, and no reference to its memory exists.
    let executable = unsafe { mprotect(place, whole, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC) };
    same(
        executable.err(),
        Some(nix::errno::Errno::EACCES),
        "made executable",
    )?;
    // SAFETY: as above. A refused call leaves the mapping as it is.
    let longer = unsafe { libc::mremap(place.as_ptr(), whole, 2 * whole, libc::MREMAP_MAYMOVE) };
    ensure!(longer == libc::MAP_FAILED, "a mapping grew");
    client.send_all(b"twice")?;
    arrived(&server, 5)?;
    // SAFETY: both mappings have the ring's bytes behind the control page, and again behind them.
    unsafe {
        for place in [place, also] {
            let bytes = place.cast::<u8>().add(PAGE);
            let copies = [bytes, bytes.add(SIZE)]
                .map(|at| std::slice::from_raw_parts(at.as_ptr(), 5).to_vec());
            ensure!(
                copies == [b"twice".to_vec(), b"twice".to_vec()],
                "{copies:?}"
            );
            munmap(place, whole)?;
        }
    }
    let records = Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0)?;
    refused(ring(&records, SIZE as i32), libc::EOPNOTSUPP, "records")?;
    let listener = Device::ready(&lab.a.namespace, DEVICE)?.listener(631)?;
    refused(ring(&listener, SIZE as i32), libc::EOPNOTSUPP, "a listener")
}

fn forked(lab: &Lab) -> Outcome {
    let (client, server) = pair(lab, 632, SIZE)?;
    client.send_all(b"x")?;
    server.holds(1)?;
    // SAFETY: the child makes only the one access, which ends it, and then exits.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let there = server.ring.bytes().len();
            // SAFETY: the call ends the process.
            unsafe { libc::_exit(there as i32) }
        }
    };
    match waitpid(child, None)? {
        WaitStatus::Signaled(_, nix::sys::signal::Signal::SIGSEGV, _) => Ok(()),
        status => bail!("the child read the ring: {status:?}"),
    }
}

/// Sends and receives for some seconds at most, whatever the calls return.
fn send_and_receive(client: &Socket, server: &Socket) -> Outcome {
    let bytes = random(2 << 20, 633);
    client.set_nonblocking(true)?;
    let (mut sent, mut buffer) = (0, vec![0; 1 << 16]);
    let end = Instant::now() + Duration::from_secs(5);
    while sent < bytes.len() && Instant::now() < end {
        sent += client.send(&bytes[sent..], 0).unwrap_or(0);
        let _ = server.receive(&mut buffer, 0);
        server.queued(libc::FIONREAD)?;
        server.events()?;
    }
    Ok(())
}

/// Makes `work` while another thread writes random counts, and other numbers, to the ring of
/// `socket`, which has `size` bytes.
pub(crate) fn with_random_counts(
    socket: &Socket,
    size: usize,
    work: impl FnOnce() -> Outcome + Send,
) -> Outcome {
    let whole = PAGE + 2 * size;
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let place = map(socket, whole, both, MapFlags::MAP_SHARED, 0)?;
    let over = AtomicBool::new(false);
    // SAFETY: the mapping has `whole` bytes until it is unmapped below. The kernel writes to them
    // too, so all accesses are atomic.
    let words =
        unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>().as_ptr(), whole / 8) };
    let writes = || {
        let mut turn = 0_usize;
        while !over.load(Ordering::Relaxed) {
            let value = [0, 1, u64::MAX, 1 << 63, turn as u64, u64::MAX - turn as u64][turn % 6];
            for word in &words[..20] {
                word.store(value, Ordering::Relaxed);
            }
            words[turn % words.len()].store(value, Ordering::Relaxed);
            turn += 1;
        }
        Ok(())
    };
    let works = || {
        let ended = work();
        over.store(true, Ordering::Relaxed);
        ended
    };
    let ended = beside(writes, works);
    // SAFETY: no reference to the mapping is left.
    unsafe { munmap(place, whole)? };
    ended.map(drop)
}

fn hostile(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(633)?;
    server.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, PAGE as i32)?;
    with_random_counts(&server, PAGE, || send_and_receive(&client, &server))?;
    drop(server);
    drop(client);
    // Others are as they were.
    let (client, server) = lab.esp_pair(634)?;
    transfer(&client, &server, Load::of(1 << 20, 10_000, 634))
}

/// Makes rings as a user who may lock 1 MiB.
fn under_a_limit(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(635)?;
    let (other, _end) = lab.esp_pair(636)?;
    may_lock(1 << 20)?;
    become_nobody()?;
    let ring = |socket: &Socket, size| socket.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, size);
    refused(ring(&server, 1 << 20), libc::ENOBUFS, "beyond the limit")?;
    ring(&server, 512 << 10)?;
    refused(ring(&client, 512 << 10), libc::ENOBUFS, "a second one")?;
    drop(server);
    // The end of a ring gives its locked memory back.
    eventually("room", || Ok(ring(&other, 512 << 10).is_ok()))?;
    may_lock(0)?;
    refused(ring(&client, PAGE as i32), libc::ENOBUFS, "a page")
}

fn locked(lab: &Lab) -> Outcome {
    let before = kib("VmallocUsed")?;
    let child = start_outcome(|| under_a_limit(lab))?;
    succeeds(child)?;
    eventually("the memory of the rings", || {
        Ok(kib("VmallocUsed")? <= before + 256)
    })
}

fn module_stays() -> Outcome {
    let lab = Lab::new(Wiring::Direct)?;
    let (client, server) = pair(&lab, 637, SIZE)?;
    drop((client, server.socket));
    refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
    let _restore = Restore;
    drop(server.ring);
    module::unload()
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests puts: messages of a channel that go to memory of the receiving program, whatever it does.

use std::io::{BufRead, BufReader};
use std::sync::atomic::AtomicU64;

use nix::sys::mman::{mprotect, MapFlags, ProtFlags};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::WaitPidFlag;

use guest::address::{EP_IOC_REGION, EP_SO_DOMAIN, ESP_SO_CHECKSUM};
use guest::channel::{channel, end_region, header, region, Memory, HEADER, PUT, SEND, TELLS};
use guest::prelude::*;
use guest::privilege::{become_nobody, may_lock};
use guest::program::{start, wait_for_word};
use sockaddr_en::{Domain, Message, Place};

use crate::esp_records::socket;

scenarios! {
    direct put_goes_to_its_place = in_place;
    direct put_of_a_number_changes_it_at_once = numbers;
    direct put_that_tells_is_received_behind_its_bytes = tells;
    direct put_arrives_through_a_bad_wire = bad_wire, within(120);
    direct put_with_checksums_at_an_mtu_of_9000 = large_packets;
    direct put_to_the_own_host = own_host;
    direct put_in_a_flood_keeps_its_order = flood;
    direct put_needs_no_reader = no_reader;
    direct put_to_a_stopped_process_completes = stopped;
    direct put_from_any_connection_of_the_domain = shared;
    direct put_without_a_right_to_it_ends_the_connection = refusals;
    direct put_goes_to_no_memory_once_its_region_has_ended = ended;
    direct put_goes_to_the_parents_memory_after_a_fork = forked;
    direct put_to_memory_that_is_unmapped_harms_nobody = unmapped;
    direct put_region_is_refused_with_the_reason = region_errors;
    direct put_region_counts_as_locked_memory = locked;
    direct put_region_ends_with_its_descriptor = closed;
    direct channel_of_the_library_puts_and_tells = library;
    direct esp_put_example_writes_to_the_servers_memory = example;
}

pub(crate) const PAGE: usize = 4096;

pub(crate) fn listener(host: &Host, port: u16) -> Result<Socket> {
    let socket = channel(socket(host)?)?;
    socket.bind(&host.here(port)).context("bind")?;
    socket.listen(4).context("listen")?;
    Ok(socket)
}

/// A channel from `a` to `b`, and the listener at `b`, whose domain has the regions.
pub(crate) struct Channel {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
    pub(crate) listener: Socket,
}

impl Channel {
    pub(crate) fn new(lab: &Lab, port: u16) -> Result<Self> {
        let listener = listener(&lab.b, port)?;
        let client = channel(socket(&lab.a)?)?;
        client.connect(&lab.a.to(&lab.b, port)).context("connect")?;
        let (server, _) = listener.accept(0).context("accept")?;
        Ok(Self {
            client,
            server,
            listener,
        })
    }

    fn put(&self, key: u64, offset: usize, bytes: &[u8]) -> Outcome {
        put(&self.client, (0, 0), key, offset, bytes)
    }

    /// Waits until the peer has acknowledged everything.
    fn complete(&self) -> Outcome {
        eventually("all puts to be complete", || {
            Ok(self.client.queued(libc::TIOCOUTQ)? == 0)
        })
    }

    /// Waits for the end of the connection, by a reset of host `b`'s.
    fn is_reset(&self) -> Outcome {
        for end in [&self.server, &self.client] {
            await_events(end, libc::POLLHUP)?;
            failed_with(end, libc::ECONNRESET)?;
        }
        Ok(())
    }
}

pub(crate) fn put(
    client: &Socket,
    (flags, immediate): (u8, u32),
    key: u64,
    offset: usize,
    bytes: &[u8],
) -> Outcome {
    let header = header(PUT, flags, immediate, key, offset as u64);
    let pieces = [Piece::Good(&header), Piece::Good(bytes)];
    let sent = client.send_message(&pieces, 0, &[]).context("put")?;
    same(sent, HEADER + bytes.len(), "a part of a message was sent")
}

/// Puts random bytes to random places, and compares all of the memory.
fn put_at_random(channel: &Channel, memory: &Memory, key: u64, seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    memory.fill(0);
    let mut wanted = vec![0; memory.length()];
    for turn in 0..200 {
        let most = if rng.u8(..4) == 0 { 60_000 } else { 2_000 };
        let length = rng.usize(..=most).min(memory.length());
        let offset = rng.usize(..=memory.length() - length);
        let bytes = random(length, seed + turn);
        wanted[offset..offset + length].copy_from_slice(&bytes);
        channel.put(key, offset, &bytes)?;
    }
    channel.complete()?;
    ensure!(memory.read(0..memory.length()) == wanted, "other bytes");
    refused(
        channel.server.receive(&mut [0; 9], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "nothing is for the program",
    )
}

/// The numbers of a counter that is put again and again never go back, and their halves never
/// differ: eight bytes change at once.
fn numbers(lab: &Lab) -> Outcome {
    const COUNT: u64 = 3_000;
    let memory = Memory::private(PAGE)?;
    let channel = Channel::new(lab, 775)?;
    let key = memory.region(&channel.listener)?;
    // SAFETY: the memory is aligned, lives until the end of this function, and is only read.
    let number = unsafe { AtomicU64::from_ptr(memory.place().as_ptr().cast()) };
    let puts = || {
        for count in 1..=COUNT {
            // The bytes in front of the number are put first.
            channel.put(key, 8, &count.to_ne_bytes())?;
            channel.put(key, 0, &(count | (count << 32)).to_ne_bytes())?;
        }
        Ok(())
    };
    let polls = || {
        let mut last = 0;
        while last < COUNT {
            let seen = number.load(Ordering::Acquire);
            let front = memory.read(8..16).try_into().map(u64::from_ne_bytes);
            ensure!(seen >> 32 == seen & 0xffff_ffff, "torn: {seen:x}");
            ensure!(seen & 0xffff_ffff >= last, "{seen:x} after {last:x}");
            last = seen & 0xffff_ffff;
            let front = front.map_err(|_| anyhow!("eight bytes"))?;
            ensure!(front >= last, "{front} is behind the number {last}");
        }
        Ok(())
    };
    beside(puts, polls).map(drop)
}

fn in_place(lab: &Lab) -> Outcome {
    let memory = Memory::private(200_000)?;
    // First the veth pair passes runs whole, then the sender cuts them, then GRO joins them again.
    let channel = Channel::new(lab, 740)?;
    let key = memory.region(&channel.listener)?;
    put_at_random(&channel, &memory, key, 1)?;
    for host in [&lab.a, &lab.b] {
        send_single_packets(&host.namespace)?;
    }
    put_at_random(&channel, &memory, key, 2)?;
    for host in [&lab.a, &lab.b] {
        host.namespace
            .run("ethtool", &["-K", DEVICE, "gro", "on"])?;
    }
    put_at_random(&channel, &memory, key, 3)?;
    // A region may begin and end within pages.
    let inner = region(&channel.listener, memory.address() + 100, 10_000)?;
    memory.fill(0);
    channel.put(inner, 0, &[7; 10_000])?;
    channel.complete()?;
    ensure!(memory.read(0..100) == [0; 100], "bytes before the region");
    ensure!(memory.read(100..10_100) == [7; 10_000], "other bytes");
    ensure!(
        memory.read(10_100..12_000) == [0; 1_900],
        "bytes behind the region"
    );
    same(lab.b.counter("EspInPuts")?, 601, "puts")
}

/// Receives the header of a put, and compares it.
pub(crate) fn told(socket: &Socket, header: &[u8]) -> Outcome {
    let mut room = [0; 100];
    let length = socket.receive(&mut room, 0).context("receive")?;
    ensure!(room[..length] == *header, "{:?}", &room[..length]);
    Ok(())
}

fn tells(lab: &Lab) -> Outcome {
    let memory = Memory::private(100_000)?;
    let channel = Channel::new(lab, 741)?;
    let key = memory.region(&channel.listener)?;
    for (turn, length) in [1, 2_000, 100_000, 0, 60_000].into_iter().enumerate() {
        let bytes = random(length, turn as u64);
        let immediate = 0x0102_0300 + turn as u32;
        put(&channel.client, (TELLS, immediate), key, 0, &bytes)?;
        told(&channel.server, &header(PUT, TELLS, immediate, key, 0))?;
        ensure!(memory.read(0..length) == bytes, "told before the bytes");
    }
    // Messages keep their order.
    let message = [&header(SEND, 0, 5, 6, 7)[..], b"a send"].concat();
    put(&channel.client, (TELLS, 1), key, 9, b"first")?;
    channel.client.send(&message, 0)?;
    put(&channel.client, (0, 2), key, 9, b"other")?;
    put(&channel.client, (TELLS, 3), key, 99, b"last")?;
    told(&channel.server, &header(PUT, TELLS, 1, key, 9))?;
    told(&channel.server, &message)?;
    told(&channel.server, &header(PUT, TELLS, 3, key, 99))?;
    ensure!(memory.read(9..14) == b"other");
    // Both ways.
    let back = Memory::private(PAGE)?;
    let key = back.region(&channel.client)?;
    put(&channel.server, (TELLS, 4), key, 1, b"an answer")?;
    told(&channel.client, &header(PUT, TELLS, 4, key, 1))?;
    ensure!(back.read(1..10) == b"an answer");
    Ok(())
}

fn bad_wire(lab: &Lab) -> Outcome {
    lab.netem(&["loss", "3%", "duplicate", "1%", "delay", "200us", "100us"])?;
    let memory = Memory::private(100_000)?;
    let channel = Channel::new(lab, 742)?;
    let key = memory.region(&channel.listener)?;
    put_at_random(&channel, &memory, key, 4)?;
    put(&channel.client, (TELLS, 8), key, 0, &[1; 50_000])?;
    told(&channel.server, &header(PUT, TELLS, 8, key, 0))
}

fn large_packets(lab: &Lab) -> Outcome {
    lab.set_mtu(9_000)?;
    for host in [&lab.a, &lab.b] {
        Knobs(&host.namespace).set("checksum", 1)?;
    }
    let memory = Memory::private(200_000)?;
    let channel = Channel::new(lab, 776)?;
    same(
        channel.client.int_option(SOL_EP, ESP_SO_CHECKSUM)?,
        1,
        "checksums",
    )?;
    let key = memory.region(&channel.listener)?;
    put_at_random(&channel, &memory, key, 5)?;
    send_single_packets(&lab.a.namespace)?;
    put_at_random(&channel, &memory, key, 6)
}

fn own_host(lab: &Lab) -> Outcome {
    let memory = Memory::private(200_000)?;
    let listener = listener(&lab.b, 777)?;
    let client = channel(socket(&lab.b)?)?;
    client.connect(&lab.b.to(&lab.b, 777)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    let key = memory.region(&listener)?;
    let channel = Channel {
        client,
        server,
        listener,
    };
    put_at_random(&channel, &memory, key, 7)
}

/// Many small puts to one place, some of which tell, with sends in between.
fn flood(lab: &Lab) -> Outcome {
    const COUNT: u32 = 20_000;
    let memory = Memory::private(PAGE)?;
    let channel = Channel::new(lab, 778)?;
    let key = memory.region(&channel.listener)?;
    let puts = || {
        for count in 0..COUNT {
            match count % 100 {
                99 => put(
                    &channel.client,
                    (TELLS, count),
                    key,
                    0,
                    &count.to_ne_bytes(),
                )?,
                50 => channel.client.send_all(&header(SEND, 0, count, 0, 0))?,
                _ => channel.put(key, 0, &count.to_ne_bytes())?,
            }
        }
        Ok(())
    };
    let receives = || {
        for count in (50..COUNT).step_by(100) {
            told(&channel.server, &header(SEND, 0, count, 0, 0))?;
            told(&channel.server, &header(PUT, TELLS, count + 49, key, 0))?;
            let there = memory.read(0..4).try_into().map(u32::from_ne_bytes);
            let there = there.map_err(|_| anyhow!("four bytes"))?;
            ensure!(there >= count + 49, "{there} behind {}", count + 49);
        }
        Ok(())
    };
    beside(puts, receives)?;
    channel.complete()?;
    ensure!(memory.read(0..4) == (COUNT - 1).to_ne_bytes());
    Ok(())
}

/// Many times the receive buffer's size arrives, though the program receives nothing.
fn no_reader(lab: &Lab) -> Outcome {
    let memory = Memory::private(1 << 20)?;
    let channel = Channel::new(lab, 743)?;
    channel.server.set_so(libc::SO_RCVBUF, 1)?;
    let key = memory.region(&channel.listener)?;
    for turn in 0..64 {
        for offset in (0..1 << 20).step_by(60_000) {
            let length = 60_000.min((1 << 20) - offset);
            channel.put(key, offset, &vec![turn; length])?;
        }
    }
    channel.complete()?;
    ensure!(memory.read(0..1 << 20) == vec![63; 1 << 20]);
    Ok(())
}

/// The process of a target, which has the region and never looks at it before it is asked to.
fn target(lab: &Lab, memory: &Memory, keys: &Socket) -> Outcome {
    let listener = listener(&lab.b, 744)?;
    let key = memory.region(&listener)?;
    keys.send(&key.to_be_bytes(), 0)?;
    let (server, _) = listener.accept(0)?;
    told(&server, &header(SEND, 0, 0, 0, 0))?;
    ensure!(memory.read(0..memory.length()) == vec![3; memory.length()]);
    Ok(())
}

fn stopped(lab: &Lab) -> Outcome {
    let memory = Memory::new(300_000, MapFlags::MAP_SHARED)?;
    let (keys, theirs) = lab.esp_pair(745)?;
    let child = start_outcome(|| target(lab, &memory, &theirs))?;
    let mut key = [0; 8];
    keys.receive_exact(&mut key)?;
    let client = channel(socket(&lab.a)?)?;
    client.connect(&lab.a.to(&lab.b, 744)).context("connect")?;
    kill(child, Signal::SIGSTOP)?;
    waitpid(child, Some(WaitPidFlag::WUNTRACED))?;
    for offset in (0..memory.length()).step_by(50_000) {
        let key = u64::from_be_bytes(key);
        put(&client, (0, 0), key, offset, &[3; 50_000])?;
    }
    eventually("the puts to be complete", || {
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })?;
    ensure!(
        memory.read(0..memory.length()) == vec![3; memory.length()],
        "the bytes are not there while the process is stopped"
    );
    kill(child, Signal::SIGCONT)?;
    client.send(&header(SEND, 0, 0, 0, 0), 0)?;
    succeeds(child)?;
    // With the process, its memory and its connections end.
    eventually("the end", || {
        let late = header(PUT, 0, 0, u64::from_be_bytes(key), 0);
        Ok(client.send(&late, libc::MSG_NOSIGNAL).is_err())
    })
}

fn shared(lab: &Lab) -> Outcome {
    let memory = Memory::private(PAGE)?;
    let first = Channel::new(lab, 746)?;
    let key = memory.region(&first.server)?;
    // A second connection of the listener, and one that this host opens.
    let second = channel(socket(&lab.a)?)?;
    second.connect(&lab.a.to(&lab.b, 746))?;
    let (accepted, _) = first.listener.accept(0)?;
    let there = listener(&lab.a, 747)?;
    let opened = socket(&lab.b)?;
    opened.set_int_option(SOL_EP, EP_SO_DOMAIN, first.server.as_raw_fd())?;
    opened.connect(&lab.b.to(&lab.a, 747))?;
    let (third, _) = there.accept(0)?;
    for (turn, (from, to)) in [
        (&first.client, &first.server),
        (&second, &accepted),
        (&third, &opened),
    ]
    .into_iter()
    .enumerate()
    {
        let byte = turn as u8 + 1;
        put(from, (TELLS, 0), key, turn, &[byte])?;
        told(to, &header(PUT, TELLS, 0, key, turn as u64))?;
        ensure!(memory.read(turn..turn + 1) == [byte]);
    }
    // A descriptor without a domain gives none.
    let plain = socket(&lab.b)?;
    let other = socket(&lab.b)?;
    refused(
        plain.set_int_option(SOL_EP, EP_SO_DOMAIN, other.as_raw_fd()),
        libc::EINVAL,
        "no domain",
    )
}

fn refusals(lab: &Lab) -> Outcome {
    let memory = Memory::private(2 * PAGE)?;
    let other = Memory::private(PAGE)?;
    let bystander = Channel::new(lab, 748)?;
    let other_key = other.region(&bystander.listener)?;
    let mut broken = 0;
    for port in 749..757 {
        let channel = Channel::new(lab, port)?;
        let length = 2 * PAGE as u64;
        let key = region(&channel.listener, memory.address(), length)?;
        let (key, offset, bytes) = match port {
            749 => (key ^ (1 << 40), 0, 10),
            750 => (key + 1, 0, 10),
            751 => (other_key, 0, 10),
            752 => (key, length, 1),
            753 => (key, length - 9, 10),
            754 => (key, u64::MAX, 1),
            755 => (key, u64::MAX - 3, 10),
            _ => (key, 0, 2 * PAGE + 1),
        };
        channel.client.send(
            &[&header(PUT, 0, 0, key, offset)[..], &vec![9; bytes]].concat(),
            0,
        )?;
        channel.is_reset()?;
        broken += 1;
        same(lab.b.counter("EspInMessagesRefused")?, broken, "refused")?;
        if port < 756 {
            let all = memory.read(0..2 * PAGE);
            ensure!(all == [0; 2 * PAGE], "bytes of a refused put");
        }
    }
    bystander.put(other_key, 0, &[1])?;
    bystander.complete()?;
    ensure!(other.read(0..1) == [1], "another connection was harmed");
    Ok(())
}

fn ended(lab: &Lab) -> Outcome {
    let memory = Memory::private(PAGE)?;
    let channel = Channel::new(lab, 757)?;
    let keys = [
        memory.region(&channel.listener)?,
        memory.region(&channel.listener)?,
    ];
    ensure!(keys[0] != keys[1], "one key for two regions");
    channel.put(keys[0], 0, b"in time")?;
    channel.complete()?;
    end_region(&channel.listener, keys[0])?;
    refused(
        end_region(&channel.listener, keys[0]),
        libc::ENOENT,
        "ended twice",
    )?;
    channel.put(keys[1], 0, b"also")?;
    channel.complete()?;
    channel.put(keys[0], 0, b"too late")?;
    channel.is_reset()?;
    ensure!(memory.read(0..7) == b"alsoime", "{:?}", memory.read(0..7));
    Ok(())
}

fn forked(lab: &Lab) -> Outcome {
    let memory = Memory::private(PAGE)?;
    memory.fill(1);
    let channel = Channel::new(lab, 758)?;
    let key = memory.region(&channel.listener)?;
    let child = start_process(|| {
        // The child's memory stays as it was at the fork.
        let waited = eventually("the put", || Ok(lab.b.counter("EspInPuts")? == 1));
        let there = memory.read(0..3);
        i32::from(waited.is_err() || there != [1; 3])
    })?;
    // After a fork, a write gets a page of its own. The region's pages must be the parent's.
    memory.fill(2);
    channel.put(key, 0, &[3; 2])?;
    channel.complete()?;
    ensure!(memory.read(0..3) == [3, 3, 2], "{:?}", memory.read(0..3));
    succeeds(child)
}

fn unmapped(lab: &Lab) -> Outcome {
    let memory = Memory::private(8 * PAGE)?;
    let channel = Channel::new(lab, 759)?;
    let key = memory.region(&channel.listener)?;
    drop(memory);
    let next = Memory::private(8 * PAGE)?;
    channel.put(key, 0, &[9; 8 * PAGE])?;
    channel.complete()?;
    ensure!(next.read(0..8 * PAGE) == [0; 8 * PAGE], "new memory");
    end_region(&channel.listener, key)?;
    Ok(())
}

fn region_errors(lab: &Lab) -> Outcome {
    let memory = Memory::private(2 * PAGE)?;
    let address = memory.address();
    let domain = channel(socket(&lab.b)?)?;
    for (address, length, error, what) in [
        (address, 0, libc::EINVAL, "no bytes"),
        (address, (1 << 32) + 1, libc::EINVAL, "too long"),
        (8, 16, libc::EFAULT, "memory that is not mapped"),
        (address, 1 << 30, libc::EFAULT, "memory beyond the mapping"),
        (u64::MAX - 9, 100, libc::EFAULT, "beyond all memory"),
        (1 << 63, 100, libc::EFAULT, "the kernel's memory"),
    ] {
        refused(region(&domain, address, length), error, what)?;
    }
    // SAFETY: the mapping is this function's, and no reference to its memory exists.
    unsafe { mprotect(memory.place().cast(), PAGE, ProtFlags::PROT_READ)? };
    refused(memory.region(&domain), libc::EFAULT, "read-only memory")?;
    region(&domain, address + PAGE as u64, PAGE as u64)?;
    for made in 1..1024 {
        region(&domain, address + PAGE as u64 + made, 1)?;
    }
    refused(
        region(&domain, address + PAGE as u64, 1),
        libc::ENOSPC,
        "too many regions",
    )?;
    for (socket, error) in [
        (socket(&lab.b)?, libc::EOPNOTSUPP),
        (lab.b.esp()?, libc::ENOTTY),
        (lab.b.edp()?, libc::ENOTTY),
    ] {
        let made = region(&socket, address + PAGE as u64, 1);
        refused(made, error, "no channel")?;
    }
    // SAFETY: the request reads and writes three numbers, at a place where no memory is.
    let made = check(unsafe { libc::ioctl(domain.as_raw_fd(), EP_IOC_REGION, 8) });
    refused(made, libc::EFAULT, "a structure that is not there")
}

/// Makes regions as a user who may lock 1 MiB.
fn under_a_limit(lab: &Lab) -> Outcome {
    let memory = Memory::private(2 << 20)?;
    let domains = [channel(socket(&lab.b)?)?, channel(socket(&lab.b)?)?];
    may_lock(1 << 20)?;
    become_nobody()?;
    let make = |domain: &Socket, length: u64| region(domain, memory.address(), length);
    refused(make(&domains[0], 2 << 20), libc::ENOBUFS, "too much")?;
    let key = make(&domains[0], 512 << 10)?;
    let more = make(&domains[1], (512 << 10) + 1);
    refused(more, libc::ENOBUFS, "a second one")?;
    end_region(&domains[0], key)?;
    make(&domains[1], 512 << 10)?;
    let [_, second] = domains;
    drop(second);
    let third = channel(Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0)?)?;
    make(&third, 512 << 10)?;
    may_lock(0)?;
    refused(make(&third, 1), libc::ENOBUFS, "a byte")
}

fn locked(lab: &Lab) -> Outcome {
    let child = start_outcome(|| under_a_limit(lab))?;
    succeeds(child)
}

fn closed(lab: &Lab) -> Outcome {
    let memory = Memory::private(PAGE)?;
    let Channel {
        client,
        server,
        listener,
    } = Channel::new(lab, 760)?;
    let key = memory.region(&server)?;
    put(&client, (TELLS, 0), key, 0, b"in time")?;
    told(&server, &header(PUT, TELLS, 0, key, 0))?;
    // The domain is the listener's.
    drop(listener);
    refused(memory.region(&server), libc::EBADF, "a domain that ended")?;
    refused(
        end_region(&server, key),
        libc::ENOENT,
        "a region that ended",
    )?;
    let message = [&header(SEND, 0, 0, 0, 0)[..], b"goes on"].concat();
    client.send(&message, 0)?;
    told(&server, &message)?;
    put(&client, (0, 0), key, 0, b"too late")?;
    await_events(&server, libc::POLLHUP)?;
    failed_with(&server, libc::ECONNRESET)?;
    ensure!(memory.read(0..8) == b"in time\0");
    Ok(())
}

fn library(lab: &Lab) -> Outcome {
    let within = |host: &Host| host.namespace.within(Domain::new);
    let (here, there) = (within(&lab.a)??, within(&lab.b)??);
    let mut region = there.region(200_000)?;
    let listener = lab.b.namespace.within(|| there.listen("*:773"))??;
    let address = format!("{}%{DEVICE}:773", print_mac(lab.b.mac));
    let client = lab.a.namespace.within(|| here.connect(&*address))??;
    let (server, _) = listener.accept()?;
    server.send(7, region.place(8), b"an offer")?;
    let mut room = [0; 8];
    let offer = Message::Sent {
        immediate: 7,
        place: region.place(8),
        length: 8,
    };
    same(client.recv(&mut room)?, Some(offer), "the offer")?;
    ensure!(room == *b"an offer");
    let place = region.place(8);
    // The bytes are three messages, and a fourth one tells of them.
    let bytes = random(150_000, 773);
    for bytes in [&bytes[..], &bytes[..10]] {
        client.put_and_tell(place, bytes, 9)?;
        let put = Message::Put {
            immediate: 9,
            place,
        };
        same(server.recv(&mut [])?, Some(put), "the put")?;
        ensure!(region.contains(place, bytes.len()));
        let mut got = vec![0; bytes.len()];
        region.read(8, &mut got);
        ensure!(got == *bytes, "other bytes");
    }
    ensure!(!region.contains(place, 199_993) && region.contains(place, 199_992));
    // A program that polls needs no call.
    client.put(region.place(0), &5_u64.to_ne_bytes())?;
    eventually("the number", || Ok(region.load(0) == 5))?;
    eventually("all to be complete", || Ok(client.is_complete()?))?;
    region.write(0, &[1; 8]);
    ensure!(region.load(0) == u64::from_ne_bytes([1; 8]));
    // The rest of a message that is longer than the buffer is lost.
    client.send(1, Place::default(), b"longer")?;
    let longer = Message::Sent {
        immediate: 1,
        place: Place::default(),
        length: 6,
    };
    same(server.recv(&mut room[..2])?, Some(longer), "a long message")?;
    // A put that was refused is not complete.
    client.put(region.place(200_000), b"x")?;
    eventually("the reset", || Ok(client.is_complete().is_err()))?;
    let ended = client.is_complete().map_err(|error| error.kind());
    same(
        ended.err(),
        Some(std::io::ErrorKind::NotConnected),
        "the end",
    )
}

fn example(lab: &Lab) -> Outcome {
    let mut command = Command::new("esp_put");
    command.args(["serve", "*:774"]);
    let mut serving = start((&lab.b, command), Stdio::null(), Stdio::piped())?;
    let said = wait_for_word(&mut serving, "listening")?;
    let there = format!("{}%{DEVICE}:774", print_mac(lab.b.mac));
    let mut command = Command::new("esp_put");
    command.args(["put", &there, "100", "one text", "and another"]);
    let output = lab
        .a
        .namespace
        .within(|| command.output())?
        .context("esp_put")?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {words}", output.status);
    let mut told = String::new();
    let pipe = serving.stdout.take().context("no output")?;
    BufReader::new(pipe).read_line(&mut told)?;
    serving.kill()?;
    serving.wait()?;
    let _ = said.join().map_err(|_| anyhow!("the server panicked"))?;
    ensure!(told == "at 100: one text and another\n", "{told:?}");
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests zero-copy sends under faults: lost packets, memory that the program changes or unmaps, the
//! end of the connection, a smaller MTU, removal of the device, and unloading of the module.

use std::io::Write;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use nix::sys::sendfile::sendfile;

use guest::address::ESP_SO_CHECKSUM;
use guest::meminfo::kib;
use guest::prelude::*;
use guest::relay::Faults;
use guest::zero_copy::{completed, completion, none_left, switch, Copies};

scenarios! {
    direct zero_copy_completes_once_acknowledged = acknowledged;
    direct zero_copy_makes_no_copy_of_what_the_device_drops = uncopied;
    direct zero_copy_with_checksums_copies = summed;
    switched zero_copy_is_intact_over_a_lossy_switch = lossy, within(120);
    direct zero_copy_of_memory_that_is_unmapped = unmapped;
    direct zero_copy_of_memory_that_changes = changing;
    direct zero_copy_under_a_smaller_mtu = resized;
    direct zero_copy_ends_with_its_device = device_goes;
    direct zero_copy_leaves_no_memory_behind = left_behind, within(120);
    guest zero_copy_of_a_closed_socket_keeps_the_module_until_it_ends = module_goes;
    direct zero_copy_sendfile_of_a_file_that_is_truncated = truncated;
    direct zero_copy_sendfile_refers_to_the_files_pages = referred;
}

const ZEROCOPY: i32 = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
const LOSING: &[&str] = &["netem", "loss", "100%"];

/// Sends `bytes` in one call, without a copy.
fn send(socket: &Socket, bytes: &[u8]) -> Outcome {
    switch(socket, 1)?;
    let sent = socket.send(bytes, ZEROCOPY)?;
    ensure!(sent == bytes.len(), "{sent} of {} bytes", bytes.len());
    Ok(())
}

fn acknowledged(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(900)?;
    for length in [10, 1489, 5000, 100_000] {
        let bytes = random(length, 900);
        lab.a.queue("add", LOSING)?;
        send(&client, &bytes)?;
        std::thread::sleep(std::time::Duration::from_millis(100));
        none_left(&client).context("nothing is acknowledged")?;
        lab.a.queue("del", &[])?;
        comes_next(&server, &bytes)?;
        let mut got = None;
        eventually("its completion", || {
            got = completion(&client)?;
            Ok(got.is_some())
        })?;
        ensure!(client.queued(libc::TIOCOUTQ)? == 0, "not acknowledged");
        note(&format!("{length}: {got:?}"));
    }
    none_left(&client)
}

/// Packets that the queueing discipline loses are not copied.
fn uncopied(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(901)?;
    lab.a.queue("add", LOSING)?;
    let bytes = random(60_000, 901);
    send(&client, &bytes)?;
    send(&client, &bytes[..100])?;
    client.connect_bytes(&[0; 16]).context("disconnecting")?;
    let copies = completed(&client, 2)?;
    ensure!(copies == Copies::None, "{copies:?} copied");
    lab.a.queue("del", &[])?;
    drop(server);
    Ok(())
}

/// The checksum must match the bytes that leave, but the program may change its memory at any time.
/// So the bytes are copied before the checksum is computed.
fn summed(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(902, 1)?;
    let client = lab.a.esp()?;
    client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    client.connect(&lab.a.to(&lab.b, 902))?;
    let (server, _) = listener.accept(0)?;
    let bytes = random(200_000, 902);
    let send_all = || {
        let mut left = &bytes[..];
        let mut sends = 0;
        switch(&client, 1)?;
        while !left.is_empty() {
            left = &left[client.send(left, ZEROCOPY)?..];
            sends += 1;
        }
        Ok(sends)
    };
    let (sends, ()) = beside(send_all, || comes_next(&server, &bytes))?;
    let copies = completed(&client, sends)?;
    ensure!(copies == Copies::All, "{copies:?} copied");
    Ok(())
}

/// In this test the wire loses, duplicates and reorders packets. The sender reuses its memory as
/// soon as the sends are completed.
fn lossy(lab: &Lab) -> Outcome {
    const ROUNDS: u8 = 40;
    const LENGTH: usize = 50_000;
    lab.relay().set_faults(Faults {
        loss: 0.03,
        duplicate: 0.02,
        reorder: 0.02,
        ..Faults::default()
    });
    let (client, server) = lab.esp_pair(903)?;
    switch(&client, 1)?;
    let send_rounds = || {
        let mut bytes = vec![0; LENGTH];
        let mut sends = 0;
        for round in 0..ROUNDS {
            bytes.fill(round);
            let mut left = &bytes[..];
            let before = sends;
            while !left.is_empty() {
                left = &left[client.send(left, ZEROCOPY)?..];
                sends += 1;
            }
            guest::zero_copy::completed_from(&client, before, sends - before)?;
        }
        Ok(())
    };
    let receive = || {
        let mut got = vec![0; LENGTH];
        for round in 0..ROUNDS {
            server.receive_exact(&mut got)?;
            let wrong = got.iter().filter(|byte| **byte != round).count();
            ensure!(wrong == 0, "{wrong} bytes of round {round} are another's");
        }
        Ok(())
    };
    beside(send_rounds, receive)?;
    note(&format!("client {:?}", client.counters(8)?));
    Ok(())
}

/// A memory mapping, which is unmapped on drop.
struct Region {
    start: NonNull<libc::c_void>,
    length: usize,
}

impl Region {
    fn new(bytes: &[u8]) -> Result<Self> {
        let length = NonZeroUsize::new(bytes.len()).context("nothing")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: Without an address the call replaces no existing mapping.
        let start = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) }?;
        let mut region = Self {
            start,
            length: bytes.len(),
        };
        region.bytes().copy_from_slice(bytes);
        Ok(region)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: The mapping belongs to this value, is initialised, and is readable and writable
        // for `length` bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: The mapping belongs to this value, and no borrow of its bytes is left.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

fn unmapped(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(904)?;
    let bytes = random(100_000, 904);
    lab.a.queue("add", LOSING)?;
    let mut region = Region::new(&bytes)?;
    send(&client, region.bytes())?;
    drop(region);
    lab.a.queue("del", &[])?;
    comes_next(&server, &bytes)?;
    completed(&client, 1)?;
    Ok(())
}

/// The program changes the bytes of a send whose packets were lost. All bytes must arrive in the
/// end, with and without checksums. So no packet may keep a wrong checksum for ever, because the
/// receiver would never accept it.
fn changing(lab: &Lab) -> Outcome {
    for checksum in [0, 1] {
        let port = 905 + checksum as u16;
        let listener = lab.b.esp_listener(port, 1)?;
        let client = lab.a.esp()?;
        client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, checksum)?;
        client.connect(&lab.a.to(&lab.b, port))?;
        let (server, _) = listener.accept(0)?;
        let mut region = Region::new(&vec![1; 100_000])?;
        lab.a.queue("add", LOSING)?;
        send(&client, region.bytes())?;
        region.bytes().fill(2);
        lab.a.queue("del", &[])?;
        for value in 3..200 {
            region.bytes().fill(value);
        }
        let got = server.receive_all(100_000)?;
        ensure!(got.iter().all(|byte| *byte != 0));
        completed(&client, 1)?;
        client.send_all(b"behind it")?;
        comes_next(&server, b"behind it")?;
    }
    Ok(())
}

fn resized(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(907)?;
    let bytes = random(150_000, 907);
    lab.a.queue("add", LOSING)?;
    send(&client, &bytes[..50_000])?;
    send(&client, &bytes[50_000..50_100])?;
    client.send_all(&bytes[50_100..50_200])?;
    let part = &bytes[50_200..];
    send(&client, part)?;
    lab.set_mtu(600)?;
    lab.a.queue("del", &[])?;
    comes_next(&server, &bytes)?;
    completed(&client, 3)?;
    lab.set_mtu(9000)?;
    send(&client, &bytes)?;
    comes_next(&server, &bytes)?;
    guest::zero_copy::completed_from(&client, 3, 1)?;
    Ok(())
}

fn device_goes(lab: &Lab) -> Outcome {
    lab.a.namespace.ip("link add gone0 address 02:00:00:00:00:31 type veth peer name gone1 address 02:00:00:00:00:32\nlink set gone0 up\nlink set gone1 up\n")?;
    let near = guest::device::Device::ready(&lab.a.namespace, "gone0")?;
    let far = guest::device::Device::ready(&lab.a.namespace, "gone1")?;
    let (client, server) = near.stream_to(&far, 908)?;
    lab.a.namespace.run(
        "tc",
        &[
            "qdisc", "add", "dev", "gone0", "root", "netem", "loss", "100%",
        ],
    )?;
    let bytes = random(100_000, 908);
    send(&client, &bytes)?;
    none_left(&client)?;
    lab.a.namespace.ip("link del gone0\n")?;
    await_events(&client, libc::POLLHUP)?;
    completed(&client, 1)?;
    ensure!(client.send(b"late", libc::MSG_NOSIGNAL).is_err());
    none_left(&client)?;
    drop(server);
    Ok(())
}

/// Sockets are closed with unread completions, and with bytes that never leave.
fn left_behind(lab: &Lab) -> Outcome {
    let bytes = random(400_000, 909);
    let listener = lab.b.esp_listener(909, 16)?;
    let rounds = |count: usize| -> Outcome {
        for round in 0..count {
            let (client, server) = lab.esp_pair_through(&listener, 909)?;
            client.set_nonblocking(true)?;
            switch(&client, 1)?;
            while client.send(&bytes, ZEROCOPY).is_ok() {}
            if round % 2 == 0 {
                drop((server, client));
            } else {
                drop((client, server));
            }
        }
        listener_is_alone(lab)
    };
    rounds(20)?;
    let before = kib("MemAvailable")?;
    rounds(100)?;
    let mut less = 0;
    eventually("the memory's return", || {
        less = before - kib("MemAvailable")?;
        Ok(less < 20_000)
    })
    .with_context(|| format!("{less} KiB are left behind"))
}

fn listener_is_alone(lab: &Lab) -> Outcome {
    lab.a.await_proc("esp", |text| text.lines().count() <= 1)?;
    lab.b.await_proc("esp", |text| text.lines().count() <= 2)
}

/// A device may still have a frame that refers to the program's memory. Such a frame keeps its
/// socket, even after the descriptor is closed, and the socket keeps the module loaded.
fn module_goes() -> Outcome {
    let lab = Lab::new(Wiring::Direct)?;
    for host in [&lab.a, &lab.b] {
        Knobs(&host.namespace).set("user_timeout", 2000)?;
    }
    let (client, server) = lab.esp_pair(910)?;
    let datagrams = lab
        .a
        .namespace
        .within(|| Socket::new(28, libc::SOCK_DGRAM, 1))??;
    datagrams.send_to(b"in place", 0, &lab.a.to(&lab.b, 910))?;
    lab.a.queue("add", LOSING)?;
    let bytes = random(40_000, 910);
    send(&client, &bytes[..40_000])?;
    send(&client, &bytes[..100])?;
    drop((datagrams, client, server));
    refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
    let _restore = Restore;
    module::unload()
}

fn file_of(bytes: &[u8]) -> Result<File> {
    let mut file = File::from(memfd_create("contents", MFdFlags::empty())?);
    file.write_all(bytes)?;
    Ok(file)
}

/// The stream has as many bytes as `sendfile` took, even if the file's contents are gone.
fn truncated(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(911)?;
    let bytes = random(100_000, 911);
    let file = file_of(&bytes)?;
    lab.a.queue("add", LOSING)?;
    let mut offset = 0;
    let sent = sendfile(&client, &file, Some(&mut offset), bytes.len())?;
    file.set_len(0)?;
    lab.a.queue("del", &[])?;
    let got = server.receive_all(sent)?;
    let kept = got.iter().zip(&bytes).filter(|(a, b)| a == b).count();
    note(&format!("{kept} of {sent} bytes were the file's"));
    let end = sendfile(&client, &file, Some(&mut offset), 10)?;
    ensure!(end == 0, "{end} bytes of no file");
    client.send_all(b"behind it")?;
    comes_next(&server, b"behind it")
}

/// `sendfile` sends the file's own pages instead of a copy, so a receiver may get bytes that were
/// written later.
fn referred(lab: &Lab) -> Outcome {
    use std::os::unix::fs::FileExt;
    let (client, server) = lab.esp_pair(912)?;
    let file = file_of(&vec![1; 60_000])?;
    lab.a.queue("add", LOSING)?;
    let sent = sendfile(&client, &file, None, 0)?;
    ensure!(sent == 0);
    let mut offset = 0;
    let sent = sendfile(&client, &file, Some(&mut offset), 60_000)?;
    file.write_all_at(&vec![2; 60_000], 0)?;
    lab.a.queue("del", &[])?;
    let got = server.receive_all(sent)?;
    let later = got.iter().filter(|byte| **byte == 2).count();
    ensure!(
        later > sent / 2,
        "{later} of {sent} bytes are the later ones"
    );
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets that a program gives to kernel code: block devices, file systems and
//! servers, multiplexers, and maps of sockets. Such code either works over ESP, or is refused
//! before a byte is lost. [`mapped_iscsi`](super::mapped_iscsi) has the initiator of iSCSI.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use guest::asleep::thread_id;
use guest::bpf;
use guest::harness::remark;
use guest::mapped::{dial, is_esp, known, listener, pair, MAPPED};
use guest::netns::finish;
use guest::prelude::*;
use guest::tracer::{Event, Tracer, TRACEFS};

use crate::error_queue::has;

scenarios! {
    direct mapped_block_device_leaves_the_tasks_pages_alone = block_device;
    direct mapped_connection_is_refused_by_maps_and_multiplexers = refusing_users;
    direct mapped_connection_carries_a_file_system = file_system;
    direct mapped_listener_of_the_nfs_server_takes_no_esp = nfs_server;
}

/// The requests of `linux/nbd.h`.
const NBD_SET_SOCK: libc::c_ulong = 0xab00;
const NBD_SET_BLKSIZE: libc::c_ulong = 0xab01;
const NBD_DO_IT: libc::c_ulong = 0xab03;
const NBD_CLEAR_SOCK: libc::c_ulong = 0xab04;
const NBD_SET_SIZE_BLOCKS: libc::c_ulong = 0xab07;
const NBD_DISCONNECT: libc::c_ulong = 0xab08;

/// Makes a request, which takes a number, to a network block device.
fn nbd(device: &File, request: libc::c_ulong, number: u64) -> Result<()> {
    // SAFETY: These requests take a number, and no pointer.
    check(unsafe { libc::ioctl(device.as_raw_fd(), request, number) })
        .map(drop)
        .with_context(|| format!("request {request:#x}"))
}

/// Serves a block device of zeroes until the client disconnects, and then closes the connection,
/// because the client waits for the connection's end. Returns the number of bytes written to the
/// device.
fn serve_blocks(socket: Socket) -> Result<usize> {
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    const DISCONNECT: u16 = 2;
    let mut written = 0;
    loop {
        // struct nbd_request: magic, flags and type, cookie, offset, length.
        let request = socket.receive_all(28)?;
        ensure!(request[..4] == 0x2560_9513_u32.to_be_bytes(), "{request:?}");
        let kind = u16::from_be_bytes([request[6], request[7]]);
        let length = u32::from_be_bytes([24, 25, 26, 27].map(|at| request[at])) as usize;
        if kind == DISCONNECT {
            return Ok(written);
        }
        if kind == WRITE {
            let _ = socket.receive_all(length)?;
            written += length;
        }
        // struct nbd_reply: magic, error, cookie.
        let mut reply = 0x6744_6698_u32.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(&request[8..16]);
        if kind == READ {
            reply.resize(reply.len() + length, 0);
        }
        socket.send_all(&reply)?;
    }
}

/// Returns the page fragment that the thread `thread` has filled, as the probe prints it.
fn page_of(events: &[Event], thread: i32) -> Result<String> {
    let suffix = format!("-{thread}");
    let found = events.iter().find(|one| one.task.ends_with(&suffix));
    Ok(found
        .context("no send filled a page")?
        .get("pages")
        .to_owned())
}

/// Memory reclaim may run in the middle of another send of the same task, and write to the block
/// device. So a user in the kernel may mark its socket (`sk_use_task_frag`, `sk_allocation`). A
/// send on a marked socket must neither touch the page that the outer send fills, nor wait for
/// reclaim.
fn block_device(lab: &Lab) -> Outcome {
    if !has("nbd")? {
        return Ok(());
    }
    known(lab)?;
    let [client, server] = pair(lab, MAPPED, 870)?;
    let (plain, _peer) = lab.esp_pair(870)?;
    let device = || -> Result<File> {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/nbd0")
            .context("/dev/nbd0")
    };
    let probes = format!("{TRACEFS}/kprobe_events");
    let probe = |line: &str| -> Outcome {
        let mut file = fs::OpenOptions::new().append(true).open(&probes)?;
        file.write_all(line.as_bytes()).context("kprobe_events")
    };
    // An error is ignored, because the probe exists only if an earlier scenario was killed before
    // it removed the probe.
    let _ = probe("-:scenario/task_page\n");
    let mut watched = vec!["kmem/kmem_cache_alloc"];
    let has_probes = Path::new(&probes).exists();
    if has_probes {
        probe("p:scenario/task_page skb_page_frag_refill pages=$arg2\n")?;
        watched.push("scenario/task_page");
    } else {
        remark("not watched: this kernel has no probe for the task's page");
    }
    let mut tasks_own = String::new();
    let (running, server_number) = (device()?, AtomicUsize::new(0));
    let (written, events) = beside(
        || {
            server_number.store(thread_id() as usize, Ordering::Relaxed);
            serve_blocks(server)
        },
        || {
            thread::scope(|scope| {
                // The thread that has configured the block device must also serve it.
                let runs = scope.spawn(|| -> Result<()> {
                    nbd(&running, NBD_SET_BLKSIZE, 4096)?;
                    nbd(&running, NBD_SET_SIZE_BLOCKS, 256)?;
                    nbd(&running, NBD_SET_SOCK, client.as_raw_fd() as u64)?;
                    nbd(&running, NBD_DO_IT, 0)
                });
                let used = (|| {
                    eventually("the device's size", || {
                        ensure!(!runs.is_finished(), "the device has ended");
                        Ok(fs::read_to_string("/sys/block/nbd0/size")?.trim() == "2048")
                    })?;
                    let mut blocks = device()?;
                    if has_probes {
                        // This send fills the task's own page, and shows where it is.
                        let tracer = Tracer::start(&["scenario/task_page"])?;
                        let _ = plain.send(&[0; 3000], 0)?;
                        tasks_own = page_of(&tracer.events()?, thread_id())?;
                    }
                    let tracer = Tracer::start(&watched)?;
                    blocks.write_all(&random(16 << 10, 1))?;
                    blocks.sync_all().context("fsync")?;
                    tracer.events()
                })();
                nbd(&running, NBD_DISCONNECT, 0)?;
                let ran = runs.join().map_err(|_| anyhow!("panicked"))?;
                let events = used?;
                ran?;
                nbd(&running, NBD_CLEAR_SOCK, 0)?;
                Ok(events)
            })
        },
    )?;
    if has_probes {
        probe("-:scenario/task_page\n")?;
    }
    ensure!(written >= 16 << 10, "{written} bytes were written");
    let suffix = format!("-{}", server_number.load(Ordering::Relaxed));
    let of_device = || events.iter().filter(|one| !one.task.ends_with(&suffix));
    if has_probes {
        let mut pages = of_device().filter(|one| one.name == "task_page");
        let first = pages.next().context("the device's sends fill no page")?;
        ensure!(
            std::iter::once(first)
                .chain(pages)
                .all(|one| one.get("pages") != tasks_own),
            "the device's sends fill the task's page"
        );
    }
    let buffers: Vec<_> = of_device()
        .filter(|one| one.get("call_site").starts_with("__alloc_skb"))
        .collect();
    ensure!(!buffers.is_empty(), "no buffer was allocated");
    let waits = |flags: &str| flags.split('|').any(|flag| flag.starts_with("GFP_KERNEL"));
    let waiting: Vec<_> = (buffers.iter())
        .filter(|one| waits(one.get("gfp_flags")))
        .collect();
    ensure!(waiting.is_empty(), "sends wait for reclaim: {waiting:?}");
    Ok(())
}

/// A map of sockets and a multiplexer (KCM) would read the TCP socket in front, which has no
/// connection. The kernel refuses them, and the program keeps its connection.
fn refusing_users(lab: &Lab) -> Outcome {
    const AF_KCM: i32 = 41;
    const SIOCKCMATTACH: libc::c_ulong = 0x89e0;
    known(lab)?;
    let [client, server] = pair(lab, MAPPED, 874)?;
    let map = bpf::socket_map()?;
    for end in [&client, &server] {
        refused(bpf::put_socket(&map, end), libc::EOPNOTSUPP, "a sockmap")?;
        exchange(&client, &server)?;
    }
    if !has("kcm")? {
        return Ok(());
    }
    let parser = bpf::load_extended(0)?;
    let multiplexer = Socket::new(AF_KCM, libc::SOCK_DGRAM, 0)?;
    for end in [&client, &server] {
        // struct kcm_attach: the connection, and the program that finds its messages.
        let attach = [end.as_raw_fd(), parser.as_raw_fd()];
        // SAFETY: The request reads two numbers.
        let result = unsafe { libc::ioctl(multiplexer.as_raw_fd(), SIOCKCMATTACH, &attach) };
        refused(check(result), libc::EOPNOTSUPP, "KCM")?;
        exchange(&client, &server)?;
    }
    Ok(())
}

/// Answers a mount of 9P: agrees to the version, and refuses to attach with `errno`.
fn serve_files(socket: &Socket, errno: u32) -> Outcome {
    const RLERROR: u8 = 7;
    const TVERSION: u8 = 100;
    const TATTACH: u8 = 104;
    loop {
        // size[4] type[1] tag[2]
        let header = socket.receive_all(7)?;
        let size = u32::from_le_bytes([0, 1, 2, 3].map(|at| header[at])) as usize;
        let rest = socket.receive_all(size - header.len())?;
        let answer = match header[4] {
            // The answer names the same version.
            TVERSION => [&header[..4], &[TVERSION + 1], &header[5..], &rest].concat(),
            TATTACH => {
                let size = 11_u32.to_le_bytes();
                [&size, &[RLERROR][..], &header[5..], &errno.to_le_bytes()].concat()
            }
            other => bail!("message {other}"),
        };
        socket.send_all(&answer)?;
        if header[4] == TATTACH {
            return Ok(());
        }
    }
}

/// The kernel's 9P makes the calls that a program makes. The mount fails with the errno that the
/// server has chosen.
fn file_system(lab: &Lab) -> Outcome {
    if finish(Command::new("modprobe").args(["-a", "9p", "9pnet_fd"]), "").is_err() {
        remark("this kernel has no 9P over descriptors");
        return Ok(());
    }
    known(lab)?;
    let [client, server] = pair(lab, MAPPED, 875)?;
    let place = std::env::temp_dir().join("9p");
    fs::create_dir_all(&place)?;
    let number = client.as_raw_fd();
    let options = format!("trans=fd,rfdno={number},wfdno={number},version=9p2000.L");
    let ((), mounted) = beside(
        || serve_files(&server, libc::EDQUOT as u32),
        || {
            let (kind, flags) = (Some("9p"), nix::mount::MsFlags::empty());
            Ok(nix::mount::mount(
                Some("none"),
                &place,
                kind,
                flags,
                Some(&options[..]),
            ))
        },
    )?;
    ensure!(mounted == Err(nix::errno::Errno::EDQUOT), "{mounted:?}");
    Ok(())
}

/// The NFS server replaces the callbacks of a listener that it is given, and so would never accept
/// a connection of the companion's.
fn nfs_server(lab: &Lab) -> Outcome {
    if !has("nfsd")? {
        return Ok(());
    }
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 876, 4)?;
    let before = dial(&lab.a, MAPPED, 876)?;
    ensure!(is_esp(&before), "TCP carries it");
    lab.b.namespace.within_mount("nfsd", |files| {
        fs::write(files.join("versions"), "-3 +4\n")?;
        let descriptor = format!("{}\n", listener.as_raw_fd());
        fs::write(files.join("portlist"), descriptor).context("portlist")?;
        let after = dial(&lab.a, MAPPED, 876);
        // The server releases the listener.
        fs::write(files.join("threads"), "0\n").context("threads")?;
        ensure!(!is_esp(&after?), "ESP carries it");
        Ok(())
    })?;
    ensure!(lab.a.counter("MappedTcpRefused")? == 1);
    Ok(())
}

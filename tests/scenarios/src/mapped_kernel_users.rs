// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets that the kernel itself uses for a block device. Memory reclaim may wait for
//! the sends of such a socket.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use guest::asleep::thread_id;
use guest::harness::remark;
use guest::mapped::{known, pair, MAPPED};
use guest::prelude::*;
use guest::tracer::{Tracer, TRACEFS};

use crate::error_queue::has;

scenarios! {
    direct mapped_block_device_leaves_the_tasks_pages_alone = block_device;
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
        probe("p:scenario/task_page skb_page_frag_refill\n")?;
        watched.push("scenario/task_page");
    } else {
        remark("not watched: this kernel has no probe for the task's page");
    }
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
    let pages: Vec<_> = of_device().filter(|one| one.name == "task_page").collect();
    ensure!(pages.is_empty(), "sends used the page of a task: {pages:?}");
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

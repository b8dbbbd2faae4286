// SPDX-License-Identifier: GPL-2.0-only

//! Compares file calls on sockets of TCP and ESP, and asynchronous I/O by `io_submit`.

use nix::sys::stat::fstat;
use nix::unistd::{lseek, read, write, Whence};

use crate::prelude::*;

behaviours! {
    connected_streams stream_read_and_write;
    connected_streams stream_file_calls, differs(&[Difference::new("mmap", "mapped", "ENODEV")]);
    connected_streams stream_aio;
}

fn stream_read_and_write(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("write", write(&client, b"hello"));
    let mut bytes = [0; 10];
    trace.see("read", read(&server, &mut bytes));
    trace.bytes("what was read", &bytes[..5]);
    server.set_nonblocking(true)?;
    trace.see("nothing there", read(&server, &mut bytes));
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("at the end", read(&server, &mut bytes));
    Ok(())
}

/// Adds to the trace the results of file calls that no socket supports.
pub fn see_no_file(trace: &Trace, socket: &Socket) -> Outcome {
    let fd = socket.as_raw_fd();
    let mut bytes = [0u8; 4];
    let some = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let now = libc::RWF_NOWAIT;
    // SAFETY: The buffer is readable and writable for its length. The buffer and the vector live
    // across the calls. The other calls take integers. The kernel refuses `mmap`, so nothing is
    // mapped.
    unsafe {
        let pointer = bytes.as_mut_ptr().cast();
        trace.see("pread", check(libc::pread(fd, pointer, 4, 0) as i64));
        trace.see("pwrite", check(libc::pwrite(fd, pointer, 4, 0) as i64));
        let at = libc::preadv2(fd, &some, 1, 4, 0);
        trace.see("preadv2 at an offset", check(at as i64));
        let at = libc::preadv2(fd, &some, 1, -1, now);
        trace.see("preadv2 without waiting", check(at as i64));
        trace.see("fsync", check(libc::fsync(fd)));
        trace.see("ftruncate", check(libc::ftruncate(fd, 0)));
        trace.see("fallocate", check(libc::fallocate(fd, 0, 0, 4)));
        trace.see("readahead", check(libc::readahead(fd, 0, 4) as i64));
        let map = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            0,
        );
        trace.see("mmap", check(map as i64).map(|_| "mapped"));
    }
    trace.see("lseek", lseek(socket, 0, Whence::SeekCur));
    let mode = fstat(socket)?.st_mode & libc::S_IFMT;
    trace.see("a socket", mode == libc::S_IFSOCK);
    Ok(())
}

fn stream_file_calls(trace: &Trace, (_client, server): Pair) -> Outcome {
    see_no_file(trace, &server)
}

/// `struct iocb` of the kernel's header `aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// Submits one operation and waits for its result.
///
/// # Errors
/// The errno of a failing call. An error of the operation itself is returned as the operation's
/// result.
pub fn aio_once(
    socket: &Socket,
    opcode: u16,
    bytes: &mut [u8],
    offset: i64,
) -> std::io::Result<i64> {
    let mut context = 0u64;
    let mut control = Control {
        opcode,
        fd: socket.as_raw_fd() as u32,
        buffer: bytes.as_mut_ptr() as u64,
        bytes: bytes.len() as u64,
        offset,
        ..Control::default()
    };
    let mut controls = [&mut control as *mut Control];
    let mut event = [0u64; 4];
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: `io_setup` writes the context and `io_destroy` ends it. The control block, its buffer
    // and the event live across the calls. `io_getevents` returns only after the operation has
    // finished, so the kernel no longer uses this memory.
    unsafe {
        check(libc::syscall(libc::SYS_io_setup, 1, &mut context))?;
        let done = check(libc::syscall(
            libc::SYS_io_submit,
            context,
            1,
            controls.as_mut_ptr(),
        ))
        .and_then(|_| {
            check(libc::syscall(
                libc::SYS_io_getevents,
                context,
                1,
                1,
                event.as_mut_ptr(),
                none,
            ))
        });
        check(libc::syscall(libc::SYS_io_destroy, context))?;
        done?;
    }
    let [_, _, result, _] = event;
    Ok(result as i64)
}

/// `IOCB_CMD_PREAD`.
pub const PREAD: u16 = 0;
/// `IOCB_CMD_PWRITE`.
pub const PWRITE: u16 = 1;

fn stream_aio(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut bytes = *b"hello";
    trace.see("write", aio_once(&client, PWRITE, &mut bytes, 0));
    arrived(&server, 5)?;
    let mut got = [0; 10];
    trace.see("read", aio_once(&server, PREAD, &mut got, 0));
    trace.bytes("what was read", &got[..5]);
    let mut room = [0; 10];
    let at = aio_once(&server, PREAD, &mut room, 5);
    trace.see(
        "read at an offset",
        at.map(|result| -result == i64::from(libc::ESPIPE)),
    );
    trace.see("fsync", aio_once(&server, 2, &mut [], 0));
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("read at the end", aio_once(&server, PREAD, &mut room, 0));
    Ok(())
}

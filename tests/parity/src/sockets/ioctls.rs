// SPDX-License-Identifier: GPL-2.0-only

//! Compares `ioctl(2)` and `fcntl(2)` on sockets of each protocol, and what other system calls
//! report about a socket's descriptor.

use libc::c_ulong;

use crate::prelude::*;
use guest::privilege::without_capabilities;
use guest::raw_calls::{fcntl, ioctl, ioctl_nowhere};

// The numbers of requests that the libc crate does not define for this target.
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;
const FIOGETOWN: c_ulong = 0x8903;
const SIOCGPGRP: c_ulong = 0x8904;
const SIOCATMARK: c_ulong = 0x8905;
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;
const SIOCOUTQ: c_ulong = 0x5411;

const NO_IP: &[Difference] = &[Difference::new("SIOCGIFADDR", "2", "ENOTTY")];

behaviours! {
    stream stream_ioctl_nonblocking = nonblocking;
    datagram datagram_ioctl_nonblocking = nonblocking;
    stream stream_ioctl_owner = owner;
    datagram datagram_ioctl_owner = owner;
    stream stream_ioctl_unknown = unknown;
    datagram datagram_ioctl_unknown = unknown;
    stream stream_ioctl_bad_pointers = bad_pointers;
    datagram datagram_ioctl_bad_pointers = bad_pointers;
    stream stream_ioctl_last_time = last_time;
    datagram datagram_ioctl_last_time = last_time;
    stream stream_ioctl_device_questions = device_questions;
    datagram datagram_ioctl_device_questions = device_questions;
    stream stream_ioctl_device_changes = device_changes;
    datagram datagram_ioctl_device_changes = device_changes;
    stream stream_ioctl_ip_addresses = ip_addresses, differs(NO_IP);
    datagram datagram_ioctl_ip_addresses = ip_addresses, differs(NO_IP);
    stream stream_descriptor_is_a_socket = is_a_socket;
    datagram datagram_descriptor_is_a_socket = is_a_socket;
    stream stream_descriptor_flags = descriptor_flags;
    datagram datagram_descriptor_flags = descriptor_flags;
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn ask(socket: &Socket, request: c_ulong) -> std::io::Result<i32> {
    ioctl(socket, request, &[]).map(|bytes| int(&bytes))
}

fn nonblocking(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.pair(7)?;
    let flags = |when: &str| {
        let flags = fcntl(&a, libc::F_GETFL, 0);
        trace.see(when, flags.map(|flags| format!("{flags:#o}")));
    };
    flags("flags at first");
    trace.see(
        "FIONBIO on",
        ioctl(&a, libc::FIONBIO, &[1, 0, 0, 0]).map(drop),
    );
    flags("flags then");
    trace.receive("receive", &a, 1, 0);
    trace.see("FIONBIO off", ioctl(&a, libc::FIONBIO, &[0; 4]).map(drop));
    flags("flags after that");
    trace.receive("receive, told not to wait", &a, 1, libc::MSG_DONTWAIT);
    trace.see(
        "FIOASYNC on",
        ioctl(&a, libc::FIOASYNC, &[1, 0, 0, 0]).map(drop),
    );
    flags("flags with FIOASYNC");
    trace.see("FIOASYNC off", ioctl(&a, libc::FIOASYNC, &[0; 4]).map(drop));
    flags("flags at last");
    Ok(())
}

fn owner(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    // SAFETY: `getpid` takes no arguments, and always succeeds.
    let own = unsafe { libc::getpid() };
    for (label, set, get) in [
        ("FIOSETOWN", FIOSETOWN, FIOGETOWN),
        ("SIOCSPGRP", SIOCSPGRP, SIOCGPGRP),
    ] {
        trace.see(&format!("before {label}"), ask(&socket, get));
        for (who, value) in [
            ("itself", own),
            ("its group", -own),
            ("nobody", 0),
            ("a stranger", 4_000_000),
        ] {
            let result = ioctl(&socket, set, &value.to_ne_bytes());
            trace.see(&format!("{label} to {who}"), result.map(drop));
            let then = ask(&socket, get)?;
            trace.see(&format!("{label}: it is the one set"), then == value);
        }
    }
    trace.see("F_SETOWN", fcntl(&socket, libc::F_SETOWN, own));
    trace.see("F_GETOWN", fcntl(&socket, libc::F_GETOWN, 0)? == own);
    trace.see("F_SETSIG", fcntl(&socket, 10, libc::SIGUSR1));
    trace.see("F_GETSIG", fcntl(&socket, 11, 0));
    Ok(())
}

fn unknown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for request in [
        libc::TCGETS,
        0,
        1,
        0x1234,
        0xffff_ffff,
        // The protocol-private range, the device-private range, and numbers outside both ranges.
        0x89e0,
        0x89ef,
        0x89f0,
        0x8999,
        SIOCATMARK + 0x1000,
    ] {
        let result = ioctl(&socket, request, &[]).map(drop);
        trace.see(&format!("request {request:#x}"), result);
    }
    let mark = ask(&socket, SIOCATMARK);
    trace.see("SIOCATMARK", mark);
    Ok(())
}

fn bad_pointers(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.pair(7)?;
    for (label, request) in [
        ("FIONREAD", libc::FIONREAD),
        ("SIOCOUTQ", SIOCOUTQ),
        ("FIONBIO", libc::FIONBIO),
        ("FIOASYNC", libc::FIOASYNC),
        ("FIOSETOWN", FIOSETOWN),
        ("FIOGETOWN", FIOGETOWN),
        ("SIOCGIFINDEX", libc::SIOCGIFINDEX),
        ("SIOCGIFCONF", libc::SIOCGIFCONF),
        ("SIOCGIFNAME", libc::SIOCGIFNAME),
    ] {
        trace.see(label, ioctl_nowhere(&a, request));
    }
    Ok(())
}

fn last_time(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    trace.see("before anything", ioctl(&b, SIOCGSTAMP, &[]).map(drop));
    a.send(b"x", 0)?;
    trace.receive("one", &b, 1, 0);
    for (label, request) in [("SIOCGSTAMP", SIOCGSTAMP), ("SIOCGSTAMPNS", SIOCGSTAMPNS)] {
        let time = ioctl(&b, request, &[]);
        trace.see(label, time.map(|bytes| bytes[..8] != [0; 8]));
    }
    Ok(())
}

fn request(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn device_questions(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let host = &side.lab.a;
    for name in [DEVICE, "lo", "nothere0"] {
        for (label, request_number) in [
            ("SIOCGIFMTU", libc::SIOCGIFMTU),
            ("SIOCGIFFLAGS", libc::SIOCGIFFLAGS),
            ("SIOCGIFTXQLEN", libc::SIOCGIFTXQLEN),
            ("SIOCGIFHWADDR", libc::SIOCGIFHWADDR),
            ("SIOCGIFMAP", libc::SIOCGIFMAP),
            ("SIOCGIFMETRIC", libc::SIOCGIFMETRIC),
        ] {
            let answer = ioctl(&socket, request_number, &request(name));
            trace.see(
                &format!("{label} of {name}"),
                answer.map(|bytes| format!("{:?}", &bytes[16..24])),
            );
        }
    }
    trace.see(
        "SIOCGIFINDEX",
        socket.interface_index(DEVICE)? == host.ifindex,
    );
    let mut by_index = request("");
    by_index[16..20].copy_from_slice(&host.ifindex.to_ne_bytes());
    let name = ioctl(&socket, libc::SIOCGIFNAME, &by_index);
    trace.see(
        "SIOCGIFNAME",
        name.map(|bytes| bytes[..5].escape_ascii().to_string()),
    );
    by_index[16..20].copy_from_slice(&999u32.to_ne_bytes());
    trace.see(
        "SIOCGIFNAME of none",
        ioctl(&socket, libc::SIOCGIFNAME, &by_index).map(drop),
    );
    // Without a buffer, SIOCGIFCONF returns the size of the buffer that it needs. The needed buffer
    // has room for an ifreq for each device with an IP address.
    let size = ioctl(&socket, libc::SIOCGIFCONF, &[0; 16]);
    trace.see("SIOCGIFCONF", size.map(|bytes| int(&bytes)));
    Ok(())
}

fn device_changes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let mut mtu = request(DEVICE);
    mtu[16..20].copy_from_slice(&1500i32.to_ne_bytes());
    let mut flags = ioctl(&socket, libc::SIOCGIFFLAGS, &request(DEVICE))?;
    flags.truncate(40);
    let mut rename = request(DEVICE);
    rename[16..20].copy_from_slice(b"eth9");
    for (label, number, argument) in [
        ("SIOCSIFMTU", libc::SIOCSIFMTU, &mtu),
        ("SIOCSIFFLAGS", libc::SIOCSIFFLAGS, &flags),
        ("SIOCSIFNAME", libc::SIOCSIFNAME, &rename),
    ] {
        let by_user = without_capabilities(|| ioctl(&socket, number, argument).map(drop))?;
        trace.see(&format!("{label} by a user"), by_user);
    }
    trace.see(
        "SIOCSIFMTU",
        ioctl(&socket, libc::SIOCSIFMTU, &mtu).map(drop),
    );
    trace.see(
        "SIOCSIFFLAGS",
        ioctl(&socket, libc::SIOCSIFFLAGS, &flags).map(drop),
    );
    trace.see("SIOCSIFNAME of a device that is up, to its own name", {
        let mut same = request(DEVICE);
        same[16..20].copy_from_slice(DEVICE.as_bytes());
        ioctl(&socket, libc::SIOCSIFNAME, &same).map(drop)
    });
    Ok(())
}

fn ip_addresses(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let answer = ioctl(&socket, libc::SIOCGIFADDR, &request(DEVICE));
    trace.see(
        "SIOCGIFADDR",
        answer.map(|bytes| u16::from_ne_bytes([bytes[16], bytes[17]])),
    );
    Ok(())
}

fn is_a_socket(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let fd = socket.as_raw_fd();
    let name = fs::read_link(format!("/proc/self/fd/{fd}"))?;
    let name = name.to_string_lossy().into_owned();
    let number = name
        .strip_prefix("socket:[")
        .and_then(|rest| rest.strip_suffix(']'));
    trace.see("its name is a socket's", number.is_some());
    // SAFETY: All-zero bytes are a valid `stat`, which is plain data; `fstat` writes to it.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &mut status))?;
        status
    };
    trace.see("type and mode", format!("{:#o}", status.st_mode));
    trace.see("size", status.st_size);
    trace.see("links", status.st_nlink);
    trace.see(
        "the number is the inode's",
        number.is_some_and(|number| number == status.st_ino.to_string()),
    );
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let known: Vec<&str> = info
        .lines()
        .filter(|line| line.starts_with("pos:") || line.starts_with("flags:"))
        .collect();
    trace.see("fdinfo", known.join(", "));
    Ok(())
}

fn descriptor_flags(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let note = |label: &str, result: std::io::Result<i32>| {
        trace.see(label, result.map(|flags| format!("{flags:#o}")));
    };
    note("F_GETFL", fcntl(&socket, libc::F_GETFL, 0));
    for flags in [
        libc::O_NONBLOCK,
        libc::O_APPEND,
        libc::O_ASYNC,
        libc::O_NOATIME,
        0,
    ] {
        note(
            &format!("F_SETFL {flags:#o}"),
            fcntl(&socket, libc::F_SETFL, flags),
        );
        note("F_GETFL then", fcntl(&socket, libc::F_GETFL, 0));
    }
    trace.see("O_DIRECT", fcntl(&socket, libc::F_SETFL, libc::O_DIRECT));
    note("F_GETFD", fcntl(&socket, libc::F_GETFD, 0));
    // A duplicate refers to the same socket, so options that are set through one descriptor apply
    // to both.
    let copy = fcntl(&socket, libc::F_DUPFD_CLOEXEC, 0)?;
    // SAFETY: The kernel has just returned this descriptor, and nothing else owns it.
    let copy: Socket = unsafe { std::os::fd::FromRawFd::from_raw_fd(copy) };
    copy.set_nonblocking(true)?;
    note(
        "F_GETFL after O_NONBLOCK by a duplicate",
        fcntl(&socket, libc::F_GETFL, 0),
    );
    copy.set_so(libc::SO_KEEPALIVE, 1)?;
    trace.see(
        "an option set by a duplicate",
        socket.so(libc::SO_KEEPALIVE),
    );
    drop(copy);
    trace.see("the duplicate closed", socket.so(libc::SO_KEEPALIVE));
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Loads and attaches socket filters in classic BPF, and trivial eBPF programs.

use std::io::Result;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, SOL_SOCKET};

use crate::prelude::*;

const BPF_LINK_CREATE: c_int = 28;

/// An instruction of classic BPF.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

const fn instruction(code: u16, yes: u8, no: u8, k: u32) -> Instruction {
    Instruction { code, yes, no, k }
}

/// Returns an instruction that loads the 16 bits at `offset`, big-endian.
pub const fn load_half(offset: u32) -> Instruction {
    instruction(0x28, 0, 0, offset)
}

/// Returns an instruction that loads the byte at `offset`.
pub const fn load_byte(offset: u32) -> Instruction {
    instruction(0x30, 0, 0, offset)
}

/// An instruction that loads the VLAN tag from the packet's metadata. The tag contains the frame's
/// priority and the VLAN's number. The offset is `SKF_AD_OFF + SKF_AD_VLAN_TAG` of
/// `<linux/filter.h>`.
pub const LOAD_VLAN_TAG: Instruction = load_half((-0x1000_i32 + 44) as u32);

/// Returns an instruction that skips the next one unless the accumulator is `k`.
pub const fn if_equal(k: u32) -> Instruction {
    instruction(0x15, 0, 1, k)
}

/// An instruction that loads the packet's length.
pub const LOAD_LENGTH: Instruction = instruction(0x80, 0, 0, 0);

/// Returns an instruction that skips the next one unless the accumulator is larger than `k`.
pub const fn if_larger(k: u32) -> Instruction {
    instruction(0x25, 0, 1, k)
}

/// Returns an instruction that ends the program. The packet is truncated to `k` bytes, or dropped
/// if `k` is 0.
pub const fn keep(k: u32) -> Instruction {
    instruction(0x06, 0, 0, k)
}

/// An instruction that ends the program and passes the whole packet.
pub const KEEP_ALL: Instruction = keep(u32::MAX);

/// Attaches a classic program to a socket by `SO_ATTACH_FILTER`.
///
/// # Errors
/// The call's errno, as for every function here.
pub fn attach(socket: &Socket, program: &[Instruction]) -> Result<()> {
    attach_as(socket, libc::SO_ATTACH_FILTER, program)
}

/// Attaches a classic program that passes only frames with the VLAN tag `tag`. The tag contains the
/// frame's priority and the VLAN's number.
///
/// # Errors
/// The call's errno.
pub fn attach_for_tag(socket: &Socket, tag: u32) -> Result<()> {
    attach(socket, &[LOAD_VLAN_TAG, if_equal(tag), KEEP_ALL, keep(0)])
}

fn attach_as(socket: &Socket, option: c_int, program: &[Instruction]) -> Result<()> {
    let place = program.as_ptr() as u64;
    let value = [program.len() as u64, place];
    let bytes: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // struct sock_fprog: a 16-bit length and, after padding, the address of the instructions. The
    // instructions stay allocated until the call has returned.
    socket.set_option(SOL_SOCKET, option, &bytes)
}

/// Attaches a program to a reuseport group by `SO_ATTACH_REUSEPORT_CBPF`. For each connection the
/// program returns the index, in the group, of the socket that gets this connection.
///
/// # Errors
/// The call's errno.
pub fn attach_to_port(socket: &Socket, program: &[Instruction]) -> Result<()> {
    attach_as(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Detaches the program of the socket's reuseport group by `SO_DETACH_REUSEPORT_BPF`.
///
/// # Errors
/// The call's errno.
pub fn detach_from_port(socket: &Socket) -> Result<()> {
    const SO_DETACH_REUSEPORT_BPF: c_int = 68;
    socket.set_so(SO_DETACH_REUSEPORT_BPF, 0)
}

/// Detaches a socket's program by `SO_DETACH_FILTER`.
///
/// # Errors
/// The call's errno.
pub fn detach(socket: &Socket) -> Result<()> {
    socket.set_so(libc::SO_DETACH_FILTER, 0)
}

/// Attaches an extended program to a socket by `SO_ATTACH_BPF`.
///
/// # Errors
/// The call's errno.
pub fn attach_extended(socket: &Socket, program: RawFd) -> Result<()> {
    socket.set_so(libc::SO_ATTACH_BPF, program)
}

/// Loads a program for `SO_ATTACH_BPF`. The program returns `result`, which must not be negative.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn load_extended(result: i32) -> Result<OwnedFd> {
    const SOCKET_FILTER: u32 = 1;
    load(SOCKET_FILTER, 0, result)
}

/// Attaches an XDP program to the driver of device `index` of this namespace, until the returned
/// link is closed. The program passes all packets.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn pass_by_xdp(index: u32) -> Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    const BPF_XDP: u32 = 37;
    let program = load(XDP, 0, XDP_PASS)?;
    bpf(
        BPF_LINK_CREATE,
        &[program.as_raw_fd() as u32, index, BPF_XDP, 0],
    )
}

/// Makes `socket(2)` of the Internet families fail for all processes of a cgroup, until the
/// returned link is closed.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn refuse_internet_sockets(group: &File) -> Result<OwnedFd> {
    /// `BPF_PROG_TYPE_CGROUP_SOCK`.
    const CGROUP_SOCK: u32 = 9;
    const INET_SOCK_CREATE: u32 = 2;
    attach_link(&load(CGROUP_SOCK, 0, 0)?, group, INET_SOCK_CREATE)
}

/// Attachment types of programs that see the results of `getpeername(2)` and `getsockname(2)` for
/// Internet sockets. The types are `BPF_CGROUP_INET4_GETPEERNAME` to
/// `BPF_CGROUP_INET6_GETSOCKNAME`.
pub const NAMES: [u32; 4] = [29, 30, 31, 32];

/// Attaches a program that sees the addresses reported by sockets of a cgroup, and does not change
/// them. `which` is one of [`NAMES`]. The program stays until the returned link is closed.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn look_at_names(group: &File, which: u32) -> Result<OwnedFd> {
    const CGROUP_SOCK_ADDR: u32 = 18;
    attach_link(&load(CGROUP_SOCK_ADDR, which, 1)?, group, which)
}

/// Attaches a program to the listener lookup of a namespace, until the returned link is closed. The
/// program leaves the choice of the listener to the kernel.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn look_up_listeners(namespace: &File) -> Result<OwnedFd> {
    const SK_LOOKUP: u32 = 30;
    const BPF_SK_LOOKUP: u32 = 36;
    attach_link(
        &load(SK_LOOKUP, BPF_SK_LOOKUP, 1)?,
        namespace,
        BPF_SK_LOOKUP,
    )
}

fn attach_link(program: &OwnedFd, target: &File, which: u32) -> Result<OwnedFd> {
    let (program, target) = (program.as_raw_fd() as u32, target.as_raw_fd() as u32);
    bpf(BPF_LINK_CREATE, &[program, target, which, 0])
}

/// `BPF_PROG_TYPE_XDP`.
const XDP: u32 = 6;

/// Loads a program of type `kind` for the attachment type `which`. The program returns `result`.
fn load(kind: u32, which: u32, result: i32) -> Result<OwnedFd> {
    const BPF_PROG_LOAD: c_int = 5;
    // The program accepts frames of several pages, which a large MTU needs.
    const BPF_F_XDP_HAS_FRAGS: u64 = 1 << 5;
    let flags = if kind == XDP { BPF_F_XDP_HAS_FRAGS } else { 0 };
    // r0 = result; exit
    let program = [0xb7 | (u64::from(result as u32) << 32), 0x95];
    // union bpf_attr: prog_type and insn_cnt; insns; license (both live across the call); log_level
    // and log_size; log_buf; kern_version and prog_flags; prog_name (16 bytes); prog_ifindex and
    // expected_attach_type.
    let attributes = [
        u64::from(kind) | (2 << 32),
        program.as_ptr() as u64,
        c"GPL".as_ptr() as u64,
        0,
        0,
        flags << 32,
        0,
        0,
        u64::from(which) << 32,
    ];
    bpf(BPF_PROG_LOAD, &attributes)
}

/// Makes a map of one stream socket (`BPF_MAP_TYPE_SOCKMAP`).
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn socket_map() -> Result<OwnedFd> {
    const BPF_MAP_CREATE: c_int = 0;
    const SOCKMAP: u32 = 15;
    // map_type, key_size, value_size, max_entries
    bpf(BPF_MAP_CREATE, &[SOCKMAP, 4, 4, 1])
}

/// Puts `socket` into a map of one socket.
///
/// # Errors
/// The errno of `bpf(2)`.
pub fn put_socket(map: &OwnedFd, socket: &Socket) -> Result<()> {
    const BPF_MAP_UPDATE_ELEM: c_int = 2;
    let (key, value) = (0_u32, socket.as_raw_fd());
    // map_fd; key; value; flags
    let attributes = [
        map.as_raw_fd() as u64,
        &raw const key as u64,
        &raw const value as u64,
        0,
    ];
    command(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
}

/// Calls `bpf(2)` with a command that returns a descriptor.
fn bpf<T>(number: c_int, attributes: &[T]) -> Result<OwnedFd> {
    let fd = command(number, attributes)?;
    // SAFETY: The kernel just returned this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Calls `bpf(2)`. Pointers among the attributes must be valid.
fn command<T>(number: c_int, attributes: &[T]) -> Result<i64> {
    let size = size_of_val(attributes);
    // SAFETY: The kernel reads the attributes, and the memory that they point to, during the call.
    check(unsafe { libc::syscall(libc::SYS_bpf, number, attributes.as_ptr(), size) })
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The BPF program that maps the sockets of a control group, and the `bpf(2)` calls that load and
//! attach the program.
//!
//! The kernel calls `update_socket_protocol()` in each `socket` call; programs of type `fmod_ret`
//! can change its result. The program is written as instructions here, so neither a compiler for
//! BPF nor a loader of object files is needed.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use anyhow::{Context, Result};
use sockaddr_en::constants::IPPROTO_ENET;

use super::btf;

/// The file that describes the kernel's types and functions.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The function whose result the program replaces.
const HOOK: &CStr = c"update_socket_protocol";

/// Commands, types and flags of `linux/bpf.h`.
mod uapi {
    pub const MAP_CREATE: libc::c_int = 0;
    pub const MAP_UPDATE_ELEM: libc::c_int = 2;
    pub const PROG_LOAD: libc::c_int = 5;
    pub const OBJ_PIN: libc::c_int = 6;
    pub const LINK_CREATE: libc::c_int = 28;
    pub const MAP_TYPE_CGROUP_ARRAY: u32 = 8;
    pub const PROG_TYPE_TRACING: u32 = 26;
    pub const MODIFY_RETURN: u32 = 26;
    pub const PSEUDO_MAP_FD: u8 = 1;
    pub const FUNC_CURRENT_TASK_UNDER_CGROUP: i32 = 37;
}

/// The license of the program, in the kernel's notation. Tracing programs must have a license that
/// is compatible with the GPL.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// A BPF instruction: opcode, destination and source register, offset, immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") {
        to | (from << 4)
    } else {
        (to << 4) | from
    };
    Instruction {
        code,
        registers,
        offset,
        number,
    }
}

/// `to = *(u64 *)(from + offset)`
const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x79, to, from, offset, 0)
}

/// `to = from`
const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

/// `to = number`
const fn set(to: u8, number: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, number)
}

/// `to &= number`, in 32 bits
const fn and(to: u8, number: i32) -> Instruction {
    instruction(0x54, to, 0, 0, number)
}

/// Skips `skip` instructions if the low 32 bits of `register` are `number`.
const fn if_equal(register: u8, number: i32, skip: i16) -> Instruction {
    instruction(0x16, register, 0, skip, number)
}

/// Skips `skip` instructions if the low 32 bits of `register` are not `number`.
const fn if_not_equal(register: u8, number: i32, skip: i16) -> Instruction {
    instruction(0x56, register, 0, skip, number)
}

/// Calls a function of the kernel.
const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}

/// Returns from the program. The result is the value of register 0.
const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Returns the program. The program's result is `IPPROTO_ENET` under three conditions: a task in
/// the group opens the socket, it is a stream socket of `AF_INET` or `AF_INET6`, and its protocol
/// number is 0, TCP or MPTCP. (Go uses MPTCP for listeners.) Otherwise the result is 0, and the
/// kernel runs its own function as if there were no program. `groups` is the map that holds the
/// group.
fn program(groups: RawFd) -> Vec<Instruction> {
    // Offsets of the arguments of `update_socket_protocol()`, 64 bits each. When the program
    // starts, register 1 points to the first argument.
    const FAMILY: i16 = 0;
    const TYPE: i16 = 8;
    const PROTOCOL: i16 = 16;
    /// The mask that selects the type in the argument `type` of socket(2), and drops the flags.
    const TYPE_MASK: i32 = 0xf;
    vec![
        copy(6, 1),
        load(1, 6, FAMILY),
        if_equal(1, libc::AF_INET, 1),
        if_not_equal(1, libc::AF_INET6, 14),
        load(1, 6, TYPE),
        and(1, TYPE_MASK),
        if_not_equal(1, libc::SOCK_STREAM, 11),
        load(1, 6, PROTOCOL),
        if_equal(1, libc::IPPROTO_IP, 2),
        if_equal(1, libc::IPPROTO_TCP, 1),
        if_not_equal(1, libc::IPPROTO_MPTCP, 7),
        // Loads the map into register 1: two instructions load the 64 bits.
        instruction(0x18, 1, uapi::PSEUDO_MAP_FD, 0, groups),
        instruction(0, 0, 0, 0, 0),
        set(2, 0),
        call(uapi::FUNC_CURRENT_TASK_UNDER_CGROUP),
        if_not_equal(0, 1, 2),
        set(0, IPPROTO_ENET),
        EXIT,
        // The program jumps here if the socket is not to be mapped.
        set(0, 0),
        EXIT,
    ]
}

/// Calls `bpf(2)` with the first fields of the attributes. The kernel takes the missing fields as
/// zero.
///
/// # Safety
/// `Attributes` must be the start of the structure for `command`, without padding. All memory to
/// which `attributes` points must be readable until the call returns.
unsafe fn bpf<Attributes>(command: libc::c_int, attributes: &Attributes) -> io::Result<RawFd> {
    let place: *const Attributes = attributes;
    // SAFETY: `attributes` is readable for its size. By the contract of this function, its layout
    // is right and all memory that it points to is readable.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, place, size_of::<Attributes>()) };
    match result {
        ..0 => Err(io::Error::last_os_error()),
        fd => Ok(fd as RawFd),
    }
}

/// Takes ownership of a descriptor that `bpf` returned.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: The callers pass the result of a command that creates a descriptor. The new
    // descriptor has no other owner yet.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Creates a map that holds one control group.
fn group_map(group: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    #[repr(C)]
    struct UpdateElement {
        map: u32,
        _padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let create = MapCreate {
        map_type: uapi::MAP_TYPE_CGROUP_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
    };
    // SAFETY: `create` has the layout that the command takes, and has no pointers.
    let map = owned(unsafe { bpf(uapi::MAP_CREATE, &create) }?);
    let (key, value) = (0_u32, group.as_raw_fd());
    let update = UpdateElement {
        map: map.as_raw_fd() as u32,
        _padding: 0,
        key: &raw const key as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    // SAFETY: `update` has the layout that the command takes. `key` and `value` have the sizes that
    // the map was created with, and outlive the call.
    unsafe { bpf(uapi::MAP_UPDATE_ELEM, &update) }?;
    Ok(map)
}

/// Makes the kernel verify and load the program.
fn load_program(groups: BorrowedFd<'_>, function: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct ProgramLoad {
        program_type: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
        btf: u32,
        function_info_size: u32,
        function_info: u64,
        function_info_count: u32,
        line_info_size: u32,
        line_info: u64,
        line_info_count: u32,
        attach_function: u32,
    }
    let instructions = program(groups.as_raw_fd());
    let load = ProgramLoad {
        program_type: uapi::PROG_TYPE_TRACING,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"enet_run\0\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: uapi::MODIFY_RETURN,
        btf: 0,
        function_info_size: 0,
        function_info: 0,
        function_info_count: 0,
        line_info_size: 0,
        line_info: 0,
        line_info_count: 0,
        attach_function: function,
    };
    // SAFETY: `load` has the layout that the command takes. The instructions and the license
    // outlive the call, and their lengths are right.
    Ok(owned(unsafe { bpf(uapi::PROG_LOAD, &load) }?))
}

/// The attachment of a program. The program stays attached until this value and all pins (files in
/// the BPF file system) are gone.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Maps the sockets that tasks in `group` create from now on. `group` is a directory of the
    /// cgroup file system.
    ///
    /// # Errors
    /// If the kernel has no function `update_socket_protocol` (`CONFIG_MPTCP`,
    /// `CONFIG_DEBUG_INFO_BTF`), or this user may not attach programs to it (`CAP_BPF` and
    /// `CAP_PERFMON`).
    pub fn attach(group: BorrowedFd<'_>) -> Result<Self> {
        #[repr(C)]
        struct LinkCreate {
            program: u32,
            target: u32,
            attach_type: u32,
            flags: u32,
        }
        let types = fs::read(KERNEL_TYPES).with_context(|| format!("reading {KERNEL_TYPES}"))?;
        let function = btf::function(&types, HOOK).with_context(|| {
            format!("{KERNEL_TYPES} has no {HOOK:?}: it comes with CONFIG_MPTCP")
        })?;
        let groups = group_map(group).context("making a BPF map")?;
        let program = load_program(groups.as_fd(), function).context("loading the BPF program")?;
        let create = LinkCreate {
            program: program.as_raw_fd() as u32,
            target: 0,
            attach_type: uapi::MODIFY_RETURN,
            flags: 0,
        };
        // SAFETY: `create` has the layout that the command takes, and has no pointers.
        let link = unsafe { bpf(uapi::LINK_CREATE, &create) };
        Ok(Self(owned(link.context("attaching the BPF program")?)))
    }

    /// Makes the file `path` in the BPF file system. The file keeps the program attached until it
    /// is removed.
    ///
    /// # Errors
    /// If `path` is not in a mounted BPF file system, or exists already.
    pub fn pin(&self, path: &Path) -> Result<()> {
        #[repr(C)]
        struct Pin {
            path: u64,
            link: u32,
            flags: u32,
        }
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        let pin = Pin {
            path: name.as_ptr() as u64,
            link: self.0.as_raw_fd() as u32,
            flags: 0,
        };
        // SAFETY: `pin` has the layout that the command takes, and the path that it points to
        // outlives the call.
        unsafe { bpf(uapi::OBJ_PIN, &pin) }.with_context(|| format!("pinning {path:?}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program for a task and returns the result. `in_group` says whether the task is in
    /// the group.
    fn result(arguments: [u64; 3], in_group: bool) -> u64 {
        let program = program(3);
        let mut registers = [0_u64; 11];
        let mut place = 0;
        loop {
            let Instruction {
                code,
                registers: both,
                offset,
                number,
            } = program[place];
            let (to, from) = (usize::from(both & 0xf), usize::from(both >> 4));
            let equal = registers[to] as u32 == number as u32;
            place += 1;
            match code {
                0x79 => registers[to] = arguments[offset as usize / 8],
                0xbf => registers[to] = registers[from],
                0xb7 => registers[to] = number as u64,
                0x54 => registers[to] = u64::from(registers[to] as u32 & number as u32),
                0x16 if equal => place += offset as usize,
                0x56 if !equal => place += offset as usize,
                0x16 | 0x56 => {}
                0x18 => place += 1,
                0x85 => registers[0] = u64::from(in_group),
                0x95 => return registers[0],
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn streams_of_the_group_are_mapped_and_nothing_else() {
        const STREAM: i32 = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let ask = |family: i32, kind: i32, protocol: i32| {
            // Only the lower half of a register holds the argument, so the upper half is set to
            // other bits.
            let arguments = [family, kind, protocol].map(|n| u64::from(n as u32) | (7 << 40));
            assert_eq!(result(arguments, false), 0);
            result(arguments, true)
        };
        let mapped = IPPROTO_ENET as u64;
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP] {
                assert_eq!(ask(family, STREAM, protocol), mapped);
                assert_eq!(ask(family, libc::SOCK_STREAM, protocol), mapped);
                assert_eq!(ask(family, libc::SOCK_DGRAM, protocol), 0);
            }
            assert_eq!(ask(family, STREAM, libc::IPPROTO_SCTP), 0);
        }
        assert_eq!(ask(libc::AF_UNIX, STREAM, 0), 0);
    }
}

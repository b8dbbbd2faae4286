// SPDX-License-Identifier: GPL-2.0-only

//! QEMU's side: its interface for plugins, as far as it is needed, and what is registered there.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use serde::Serialize;

use crate::cache::Caches;
use crate::instruction::Kind;
use crate::strings::{Entry, Strings};

/// The interface that this was written for: QEMU 9.1 was the first to have it, and 10.0 accepts it.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 3;

/// A block of instructions that QEMU translates.
#[repr(C)]
struct Block {
    _private: [u8; 0],
}

/// One of its instructions.
#[repr(C)]
struct Instruction {
    _private: [u8; 0],
}

/// Counters, one for each virtual processor, in memory of QEMU's.
#[repr(C)]
struct Scoreboard {
    _private: [u8; 0],
}

/// What a virtual address stands for.
#[repr(C)]
struct Physical {
    _private: [u8; 0],
}

/// `qemu_plugin_u64`: which number of a scoreboard's elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Number {
    score: *mut Scoreboard,
    offset: usize,
}

// SAFETY: the scoreboard is never freed, and QEMU lets any thread add up what its processors have
// counted.
unsafe impl Send for Number {}
// SAFETY: as for Send; it is only read.
unsafe impl Sync for Number {}

/// `qemu_info_t`, as far as the processors.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    least_version: c_int,
    version: c_int,
    is_system: bool,
}

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`.
const LOADS_AND_STORES: c_int = 3;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;

type Translated = extern "C" fn(u64, *mut Block);
type Executed = extern "C" fn(c_uint, *mut c_void);
type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);

extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: Translated);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(of: *const Instruction, to: *mut c_void, length: usize) -> usize;
    fn qemu_plugin_insn_vaddr(of: *const Instruction) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        of: *mut Instruction,
        operation: c_int,
        number: Number,
        operand: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        of: *mut Instruction,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        of: *mut Instruction,
        callback: Accessed,
        flags: c_int,
        kinds: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
    fn qemu_plugin_mem_is_store(access: u32) -> bool;
    fn qemu_plugin_get_hwaddr(access: u32, address: u64) -> *mut Physical;
    fn qemu_plugin_hwaddr_is_io(of: *const Physical) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(of: *const Physical) -> u64;
    fn qemu_plugin_scoreboard_new(size: usize) -> *mut Scoreboard;
    fn qemu_plugin_u64_sum(number: Number) -> u64;
}

/// Everything that is counted.
#[derive(Debug)]
struct Counter {
    instructions: Number,
    locked: Number,
    memory: Mutex<Memory>,
    strings: Mutex<Strings>,
    /// The address of the instruction that is a mark; none is at 0.
    mark: AtomicU64,
    /// The totals whenever that was executed, since they were last asked for.
    marked: Mutex<Vec<Totals>>,
}

/// What accesses of memory count. Those of all processors meet here.
#[derive(Debug, Default)]
struct Memory {
    loads: u64,
    stores: u64,
    caches: Caches,
}

/// All that has been counted up to a mark.
#[derive(Debug, Serialize)]
struct Totals {
    instructions: u64,
    loads: u64,
    stores: u64,
    locked: u64,
    l1_misses: u64,
    l2_misses: u64,
    strings: Vec<Entry>,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

/// Nothing panics while it holds a lock, and numbers are right one by one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counter {
    fn new() -> Self {
        let number = || Number {
            // SAFETY: QEMU has loaded this plugin, and its processors are not there yet. An element
            // is one u64.
            score: unsafe { qemu_plugin_scoreboard_new(size_of::<u64>()) },
            offset: 0,
        };
        Self {
            instructions: number(),
            locked: number(),
            memory: Mutex::default(),
            strings: Mutex::default(),
            mark: AtomicU64::new(0),
            marked: Mutex::default(),
        }
    }

    /// Has QEMU count an instruction whenever it is executed.
    fn register(&self, instruction: *mut Instruction) {
        // No instruction of x86 is longer.
        let mut bytes = [0_u8; 15];
        // SAFETY: the handle is that of an instruction of the block that is being translated; QEMU
        // writes as many bytes as the array has, or fewer.
        let (length, address) = unsafe {
            (
                qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len()),
                qemu_plugin_insn_vaddr(instruction),
            )
        };
        let count = |number| {
            // SAFETY: the handle as above; the scoreboard lives as long as QEMU.
            unsafe {
                qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ADD, number, 1);
            }
        };
        count(self.instructions);
        match Kind::of(bytes.get(..length).unwrap_or_default()) {
            Kind::Plain => {}
            Kind::Locked => count(self.locked),
            Kind::String(name) => {
                let position = lock(&self.strings).position(address, name);
                let data = ptr::without_provenance_mut(position);
                // SAFETY: the handle as above; the callback takes the data for a number and never
                // for a pointer.
                unsafe {
                    qemu_plugin_register_vcpu_insn_exec_cb(instruction, step, NO_REGISTERS, data);
                }
            }
        }
        if address == self.mark.load(Ordering::Relaxed) {
            // SAFETY: the handle as above; the callback ignores its data.
            unsafe {
                qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    mark,
                    NO_REGISTERS,
                    ptr::null_mut(),
                );
            }
        }
        // SAFETY: the handle as above; the callback ignores its data.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                NO_REGISTERS,
                LOADS_AND_STORES,
                ptr::null_mut(),
            );
        }
    }

    fn totals(&self) -> Totals {
        // SAFETY: the scoreboards live as long as QEMU.
        let sum = |number| unsafe { qemu_plugin_u64_sum(number) };
        let memory = lock(&self.memory);
        Totals {
            instructions: sum(self.instructions),
            locked: sum(self.locked),
            loads: memory.loads,
            stores: memory.stores,
            l1_misses: memory.caches.first_misses,
            l2_misses: memory.caches.second_misses,
            strings: lock(&self.strings).executed().cloned().collect(),
        }
    }
}

/// QEMU has translated a block, and will run it now and then.
extern "C" fn translated(_id: u64, block: *mut Block) {
    let Some(counter) = COUNTER.get() else {
        return;
    };
    // SAFETY: QEMU hands the block to this callback, and it is valid until that returns.
    let length = unsafe { qemu_plugin_tb_n_insns(block) };
    for index in 0..length {
        // SAFETY: as above; the block has that many instructions.
        counter.register(unsafe { qemu_plugin_tb_get_insn(block, index) });
    }
}

/// A repeated string instruction does a step.
extern "C" fn step(_processor: c_uint, position: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        lock(&counter.strings).step(position.addr());
    }
}

/// The instruction that is a mark is executed.
extern "C" fn mark(_processor: c_uint, _data: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        let totals = counter.totals();
        lock(&counter.marked).push(totals);
    }
}

/// An instruction has loaded or stored.
extern "C" fn accessed(_processor: c_uint, access: u32, address: u64, _data: *mut c_void) {
    let Some(counter) = COUNTER.get() else {
        return;
    };
    // SAFETY: QEMU hands the access and its address to this callback, and they are valid until that
    // returns; so is what stands for the physical address, which may be missing.
    let (is_store, bytes, physical) = unsafe {
        let physical = qemu_plugin_get_hwaddr(access, address);
        (
            qemu_plugin_mem_is_store(access),
            1 << qemu_plugin_mem_size_shift(access),
            (!physical.is_null() && !qemu_plugin_hwaddr_is_io(physical))
                .then(|| qemu_plugin_hwaddr_phys_addr(physical)),
        )
    };
    let mut memory = lock(&counter.memory);
    if is_store {
        memory.stores += 1;
    } else {
        memory.loads += 1;
    }
    // Registers of devices are in no cache.
    if let Some(address) = physical {
        memory.caches.access(address, bytes);
    }
}

/// Takes an address for that of the mark, or sends the totals at the marks that were executed, for
/// each line that comes.
fn answer(stream: UnixStream) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let Some(counter) = COUNTER.get() else {
            continue;
        };
        if let Ok(address) = u64::from_str_radix(&line, 16) {
            counter.mark.store(address, Ordering::Relaxed);
        }
        let marked = std::mem::take(&mut *lock(&counter.marked));
        let mut text = serde_json::to_vec(&marked)?;
        text.push(b'\n');
        to.write_all(&text)?;
    }
    Ok(())
}

/// Prepares everything but the registration.
fn prepare(target: &[u8], arguments: &[&CStr]) -> Result<(), String> {
    if target != b"x86_64" {
        return Err("locked and string instructions are known of x86_64 alone".to_owned());
    }
    let [argument] = arguments else {
        return Err("the one argument is socket=PATH".to_owned());
    };
    let path = argument.to_str().ok();
    let path = path
        .and_then(|text| text.strip_prefix("socket="))
        .ok_or("the argument is socket=PATH")?;
    let listener = UnixListener::bind(path).map_err(|error| format!("{path}: {error}"))?;
    COUNTER
        .set(Counter::new())
        .map_err(|_| "it is loaded already")?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            if let Err(error) = stream.and_then(answer) {
                eprintln!("qemu-memory: {error}");
            }
        }
    });
    Ok(())
}

/// QEMU has loaded the plugin.
///
/// # Safety
/// QEMU calls it, with `info` and `count` arguments.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: QEMU's documentation says that `info` is valid during this call, its name too, and
    // that there are so many arguments, which are strings.
    let (target, arguments): (_, Vec<_>) = unsafe {
        (
            CStr::from_ptr((*info).target),
            (0..count)
                .map(|index| CStr::from_ptr(*arguments.add(index)))
                .collect(),
        )
    };
    match prepare(target.to_bytes(), &arguments) {
        Ok(()) => {
            // SAFETY: the identity is the one that QEMU has just given; the callback is there as
            // long as the plugin, which is never unloaded.
            unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
            0
        }
        Err(error) => {
            eprintln!("qemu-memory: {error}");
            1
        }
    }
}

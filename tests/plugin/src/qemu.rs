// SPDX-License-Identifier: GPL-2.0-only

//! Declares the part of QEMU's plugin interface that this plugin needs, and defines the plugin's
//! callbacks.

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

/// The version of the plugin interface. QEMU 9.1 introduced it, and QEMU 10.0 accepts it.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 3;

/// A block of instructions that QEMU translates.
#[repr(C)]
struct Block {
    _private: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
struct Instruction {
    _private: [u8; 0],
}

/// Counters, one per virtual processor, in memory that QEMU manages.
#[repr(C)]
struct Scoreboard {
    _private: [u8; 0],
}

/// The physical address of a memory access.
#[repr(C)]
struct Physical {
    _private: [u8; 0],
}

/// `qemu_plugin_u64`: a `u64` field that each element of the scoreboard `score` has at `offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Number {
    score: *mut Scoreboard,
    offset: usize,
}

// SAFETY: The scoreboard is never freed, and QEMU allows any thread to sum the counts of the
// scoreboard's processors.
unsafe impl Send for Number {}
// SAFETY: The scoreboard is never freed, and shared references to a `Number` only read it.
unsafe impl Sync for Number {}

/// The fields of `qemu_info_t` up to the numbers of processors.
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

/// All counters of the plugin, and the mark.
#[derive(Debug)]
struct Counter {
    instructions: Number,
    locked: Number,
    memory: Mutex<Memory>,
    strings: Mutex<Strings>,
    /// The address of the mark, the instruction at which totals are recorded; 0 if there is none.
    mark: AtomicU64,
    /// The totals at each execution of the mark since the last request.
    marked: Mutex<Vec<Totals>>,
}

/// Numbers of memory accesses, summed over all processors.
#[derive(Debug, Default)]
struct Memory {
    loads: u64,
    stores: u64,
    caches: Caches,
}

/// The totals at an execution of the mark.
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

/// Locks `mutex`. A poisoned lock is usable, because each number is consistent by itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counter {
    fn new() -> Self {
        let number = || Number {
            // SAFETY: QEMU has loaded this plugin and has not created its processors yet. An
            // element of the scoreboard is one u64.
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

    /// Makes QEMU count `instruction` each time that it is executed.
    fn register(&self, instruction: *mut Instruction) {
        // 15 bytes are the maximum length of an x86 instruction.
        let mut bytes = [0_u8; 15];
        // SAFETY: `instruction` belongs to the block that is being translated. QEMU writes at most
        // as many bytes as the array has.
        let (length, address) = unsafe {
            (
                qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len()),
                qemu_plugin_insn_vaddr(instruction),
            )
        };
        let count = |number| {
            // SAFETY: The block of `instruction` is being translated, and the scoreboard of
            // `number` lives as long as QEMU.
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
                // SAFETY: The block of `instruction` is being translated. The callback `step` uses
                // `data` as a number and never as a pointer.
                unsafe {
                    qemu_plugin_register_vcpu_insn_exec_cb(instruction, step, NO_REGISTERS, data);
                }
            }
        }
        if address == self.mark.load(Ordering::Relaxed) {
            // SAFETY: The block of `instruction` is being translated, and the callback `mark`
            // ignores its data.
            unsafe {
                qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    mark,
                    NO_REGISTERS,
                    ptr::null_mut(),
                );
            }
        }
        // SAFETY: The block of `instruction` is being translated, and the callback `accessed`
        // ignores its data.
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
        // SAFETY: The scoreboard of `number` lives as long as QEMU.
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

/// Makes QEMU count the instructions of a block. QEMU calls this function when it has translated
/// the block, which it may then execute many times.
extern "C" fn translated(_id: u64, block: *mut Block) {
    let Some(counter) = COUNTER.get() else {
        return;
    };
    // SAFETY: QEMU passes `block` to this callback, and `block` is valid until the callback
    // returns.
    let length = unsafe { qemu_plugin_tb_n_insns(block) };
    for index in 0..length {
        // SAFETY: `block` is valid as above, and `index` is below its number of instructions.
        counter.register(unsafe { qemu_plugin_tb_get_insn(block, index) });
    }
}

/// Counts a step of a repeated string instruction; QEMU calls this function at each step.
extern "C" fn step(_processor: c_uint, position: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        lock(&counter.strings).step(position.addr());
    }
}

/// Records the totals; QEMU calls this function when the mark is executed.
extern "C" fn mark(_processor: c_uint, _data: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        let totals = counter.totals();
        lock(&counter.marked).push(totals);
    }
}

/// Counts a memory access; QEMU calls this function at each load or store.
extern "C" fn accessed(_processor: c_uint, access: u32, address: u64, _data: *mut c_void) {
    let Some(counter) = COUNTER.get() else {
        return;
    };
    // SAFETY: QEMU passes `access` and `address` to this callback, and they are valid until the
    // callback returns. The object at `physical` is valid until then, too, unless `physical` is
    // null.
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
    // Device registers are not cached.
    if let Some(address) = physical {
        memory.caches.access(address, bytes);
    }
}

/// Answers each line. If the line has an address, sets the mark to that address. Sends the totals
/// recorded at the mark since the previous line.
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

/// Sets up the counter and the socket, but does not register the callbacks.
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

/// Starts the plugin; QEMU calls this function when it has loaded the plugin.
///
/// # Safety
/// Only QEMU may call this function, with a valid `info`, and with `count` strings in `arguments`.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: By QEMU's documentation, `info` and the name in it are valid during this call.
    // `arguments` has `count` elements, which are strings.
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
            // SAFETY: `id` is the identifier that QEMU has just passed. The callback exists as long
            // as the plugin, which QEMU never unloads.
            unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
            0
        }
        Err(error) => {
            eprintln!("qemu-memory: {error}");
            1
        }
    }
}

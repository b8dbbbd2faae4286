// SPDX-License-Identifier: GPL-2.0-only

//! Measures the cost of the kernel's functions that set and copy memory, in instructions per byte.
//! `make bench` checks that none of these functions uses string instructions with steps of one
//! byte. The emulator would count each of these steps as an instruction.
//!
//! Each figure comes from the difference between the costs of two calls. The calls differ only in
//! the number of bytes that they set or copy. The guest's clock counts instructions, so a measured
//! nanosecond is an instruction.

use std::ffi::CStr;
use std::os::unix::fs::FileExt as _;

use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use guest::held_page::PAGE;
use guest::prelude::*;

/// The smaller of the two sizes that are timed, in bytes. The kernel uses the same instructions for
/// both sizes, but would use others for still fewer bytes.
const FEW: usize = 64;

/// How many times each call is made. The result is the median of their times.
const TIMES: usize = 33;

/// A file in memory, and an extended attribute that the kernel stores for it.
const FILE: &CStr = c"/tmp/strings";
const ATTRIBUTE: &CStr = c"trusted.strings";

/// The name of a function that sets or copies memory, and its instructions per byte.
pub type Cost = (&'static str, f64);

/// Measures the costs of all functions that set or copy memory.
pub fn costs() -> Result<Vec<Cost>> {
    let name = FILE.to_str()?;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(name)?;
    let zeros = File::open("/dev/zero")?;
    let mut bytes = vec![0; PAGE];
    // This write allocates the file's page.
    file.write_all_at(&bytes, 0)?;
    let clear_user = per_byte(|count| Ok(zeros.read_exact_at(&mut bytes[..count], 0)?))?;
    let copy_to_user = per_byte(|count| Ok(file.read_exact_at(&mut bytes[..count], 0)?))?;
    let copy_from_user = per_byte(|count| Ok(file.write_all_at(&bytes[..count], 0)?))?;
    // To return an attribute, the kernel allocates a buffer of the requested size and sets it to
    // zero. It copies the value into the buffer, and from there to the program.
    set_attribute(FEW)?;
    let memset = per_byte(|count| get_attribute(count, FEW))?;
    let of = |count: usize| {
        set_attribute(count)?;
        median(|| get_attribute(PAGE, count))
    };
    let copies = (of(PAGE)? - of(FEW)?) / (PAGE - FEW) as f64;
    fs::remove_file(name)?;
    Ok(vec![
        ("memset", memset),
        ("memcpy", copies - copy_to_user),
        ("clear_user", clear_user),
        ("copy_to_user", copy_to_user),
        ("copy_from_user", copy_from_user),
        ("clear_page", clear_page()?),
    ])
}

/// Returns the additional cost per byte of a call that sets or copies a given number of bytes.
fn per_byte(mut call: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let few = median(|| call(FEW))?;
    let many = median(|| call(PAGE))?;
    Ok((many - few) / (PAGE - FEW) as f64)
}

/// Returns the median time of a call, in nanoseconds.
fn median(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let started = Instant::now();
        call()?;
        times.push(started.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok(times[TIMES / 2] as f64)
}

/// Returns the cost per byte of a page fault, which allocates and clears a whole page.
fn clear_page() -> Result<f64> {
    let bytes = TIMES * PAGE;
    let length = bytes.try_into().context("no pages")?;
    let flags = MapFlags::MAP_PRIVATE;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: The kernel chooses the address of the new mapping, so it overlaps no existing
    // mapping.
    let start = unsafe { mmap_anonymous(None, length, protection, flags) }?;
    let mut pages = (0..TIMES).map(|page| page * PAGE);
    let touched = median(|| {
        let offset = pages.next().context("no page is left")?;
        // SAFETY: The address is within the mapping, and nothing else uses that mapping.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        Ok(())
    });
    // SAFETY: The call unmaps the whole mapping, to which no reference exists.
    unsafe { munmap(start, bytes) }?;
    Ok(touched? / PAGE as f64)
}

fn set_attribute(length: usize) -> Result<()> {
    let value = vec![1_u8; length];
    // SAFETY: Both names end with a zero byte, and `value` has the number of bytes that the kernel
    // reads.
    let result = unsafe {
        libc::setxattr(
            FILE.as_ptr(),
            ATTRIBUTE.as_ptr(),
            value.as_ptr().cast(),
            length,
            0,
        )
    };
    check(result).context("setxattr")?;
    Ok(())
}

/// Reads the attribute into `space` bytes; it must be `expected` bytes long.
fn get_attribute(space: usize, expected: usize) -> Result<()> {
    let mut value = [0_u8; PAGE];
    let space = space.min(value.len());
    // SAFETY: Both names end with a zero byte. The kernel writes at most `space` bytes, and the
    // array has at least that many.
    let length = unsafe {
        libc::getxattr(
            FILE.as_ptr(),
            ATTRIBUTE.as_ptr(),
            value.as_mut_ptr().cast(),
            space,
        )
    };
    let length = check(length as i64).context("getxattr")?;
    ensure!(
        length == expected as i64,
        "the attribute has {length} bytes"
    );
    Ok(())
}

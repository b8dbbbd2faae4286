// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the engine for Open MPI under one lock. Callbacks run after the lock is released.

use std::ffi::{c_int, CString};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::card;
use crate::engine::{Arrival, Engine, Event, LinkId, Sent};
use crate::ffi::*;
use crate::fragment::Message;
use crate::module;
use crate::pairs;
use crate::reach::{Echoes, Reach};
use crate::transport::Interface;
use crate::windows::Windows;
use crate::wire::{Atomic, Name, Target};

/// The maximum time that the final close waits for the peers to close their connections.
const FAREWELL: Duration = Duration::from_secs(2);

/// Messages of up to this number of bytes are copied into a larger buffer before delivery, because
/// Open MPI's ob1 may write past the end of a short message.
const COPIED: usize = 256;

/// Space after a copied message, into which ob1 may write, in units of eight bytes.
const SLACK: usize = 8;

static ENGINE: Mutex<Option<Engine<Message>>> = Mutex::new(None);
static REACH: Mutex<Option<Reach>> = Mutex::new(None);
static INTERFACES: OnceLock<Vec<Interface>> = OnceLock::new();
static MODULES: OnceLock<Vec<AtomicPtr<mca_btl_base_module_t>>> = OnceLock::new();
/// Whether the user was told that a window could not be pinned.
static TOLD: AtomicBool = AtomicBool::new(false);
static ON_ERROR: Mutex<mca_btl_base_module_error_cb_fn_t> = Mutex::new(None);

/// Stores the engine, its interfaces and their modules.
pub fn start(
    engine: Engine<Message>,
    interfaces: Vec<Interface>,
    modules: &[*mut mca_btl_base_module_t],
    echoes: Echoes,
) {
    // This cannot fail: Open MPI creates modules once per process, so neither value was set before.
    let _ = INTERFACES.set(interfaces);
    let _ = MODULES.set(modules.iter().copied().map(AtomicPtr::new).collect());
    *ENGINE.lock().expect("panics abort") = Some(engine);
    *REACH.lock().expect("panics abort") = Some(Reach::new(echoes));
}

/// Sets Open MPI's callback, which is called when a peer is lost.
pub fn set_error_callback(callback: mca_btl_base_module_error_cb_fn_t) {
    *ON_ERROR.lock().expect("panics abort") = callback;
}

/// Returns the index of the interface to which a module belongs; `None` for an unknown module.
pub fn number(module: *mut mca_btl_base_module_t) -> Option<usize> {
    let mut modules = MODULES.get()?.iter();
    modules.position(|known| known.load(Ordering::Relaxed) == module)
}

fn module_of(number: usize) -> *mut mca_btl_base_module_t {
    MODULES
        .get()
        .and_then(|modules| modules.get(number))
        .map_or(ptr::null_mut(), |module| module.load(Ordering::Relaxed))
}

/// Converts a link to Open MPI's endpoint, a pointer that is never dereferenced.
fn endpoint_of(link: LinkId) -> *mut mca_btl_base_endpoint_t {
    ptr::without_provenance_mut(link + 1)
}

/// The bit that the endpoints of the module for [remote memory](crate::remote) have. Open MPI
/// compares the endpoints of all modules of a peer, and these must differ.
const REMOTE: usize = 1 << (usize::BITS - 2);

/// Returns the endpoint of this process in the module for remote memory.
pub fn own_endpoint() -> *mut mca_btl_base_endpoint_t {
    ptr::without_provenance_mut(REMOTE)
}

/// Returns the link of an endpoint; `None` for the endpoint of this process.
pub fn link_of(endpoint: *mut mca_btl_base_endpoint_t) -> Option<LinkId> {
    (endpoint.addr() & !REMOTE).checked_sub(1)
}

/// Returns the endpoint for `peer` on the interface `module`, if this interface reaches the peer.
/// `fetch` reads the peer's cards (the descriptions of its interfaces).
pub fn reach(
    peer: Name,
    module: usize,
    fetch: impl FnOnce() -> Vec<u8>,
) -> Option<*mut mca_btl_base_endpoint_t> {
    introduce(peer, fetch)?;
    let engine = ENGINE.lock().expect("panics abort");
    engine.as_ref()?.endpoint(peer, module).map(endpoint_of)
}

/// Returns the endpoint for `peer` in the module for remote memory, if any interface reaches the
/// peer.
pub fn reach_memory(
    peer: Name,
    fetch: impl FnOnce() -> Vec<u8>,
) -> Option<*mut mca_btl_base_endpoint_t> {
    introduce(peer, fetch)?;
    let engine = ENGINE.lock().expect("panics abort");
    let engine = engine.as_ref()?;
    let link = (0..INTERFACES.get()?.len()).find_map(|module| engine.endpoint(peer, module))?;
    Some(ptr::without_provenance_mut(
        endpoint_of(link).addr() | REMOTE,
    ))
}

/// Makes the interfaces of `peer` known to the engine.
fn introduce(peer: Name, fetch: impl FnOnce() -> Vec<u8>) -> Option<()> {
    // The lock of `REACH` is held while this thread waits for answers to echo requests. The
    // engine's lock is not held during this time, so messages continue to flow.
    let mut reach = REACH.lock().expect("panics abort");
    let reach = reach.as_mut()?;
    let (own, known) = {
        let engine = ENGINE.lock().expect("panics abort");
        let engine = engine.as_ref()?;
        (engine.name(), engine.knows(peer))
    };
    if !known {
        let (token, cards) = card::decode(&fetch()).unwrap_or_default();
        let matrix = reach.matrix(INTERFACES.get()?, &cards);
        // Both processes call `choose` with the same matrix, whose rows are the interfaces of the
        // process with the lower name. So they choose the same pairs.
        let chosen = if own < peer {
            pairs::choose(&matrix)
        } else {
            let turned: Vec<Vec<_>> = (0..cards.len())
                .map(|column| matrix.iter().map(|row| row[column]).collect())
                .collect();
            let chosen = pairs::choose(&turned);
            chosen
                .into_iter()
                .map(|(theirs, ours)| (ours, theirs))
                .collect()
        };
        let pairs: Vec<_> = chosen
            .into_iter()
            .map(|(ours, theirs)| (ours, theirs, cards[theirs]))
            .collect();
        let mut engine = ENGINE.lock().expect("panics abort");
        engine.as_mut()?.introduce(peer, token, &pairs);
    }
    Some(())
}

/// Sends a message. Returns true if the message was sent at once. In that case, Open MPI's
/// completion callback has already been called, if Open MPI wanted it.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn send(link: LinkId, tag: u8, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| engine.send(link, tag, message))
}

/// Sends a message, unless it would have to wait until Open MPI lets the component make progress.
///
/// # Errors
///
/// Returns the message if it would have to wait, or the peer is lost.
pub fn send_now(link: LinkId, tag: u8, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| {
        engine.send_now(link, tag, message)
    })
}

/// Writes into a peer's memory. The completion callback reports when the data may be changed again.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn put(link: LinkId, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| engine.put(link, message))
}

/// Writes into a peer's memory. The completion callback reports that the data is there.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn write(link: LinkId, target: &Target, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| {
        engine.write(link, target, message)
    })
}

/// Writes like [`write`], to a region of the peer, into which the peer's kernel writes.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn put_to_region(
    link: LinkId,
    region: u64,
    target: &Target,
    message: Message,
) -> Result<bool, Message> {
    hand_over(message, |engine, message| {
        engine.put_to_region(link, region, target, message)
    })
}

/// Reads a peer's memory. The completion callback reports that the data has come.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn read(link: LinkId, target: &Target, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| {
        engine.read(link, target, message)
    })
}

/// Executes an atomic operation on a peer's memory. The completion callback reports that the old
/// value has come.
///
/// # Errors
///
/// Returns the message if the peer is lost.
pub fn execute(link: LinkId, atomic: &Atomic, message: Message) -> Result<bool, Message> {
    hand_over(message, |engine, message| {
        engine.execute(link, atomic, message)
    })
}

/// Calls `act` with the memory that is open to peers. Returns `None` if there is no engine, or
/// `act` returns `None`.
pub fn with_windows<R>(act: impl FnOnce(&mut Windows) -> Option<R>) -> Option<R> {
    let mut engine = ENGINE.lock().expect("panics abort");
    act(engine.as_mut()?.windows())
}

fn hand_over(
    mut message: Message,
    to: impl FnOnce(&mut Engine<Message>, Message) -> Sent<Message>,
) -> Result<bool, Message> {
    let callback = message.wants_callback();
    // If the message is queued, Open MPI must be called back when the message completes.
    message.set_callback(true);
    let sent = match ENGINE.lock().expect("panics abort").as_mut() {
        Some(engine) => to(engine, message),
        None => Sent::Refused(message),
    };
    match sent {
        Sent::Queued => Ok(false),
        Sent::Done(mut message) => {
            message.set_callback(callback);
            if let Some(message) = message.finish(OPAL_SUCCESS) {
                module::recycle(message);
            }
            Ok(true)
        }
        Sent::Refused(mut message) => {
            message.set_callback(callback);
            Err(message)
        }
    }
}

/// Lets peers write into memory, and returns the memory's key. Returns `None` if there is no
/// engine.
///
/// # Safety
///
/// The caller must meet the requirements of [`Windows::open`].
pub unsafe fn open_window(start: *mut u8, length: usize) -> Option<u64> {
    let mut engine = ENGINE.lock().expect("panics abort");
    // SAFETY: the caller meets the requirements of `Windows::open`.
    unsafe { engine.as_mut()?.windows().open(start, length) }
}

/// Pins the window with the key `key`, so that the kernel writes what peers put there. Returns the
/// key of the region, or 0 if it could not be made.
///
/// # Safety
///
/// `start` and `length` must be those of the window.
pub unsafe fn pin_window(key: u64, start: *mut u8, length: usize) -> u64 {
    let pinned = {
        let mut engine = ENGINE.lock().expect("panics abort");
        let engine = engine.as_mut();
        // SAFETY: the caller passes the window's memory.
        engine.and_then(|engine| unsafe { engine.pin_window(key, start, length) })
    };
    match pinned {
        Some(Ok(region)) => region,
        Some(Err(error)) => {
            if !TOLD.swap(true, Ordering::Relaxed) {
                let sentence = format!(
                    "btl esp: a window of {length} bytes is not pinned ({error}; see ulimit -l), so \
                     puts to it wait until this process calls MPI"
                );
                let text = CString::new(sentence).unwrap_or_default();
                // SAFETY: the text is a string that ends with a zero byte; the call copies it.
                unsafe { enet_say(text.as_ptr()) };
            }
            0
        }
        None => 0,
    }
}

/// Ends the peers' access to the memory with the key `key`.
pub fn close_window(key: u64) {
    if let Some(engine) = ENGINE.lock().expect("panics abort").as_mut() {
        engine.close_window(key);
    }
}

/// Sends and receives once. Returns the number of events, but at least 1 if bytes were received,
/// because more bytes may have arrived in the meantime. Returns 0 if another thread holds the
/// engine's lock.
pub fn progress() -> c_int {
    let (events, came) = {
        let Ok(mut engine) = ENGINE.try_lock() else {
            return 0;
        };
        let Some(engine) = engine.as_mut() else {
            return 0;
        };
        let came = engine.poll();
        if !engine.has_events() {
            return c_int::from(came);
        }
        (engine.take_events(), came)
    };
    let count = events.len().max(usize::from(came));
    for event in events {
        tell(event);
    }
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

fn tell(event: Event<Message>) {
    match event {
        Event::Received {
            link,
            module,
            mut block,
            arrivals,
        } => {
            for arrival in arrivals {
                deliver(link, module, &mut block, arrival);
            }
            if let Some(engine) = ENGINE.lock().expect("panics abort").as_mut() {
                engine.give(block);
            }
        }
        Event::Answered { mut payload, data } => {
            payload.store(&data);
            if let Some(message) = payload.finish(OPAL_SUCCESS) {
                module::recycle(message);
            }
        }
        Event::Completed { payload, sent } => {
            let status = if sent { OPAL_SUCCESS } else { OPAL_ERR_UNREACH };
            if let Some(message) = payload.finish(status) {
                module::recycle(message);
            }
        }
        Event::Degraded(sentence) => eprintln!("btl esp: {sentence}"),
        Event::Lost { peer, module, why } => lose(peer, module, &why),
    }
}

/// Delivers a message to its receiver.
fn deliver(link: LinkId, module: usize, block: &mut [u8], arrival: Arrival) {
    let Arrival { tag, start, length } = arrival;
    let mut copy = [0u64; COPIED / size_of::<u64>() + SLACK];
    let bytes = &mut block[start..start + length];
    let address: *mut u8 = if length <= COPIED {
        let place = copy.as_mut_ptr().cast::<u8>();
        // SAFETY: the copy has room for `length` bytes, and cannot overlap the block.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, length) };
        place
    } else {
        bytes.as_mut_ptr()
    };
    // SAFETY: a segment is plain C data, for which all-zero bytes are a valid value.
    let mut segment: mca_btl_base_segment_t = unsafe { std::mem::zeroed() };
    segment.seg_addr.pval = address.cast();
    segment.seg_len = length as u64;
    let triggers = &raw const mca_btl_base_active_message_trigger;
    if u32::from(tag) >= MCA_BTL_TAG_MAX {
        return;
    }
    // SAFETY: the table has an entry for each tag below MCA_BTL_TAG_MAX. Receivers register before
    // peers can send to them.
    let trigger = unsafe { (*triggers)[usize::from(tag)] };
    let descriptor = mca_btl_base_receive_descriptor_t {
        endpoint: endpoint_of(link),
        des_segments: &raw const segment,
        des_segment_count: 1,
        tag,
        cbdata: trigger.cbdata,
    };
    if let Some(receiver) = trigger.cbfunc {
        // SAFETY: the receiver registered for this tag. `descriptor`, `segment` and the bytes
        // outlive the call. The receiver may write to the bytes, and to the `SLACK` behind a copied
        // message.
        unsafe { receiver(module_of(module), &raw const descriptor) };
    }
}

/// Reports a lost peer to Open MPI, which aborts the job.
fn lose(peer: Name, module: usize, why: &str) {
    eprintln!("btl esp: {why}; the job ends");
    let callback = *ON_ERROR.lock().expect("panics abort");
    // Open MPI uses the text as a format string, so it must not contain a percent sign.
    let sentence = format!("btl esp: {peer} is lost: {why}").replace('%', " ");
    let text = CString::new(sentence).unwrap_or_default().into_raw();
    if let Some(callback) = callback {
        // SAFETY: Open MPI registered the callback; the text is never freed, and the callback
        // accepts a null pointer for an unknown process.
        unsafe {
            callback(
                module_of(module),
                MCA_BTL_ERROR_FLAGS_FATAL as i32,
                ptr::null_mut(),
                text,
            )
        };
    }
}

/// Closes all connections cleanly.
pub fn close() {
    let engine = ENGINE.lock().expect("panics abort").take();
    let Some(mut engine) = engine else { return };
    engine.close(FAREWELL);
    for event in engine.take_events() {
        // Open MPI has closed what its callbacks use before it closes this component.
        if let Event::Completed { payload, .. } | Event::Answered { payload, .. } = event {
            module::recycle(payload);
        }
    }
}

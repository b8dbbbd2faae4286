// SPDX-License-Identifier: MIT OR Apache-2.0

//! The component's parameters, as listed by `ompi_info --param btl esp --level 9`.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::offset_of;
use std::ptr;
use std::time::Duration;

use crate::ffi::{
    mca_base_component_t, mca_base_component_var_register,
    mca_base_var_info_lvl_t_OPAL_INFO_LVL_3 as LEVEL,
    mca_base_var_scope_t_MCA_BASE_VAR_SCOPE_READONLY as READ_ONLY, mca_base_var_type_t,
    mca_base_var_type_t_MCA_BASE_VAR_TYPE_INT as INTEGER,
    mca_base_var_type_t_MCA_BASE_VAR_TYPE_STRING as STRING,
};
use crate::reach::Echoes;

/// The values of the parameters, which Open MPI writes.
#[repr(C)]
struct Values {
    if_include: *mut c_char,
    if_exclude: *mut c_char,
    polled: c_int,
    timeout: c_int,
    echo_attempts: c_int,
    echo_timeout: c_int,
    test_links: c_int,
    quiet: c_int,
}

struct Storage(UnsafeCell<Values>);

// SAFETY: Open MPI writes the values while one thread opens components. After that, the values are
// only read.
unsafe impl Sync for Storage {}

static VALUES: Storage = Storage(UnsafeCell::new(Values {
    if_include: ptr::null_mut(),
    if_exclude: ptr::null_mut(),
    polled: 8,
    timeout: 10_000,
    echo_attempts: 3,
    echo_timeout: 5,
    test_links: 0,
    quiet: 0,
}));

/// The component's parameters, read from the variables in which Open MPI stores them.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The names of the interfaces to use; empty for all.
    pub include: String,
    /// The names of the interfaces not to use.
    pub exclude: String,
    /// Number of connections that are polled individually; epoll covers the rest.
    pub polled: usize,
    /// A connection ends if the peer's kernel does not answer for this time.
    pub timeout: Duration,
    /// The number and the timeouts of the requests that test whether a peer's interface can be
    /// reached.
    pub echoes: Echoes,
    /// In the test mode, the number of TCP links on the loopback device, which replace ESP;
    /// otherwise 0.
    pub test_links: usize,
    /// Whether to print nothing if the kernel module `enet` is not loaded.
    pub quiet: bool,
}

/// The table of parameters. Each entry has the parameter's name, its type, the offset of its value
/// in [`Values`], and its help text.
const TABLE: [(&CStr, mca_base_var_type_t, usize, &CStr); 8] = [
    (
        c"if_include",
        STRING,
        offset_of!(Values, if_include),
        c"Ethernet interfaces to use, separated by commas (default: all that are up)",
    ),
    (
        c"if_exclude",
        STRING,
        offset_of!(Values, if_exclude),
        c"Ethernet interfaces not to use, separated by commas; if_include takes precedence",
    ),
    (
        c"polling_max",
        INTEGER,
        offset_of!(Values, polled),
        c"Up to so many connections are asked for messages one by one; more are asked by one epoll_wait",
    ),
    (
        c"timeout",
        INTEGER,
        offset_of!(Values, timeout),
        c"Milliseconds that a peer's kernel may take to answer before its connection counts as cut, from 100 on",
    ),
    (
        c"echo_attempts",
        INTEGER,
        offset_of!(Values, echo_attempts),
        c"EDP echo requests to an interface of a peer before it counts as out of reach, 1 to 10",
    ),
    (
        c"echo_timeout",
        INTEGER,
        offset_of!(Values, echo_timeout),
        c"Milliseconds that the first of these may take to be answered, 1 to 1000; each further one has twice as many",
    ),
    (
        c"test_links",
        INTEGER,
        offset_of!(Values, test_links),
        c"For tests without the kernel module: so many links between ranks of one host, by TCP on the loopback device",
    ),
    (
        c"quiet",
        INTEGER,
        offset_of!(Values, quiet),
        c"1: say nothing where the kernel module is not loaded",
    ),
];

/// Registers the parameters.
///
/// # Safety
///
/// `component` must be the registered component, and no other thread may register or read
/// parameters.
pub unsafe fn register(component: *const mca_base_component_t) -> c_int {
    let values: *mut c_void = VALUES.0.get().cast();
    for (name, kind, offset, help) in TABLE {
        // SAFETY: the strings and the storage are static, and at `offset` there is a value of the
        // type `kind`. A string's default is null, which Open MPI treats as no value.
        let index = unsafe {
            mca_base_component_var_register(
                component,
                name.as_ptr(),
                help.as_ptr(),
                kind,
                ptr::null_mut(),
                0,
                0,
                LEVEL,
                READ_ONLY,
                values.byte_add(offset),
            )
        };
        if index < 0 {
            return index;
        }
    }
    0
}

/// Returns the current values of the parameters.
///
/// # Safety
///
/// Open MPI must not register parameters during the call.
pub unsafe fn read() -> Parameters {
    // SAFETY: the caller rules out that the values are written during the call.
    let values = unsafe { &*VALUES.0.get() };
    let string = |value: *mut c_char| {
        if value.is_null() {
            return String::new();
        }
        // SAFETY: Open MPI's strings end with a zero byte, and stay allocated until the component
        // is closed.
        unsafe { CStr::from_ptr(value) }
            .to_string_lossy()
            .into_owned()
    };
    let count = |value: c_int| usize::try_from(value).unwrap_or(0);
    Parameters {
        include: string(values.if_include),
        exclude: string(values.if_exclude),
        polled: count(values.polled),
        timeout: Duration::from_millis(count(values.timeout).max(100) as u64),
        echoes: Echoes {
            attempts: values.echo_attempts.clamp(1, 10).unsigned_abs(),
            timeout: Duration::from_millis(
                values.echo_timeout.clamp(1, 1000).unsigned_abs().into(),
            ),
        },
        test_links: count(values.test_links).min(8),
        quiet: values.quiet != 0,
    }
}

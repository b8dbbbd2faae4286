// SPDX-License-Identifier: MIT OR Apache-2.0

//! Open MPI's internal interface, as bindgen reads it from Debian's headers.

#![allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

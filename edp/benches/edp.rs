// SPDX-License-Identifier: GPL-2.0

//! Benchmarks of EDP's decisions, without kernel and network.

// `criterion_group!` makes a function without a description.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use edp::ports::{self, DYNAMIC};
use edp::wire::{Header, HEADER_LEN};

/// Number of bytes after the Ethernet header in the shortest Ethernet frame (64 bytes). Most of
/// these bytes are padding.
const FRAME_LEN: usize = 50;

const HEADER: Header = Header {
    src: 49_152,
    dst: 2_805,
    len: 1,
    has_checksum: false,
};

fn header(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("edp/header");
    group.bench_function("write", |bencher| {
        bencher.iter(|| black_box(HEADER).emit());
    });
    let mut frame = [0; FRAME_LEN];
    frame[..HEADER_LEN].copy_from_slice(&HEADER.emit());
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let frame = black_box(&frame[..]);
            let header = Header::parse(frame)?;
            let len = header.payload_len(frame.len() - HEADER_LEN)?;
            Some((header, len))
        });
    });
    group.finish();
}

/// Autobinds a port. The search starts at a given offset and first meets `taken` ports that are in
/// use.
fn port(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("edp/port");
    for taken in [0, 1_000] {
        group.bench_function(format!("given out, {taken} taken"), |bencher| {
            let first_free = DYNAMIC.start() + taken;
            bencher.iter(|| ports::pick(black_box(0), |from| Some(from.max(first_free))));
        });
    }
    group.finish();
}

criterion_group!(benches, header, port);
criterion_main!(benches);

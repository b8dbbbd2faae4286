// SPDX-License-Identifier: GPL-2.0-only

//! Simulates streams between any hosts. The senders always have data to send.

use esp::{Nanos, State};

use crate::fabric::{End, Fabric};
use crate::simulation::Setup;

/// If a stream has fewer bytes queued than this, its sender queues more.
const AHEAD: u64 = 8 << 20;
/// Number of bytes by which a sender refills its queue.
const PIECE: u64 = 4 << 20;

/// A stream from one host to another.
#[derive(Debug)]
struct Stream {
    from: End,
    to: End,
    /// Number of bytes that the sender has queued since the start.
    written: u64,
}

/// Streams between hosts.
#[derive(Debug)]
pub struct Streams {
    /// The hosts and their network.
    pub fabric: Fabric,
    streams: Vec<Stream>,
}

/// The results of the streams over some time.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Delivered bits per second of each stream.
    pub rates: Vec<f64>,
    /// Number of frames that switches dropped.
    pub drops: u64,
    /// Number of retransmitted data packets.
    pub retransmissions: u64,
}

impl Streams {
    /// Creates as many hosts as the highest number in `pairs` requires. Opens a connection for each
    /// pair of a sender and a receiver.
    pub fn new(setup: Setup, pairs: &[(u32, u32)]) -> Self {
        let hosts = pairs.iter().map(|(a, b)| a.max(b) + 1).max().unwrap_or(0);
        let mut peers: Vec<Vec<End>> = vec![Vec::new(); hosts as usize];
        let mut streams = Vec::new();
        for &(from, to) in pairs {
            let slot = |host: u32| peers[host as usize].len() as u32;
            let (from, to) = ((from, slot(from)), (to, slot(to)));
            peers[from.0 as usize].push(to);
            peers[to.0 as usize].push(from);
            streams.push(Stream {
                from,
                to,
                written: 0,
            });
        }
        let (rate, esp) = (setup.rate, setup.esp.into());
        let fabric = Fabric::new(setup, rate, peers, |_| esp);
        let mut all = Self { fabric, streams };
        for stream in 0..all.streams.len() {
            all.open(stream);
        }
        all
    }

    /// Opens one connection. Timers retransmit packets of the handshake that are lost.
    fn open(&mut self, stream: usize) {
        let Stream { from, to, .. } = self.streams[stream];
        self.fabric.connect(from);
        let is_open =
            |fabric: &mut Fabric, end| fabric.endpoint(end).socket.state() == State::Established;
        while !is_open(&mut self.fabric, from) || !is_open(&mut self.fabric, to) {
            assert!(self.fabric.step(), "a timer of the handshake runs");
        }
    }

    /// Runs all streams for `warm_up`, then measures for `time`.
    pub fn measure(&mut self, warm_up: Nanos, time: Nanos) -> Measured {
        self.run(warm_up);
        let received = self.received();
        let (drops, retransmissions) = self.counts();
        self.run(time);
        let rate = |(now, before): (u64, &u64)| (now - before) as f64 * 8e9 / time as f64;
        let (all_drops, all_retransmissions) = self.counts();
        Measured {
            rates: self
                .received()
                .into_iter()
                .zip(&received)
                .map(rate)
                .collect(),
            drops: all_drops - drops,
            retransmissions: all_retransmissions - retransmissions,
        }
    }

    fn run(&mut self, time: Nanos) {
        let until = self.fabric.now() + time;
        // A piece takes longer to send than `step`, so refilling at each step keeps the queues
        // filled.
        let step = (time / 256).max(1);
        let mut looked = self.fabric.now();
        self.write();
        while self.fabric.next().is_some_and(|at| at <= until) {
            self.fabric.step();
            if self.fabric.now() >= looked + step {
                looked = self.fabric.now();
                self.write();
            }
        }
    }

    /// Refills the senders' queues.
    fn write(&mut self) {
        let now = self.fabric.now();
        for stream in &mut self.streams {
            let received = self.fabric.endpoint(stream.to).received;
            while stream.written < received + AHEAD {
                stream.written += PIECE;
                self.fabric.write_at(now, stream.from, PIECE);
            }
        }
    }

    fn received(&mut self) -> Vec<u64> {
        let fabric = &mut self.fabric;
        let ends = self.streams.iter().map(|stream| stream.to);
        ends.map(|end| fabric.endpoint(end).received).collect()
    }

    /// Returns two counts since the start: frames dropped by switches, and retransmitted packets.
    fn counts(&self) -> (u64, u64) {
        let ports = self.fabric.ports.iter().chain(&self.fabric.uplinks);
        let hosts = self.fabric.hosts.iter();
        (
            ports.map(|port| port.drops).sum(),
            hosts.map(|host| host.sum(|stats| stats.pkt_rtx)).sum(),
        )
    }
}

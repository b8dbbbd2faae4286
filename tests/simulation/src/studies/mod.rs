//! What is looked into: each study runs simulations, and shows them as a table, as JSON, and some as a picture.

pub mod alltoall;
pub mod announce;
pub mod beside;
pub mod burst;
pub mod scale;
pub mod silent;
pub mod table;
pub mod workloads;

use anyhow::{ensure, Result};
use clap::Args;
use esp::Nanos;

use crate::network::Rate;
use crate::rounds::{Message, Workload};
use crate::simulation::{Parameters, Setup};

const GIGABIT: u64 = 1_000_000_000;

/// Sequence numbers allow somewhat more.
const MOST_PACKETS: u64 = 32_000;

/// What all studies have in common.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Rounds per setting
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Device MTU, bytes; at least 300, as the studies have messages of 8 MiB
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(300..))]
    pub mtu: u16,
    /// What two hosts need to process a packet, one way, microseconds; a latency
    #[arg(long, default_value_t = 8.0, value_parser = microseconds)]
    pub processing: f64,
    /// Propagation on each link, one way, nanoseconds
    #[arg(long, default_value_t = 100)]
    pub propagation: u32,
    /// Bytes that a frame occupies on the wire beyond what it has in a buffer: check sequence, preamble and gap
    #[arg(long, default_value_t = 24)]
    pub framing: u16,
    /// Part of all packets that is lost at random, 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = probability)]
    pub loss: f64,
    /// Senders start at random times within so many microseconds; 0: all at once
    #[arg(long, default_value_t = 0.0, value_parser = microseconds)]
    pub stagger: f64,
    /// The parameter round_trip_time, microseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub round_trip_time: u32,
    /// Receive buffer of each connection, bytes, of which a packet takes its payload and 768; by default never full
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub receive_buffer: u32,
    /// Beginning of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Default for Common {
    /// What the options are if none is given.
    fn default() -> Self {
        Self {
            rounds: 5,
            mtu: 1500,
            processing: 8.0,
            propagation: 100,
            framing: 24,
            loss: 0.0,
            stagger: 0.0,
            round_trip_time: 200,
            receive_buffer: 1 << 30,
            seed: 1,
        }
    }
}

fn microseconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1e6).contains(&value) => Ok(value),
        _ => Err("not a time from 0 to 1000000 microseconds".into()),
    }
}

fn probability(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..1.0).contains(&value) => Ok(value),
        _ => Err("not a part from 0 to below 1".into()),
    }
}

impl Common {
    fn nanos(micros: f64) -> Nanos {
        (micros * 1e3).round() as Nanos
    }

    /// A setting of this study.
    pub fn setup(&self, senders: usize, bits: u64, buffer: u32, mut esp: Parameters) -> Setup {
        esp.round_trip_time = self.round_trip_time;
        Setup {
            senders,
            together: 0,
            rate: Rate {
                bits,
                framing: u32::from(self.framing),
            },
            buffer,
            esp,
            receiver: None,
            mtu: self.mtu,
            receive_buffer: self.receive_buffer,
            processing: Self::nanos(self.processing),
            propagation: Nanos::from(self.propagation),
            loss: self.loss,
            seed: self.seed,
        }
    }

    /// Fails when a message of so many bytes has more packets than one send call can queue here.
    pub fn check_message(&self, bytes: u64) -> Result<()> {
        let mss = u64::from(esp::mss(u32::from(self.mtu)));
        let most = MOST_PACKETS * mss;
        ensure!(
            bytes <= most,
            "a message of {bytes} bytes has too many packets: at this MTU, --bytes is at most {most}"
        );
        Ok(())
    }

    /// Rounds of `message` from every sender.
    pub fn workload(&self, message: Message) -> Workload {
        Workload {
            message,
            rounds: usize::from(self.rounds),
            stagger: Self::nanos(self.stagger),
            ..Workload::default()
        }
    }
}

/// The parameters that a study varies.
fn parameters(burst_length: u16, packets_to_ack: u16, initial_ack_burst_length: u16) -> Parameters {
    Parameters {
        burst_length,
        burst_length_max: burst_length,
        packets_to_ack,
        initial_ack_burst_length,
        ..Parameters::default()
    }
}

/// A number of senders.
pub fn senders(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=10_000).contains(&number) => Ok(number),
        _ => Err("not a number of senders, 1 to 10000".into()),
    }
}

/// A size: `64K`, `1M`, or bytes.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: bytes, or a number with K or M");
    let (digits, unit) = match text.trim_end_matches(['K', 'M']) {
        digits if digits.len() == text.len() => (digits, 1),
        digits if text.ends_with('K') => (digits, 1 << 10),
        digits => (digits, 1 << 20),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(bytes) if (1..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(wrong()),
    }
}

//! Simulates many ESP senders behind one switch port, with the real engine and no kernel.

use std::io::{stdout, Write};
use std::path::PathBuf;

use anyhow::{ensure, Result};
use clap::{Parser, Subcommand};
use esp_simulation::report::write_json;
use esp_simulation::simulation::Parameters;
use esp_simulation::studies::{
    alltoall, announce, beside, burst, scale, senders, silent, size, table, workloads, Common,
};
use serde::Serialize;

/// Simulates many ESP senders behind one switch port, with the real engine and no kernel.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    /// Goodput and buffer use over links and numbers of senders
    Table {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        /// Numbers of senders
        #[arg(long, value_delimiter = ',', default_value = "1,2,8,32", value_parser = senders)]
        senders: Vec<usize>,
        /// The parameter initial_ack_burst_length
        #[arg(long, default_value_t = 1)]
        initial: u16,
        /// What each sender sends in a round; without it, 256K to 4M, the more the faster the link
        #[arg(long, value_parser = size)]
        bytes: Option<u64>,
    },
    /// How buffer use, goodput and fairness grow with the number of senders
    Scale {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        picture: Picture,
        /// Numbers of senders
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "1,2,4,8,16,32,64,128,256,512,1000",
            value_parser = senders
        )]
        senders: Vec<usize>,
        /// Rate of every link, Gbit/s
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
        gigabits: u64,
        /// Buffer of every port
        #[arg(long, default_value = "2M", value_parser = size)]
        buffer: u64,
        /// What each sender sends in a round
        #[arg(long, default_value = "4M", value_parser = size)]
        bytes: u64,
        /// The parameter burst_length
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=32767))]
        burst: u16,
        /// The parameter packets_to_ack
        #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..=32767))]
        ack: u16,
        /// Values of the parameter initial_ack_burst_length
        #[arg(long, value_delimiter = ',', default_value = "0,1")]
        initial: Vec<u16>,
    },
    /// What announcements do to ports: drops and completion times over initial_ack_burst_length
    Announce {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        picture: Picture,
    },
    /// How long senders that fall silent delay the others
    Silent {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
    },
    /// How long questions take beside streams
    Beside {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        /// Numbers of streams
        #[arg(long, value_delimiter = ',', default_value = "0,1,4,16,32")]
        streams: Vec<usize>,
        /// Bytes of a question
        #[arg(long, value_delimiter = ',', default_value = "100,10000", value_parser = size)]
        sizes: Vec<u64>,
        /// Hosts that ask
        #[arg(long, default_value_t = 1)]
        askers: usize,
        /// Questions of each
        #[arg(long, default_value_t = 300)]
        questions: usize,
        /// Mean time from an answer to the next question, microseconds; 0: at once
        #[arg(long, default_value_t = 0)]
        pause: u64,
        /// Connections of one more host, each of which sends one message after the other
        #[arg(long, default_value_t = 0)]
        announcers: usize,
        /// Bytes of such a message
        #[arg(long, default_value = "16K", value_parser = size)]
        message: u64,
        /// Rate of every link, Mbit/s
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        megabits: u64,
        /// Buffer of every port
        #[arg(long, default_value = "128K", value_parser = size)]
        buffer: u64,
    },
    /// All hosts send to all others, as MPI's alltoall
    Alltoall {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        /// Numbers of hosts
        #[arg(long, value_delimiter = ',', default_value = "8", value_parser = senders)]
        hosts: Vec<usize>,
        /// Bytes from each host to each other; without it, 1 to 1M
        #[arg(long, value_delimiter = ',', value_parser = size)]
        sizes: Vec<u64>,
        /// Rate from every host to the switch, Mbit/s
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        wires: u64,
        /// Rate of every port, Mbit/s
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        megabits: u64,
        /// Buffer of every port
        #[arg(long, default_value = "128K", value_parser = size)]
        buffer: u64,
    },
    /// Messages of published sizes at random times: how much longer they take than on an idle network
    Workloads {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        /// Distributions of sizes
        #[arg(long, value_delimiter = ',', default_value = "w1,w2,w3,w4,w5")]
        sizes: Vec<workloads::Sizes>,
        /// Numbers of senders
        #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = senders)]
        senders: Vec<usize>,
        /// What all of them send, percent of what the receiver's port can carry
        #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=99))]
        load: u8,
        /// Bytes in all
        #[arg(long, default_value = "256M", value_parser = size)]
        bytes: u64,
        /// Rate of every link, Mbit/s
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        megabits: u64,
        /// Buffer of every port
        #[arg(long, default_value = "2M", value_parser = size)]
        buffer: u64,
    },
    /// Goodput over burst_length and packets_to_ack
    Burst {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        picture: Picture,
    },
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Picture {
    /// Draw a picture as well
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Output {
    fn show<T: Serialize>(
        &self,
        results: &[T],
        print: impl FnOnce(&[T], &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let out = &mut stdout().lock();
        if self.json {
            write_json(&results, out)
        } else {
            print(results, out)
        }
    }
}

fn main() -> Result<()> {
    match Options::parse().study {
        Study::Table {
            common,
            output,
            senders,
            initial,
            bytes,
        } => {
            common.check_message(bytes.unwrap_or(0))?;
            output.show(&table::run(&common, &senders, initial, bytes), table::print)
        }
        Study::Scale {
            common,
            output,
            picture,
            senders,
            gigabits,
            buffer,
            bytes,
            burst,
            ack,
            initial,
        } => {
            common.check_message(bytes)?;
            ensure!(
                ack <= burst,
                "--ack {ack} exceeds --burst {burst}: a window would be used up before an acknowledgement is due"
            );
            let lines = scale::run(
                &common,
                &scale::Options {
                    senders,
                    bits: gigabits * 1_000_000_000,
                    // At most 1 GiB, as `size` has it.
                    buffer: buffer as u32,
                    bytes,
                    burst_length: burst,
                    packets_to_ack: ack,
                    initial,
                },
            );
            if let Some(file) = &picture.plot {
                scale::draw(&lines, file)?;
            }
            output.show(&lines, scale::print)
        }
        Study::Announce {
            common,
            output,
            picture,
        } => {
            let lines = announce::run(&common);
            if let Some(file) = &picture.plot {
                announce::draw(&lines, file)?;
            }
            output.show(&lines, announce::print)
        }
        Study::Silent { common, output } => output.show(&silent::run(&common), silent::print),
        Study::Beside {
            common,
            output,
            streams,
            sizes,
            askers,
            questions,
            pause,
            announcers,
            message,
            megabits,
            buffer,
        } => {
            let options = beside::Options {
                streams,
                sizes,
                askers,
                questions,
                pause: pause * 1_000,
                announcers,
                message,
                bits: megabits * 1_000_000,
                // At most 1 GiB, as `size` has it.
                buffer: buffer as u32,
            };
            let lines = beside::run(&common, Parameters::default(), &options);
            output.show(&lines, beside::print)
        }
        Study::Alltoall {
            common,
            output,
            hosts,
            sizes,
            megabits,
            wires,
            buffer,
        } => {
            let mut options = alltoall::Options {
                hosts,
                wires: wires * 1_000_000,
                bits: megabits * 1_000_000,
                // At most 1 GiB, as `size` has it.
                buffer: buffer as u32,
                ..alltoall::Options::default()
            };
            if !sizes.is_empty() {
                options.sizes = sizes;
            }
            let lines = alltoall::run(&common, Parameters::default(), &options);
            output.show(&lines, alltoall::print)
        }
        Study::Workloads {
            common,
            output,
            sizes,
            senders,
            load,
            bytes,
            megabits,
            buffer,
        } => {
            let options = workloads::Options {
                sizes,
                senders,
                load: f64::from(load) / 100.0,
                bytes,
                bits: megabits * 1_000_000,
                // At most 1 GiB, as `size` has it.
                buffer: buffer as u32,
            };
            let lines = workloads::run(&common, Parameters::default(), &options);
            output.show(&lines, workloads::print)
        }
        Study::Burst {
            common,
            output,
            picture,
        } => {
            let cells = burst::run(&common);
            if let Some(file) = &picture.plot {
                burst::draw(&cells, file)?;
            }
            output.show(&cells, burst::print)
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Lists the measurements for the figures, each with netgauge's arguments.

use std::ops::RangeInclusive;

use crate::results::{Series, EDP, ESP, PLAIN_TCP, RAW, TCP, UDP};

/// netgauge's option for calls without timeouts. With a timeout, each call that waits starts and
/// stops a timer.
pub const UNLIMITED: &str = "--no-timeouts";

/// Rate of each port of the switch: in the notation of `enet-switch`, in the notation of netgauge,
/// and in bits per second.
pub const RATE: (&str, &str, f64) = ("200mbit", "200M", 200e6);
/// Size of the buffer of each port of the switch, in the notation of `enet-switch`.
pub const BUFFER: &str = "128k";

/// The values of ESP's setting `packets_to_ack` that are measured.
pub const ACKS: [u32; 5] = [1, 2, 5, 10, 15];
/// The sizes that are measured, in KiB. The send buffer and the receive buffer both have the same
/// size.
pub const BUFFERS: [u32; 6] = [16, 32, 64, 128, 256, 512];
/// The rate and the delay of the long cable in each direction, in the notation of `netem`.
pub const LONG_CABLE: &str = "rate 1gbit delay 100us";
/// The rate of the long cable in bit/s, and its round trip in ns without a packet's transmission
/// time.
pub const LONG: (f64, f64) = (1e9, 200_000.0);
/// Congestion controls of the TCP streams that share a port with an ESP stream.
pub const CONGESTIONS: [&str; 4] = ["reno", "cubic", "vegas", "dctcp"];
/// The values of both of ESP's parameters that are measured: each value of Treydte's figure 12.
/// netgauge leaves out the pairs whose `packets_to_ack` is above `burst_length`.
pub const PARAMETERS: RangeInclusive<u32> = 1..=32;
/// If TCP streams use `dctcp`, a port of the switch marks packets once its queue has this number of
/// bytes.
pub const MARKS: &str = "30k";
/// Share of frames that the lossy cable loses, in percent.
pub const LOSS: u32 = 2;
/// The measured lengths of messages on the lossy cable, in packets.
pub const PACKETS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Number of payload bytes that fit into one packet of every transport.
pub const PAYLOAD: u32 = 1448;

/// All series with default offloads.
pub const OTHERS: [Series; 5] = [TCP, UDP, RAW, EDP, ESP];

/// A measurement that netgauge makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Dialogues: one end sends a message, and the other end sends it back.
    Dialogue,
    /// Dialogues of messages so large that only streams support them.
    LargeDialogue,
    /// Dialogues with non-blocking calls. A call of `poll` precedes each non-blocking call.
    Nonblocking,
    /// Dialogues in which the send buffer and the receive buffer both have this number of KiB.
    Buffers(u32),
    /// Connections that carry one message and its echo, over the long cable.
    RampUp,
    /// A stream of ESP or TCP that shares a port with a stream of the other protocol.
    Beside,
    /// A stream or a series of datagrams, in one direction only.
    Bulk,
    /// Dialogues over ESP with this value of `packets_to_ack`.
    Acks(u32),
    /// Overheads of the calls that send and receive (the LogP model).
    LogP,
    /// Many small messages, sent without waiting for answers.
    Flood,
    /// Many small messages, each in a packet of its own.
    Records,
    /// Messages over the lossy cable.
    Loss,
    /// Dialogues over the switch.
    Link,
    /// Dialogues over the switch, of messages so large that only streams support them.
    LargeLink,
    /// Two senders to one receiver over the switch.
    Many,
    /// One ESP stream, for each pair of values of `burst_length` and `packets_to_ack`.
    Parameters,
}

impl Topic {
    /// Returns the topic's key in the results. A topic with large messages has the key of the topic
    /// with small messages, because its points continue the lines of that topic.
    pub fn key(self) -> String {
        match self {
            Self::Dialogue | Self::LargeDialogue => "dialogue".to_owned(),
            Self::Nonblocking => "nonblocking".to_owned(),
            Self::Buffers(kib) => format!("buffers-{kib}"),
            Self::RampUp => "ramp-up".to_owned(),
            Self::Beside => "beside".to_owned(),
            Self::Bulk => "bulk".to_owned(),
            Self::Acks(value) => format!("acks-{value}"),
            Self::LogP => "logp".to_owned(),
            Self::Flood => "flood".to_owned(),
            Self::Records => "records".to_owned(),
            Self::Loss => "loss".to_owned(),
            Self::Link | Self::LargeLink => "link".to_owned(),
            Self::Many => "many".to_owned(),
            Self::Parameters => "parameters".to_owned(),
        }
    }

    /// Returns netgauge's arguments, except transports and addresses. If no datagram can be lost,
    /// calls have no timeouts.
    pub fn arguments(self) -> String {
        match self {
            Self::Dialogue => format!("-x one-one -s 1-64K -c 30 --warmup 5 {UNLIMITED}"),
            Self::LargeDialogue => format!("-x one-one -s 128K-1M -c 5 --warmup 1 {UNLIMITED}"),
            Self::Nonblocking => "-x one-one -s 1-64K -c 30 --warmup 5 --nonblocking both".to_owned(),
            Self::Buffers(kib) => format!(
                "-x one-one -s 4K-1M -c 10 --warmup 0 --send-buffer {kib}K --receive-buffer {kib}K"
            ),
            Self::RampUp => "-x setup -s 1K-1M -c 3 --warmup 1".to_owned(),
            Self::Beside => format!(
                "-x one-many --netns h0,h1 --server-index 0 --clients 1 -s 8M -c 3 --warmup 1 --rate {}",
                RATE.1
            ),
            Self::Bulk => format!("-x bulk -s 4M -c 3 --warmup 1 {UNLIMITED}"),
            Self::Acks(_) => format!("-x one-one -s 1-1M -c 5 --warmup 1 {UNLIMITED}"),
            Self::LogP => "-x logp -s 1,16,256,1K,4K,16K,64K -c 10 --warmup 2".to_owned(),
            Self::Flood => "-x flood -s 1,4,16,64,256,1K -c 3000 --warmup 100".to_owned(),
            Self::Records => format!("{} --eor", Self::Flood.arguments()),
            Self::Loss => {
                let sizes = PACKETS.map(|packets| (packets * PAYLOAD).to_string());
                format!("-x recovery -s {} -c 200 --warmup 0", sizes.join(","))
            }
            Self::Link => "-x one-one -s 1K-64K -c 5 --warmup 1".to_owned(),
            Self::LargeLink => "-x one-one -s 128K-1M -c 3 --warmup 1".to_owned(),
            Self::Many => format!(
                "-x one-many --netns h0,h1,h2 --server-index 0 --clients 2 -s 1K-1M -c 5 --warmup 1 --rate {}",
                RATE.1
            ),
            Self::Parameters => {
                let values: Vec<_> = PARAMETERS.map(|value| value.to_string()).collect();
                let values = values.join(",");
                format!(
                    "-x esp-params --netns h0,h1 --server-index 0 --burst {values} --ack {values} -s 512K -c 1 \
                     --warmup 0 --rate {}",
                    RATE.1
                )
            }
        }
    }

    /// Returns netgauge's command line between two hosts, as the page prints it.
    pub fn command(self) -> String {
        format!("netgauge --connect HOST -m TRANSPORTS {}", self.arguments())
    }

    /// Returns whether this topic can be measured for `series`.
    pub fn suits(self, series: Series) -> bool {
        match self {
            Self::Acks(_) | Self::Parameters => series == ESP,
            Self::RampUp | Self::Beside | Self::Buffers(_) => matches!(series, ESP | TCP),
            Self::LargeDialogue | Self::LargeLink | Self::Records | Self::Many => {
                matches!(series, ESP | TCP | PLAIN_TCP)
            }
            _ => true,
        }
    }
}

/// Returns the transports' names, in netgauge's notation.
pub fn transports(series: &[Series]) -> String {
    let names: Vec<_> = series.iter().map(|one| one.transport).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_measured_over_transports_that_support_them() {
        let all = |topic: Topic| OTHERS.iter().filter(|one| topic.suits(**one)).count();
        assert_eq!(all(Topic::Dialogue), 5);
        assert_eq!(all(Topic::LargeDialogue), 2);
        assert_eq!(all(Topic::Acks(1)), 1);
        assert_eq!(all(Topic::Nonblocking), 5);
        assert_eq!(all(Topic::Buffers(64)), 2);
        assert_eq!(all(Topic::RampUp), 2);
        assert!(Topic::Many.suits(PLAIN_TCP) && !Topic::Many.suits(EDP));
        assert_eq!(transports(&[ESP, PLAIN_TCP]), "esp,tcp");
        assert_eq!(Topic::LargeDialogue.key(), Topic::Dialogue.key());
        assert!(Topic::Loss.arguments().contains("-s 1448,2896,"));
        assert!(Topic::Records.arguments().ends_with("--eor"));
        let grid = Topic::Parameters.arguments();
        assert!(grid.contains("--burst 1,2,3,4,5,"), "{grid}");
        assert!(grid.contains(",29,30,31,32 -s 512K"), "{grid}");
    }
}

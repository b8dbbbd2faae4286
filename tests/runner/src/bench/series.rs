// SPDX-License-Identifier: GPL-2.0-only

//! Lists the netgauge runs of the benchmark, and the figures that are read from each run.

use super::figures::Reading;
use super::link::Link;
use super::{between_ends, over};

/// netgauge's names for the transports that are measured with small messages.
pub const TRANSPORTS: [&str; 5] = ["tcp", "udp", "raw", "edp", "esp"];
/// The transports that are measured with a polled dialogue.
const POLLED: [&str; 7] = ["tcp", "udp", "raw", "edp", "edp-ring", "esp", "esp-ring"];
/// The transports that are measured with streams.
pub const STREAMS: [&str; 2] = ["tcp", "esp"];

/// Transports that are measured with long blocks: streams whose sends copy, and the same streams
/// with sends that do not copy.
const BLOCKS: [&str; 6] = [
    "tcp",
    "esp",
    "tcp-zerocopy",
    "esp-zerocopy",
    "tcp-splice",
    "esp-splice",
];

/// One run of netgauge.
#[derive(Debug)]
pub struct Series {
    /// The link that the run needs.
    pub link: Link,
    /// The transports that the run measures.
    pub transports: &'static [&'static str],
    /// Pattern and sizes, as arguments of netgauge. If the subcommand `polled` is used, it comes
    /// first.
    pub pattern: &'static str,
    /// Number of tests of each size.
    pub tests: u32,
    /// Number of warm-up rounds before the tests.
    pub warmup: u32,
    /// The figures that are read from the run's report, by name.
    pub figures: &'static [(&'static str, Reading)],
}

/// Half a round trip of one byte.
pub const MESSAGE: &str = "message-1";
/// Time per byte of a stream that is written in blocks of 64 KiB.
pub const BYTE: &str = "byte";

/// All runs, in order.
pub const SERIES: &[Series] = &[
    Series {
        link: Link::Usual,
        transports: &TRANSPORTS,
        pattern: "-x one-one -s 1,64,1024",
        tests: 1000,
        warmup: 100,
        figures: &[
            (MESSAGE, Reading::HalfRoundTrip(1)),
            ("p99-message-1", Reading::Percentile99(1)),
            ("message-64", Reading::HalfRoundTrip(64)),
            ("message-1024", Reading::HalfRoundTrip(1024)),
        ],
    },
    Series {
        link: Link::Usual,
        transports: &STREAMS,
        pattern: "-x one-one -s 2K,4K,8K,16K",
        tests: 200,
        warmup: 20,
        figures: &[
            ("message-2K", Reading::HalfRoundTrip(2 << 10)),
            ("message-4K", Reading::HalfRoundTrip(4 << 10)),
            ("message-8K", Reading::HalfRoundTrip(8 << 10)),
            ("message-16K", Reading::HalfRoundTrip(16 << 10)),
        ],
    },
    Series {
        link: Link::Usual,
        transports: &STREAMS,
        pattern: "-x flood -s 1",
        tests: 10_000,
        warmup: 1000,
        figures: &[("flood-1", Reading::Flood)],
    },
    Series {
        link: Link::Usual,
        transports: &POLLED,
        pattern: "polled -s 1,4K",
        tests: 1000,
        warmup: 100,
        figures: &[
            ("polled-1", Reading::HalfRoundTrip(1)),
            ("polled-4K", Reading::HalfRoundTrip(4 << 10)),
        ],
    },
    Series {
        link: Link::Usual,
        transports: &TRANSPORTS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[(BYTE, Reading::Byte)],
    },
    Series {
        link: Link::Usual,
        transports: &BLOCKS,
        pattern: "-x bulk --block 1M -s 16M",
        tests: 3,
        warmup: 1,
        figures: &[("byte-1M", Reading::Byte)],
    },
    Series {
        link: Link::Jumbo,
        transports: &TRANSPORTS,
        pattern: "-x one-one -s 1",
        tests: 1000,
        warmup: 100,
        figures: &[("jumbo-message-1", Reading::HalfRoundTrip(1))],
    },
    Series {
        link: Link::Jumbo,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("jumbo-byte", Reading::Byte)],
    },
    Series {
        link: Link::Cut,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("cut-byte", Reading::Byte)],
    },
    Series {
        link: Link::Joined,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("joined-byte", Reading::Byte)],
    },
    Series {
        link: Link::Summed,
        transports: &["esp"],
        pattern: "-x one-one -s 1",
        tests: 1000,
        warmup: 100,
        figures: &[("checksum-message-1", Reading::HalfRoundTrip(1))],
    },
    Series {
        link: Link::SummedJoined,
        transports: &["esp"],
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("checksum-joined-byte", Reading::Byte)],
    },
    Series {
        link: Link::Virtio,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("virtio-byte", Reading::Byte)],
    },
    Series {
        link: Link::VirtioJoined,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 3,
        warmup: 1,
        figures: &[("virtio-joined-byte", Reading::Byte)],
    },
    Series {
        link: Link::Lossy,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 9,
        warmup: 1,
        figures: &[("lossy-byte", Reading::Byte)],
    },
    Series {
        link: Link::Late,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 9,
        warmup: 1,
        figures: &[("late-byte", Reading::Byte)],
    },
    Series {
        link: Link::VirtioLossy,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 9,
        warmup: 1,
        figures: &[("virtio-lossy-byte", Reading::Byte)],
    },
    Series {
        link: Link::VirtioLate,
        transports: &STREAMS,
        pattern: "-x bulk -s 8M",
        tests: 9,
        warmup: 1,
        figures: &[("virtio-late-byte", Reading::Byte)],
    },
];

/// Half a round trip of one byte on each of 100 connections in turn. The program `scenarios`
/// measures this figure, because netgauge has only one connection.
pub const TURNS: &str = "turns-100";

impl Series {
    /// Returns netgauge's arguments for this run.
    pub fn arguments(&self) -> String {
        self.with(self.tests)
    }

    /// Returns netgauge's arguments for a first run, which has fewer tests and whose figures are
    /// not used.
    pub fn first_arguments(&self) -> String {
        self.with((self.tests / 5).max(1))
    }

    fn with(&self, tests: u32) -> String {
        let way = match self.pattern.starts_with("polled") {
            true => between_ends(self.link),
            false => over(self.link),
        };
        format!(
            "{} -m {} -c {tests} --warmup {} {way}",
            self.pattern,
            self.transports.join(","),
            self.warmup
        )
    }
}

/// Prefixes of the names of figures that count a share of another figure: the share of the kernel
/// and the share of softirqs, see [`super::shares`].
pub const SHARES: [&str; 2] = ["kernel-", "softirq-"];

/// The requested figures: all figures if this list is empty, otherwise the figures whose names
/// match one of the patterns in the list.
#[derive(Clone, Debug, Default)]
pub struct Wanted(pub Vec<String>);

impl Wanted {
    /// Returns whether all figures are requested.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the figure `name` is requested. Shares take long to count, so a pattern
    /// matches a share only if it begins with the share's prefix.
    pub fn is(&self, name: &str) -> bool {
        let share = SHARES.iter().find(|part| name.starts_with(**part));
        let is_meant = |pattern: &&String| share.is_none_or(|part| pattern.starts_with(part));
        let mut patterns = self.0.iter().filter(is_meant);
        self.is_all() || patterns.any(|pattern| matches(pattern, name))
    }

    /// Returns whether a share of the figure `name` is requested, see [`super::shares`].
    pub fn is_share(&self, name: &str) -> bool {
        let mut shares = SHARES.iter().map(|part| format!("{part}{name}"));
        shares.any(|share| self.is(&share))
    }

    /// Returns whether the run is needed for the requested figures.
    pub fn needs(&self, series: &Series) -> bool {
        let mut names = series.figures.iter().map(|(name, _)| *name);
        names.any(|name| {
            let shared = series.link == Link::Usual && [MESSAGE, BYTE].contains(&name);
            self.is(name) || (shared && self.is_share(name))
        })
    }
}

/// Returns whether `name` matches `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = name
                .char_indices()
                .map(|(index, _)| index)
                .chain([name.len()]);
            ends.any(|end| matches(rest, &name[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::JUMBO;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("byte", "byte"),
            ("*byte", "byte"),
            ("*byte*", "joined-byte-1M"),
            ("message-*", "message-1"),
            ("*-m*e-1", "jumbo-message-1"),
            ("*", "byte"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("byte", "byte-1M"), ("byte*", "cut-byte"), ("", "byte")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn only_the_runs_with_wanted_figures_are_needed() {
        let needed = |patterns: &[&str]| {
            let wanted = Wanted(patterns.iter().map(|text| (*text).to_owned()).collect());
            SERIES.iter().filter(|series| wanted.needs(series)).count()
        };
        assert_eq!(needed(&[]), SERIES.len());
        assert_eq!(needed(&["nothing"]), 0);
        assert_eq!(needed(&["byte*"]), 2);
        assert_eq!(needed(&["cut-byte", "joined-byte"]), 2);
        // `kernel-message-1` is a share of the figure `message-1`, so the run that measures
        // `message-1` is needed.
        assert_eq!(needed(&["kernel-message-1"]), 1);
        let all_bytes = Wanted(vec!["*byte".to_owned()]);
        assert!(all_bytes.is("cut-byte") && !all_bytes.is_share(BYTE));
    }

    #[test]
    fn names_are_unique_and_a_large_mtu_is_in_them() {
        let mut names: Vec<_> = SERIES.iter().flat_map(|s| s.figures).map(|f| f.0).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for series in SERIES {
            for (name, _) in series.figures {
                let jumbo = series.link == Link::Jumbo;
                assert_eq!(name.starts_with(JUMBO), jumbo, "{name}");
            }
        }
    }
}

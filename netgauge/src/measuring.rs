// SPDX-License-Identifier: MIT OR Apache-2.0

//! The options that say what to measure and how to report it, for all kinds of runs.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use clap::builder::TypedValueParser as _;
use clap::Args;
use sockaddr_en::constants::AF_ENET;

use crate::pattern::PatternInfo;
use crate::report::format::Format;
use crate::sizes::SizeSpec;
use crate::summary::Percent;
use crate::transport::kind::Kind;
use crate::transport::{kinds, SocketOptions};

/// Ethernet type of raw packets, host order: "NG" in ASCII. It is neither in `linux/if_ether.h` nor
/// one of the two experimental types, which EDP and ESP use.
pub const DEFAULT_ETHERTYPE: u16 = 0x4E47;

/// Port of the server's control connection.
pub const DEFAULT_PORT: u16 = 2805;

/// The time to wait for a server that is not up yet, for subcommands that lack option `--wait`.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The value of option -m for all transports.
const ALL: &str = "all";

/// The smallest number that is an Ethernet type and not a length (`ETH_P_802_3_MIN`).
const LEAST_ETHERTYPE: u16 = 0x0600;

/// The maximum of option -g, the number of sizes between a size and its double. With this maximum,
/// a range has every size below a kilobyte.
const MOST_GRADE: u32 = 1000;

/// The headings of groups of options in the help.
pub(crate) const MEASURE: &str = "What to measure";
const REPORT: &str = "The report";
pub(crate) const LINKS: &str = "Links and limits";

/// Options of the measurement and of its report.
#[derive(Clone, Debug, Args)]
pub struct Measuring {
    /// Transports to measure: names separated by commas, or `all`; patterns of many take
    /// tcp, esp, unix and tipc, esp-params only esp
    #[arg(help_heading = MEASURE,
        short = 'm',
        long = "mode",
        value_name = "NAMES",
        default_value = "tcp"
    )]
    pub mode: String,

    /// Message sizes in bytes: from-to, one, or several separated by commas; K, M, G are powers of
    /// 1024 [default: 1-65536; bulk: 16M; flood: 1-1K; setup: 1; recovery: 1,64K; of many:
    /// 64K,256K; loaded-latency: 100,10000; esp-params: 4M]
    #[arg(help_heading = MEASURE, short = 's', long = "size", value_name = "SIZES")]
    pub size: Option<SizeSpec>,

    /// Tests per size, or rounds [default: 100; bulk: 10; flood: 10000; setup, recovery: 1000;
    /// of many: 20; bisection: 50 pairings; loaded-latency: 300 calls; esp-params: 5]
    #[arg(help_heading = MEASURE, short = 'c', long = "tests", value_name = "NUMBER")]
    pub tests: Option<NonZeroU32>,

    /// Sizes per doubling in a range of sizes, at most 1000
    #[arg(help_heading = MEASURE,
        short = 'g',
        long = "grade",
        value_name = "NUMBER",
        default_value = "1",
        value_parser = parse_grade
    )]
    pub grade: NonZeroU32,

    /// Rounds before the tests of each size, not counted (bulk: at most 1) [default: 10;
    /// of many: 1]
    #[arg(help_heading = MEASURE, long, value_name = "NUMBER")]
    pub warmup: Option<u32>,

    /// Form of the report
    #[arg(help_heading = REPORT, long, value_enum, default_value = "table")]
    pub format: Format,

    /// Percentiles of the times, such as 50,99,99.9
    #[arg(help_heading = REPORT, long, value_name = "NUMBERS", value_delimiter = ',',
          default_value = "90,95,99")]
    pub percentiles: Vec<Percent>,

    /// Milliseconds after which a datagram counts as lost
    #[arg(help_heading = LINKS, long, value_name = "MS", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..).map(milliseconds))]
    pub loss_timeout: Duration,

    /// Seconds of silence after which a stream is given up
    #[arg(help_heading = LINKS, long, value_name = "SECONDS", default_value = "10",
          value_parser = clap::value_parser!(u16).range(1..).map(seconds))]
    pub give_up: Duration,

    /// Ethernet type of raw packets
    #[arg(help_heading = LINKS, long, value_name = "TYPE", default_value = "0x4E47", value_parser = parse_ethertype)]
    pub ethertype: u16,

    /// Family number of PF_ENET, if the module was loaded with a different number
    #[arg(help_heading = LINKS, long, value_name = "NUMBER", default_value_t = AF_ENET)]
    pub family: u16,

    /// Options of the transports' sockets.
    #[command(flatten)]
    pub sockets: SocketOptions,
}

impl Measuring {
    /// Returns the transports that option -m names.
    ///
    /// # Errors
    ///
    /// Fails if a transport is unknown.
    pub fn transports(&self) -> Result<Vec<&'static Kind>> {
        match &self.mode[..] {
            ALL => Ok(kinds::all()),
            names => names.split(',').map(kinds::find).collect(),
        }
    }

    /// Returns the sizes of option -s, or else the default sizes of `pattern`, in ascending order.
    pub fn sizes(&self, pattern: &PatternInfo) -> Vec<u64> {
        let sizes = self.size.clone().unwrap_or_else(|| pattern.sizes());
        sizes.expand(self.grade)
    }

    /// Returns the number of tests per size: the value of option -c, or else the default of
    /// `pattern`.
    pub fn tests(&self, pattern: &PatternInfo) -> u32 {
        self.tests.map_or(pattern.tests, NonZeroU32::get)
    }

    /// Returns whether option -m names all transports, so that the run leaves out transports that
    /// do not work here.
    pub fn is_all(&self) -> bool {
        self.mode == ALL
    }
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(number.into())
}

/// Returns a duration of `number` seconds.
pub(crate) fn seconds(number: u16) -> Duration {
    Duration::from_secs(number.into())
}

fn parse_grade(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok();
    number
        .filter(|number| number.get() <= MOST_GRADE)
        .ok_or_else(|| format!("write a number from 1 to {MOST_GRADE}"))
}

fn parse_ethertype(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|number| *number >= LEAST_ETHERTYPE)
        .ok_or_else(|| format!("write a number from {LEAST_ETHERTYPE:#06x} to 0xffff"))
}

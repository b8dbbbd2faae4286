// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet ping`: sends echo requests to a host, and diagnoses why none is answered.

mod diagnosis;
mod echo;
mod target;
mod verdict;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use clap::Args;
use sockaddr_en::constants::AF_ENET;
use sockaddr_en::{Address, EdpSocket, FamilyMissing};

use crate::interfaces::Frames;
use crate::{module, output, proc_file};
use echo::{Echo, Plan, LEAST_SIZE, MOST_SIZE};
use target::{Named, Resolved};

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub struct PingArgs {
    /// Ethernet address, IP address or name of the host; %INTERFACE may follow
    host: String,

    /// Number of requests to send; 0 to send without end
    #[arg(
        short,
        long,
        value_name = "NUMBER",
        default_value_t = 4,
        allow_negative_numbers = true
    )]
    count: u32,

    /// Seconds from one request to the next
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds,
          allow_negative_numbers = true)]
    interval: Duration,

    /// Bytes of a request
    #[arg(short, long, value_name = "BYTES", default_value_t = 56,
          allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(i64::from(LEAST_SIZE)..=i64::from(MOST_SIZE)))]
    size: u16,

    /// Seconds to wait for the last answer
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "1", value_parser = seconds,
          allow_negative_numbers = true)]
    timeout: Duration,

    /// Interface that leads to the host; an Ethernet address needs one
    #[arg(short = 'I', long, value_name = "NAME")]
    interface: Option<String>,

    /// Number of the socket family, if the module was loaded with a different number
    #[arg(long, value_name = "NUMBER", default_value_t = AF_ENET, allow_negative_numbers = true)]
    family: u16,
}

/// Exit status if no answer came.
const UNANSWERED: u8 = 1;

/// Exit status if an error ended the ping before any answer came.
const FAILED: u8 = 2;

impl PingArgs {
    /// Sends the requests. Prints the answers and a summary and, if no answer came, the cause.
    ///
    /// # Errors
    /// If the host cannot be pinged: the module is not loaded, an interface cannot send, or a
    /// request is too large for the host.
    pub fn run(&self) -> Result<ExitCode> {
        sockaddr_en::set_family(self.family);
        // An invalid host argument is reported first, even if the module is not loaded.
        let host = Named::parse(&self.host, self.interface.as_deref())?;
        let socket = EdpSocket::bind(Address::any(0)).map_err(no_socket)?;
        let target = match target::resolve(&host)? {
            Resolved::Found(target) => target,
            Resolved::Silent(reason) => {
                output::message(format_args!("{reason}"));
                return Ok(ExitCode::from(UNANSWERED));
            }
        };
        output::print(&format!(
            "asking {target} for echoes of {} bytes by EDP\n",
            self.size
        ))?;
        let before = Frames::of(&target.interface.name);
        let plan = Plan {
            count: self.count,
            interval: self.interval,
            size: self.size,
            timeout: self.timeout,
        };
        let (tally, error) = Echo::new(&socket, &target, plan).run();
        let failed = error.is_some();
        match error {
            // No request was sent, so no summary is printed.
            Some(error) if tally.sent + tally.refused == 0 => return Err(error),
            Some(error) => output::message(format_args!("{error:#}")),
            None => {}
        }
        let printed = output::print(&format!("{tally}\n"));
        if failed && printed.is_err() {
            // The first error has been reported.
            return Ok(ExitCode::from(FAILED));
        }
        printed?;
        if !tally.times.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        if failed {
            return Ok(ExitCode::from(FAILED));
        }
        // If no request was sent because a signal arrived early, there is nothing to explain.
        if tally.sent + tally.refused > 0 {
            if let Some(error) = echo::too_long(&target, self.size) {
                return Err(error);
            }
            let evidence = diagnosis::examine(&target, &tally, before);
            output::message(format_args!("{evidence}"));
        }
        Ok(ExitCode::from(UNANSWERED))
    }
}

fn no_socket(error: io::Error) -> anyhow::Error {
    if !FamilyMissing::is(&error) {
        return anyhow!(error).context("opening an EDP socket");
    }
    if proc_file::module_is_loaded() {
        return anyhow!(
            "the module is loaded here, but not with family {}: \
             give --family the number that it was loaded with (`modprobe --showconfig | grep enet`)",
            sockaddr_en::family()
        );
    }
    anyhow!(module::missing())
}

fn seconds(text: &str) -> Result<Duration> {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds: f64 = text
        .parse()
        .with_context(|| format!("`{text}` is not a number of seconds"))?;
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    ensure!(
        (SHORTEST..=LONGEST).contains(&time),
        "`{text}` is out of range: write a number from 0.001 to 86400"
    );
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_range() {
        assert_eq!(seconds("0.2").unwrap(), Duration::from_millis(200));
        for text in ["0", "-1", "nan", "inf", "1e9", "", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        ping: PingArgs,
    }

    #[test]
    fn a_number_out_of_range_is_told_with_the_range() {
        for (option, value, words) in [
            ("--size", "65529", "5..=32767"),
            ("--size", "-1", "5..=32767"),
            ("-c", "-1", "--count"),
            ("-i", "-0.5", "0.001 to 86400"),
            ("-W", "-1", "0.001 to 86400"),
        ] {
            let line = ["ping", option, value, "10.0.0.2"];
            let error = <Line as clap::Parser>::try_parse_from(line)
                .unwrap_err()
                .to_string();
            assert!(error.contains(words) && !error.contains("'-- "), "{error}");
        }
        let line = ["ping", "-s", "32767", "10.0.0.2"];
        assert!(<Line as clap::Parser>::try_parse_from(line).is_ok());
    }

    #[test]
    fn a_missing_module_is_explained() {
        let missing = io::Error::other(FamilyMissing { family: 28 });
        let told = no_socket(missing).to_string();
        assert!(
            told.contains("is not loaded") || told.contains("--family"),
            "{told}"
        );
        let other = io::Error::from_raw_os_error(libc::EMFILE);
        let told = no_socket(other).to_string();
        assert_eq!(told, "opening an EDP socket");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The plan of a pattern between more than two hosts, from the coordinator's options.

use anyhow::{bail, ensure, Result};

use super::args::{ManyArgs, Numbers, Options};
use crate::group::net::orders::EspParameters;
use crate::group::net::orders::Opening;
use crate::group::net::rounds::MOST_BYTES;
use crate::pattern::{PatternInfo, LOADED_LATENCY};
use crate::transport::kind::Kind;
use crate::transport::kinds::{self, stream_kind};

/// A transport, with its congestion control.
#[derive(Clone, Debug)]
pub struct Medium {
    /// The transport.
    pub kind: &'static Kind,
    /// Name of TCP's congestion control; without a name, the system's default.
    pub congestion: Option<String>,
    /// Whether `-m all` chose this transport. The run leaves out such a transport if it does not
    /// work.
    pub optional: bool,
}

impl Medium {
    /// Returns the transport that participants open, and its congestion control.
    pub fn opening(&self) -> Opening {
        Opening {
            transport: self.kind.name.to_owned(),
            congestion: self.congestion.clone(),
        }
    }
}

/// The values of ESP's two parameters, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// The window during bulk transfer, packets.
    pub burst_length: Vec<u32>,
    /// The number of packets that make an acknowledgement due.
    pub packets_to_ack: Vec<u32>,
}

impl Grid {
    /// Returns the pairs in which `packets_to_ack` is at most `burst_length`, in the order in which
    /// they are measured.
    pub fn cells(&self) -> impl Iterator<Item = EspParameters> + '_ {
        self.burst_length.iter().flat_map(|&burst_length| {
            let acks = self.packets_to_ack.iter();
            let in_range = acks.filter(move |ack| **ack <= burst_length);
            in_range.map(move |&packets_to_ack| EspParameters {
                burst_length,
                packets_to_ack,
            })
        })
    }
}

/// The roles of a pattern's participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// One server with clients, measured with several numbers of clients.
    Clients,
    /// All participants do the same.
    Alike,
    /// One server with a fixed number of clients, measured with several values of ESP's parameters.
    Grid,
}

/// The plan of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The transports to measure.
    pub media: Vec<Medium>,
    /// The numbers of clients to measure with. Each is at least 1 and below the number of
    /// participants.
    pub clients: Vec<usize>,
    /// The numbers of bytes that each client sends in a round, ascending.
    pub sizes: Vec<u64>,
    /// The number of rounds per size; in a bisection, the number of pairings per size.
    pub tests: u32,
    /// The number of warm-up rounds before the tests of each size; in a bisection, before the test
    /// of each pairing.
    pub warmup: u32,
    /// In pattern esp-params, the values of ESP's two parameters to measure with.
    pub grid: Grid,
    /// The index of the server. If it is `None`, the server is chosen at random.
    pub server: Option<usize>,
    /// The seed of the choice of the server, or of the pairs.
    pub seed: u64,
    /// In pattern loaded-latency, the time from a reply to the next call, milliseconds.
    pub pause_ms: u32,
    /// Rate of the server's link, or of each host's link, bit/s.
    pub rate: Option<u64>,
}

impl Plan {
    /// Plans a measurement. `roles` are the roles of the pattern's participants.
    ///
    /// # Errors
    ///
    /// Fails if the options conflict.
    pub fn new(
        options: &Options,
        pattern: &PatternInfo,
        roles: Roles,
        participants: usize,
    ) -> Result<Self> {
        let (name, many) = (pattern.name, &options.group.many);
        let sizes = options.measuring.sizes(pattern);
        if let Some(size) = sizes.iter().find(|size| **size > MOST_BYTES) {
            bail!("size {size} is above what a client has in memory, {MOST_BYTES} bytes: lower -s");
        }
        match roles {
            Roles::Grid => ensure!(
                many.congestion.is_empty(),
                "--congestion is for tcp, not for esp-params"
            ),
            Roles::Clients | Roles::Alike => {
                ensure!(many.burst.is_none(), "--burst is for esp-params");
                ensure!(many.ack.is_none(), "--ack is for esp-params");
            }
        }
        ensure!(
            many.pause.is_none() || name == LOADED_LATENCY,
            "--pause is for {LOADED_LATENCY}"
        );
        for (given, option) in [
            (many.clients.is_some(), "--clients"),
            (many.server_index.is_some(), "--server-index"),
        ] {
            ensure!(
                roles != Roles::Alike || !given,
                "{name} has no server: all take part, without {option}"
            );
        }
        ensure!(
            participants >= 2,
            "{name} needs two participants: {participants} is named"
        );
        let clients = clients(many, roles, participants)?;
        let (media, grid) = match roles {
            Roles::Grid => {
                ensure!(
                    sizes.len() == 1,
                    "esp-params measures one size: give -s one"
                );
                (vec![of_esp()?], grid(many)?)
            }
            Roles::Clients | Roles::Alike => (media(options)?, Grid::default()),
        };
        Ok(Self {
            media,
            clients,
            sizes,
            tests: options.measuring.tests(pattern),
            warmup: options.measuring.warmup.unwrap_or(1),
            grid,
            server: server(options, participants)?,
            seed: options.group.seed.unwrap_or_else(|| fastrand::u64(..)),
            pause_ms: many.pause.unwrap_or(0),
            rate: options.group.rate.map(|rate| rate.0),
        })
    }
}

fn clients(many: &ManyArgs, roles: Roles, participants: usize) -> Result<Vec<usize>> {
    let numbers = many.clients.as_ref().map(|numbers| &numbers.0[..]);
    let clients: Vec<usize> = match (roles, numbers) {
        (Roles::Grid, None) => vec![1],
        (_, None) => vec![participants - 1],
        (Roles::Grid, Some([_, _, ..])) => {
            bail!("esp-params measures one number of clients: give --clients one")
        }
        (_, Some(numbers)) => numbers.iter().map(|count| *count as usize).collect(),
    };
    for count in &clients {
        ensure!(
            *count < participants,
            "{count} clients and their server are {} participants: {participants} are named",
            count + 1
        );
    }
    Ok(clients)
}

fn grid(many: &ManyArgs) -> Result<Grid> {
    let or = |numbers: &Option<Numbers>, default: &[u32]| match numbers {
        Some(numbers) => numbers.0.clone(),
        None => default.to_vec(),
    };
    let grid = Grid {
        burst_length: or(&many.burst, &[1, 2, 4, 8, 12, 16, 21, 24, 32, 48, 64]),
        packets_to_ack: or(&many.ack, &[1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48]),
    };
    ensure!(
        grid.cells().next().is_some(),
        "every value of --ack is above every one of --burst: no packet would ever be acknowledged in time"
    );
    Ok(grid)
}

/// Returns ESP, the transport that has the parameters of [`Grid`].
fn of_esp() -> Result<Medium> {
    Ok(Medium {
        kind: kinds::find("esp")?,
        congestion: None,
        optional: false,
    })
}

/// Returns the transports of option -m. A transport whose congestion control can be chosen appears
/// once for each congestion control that the options name.
fn media(options: &Options) -> Result<Vec<Medium>> {
    let chosen = &options.group.many.congestion;
    let all = options.measuring.is_all();
    let mut kinds = options.measuring.transports()?;
    kinds.retain(|kind| !all || kind.streams.is_some());
    let mut media = Vec::new();
    for kind in kinds {
        stream_kind(kind)?;
        let choice = chosen.iter().filter(|_| kind.congestion);
        let mut names: Vec<Option<String>> = choice.cloned().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        media.extend(names.into_iter().map(|congestion| Medium {
            // If the options name a congestion control, the transport is not optional.
            optional: all && congestion.is_none(),
            kind,
            congestion,
        }));
    }
    ensure!(
        chosen.is_empty() || media.iter().any(|medium| medium.congestion.is_some()),
        "--congestion is for tcp: add it to -m"
    );
    Ok(media)
}

/// Returns the server's index, if the options fix it. With --connect, the server is participant 0.
fn server(options: &Options, participants: usize) -> Result<Option<usize>> {
    let index = options.group.many.server_index;
    if let Some(index) = index {
        ensure!(
            index < participants,
            "there is no participant {index}: the last one is {}",
            participants.saturating_sub(1)
        );
    }
    Ok(index.or(options.connect.as_ref().map(|_| 0)))
}

/// Returns the indices of the server and of the clients. If `server` is `None`, one of the first
/// `clients + 1` participants is chosen at random, the same one for every transport. The clients
/// are the first `clients` of the other participants.
pub fn cast(server: Option<usize>, seed: u64, clients: usize) -> (usize, Vec<usize>) {
    let server = server.unwrap_or_else(|| {
        // The seed includes the number of clients. So the choice depends on this number, but not on
        // the order of the measurements.
        fastrand::Rng::with_seed(seed.wrapping_add(clients as u64)).usize(0..=clients)
    });
    let others = (0..).filter(|index| *index != server);
    (server, others.take(clients).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_server_is_one_of_the_first_and_the_others_are_clients() {
        let mut servers = BTreeSet::new();
        for seed in 0..200 {
            for clients in [1, 2, 32] {
                let (server, others) = cast(None, seed, clients);
                assert!(server <= clients);
                let mut all = others.clone();
                all.push(server);
                all.sort_unstable();
                assert_eq!(all, (0..=clients).collect::<Vec<_>>());
                assert_eq!(cast(None, seed, clients), (server, others));
                if clients == 2 {
                    servers.insert(server);
                }
            }
        }
        assert_eq!(servers.len(), 3, "each can be drawn");
    }

    #[test]
    fn a_fixed_server_has_the_first_of_the_others() {
        assert_eq!(cast(Some(0), 1, 2), (0, vec![1, 2]));
        assert_eq!(cast(Some(1), 1, 3), (1, vec![0, 2, 3]));
        assert_eq!(cast(Some(9), 1, 2), (9, vec![0, 1]));
    }

    #[test]
    fn the_grid_has_no_pair_out_of_range() {
        let grid = Grid {
            burst_length: vec![1, 4, 8],
            packets_to_ack: vec![1, 2, 6, 9],
        };
        let cells: Vec<_> = grid
            .cells()
            .map(|cell| (cell.burst_length, cell.packets_to_ack))
            .collect();
        assert_eq!(cells, [(1, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 6)]);
    }
}

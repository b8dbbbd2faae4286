// SPDX-License-Identifier: GPL-2.0-only

//! Compares ESP and EDP with the kernel's own TCP and UDP. Each behaviour (a test) is written once
//! and runs over both protocols, and the program must see the same results.
//!
//! For each call, a behaviour adds a note to its [`Trace`]. A note has a label and the call's
//! result: numbers, errnos, readiness or bytes. The harness compares the two traces note by note. A
//! deliberate difference is declared with the behaviour, and `docs/sockets.md` gives its reason.
//! The scenario fails if a difference is not declared, or if a declared difference does not occur.

mod datagrams;
mod epoll;
mod mapped;
mod moments;
mod prelude;
mod records;
mod second;
mod side;
mod signals;
mod sockets;
mod streams;
mod trace;

#[cfg(test)]
mod document;

pub use side::Side;
pub use trace::{events_text, Shown, Trace};

use anyhow::{ensure, Context};

use guest::harness::{note, Outcome, Scenario, Work, REPORT};
use guest::knobs::Knobs;
use guest::lab::{Lab, Wiring};
use guest::mapped::make_known;
use guest::socket::Socket;

/// The pair of protocols over which a behaviour (a test) runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP and ESP.
    Stream,
    /// UDP and EDP.
    Datagram,
    /// The `SOCK_SEQPACKET` sockets of `AF_UNIX` and of ESP. Both carry records.
    Record,
    /// SCTP and ESP. SCTP carries messages, and ESP carries records.
    Message,
}

impl Kind {
    /// Returns whether sockets of this kind connect to a listener.
    pub fn connects(self) -> bool {
        self != Self::Datagram
    }
}

/// The family of the sockets that one side of a comparison makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The families of the kernel's own protocols: TCP, UDP, `AF_UNIX`, SCTP.
    Inet,
    /// The family of the module's protocols: ESP, EDP.
    Enet,
    /// An Internet family with the protocol `IPPROTO_ENET`: streams that the module carries.
    Mapped,
}

/// A deliberate difference between two protocols in one note, which is the result of one call.
/// `docs/sockets.md` gives the reason of each difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The label of the note in which the protocols differ.
    pub what: &'static str,
    /// The value that the note has over the kernel's own protocol.
    pub inet: &'static str,
    /// The value that the note has over ESP or EDP.
    pub enet: &'static str,
}

impl Difference {
    /// Declares that the note `what` has the value `inet` over TCP or UDP, and `enet` over ESP or
    /// EDP.
    const fn new(what: &'static str, inet: &'static str, enet: &'static str) -> Self {
        Self { what, inet, enet }
    }
}

/// A behaviour: a test that runs over two protocols, and whose results are compared.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    name: &'static str,
    /// The number of seconds after which the comparison fails.
    limit: u64,
    kind: Kind,
    play: Play,
    differences: &'static [Difference],
}

impl Behaviour {
    const fn new(name: &'static str, kind: Kind, play: Play) -> Self {
        Self {
            name,
            limit: 60,
            kind,
            play,
            differences: &[],
        }
    }

    /// Makes a behaviour (a test) about streams. It runs over TCP and over ESP, and the results are
    /// compared.
    pub const fn stream(name: &'static str, play: PlayOnSide) -> Self {
        Self::new(name, Kind::Stream, Play::OnSide(play))
    }

    /// Makes a behaviour (a test) about datagram sockets. It runs over UDP and over EDP, and the
    /// results are compared.
    pub const fn datagram(name: &'static str, play: PlayOnSide) -> Self {
        Self::new(name, Kind::Datagram, Play::OnSide(play))
    }

    /// Makes a behaviour (a test) that gets the two ends of a stream. It runs over TCP and over
    /// ESP.
    pub const fn connected_streams(name: &'static str, play: PlayConnected) -> Self {
        Self::new(name, Kind::Stream, Play::Connected(play))
    }

    /// Makes a behaviour (a test) that gets two datagram sockets, which are connected to each
    /// other. It runs over UDP and over EDP.
    pub const fn connected_datagrams(name: &'static str, play: PlayConnected) -> Self {
        Self::new(name, Kind::Datagram, Play::Connected(play))
    }

    /// Makes a behaviour (a test) about records. It runs over `AF_UNIX` and over ESP, and the
    /// results are compared.
    pub const fn record(name: &'static str, play: PlayOnSide) -> Self {
        Self::new(name, Kind::Record, Play::OnSide(play))
    }

    /// Makes a behaviour (a test) that runs over SCTP with messages and over ESP with records. The
    /// results are compared.
    pub const fn message(name: &'static str, play: PlayOnSide) -> Self {
        Self::new(name, Kind::Message, Play::OnSide(play))
    }

    /// Returns this behaviour with `differences`, the deliberate differences between its two
    /// protocols.
    pub const fn differs(self, differences: &'static [Difference]) -> Self {
        Self {
            differences,
            ..self
        }
    }

    /// Returns this behaviour with a deadline of `limit` seconds.
    pub const fn within(self, limit: u64) -> Self {
        Self { limit, ..self }
    }
}

/// Defines `ALL`, the list of a file's behaviours, like [`guest::scenarios`] for scenarios:
/// `stream stream_connect = connect, within(90), differs(&[...]);`
macro_rules! behaviours {
    ($($lines:tt)*) => {
        guest::table! { $crate::Behaviour: $($lines)* }
    };
}
pub(crate) use behaviours;

/// Returns all behaviours as scenarios. Behaviours of streams occur again for mapped sockets: over
/// TCP, over ESP, and over ESP between addresses of IPv6.
pub fn all() -> Vec<&'static Scenario> {
    comparisons().map(Comparison::scenario).collect()
}

fn comparisons() -> impl Iterator<Item = Comparison> {
    let own = || {
        [sockets::ALL, streams::ALL, datagrams::ALL, &[records::ALL]]
            .into_iter()
            .flatten()
            .copied()
            .flatten()
    };
    let paths = [Path::Tcp, Path::Esp, Path::Esp6].into_iter();
    let mapped = paths.flat_map(move |path| own().filter_map(move |one| mapped(one, path)));
    let own = own().map(|behaviour| Comparison {
        name: behaviour.name.into(),
        behaviour,
        path: None,
        differences: behaviour.differences,
    });
    own.chain(mapped)
}

/// The protocol that carries the connections of mapped sockets, and how the hosts come to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// TCP, because the hosts do not use ESP.
    Tcp,
    /// ESP, because each host knows that the other one accepts it.
    Esp,
    /// ESP, for sockets of IPv6.
    Esp6,
}

/// Returns the comparison of the stream behaviour `behaviour` over TCP and over mapped sockets.
/// Returns `None` if the behaviour is not about streams, or never ends when ESP is tried first.
fn mapped(behaviour: &'static Behaviour, path: Path) -> Option<Comparison> {
    let name = behaviour.name;
    if behaviour.kind != Kind::Stream {
        return None;
    }
    if path != Path::Tcp && mapped::WITHOUT_CALLS.contains(&name) {
        return None;
    }
    let (name, differences) = match path {
        Path::Tcp => (format!("mapped_tcp_{name}"), &[][..]),
        Path::Esp => (format!("mapped_esp_{name}"), mapped::differences(name)),
        Path::Esp6 => (format!("mapped_esp6_{name}"), mapped::differences(name)),
    };
    Some(Comparison {
        name,
        behaviour,
        path: Some(path),
        differences,
    })
}

/// A behaviour (a test), and the two protocols over which it runs.
#[derive(Debug)]
struct Comparison {
    name: String,
    behaviour: &'static Behaviour,
    /// The protocol that carries the connections of mapped sockets; `None` for other sockets.
    path: Option<Path>,
    differences: &'static [Difference],
}

impl Comparison {
    /// Returns the comparison as a scenario, which lives as long as the program.
    fn scenario(self) -> &'static Scenario {
        let comparison: &'static Self = Box::leak(Box::new(self));
        let scenario = Scenario::work(&comparison.name, comparison);
        Box::leak(Box::new(scenario.within(comparison.behaviour.limit)))
    }
}

impl Work for Comparison {
    fn run(&self) -> Outcome {
        let &Behaviour { kind, play, .. } = self.behaviour;
        let lab = || -> anyhow::Result<Lab> {
            let lab = Lab::new(Wiring::Direct).context("setting up the lab")?;
            lab.give_ip_addresses()?;
            Ok(lab)
        };
        let Some(path) = self.path else {
            let lab = lab()?;
            let family = Family::Enet;
            compare([&lab, &lab], (kind, family, false), play, self.differences)?;
            return lab.await_no_sockets();
        };
        let (tcp, mapped) = (lab()?, lab()?);
        match path {
            Path::Tcp => {
                for host in [&mapped.a, &mapped.b] {
                    Knobs(&host.namespace).set("mapped", 0)?;
                }
            }
            Path::Esp | Path::Esp6 => make_known(&mapped)?,
        }
        let v6 = path == Path::Esp6;
        if v6 {
            for lab in [&tcp, &mapped] {
                lab.give_ip6_addresses()?;
                lab.give_ip6_neighbours()?;
            }
        }
        // Each of the two kinds of sockets has a lab of its own, since TCP keeps a port in use
        // after its connection has ended.
        let sides = (Kind::Stream, Family::Mapped, v6);
        compare([&tcp, &mapped], sides, play, self.differences)?;
        mapped.await_no_sockets()
    }
}

/// The function of a behaviour (a test) that makes its own sockets.
pub type PlayOnSide = fn(&Side<'_>, &Trace) -> Outcome;

/// Two connected sockets, of which the first is on host `a`. Of two streams, the first is the
/// client's end.
pub type Pair = (Socket, Socket);

/// The function of a behaviour (a test) that gets two connected sockets.
pub type PlayConnected = fn(&Trace, Pair) -> Outcome;

/// How a behaviour, which is a test, gets its sockets.
#[derive(Clone, Copy, Debug)]
pub enum Play {
    /// The behaviour makes its sockets.
    OnSide(PlayOnSide),
    /// The behaviour is called with connected sockets.
    Connected(PlayConnected),
}

impl Play {
    fn on(self, side: &Side<'_>, trace: &Trace) -> Outcome {
        match self {
            Self::OnSide(play) => play(side, trace),
            Self::Connected(play) => play(trace, side.pair(7)?),
        }
    }
}

/// Runs a behaviour on both sides, one after the other, and compares the traces. Both sides may use
/// the same lab. The sockets are of `kind`. Their family is `Inet` on the first side, and `family`
/// on the second. If `v6` is set, the Internet sockets use IPv6.
///
/// # Errors
/// If a call fails that must succeed on both sides, or the traces do not differ as declared.
fn compare(
    [first, second]: [&Lab; 2],
    (kind, family, v6): (Kind, Family, bool),
    play: Play,
    differences: &[Difference],
) -> Outcome {
    let run = |lab, family| -> anyhow::Result<Vec<(String, String)>> {
        let trace = Trace::default();
        let side = Side::new(lab, family, kind, v6);
        let outcome = play
            .on(&side, &trace)
            .with_context(|| format!("over {}", side.name()));
        if outcome.is_err() {
            for (what, value) in trace.notes() {
                note(&format!("{}: {what}: {value}", side.name()));
            }
        }
        outcome?;
        Ok(trace.into_notes())
    };
    let (inet, enet) = (run(first, Family::Inet)?, run(second, family)?);
    let found = differing(&inet, &enet)?;
    for (what, inet, enet) in &found {
        note(&format!("{what}: {inet}, but here {enet}"));
    }
    let mut unexplained = Vec::new();
    let same = |difference: &Difference, found: &(String, String, String)| {
        difference.what == found.0 && difference.inet == found.1 && difference.enet == found.2
    };
    for found in &found {
        if !differences.iter().any(|known| same(known, found)) {
            unexplained.push(format!("{}: {} against {}", found.0, found.1, found.2));
        }
    }
    for known in differences {
        if !found.iter().any(|found| same(known, found)) {
            unexplained.push(format!(
                "{}: the declared difference, {} against {}, is not there",
                known.what, known.inet, known.enet
            ));
        }
    }
    ensure!(unexplained.is_empty(), "{}", unexplained.join("; "));
    note(&match found.len() {
        0 => format!("{REPORT}same, {} notes", inet.len()),
        count => {
            let all: Vec<String> = found
                .iter()
                .map(|(what, inet, enet)| format!("{what}: {inet} / {enet}"))
                .collect();
            let rest = inet.len() - count;
            format!(
                "{REPORT}{rest} notes same, on purpose not: {}",
                all.join("; ")
            )
        }
    });
    Ok(())
}

/// Returns the notes whose values differ between the two traces, which must have the same labels.
fn differing(
    inet: &[(String, String)],
    enet: &[(String, String)],
) -> anyhow::Result<Vec<(String, String, String)>> {
    let mut found = Vec::new();
    for (ours, theirs) in enet.iter().zip(inet) {
        ensure!(
            ours.0 == theirs.0,
            "the behaviour went another way: here it noted {ours:?}, there {theirs:?}"
        );
        if ours.1 != theirs.1 {
            found.push((ours.0.clone(), theirs.1.clone(), ours.1.clone()));
        }
    }
    ensure!(
        inet.len() == enet.len(),
        "the behaviour noted {} things there, {} here",
        inet.len(),
        enet.len()
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter()
            .map(|(what, value)| ((*what).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn equal_traces_do_not_differ() {
        let trace = notes(&[("send", "5"), ("receive", "EAGAIN")]);
        assert!(differing(&trace, &trace).unwrap().is_empty());
    }

    #[test]
    fn differing_values_are_found() {
        let (a, b) = (
            notes(&[("x", "1"), ("y", "2")]),
            notes(&[("x", "1"), ("y", "3")]),
        );
        let found = differing(&a, &b).unwrap();
        assert_eq!(found, [("y".into(), "2".into(), "3".into())]);
    }

    #[test]
    fn traces_with_other_labels_are_an_error() {
        let (a, b) = (notes(&[("x", "1")]), notes(&[("y", "1")]));
        assert!(differing(&a, &b).is_err());
        assert!(differing(&a, &[]).is_err());
    }
}

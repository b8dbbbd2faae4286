// SPDX-License-Identifier: GPL-2.0

//! Plans a connection that a mapped socket opens: whether ESP may carry it, and whether it has to
//! wait until this is known.
//!
//! ESP's SYN is sent only to a host that has answered a query, because hosts with an older module
//! do not understand such a SYN. A connection to any other host waits: first for the host's
//! Ethernet address, if it is unknown, and then for the host's answer. Both waits are bounded.

use super::{
    askers::Awaited,
    policy::Verdict,
    state::{Deadlines, Record},
};
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    datagram::control,
    device::usable,
    edp::{
        peers::{Known, Patience},
        query::Nonce,
    },
    esp,
    net::{
        device::Device,
        inet::{InternetEnd, Objection, StreamCall, Streams},
        namespace::{Net, PerNet},
        rcu,
        route::{self, Hop, NoHop},
        timer,
    },
    pernet::NetState,
    statistics::Statistic,
    stream::sock::Esp,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest wait for a neighbour's Ethernet address, in nanoseconds. It suffices for one
/// repetition of the kernel's request for the address, which follows after a second. TCP's SYN
/// would also wait for the address, and would fail after about three seconds.
const NEIGHBOUR_WAIT: u64 = 1_500_000_000;

/// A connection waits this many times as long for a host's answer if a rule names the host.
const NAMED: u64 = 10;

/// An implementation of stream sockets that serves them as mapped sockets.
pub(super) trait Mapped: Streams<Protocol = Esp, Record = Record> {}

impl<M: Streams<Protocol = Esp, Record = Record>> Mapped for M {}

/// A connection that ESP can try to open.
pub(super) struct Plan {
    pub(super) to: Address,
    pub(super) ends: esp::Mapped,
}

/// The event that a connection waits for before its protocol can be chosen.
pub(super) struct Wait {
    pub(super) awaited: Awaited,
    /// The device that leads to the host.
    ifindex: u32,
    /// The time at which the wait ends, in nanoseconds.
    pub(super) until: u64,
    pub(super) ends: esp::Mapped,
}

impl Wait {
    /// Returns the statistic that counts the connection if it cannot wait and TCP therefore carries
    /// it.
    pub(super) fn reason(&self) -> Statistic {
        match self.awaited {
            Awaited::Answer(_) => Statistic::MappedTcpUnknown,
            Awaited::Neighbour(_) => Statistic::MappedTcpNeighbour,
        }
    }

    /// Returns the destination, or the default address if its Ethernet address is not known.
    pub(super) fn to(&self) -> Address {
        match self.awaited {
            Awaited::Answer(mac) => Address {
                port: self.ends.destination.port,
                ifindex: self.ifindex,
                mac,
            },
            Awaited::Neighbour(_) => Address::default(),
        }
    }

    /// Starts to resolve the neighbour's Ethernet address, if the connection waits for that.
    pub(super) fn resolve(&self, net: &Net) {
        if let Awaited::Neighbour(ip) = self.awaited {
            let section = rcu::Read::enter();
            if let Some(device) = Device::find(net, self.ifindex, &section) {
                route::resolve(device, ip);
            }
        }
    }
}

/// The next step of a connection that ESP may carry.
pub(super) enum Course {
    /// Sends ESP's SYN.
    Open(Plan),
    Wait(Wait),
}

/// A query that is due.
pub(super) struct Query {
    to: Address,
    nonce: Nonce,
    /// The peer's and this host's IP addresses, as ESP's SYN will state them. `None` if this host
    /// has already announced its Ethernet address to the peer.
    names: Option<(IpAddr, IpAddr)>,
}

impl Query {
    /// Sends the query. If `names` is set, first announces this host's Ethernet address to the
    /// peer. This is needed with IPv6, where the peer may have learnt the Ethernet address for
    /// another IP address of this host only.
    pub(super) fn send(self, net_state: &NetState, net: &Net) {
        let section = rcu::Read::enter();
        if let Some(device) = Device::find(net, self.to.ifindex, &section) {
            if let Some((ip, source)) = self.names {
                route::introduce(device, ip, source);
            }
            control::ask(device, self.nonce, self.to.mac, net_state);
        }
    }
}

/// A connection that has passed all checks except those of its route.
struct Candidate {
    own: InternetEnd,
    from: IpAddr,
    destination: InternetEnd,
    to: IpAddr,
    /// The device of a link-local destination; otherwise 0.
    scope: u32,
    patience: Patience,
}

impl Candidate {
    /// Checks the settings, the rules, the options of the socket, and the address that the program
    /// passed to `connect`.
    ///
    /// # Errors
    ///
    /// The statistic that counts the reason why TCP has to carry the connection.
    fn of<M: Mapped>(
        call: &StreamCall<'_, M>,
        name: &[u8],
        net_state: &NetState,
    ) -> Result<Self, Statistic> {
        let sock = call.sock();
        if !net_state.sysctl.mapped() {
            return Err(Statistic::MappedTcpSetting);
        }
        let (destination, scope) =
            InternetEnd::parse(name, call.is_v6()).ok_or(Statistic::MappedTcpAddress)?;
        let to = destination.ip();
        let scope = scope_of(to, scope, sock.bound_device()).ok_or(Statistic::MappedTcpAddress)?;
        let own = call.own_end();
        let from = match (own.ip(), to) {
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (own, to) if own.is_ipv4() == to.is_ipv4() => own,
            _ => return Err(Statistic::MappedTcpAddress),
        };
        let verdict = net_state.mapped_rules.judge(sock, to, destination.port);
        if verdict == Verdict::Denied {
            return Err(Statistic::MappedTcpPolicy);
        }
        if to.is_ipv4() && call.is_v6() && call.is_v6_only() {
            return Err(Statistic::MappedTcpAddress);
        }
        if let Some(objection) = call.objection() {
            return Err(match objection {
                Objection::Option | Objection::User => Statistic::MappedTcpOption,
                Objection::Group => Statistic::MappedTcpGroup,
                Objection::Policy => Statistic::MappedTcpRoute,
            });
        }
        let expects = verdict == Verdict::Named;
        let bound = net_state.sysctl.mapped_wait() * if expects { NAMED } else { 1 };
        Ok(Candidate {
            own,
            from,
            destination,
            to,
            scope,
            patience: Patience { bound, expects },
        })
    }

    /// Returns the two ends of the connection, of which `source` is the local address.
    fn ends(&self, source: IpAddr) -> esp::Mapped {
        esp::Mapped {
            source: InternetEnd::of(source, self.own.port).into(),
            destination: self.destination.into(),
        }
    }

    /// Begins or continues the wait for the neighbour's Ethernet address, which is unknown.
    ///
    /// # Errors
    ///
    /// Fails if the wait is over, or if the connection must not wait. The error is the statistic
    /// that counts the reason why TCP has to carry the connection.
    fn await_neighbour(
        &self,
        net: &Net,
        ifindex: u32,
        source: IpAddr,
        deadlines: &mut Deadlines,
    ) -> Result<Wait, Statistic> {
        let now = timer::now();
        let section = rcu::Read::enter();
        let device = Device::find(net, ifindex, &section)
            .filter(|device| usable(device).is_ok())
            .ok_or(Statistic::MappedTcpRoute)?;
        if deadlines.neighbour == 0 {
            if self.patience.bound == 0 {
                return Err(Statistic::MappedTcpNeighbour);
            }
            deadlines.neighbour = now.saturating_add(NEIGHBOUR_WAIT);
        } else if now >= deadlines.neighbour || !route::is_resolving(device, self.to) {
            return Err(Statistic::MappedTcpNeighbour);
        }
        Ok(Wait {
            awaited: Awaited::Neighbour(self.to),
            ifindex,
            until: deadlines.neighbour,
            ends: self.ends(source),
        })
    }

    /// Makes the connection wait until `until` for the answer of the host at `hop`.
    fn await_answer(&self, hop: &Hop, until: u64) -> Course {
        Course::Wait(Wait {
            awaited: Awaited::Answer(hop.mac),
            ifindex: hop.ifindex,
            until,
            ends: self.ends(hop.source),
        })
    }

    /// Returns the next step of the connection, whose destination is at `hop`.
    ///
    /// # Errors
    ///
    /// The statistic that counts the reason why TCP has to carry the connection.
    fn at(
        &self,
        hop: &Hop,
        net: &Net,
        deadlines: &mut Deadlines,
        query: &mut Option<Query>,
    ) -> Result<Course, Statistic> {
        let net_state = NetState::of(net);
        let peer = Address {
            port: self.destination.port,
            ifindex: hop.ifindex,
            mac: hop.mac,
        };
        if net_state.mapped_refusals.contains(&peer) {
            return Err(Statistic::MappedTcpRefused);
        }
        let section = rcu::Read::enter();
        let device = Device::find(net, hop.ifindex, &section);
        let Some(device) = device.filter(|device| usable(device).is_ok()) else {
            return Err(Statistic::MappedTcpRoute);
        };
        let is_resolved = deadlines.neighbour != 0 && deadlines.answer == 0;
        // An attempt waits for an answer only once, even if the cache evicts the host's entry
        // during the wait.
        let known = match deadlines.answer {
            0 => net_state.edp_peers.await_answer(&peer, self.patience),
            _ => net_state.edp_peers.look_up(&peer),
        };
        *query = known.query().map(|nonce| Query {
            to: peer,
            nonce,
            names: Some((self.to, hop.source)),
        });
        let course = match known {
            Known::Answer(told, _) if told.mapped && (told.mapped_v6 || self.to.is_ipv4()) => {
                Course::Open(Plan {
                    to: peer,
                    ends: self.ends(hop.source),
                })
            }
            Known::Answer(..) => return Err(Statistic::MappedTcpPeer),
            Known::Wait(until, _) => {
                deadlines.answer = until;
                self.await_answer(hop, until)
            }
            Known::Query(_) | Known::Nothing if timer::now() < deadlines.answer => {
                self.await_answer(hop, deadlines.answer)
            }
            Known::Query(_) | Known::Nothing => return Err(Statistic::MappedTcpUnknown),
        };
        // The host must know this host's Ethernet address when ESP's SYN arrives. A host that has
        // just been resolved may not know it, and a host may forget it between two queries.
        let introduces = match &mut *query {
            Some(query) if matches!(course, Course::Open(_)) => query.names.take().is_some(),
            Some(_) => false,
            None => is_resolved,
        };
        if introduces {
            route::introduce(device, self.to, hop.source);
        }
        Ok(course)
    }
}

/// Returns the device that leads to a link-local destination, or 0 for any other destination.
/// `scope` is the device that the program passed, and `bound` the one to which its socket is bound.
/// Returns `None` if there is no device, or if the two devices differ. Also returns `None` if TCP
/// would refuse the destination, or would take it for this host itself.
fn scope_of(to: IpAddr, scope: u32, bound: u32) -> Option<u32> {
    let IpAddr::V6(to) = to else {
        return Some(0);
    };
    if to.is_unspecified() || to.is_multicast() {
        return None;
    }
    if !to.is_unicast_link_local() {
        return Some(0);
    }
    match (scope, bound) {
        (0, 0) => None,
        (0, device) | (device, 0) => Some(device),
        (scope, bound) => (scope == bound).then_some(bound),
    }
}

/// Plans a connection to the address `name`, which a program passed: whether ESP may carry it,
/// whether to wait first, and whether to query the peer.
///
/// # Errors
///
/// Fails if TCP has to carry the connection. The error is the statistic that counts the reason.
pub(super) fn plan<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    deadlines: &mut Deadlines,
    query: &mut Option<Query>,
) -> Result<Course, Statistic> {
    let sock = call.sock();
    let net = sock.net();
    let candidate = Candidate::of(call, name, NetState::of(net))?;
    let hop = sock.next_hop(
        candidate.from,
        candidate.to,
        candidate.scope,
        candidate.destination.port,
    );
    match hop {
        Ok(hop) => candidate.at(&hop, net, deadlines, query),
        Err(NoHop::NotOnLink) => Err(Statistic::MappedTcpRoute),
        Err(NoHop::NoNeighbour { ifindex, source }) => candidate
            .await_neighbour(net, ifindex, source, deadlines)
            .map(Course::Wait),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Flows: which members of a mesh send messages in a round, and to which members.

use serde::{Deserialize, Serialize};

use super::links::CLOCK;

/// The senders and the receivers of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flows {
    /// Every other member sends to member 0.
    Gather,
    /// Member 0 sends to every other member.
    Scatter,
    /// Each member sends to every other member.
    All,
    /// Each member sends to its partner. The list has the partners by member number; one member may
    /// have no partner.
    Pairs(Vec<Option<u16>>),
}

impl Flows {
    /// Returns whether member `from` sends to member `to`.
    pub(super) fn lead(&self, from: u16, to: u16) -> bool {
        from != to
            && match self {
                Self::Gather => to == CLOCK,
                Self::Scatter => from == CLOCK,
                Self::All => true,
                Self::Pairs(partners) => partners.get(usize::from(from)) == Some(&Some(to)),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_a_sender_and_a_receiver() {
        let pairs = Flows::Pairs(vec![Some(2), None, Some(0), Some(4), Some(3)]);
        let (gather, scatter) = (Flows::Gather, Flows::Scatter);
        for (flows, total) in [(gather, 4), (scatter, 4), (Flows::All, 20), (pairs, 4)] {
            let all = (0..5).flat_map(|from| (0..5).map(move |to| (from, to)));
            let sent: Vec<_> = all.filter(|(from, to)| flows.lead(*from, *to)).collect();
            assert_eq!(sent.len(), total);
            assert!(sent.iter().all(|(from, to)| from != to));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Which protocol carries the connection of each mapped socket, and why.
//!
//! TCP's own tables know nothing of that, so it is kept here, by the descriptor's inode: from the
//! decision until the descriptor goes.

use crate::net::errno::prelude::*;
use crate::{esp, statistics::Statistic};
use kernel::{
    init::InPlaceInit,
    new_mutex,
    rbtree::{RBTree, RBTreeNode},
    sync::Mutex,
};

/// What carries a connection.
#[derive(Clone, Copy)]
pub(super) enum Carrier {
    /// ESP, between these ends: the own one, and the peer's.
    Esp(esp::InternetEnd, esp::InternetEnd),
    /// TCP, which knows the ends, for the reason that is counted.
    Tcp(Statistic),
    /// TCP: the peer has chosen it.
    TcpByPeer,
}

impl Carrier {
    /// A word for why.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Carrier::Esp(..) => "-",
            Carrier::TcpByPeer => "by-peer",
            Carrier::Tcp(reason) => match reason {
                Statistic::MappedTcpSetting => "setting",
                Statistic::MappedTcpPolicy => "policy",
                Statistic::MappedTcpAddress => "address",
                Statistic::MappedTcpOption => "option",
                Statistic::MappedTcpGroup => "group",
                Statistic::MappedTcpRoute => "route",
                Statistic::MappedTcpNeighbour => "neighbour",
                Statistic::MappedTcpUnknown => "unknown-peer",
                Statistic::MappedTcpPeer => "unwilling-peer",
                Statistic::MappedTcpRefused => "refused",
                Statistic::MappedTcpSilent => "silence",
                _ => "error",
            },
        }
    }
}

/// The connections of a namespace, by the number of the descriptor's inode.
pub(crate) struct Connections(Pin<KBox<Mutex<RBTree<u64, Carrier>>>>);

impl Connections {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let tree = KBox::pin_init(new_mutex!(RBTree::new()), GFP_KERNEL_ACCOUNT)?;
        Ok(Connections(tree))
    }

    /// Keeps what carries the connection of a descriptor; without memory the list lacks it.
    pub(super) fn note(&self, inode: u64, carrier: Carrier) {
        let Ok(node) = RBTreeNode::new(inode, carrier, GFP_KERNEL_ACCOUNT) else {
            return;
        };
        let before = self.0.lock().insert(node);
        drop(before);
    }

    /// The descriptor has no connection any more.
    pub(super) fn forget(&self, inode: u64) {
        let node = self.0.lock().remove_node(&inode);
        drop(node);
    }

    /// The first at or behind a number.
    pub(super) fn from(&self, inode: u64) -> Option<(u64, Carrier)> {
        let tree = self.0.lock();
        let cursor = tree.cursor_lower_bound(&inode)?;
        let (inode, carrier) = cursor.current();
        Some((*inode, *carrier))
    }
}

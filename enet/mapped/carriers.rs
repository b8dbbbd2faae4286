// SPDX-License-Identifier: GPL-2.0

//! A table of mapped sockets' connections: which protocol carries each connection, and why.
//!
//! TCP's tables lack this information. The key of an entry is the inode number of the descriptor.
//! The entry exists from the choice of the protocol until the descriptor is closed or disconnected.

use crate::net::errno::prelude::*;
use crate::{esp, statistics::Statistic};
use kernel::{
    init::InPlaceInit,
    new_mutex,
    rbtree::{RBTree, RBTreeNode},
    sync::Mutex,
};

/// The protocol that carries a connection.
#[derive(Clone, Copy)]
pub(super) enum Carrier {
    /// ESP. The first field is the local end of the connection, the second one is the peer's end.
    Esp(esp::InternetEnd, esp::InternetEnd),
    /// TCP, for the reason that this statistic counts. The ends are found in TCP's own tables.
    Tcp(Statistic),
    /// TCP, because the peer chose TCP.
    TcpByPeer,
}

impl Carrier {
    /// Returns the word with which `/proc/net/enet_mapped` shows why TCP carries the connection;
    /// `-` if ESP carries it.
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

/// The carriers of a namespace's mapped connections, by inode number of the descriptor.
pub(crate) struct Connections(Pin<KBox<Mutex<RBTree<u64, Carrier>>>>);

impl Connections {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let tree = KBox::pin_init(new_mutex!(RBTree::new()), GFP_KERNEL_ACCOUNT)?;
        Ok(Connections(tree))
    }

    /// Stores the carrier of a descriptor's connection. If the allocation fails, the table lacks
    /// the connection.
    pub(super) fn note(&self, inode: u64, carrier: Carrier) {
        let Ok(node) = RBTreeNode::new(inode, carrier, GFP_KERNEL_ACCOUNT) else {
            return;
        };
        let before = self.0.lock().insert(node);
        drop(before);
    }

    /// Removes the entry of a descriptor that has no connection any more.
    pub(super) fn forget(&self, inode: u64) {
        let node = self.0.lock().remove_node(&inode);
        drop(node);
    }

    /// Returns the first entry whose inode number is at least `inode`.
    pub(super) fn from(&self, inode: u64) -> Option<(u64, Carrier)> {
        let tree = self.0.lock();
        let cursor = tree.cursor_lower_bound(&inode)?;
        let (inode, carrier) = cursor.current();
        Some((*inode, *carrier))
    }
}

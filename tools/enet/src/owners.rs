// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the owners of sockets, and reads the counters that only an owner can read. A socket's
//! owners are the processes that have the socket open.
//!
//! A socket option returns the socket's counters. If this process may trace an owner, this process
//! duplicates the owner's descriptor (`pidfd_getfd(2)`) and reads the option from the duplicate.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use serde::Serialize;
use sockaddr_en::{EdpSocket, EspStream};

use crate::sockets::Protocol;

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The process's name.
    pub name: String,
    /// The process's number.
    pub pid: i32,
    /// The number of the socket's descriptor in the process.
    pub fd: i32,
}

impl Owner {
    /// Formats owners for tables: `NAME[PID]:FD`.
    pub fn print<'a>(owners: impl Iterator<Item = &'a Self>) -> String {
        owners
            .map(|owner| format!("{}[{}]:{}", owner.name, owner.pid, owner.fd))
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// Maps the inode number of each socket to the processes that have it open.
#[derive(Debug, Default)]
pub struct Owners(HashMap<u64, Vec<Owner>>);

/// Parses the inode number in the target of a link in `/proc/PID/fd`. Returns `None` if the target
/// is no socket.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Returns the numbers among the file names in a directory.
fn numbers(directory: &str) -> Vec<i32> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

impl Owners {
    /// Finds the sockets of all processes that this process may inspect.
    pub fn find() -> Self {
        let mut owners = Self::default();
        for pid in numbers("/proc") {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            for fd in numbers(&format!("/proc/{pid}/fd")) {
                let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
                let found = link.ok().and_then(|link| inode(link.to_str()?));
                if let Some(inode) = found {
                    owners.0.entry(inode).or_default().push(Owner {
                        name: name.trim_end().to_owned(),
                        pid,
                        fd,
                    });
                }
            }
        }
        owners
    }

    /// Returns the processes that have socket `inode` open.
    pub fn of(&self, inode: u64) -> &[Owner] {
        self.0.get(&inode).map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<(u64, Owner)> for Owners {
    /// Collects the owners of sockets, each with the socket's inode number.
    fn from_iter<T: IntoIterator<Item = (u64, Owner)>>(sockets: T) -> Self {
        let mut owners = Self::default();
        for (inode, owner) in sockets {
            owners.0.entry(inode).or_default().push(owner);
        }
        owners
    }
}

/// A socket's counters, by name.
pub type Counters = Vec<(&'static str, u32)>;

/// Returns the counters of the socket that `owner` has open.
///
/// # Errors
/// `EPERM` if this process may not trace the owner; `ESRCH` or `EBADF` if the socket is closed.
pub fn counters(protocol: Protocol, owner: &Owner) -> io::Result<Counters> {
    let socket = duplicate(owner)?;
    Ok(match protocol {
        Protocol::Esp => {
            let stats = EspStream::from(socket).stats()?;
            vec![
                ("pkt_tx", stats.pkt_tx),
                ("pkt_rtx", stats.pkt_rtx),
                ("tx_err", stats.tx_err),
                ("pkt_rx", stats.pkt_rx),
                ("pkt_rx_oos", stats.pkt_rx_oos),
                ("pkt_rx_drop", stats.pkt_rx_drop),
                ("seq_lost", stats.seq_lost),
                ("arq_tx", stats.arq_tx),
            ]
        }
        Protocol::Edp => {
            let stats = EdpSocket::from(socket).stats()?;
            vec![
                ("pkt_tx", stats.pkt_tx),
                ("tx_err", stats.tx_err),
                ("pkt_rx", stats.pkt_rx),
                ("pkt_rx_drop", stats.pkt_rx_drop),
            ]
        }
    })
}

/// Duplicates the owner's descriptor into this process.
fn duplicate(owner: &Owner) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(owner.pid).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, owner.fd, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn links_have_inodes() {
        assert_eq!(inode("socket:[871]"), Some(871));
        assert_eq!(inode("pipe:[871]"), None);
        assert_eq!(inode("/dev/null"), None);
        assert_eq!(inode("socket:[]"), None);
    }

    #[test]
    fn own_sockets_are_found() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = fs::metadata(link).unwrap().ino();
        let owners = Owners::find();
        let owner = owners.of(inode).first().unwrap();
        assert_eq!(owner.pid as u32, std::process::id());
        assert_eq!(owner.fd, socket.as_raw_fd());
        assert!(!owner.name.is_empty());
        assert!(owners.of(0).is_empty());
    }

    #[test]
    fn sockets_of_other_families_have_no_such_counters() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = Owner {
            name: String::new(),
            pid: std::process::id() as i32,
            fd: socket.as_raw_fd(),
        };
        // The error is not compared: some containers forbid a process to trace even itself, and
        // then the call fails for that reason.
        assert!(counters(Protocol::Esp, &owner).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local sockets (`unix(7)`, streams). They show how fast two processes of one host can exchange
//! messages without a network between them.
//!
//! The two ends meet at a path in the directory for temporary files. Unlike an abstract address, a
//! path works between network namespaces.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{anyhow, ensure, Context as _, Result};
use tempfile::TempDir;

use super::kind::Kind;
use super::options::Takes;
use super::stream::{self, Connected};
use super::streams::{pair, Protocol, Way};
use super::{remedied, Context};
use crate::wire::{Endpoint, Place};

pub(super) const KIND: Kind = Kind {
    // The sender's own send buffer is the only limit for bytes that the receiver has not read.
    takes: Takes {
        send_buffer: true,
        ..Takes::NOTHING
    },
    interface: false,
    records: false,
    polled: true,
    streams: Some(&Unix),
    ..Kind::new("unix", "AF_UNIX streams, within one host", |context| {
        pair::<Unix>(context, stream::boxed)
    })
};

/// A listening socket in a directory of its own. The directory is removed when the value is
/// dropped.
struct Meeting {
    listener: UnixListener,
    path: String,
    _directory: TempDir,
}

/// The protocol of local sockets.
#[derive(Debug)]
struct Unix;

impl Protocol for Unix {
    type Listener = Meeting;
    type Stream = UnixStream;

    fn listen(_context: &Context) -> Result<(Meeting, Endpoint)> {
        let meeting = Meeting::new()?;
        let endpoint = endpoint(Some(&meeting))?;
        Ok((meeting, endpoint))
    }

    fn caller(_context: &Context) -> Result<Endpoint> {
        endpoint(None)
    }

    fn check_caller(_listener: &Meeting, caller: &Endpoint) -> Result<()> {
        check_host(caller)
    }

    fn accept(meeting: &Meeting, context: &Context) -> Result<UnixStream> {
        let (stream, _) = meeting.listener.accept()?;
        context.options.apply(&stream)?;
        Ok(stream)
    }

    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<UnixStream>> {
        check_host(server)?;
        let (path, context) = (path_of(server)?.to_owned(), context.clone());
        Ok(Box::new(move || {
            let stream = meet(&path)?;
            context.options.apply(&stream)?;
            Ok(stream)
        }))
    }
}

impl Meeting {
    fn new() -> Result<Self> {
        // Every process on the host may connect, as to a TCP port. This is needed because the two
        // ends may belong to different users.
        let directory = tempfile::Builder::new()
            .prefix("netgauge-")
            .permissions(Permissions::from_mode(0o711))
            .tempdir()
            .context("making a directory for a local socket")?;
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).with_context(|| {
            format!(
                "listening on {}: a shorter TMPDIR, where users may write, helps",
                path.display()
            )
        })?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        let path = path
            .into_os_string()
            .into_string()
            .map_err(|path| anyhow!("{path:?} is not text: set TMPDIR to another directory"))?;
        Ok(Self {
            listener,
            path,
            _directory: directory,
        })
    }
}

/// Returns this side's endpoint, which has the path of the socket if this side listens.
fn endpoint(meeting: Option<&Meeting>) -> Result<Endpoint> {
    Ok(Endpoint {
        place: Some(Place::here()?),
        path: meeting.map(|meeting| meeting.path.clone()),
        ..Endpoint::default()
    })
}

/// Returns the path of the peer's socket, on this host.
fn path_of(peer: &Endpoint) -> Result<&str> {
    peer.path.as_deref().context("the peer gave no path")
}

/// Connects to a listening socket's path.
fn meet(path: &str) -> Result<UnixStream> {
    UnixStream::connect(path)
        .map_err(|error| explain(error, path))
        .with_context(|| format!("connecting to {path}"))
}

fn check_host(peer: &Endpoint) -> Result<()> {
    let place = peer
        .place
        .as_ref()
        .context("the peer does not say where it is")?;
    ensure!(
        place.is_same_host(&Place::here()?),
        "unix is for ends on one host, and the peer is on another: choose another transport"
    );
    Ok(())
}

as_fd!([] Meeting, listener);

impl Connected for UnixStream {}

fn explain(error: io::Error, path: &str) -> anyhow::Error {
    let absent = error.kind() == io::ErrorKind::NotFound;
    remedied(error, absent, || {
        format!(
            "the peer is on this host but sees other files (a container?): give it a TMPDIR that \
             both see, not {path}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::context;
    use crate::transport::{Prepared, Role};
    use std::path::Path;

    fn end(role: Role) -> Prepared {
        (KIND.prepare)(&context(role, 1, 1)).unwrap()
    }

    #[test]
    fn both_ends_meet_and_leave_nothing_behind() {
        let (leader, follower) = (end(Role::Leader), end(Role::Follower));
        let (here, there) = (leader.endpoint.clone(), follower.endpoint.clone());
        let path = there.path.clone().unwrap();
        assert!(Path::new(&path).exists());
        let mut leader = leader.open(&there, None).unwrap();
        let mut follower = follower.open(&here, None).unwrap();
        assert!(!Path::new(&path).exists());
        leader.send(b"hello").unwrap();
        let mut message = [0; 5];
        follower.recv(&mut message).unwrap();
        assert_eq!(&message, b"hello");
    }

    #[test]
    fn another_host_is_refused_and_so_are_files_that_are_not_there() {
        let follower = end(Role::Follower);
        let there = follower.endpoint.clone();
        let refused = |endpoint: &Endpoint| {
            let error = end(Role::Leader).open(endpoint, None).err().unwrap();
            format!("{error:#}")
        };
        let place = serde_json::json!({"boot": "another", "namespace": 1});
        let elsewhere = Endpoint {
            place: Some(serde_json::from_value(place).unwrap()),
            ..there.clone()
        };
        let error = refused(&elsewhere);
        assert!(error.contains("the peer is on another"), "{error}");
        let hidden = Endpoint {
            path: Some("/nonexistent/socket".to_owned()),
            ..there
        };
        let error = refused(&hidden);
        assert!(error.contains("TMPDIR"), "{error}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local sockets (`unix(7)`, streams): what two processes of one host could reach without a network.
//!
//! They meet at a path in the directory for temporary files, so that they may be in different
//! network namespaces, which abstract addresses do not lead out of.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{anyhow, ensure, Context as _, Result};
use tempfile::TempDir;

use super::stream::Stream;
use super::{wait_for_peer, Context, Kind, Place, Prepared, Role, Takes, Transport};
use crate::control::Endpoint;

pub(super) const KIND: Kind = Kind {
    name: "unix",
    about: "AF_UNIX streams, within one host",
    prepare,
    // A sender fills its own send buffer until the receiver has read: there is no other limit.
    takes: Takes {
        nodelay: None,
        busy_poll: false,
        send_buffer: true,
        receive_buffer: false,
    },
    streams: None,
};

struct Unix {
    context: Context,
    /// The follower's.
    meeting: Option<Meeting>,
}

/// A listening socket in a directory of its own, which goes with it.
struct Meeting {
    listener: UnixListener,
    path: String,
    _directory: TempDir,
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let meeting = match context.role {
        Role::Leader => None,
        Role::Follower => Some(Meeting::new()?),
    };
    Ok(Box::new(Unix {
        context: context.clone(),
        meeting,
    }))
}

impl Meeting {
    fn new() -> Result<Self> {
        // Both ends need not be the same user: as with a port, whoever is on the host may connect.
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

impl Prepared for Unix {
    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            place: Some(Place::here()?),
            path: self.meeting.as_ref().map(|meeting| meeting.path.clone()),
            ..Endpoint::default()
        })
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let Self { context, meeting } = *self;
        let place = peer
            .place
            .as_ref()
            .context("the peer does not say where it is")?;
        ensure!(
            place.is_same_host(&Place::here()?),
            "unix is for two ends on one host, and {} is another host: choose another transport",
            context.peer.ip()
        );
        let stream = match &meeting {
            None => {
                let path = peer.path.as_deref().context("the peer gave no path")?;
                UnixStream::connect(path)
                    .map_err(|error| explain(error, path))
                    .with_context(|| format!("connecting to {path}"))?
            }
            Some(meeting) => {
                wait_for_peer(&meeting.listener, context.give_up)?;
                meeting.listener.accept()?.0
            }
        };
        context.options.apply(&stream)?;
        stream.set_read_timeout(Some(context.give_up))?;
        stream.set_write_timeout(Some(context.give_up))?;
        Ok(Box::new(Stream::new(stream, &context)))
    }
}

fn explain(error: io::Error, path: &str) -> anyhow::Error {
    let absent = error.kind() == io::ErrorKind::NotFound;
    let error = anyhow::Error::new(error);
    if absent {
        return error.context(format!(
            "the peer is on this host but sees other files (a container?): give it a TMPDIR that \
             both see, not {path}"
        ));
    }
    error
}

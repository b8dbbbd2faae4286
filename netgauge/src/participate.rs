// SPDX-License-Identifier: MIT OR Apache-2.0

//! A participant that a coordinator has started: option `--participant`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use anyhow::Result;

use crate::control::{Control, Message, PeerGone};
use crate::netns::enter;
use crate::server::{converse, ServerOptions};

/// Runs a participant that a coordinator has started. The control connection is standard input,
/// which is a socket. With `stdio`, it is standard input and standard output.
///
/// # Errors
///
/// Fails if the control connection failed, or if the coordinator does not follow the protocol.
pub fn participate(namespace: Option<&str>, stdio: bool, options: &ServerOptions) -> Result<()> {
    const PEER: &str = "coordinator";
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = if stdio {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Control::pipes(File::from(stdin), File::from(stdout), PEER)
    } else {
        Control::local_pair(UnixStream::from(stdin), PEER, None)?
    };
    if let Some(name) = namespace {
        if let Err(error) = enter(name) {
            return control.send(&Message::Failed(format!("{error:#}")));
        }
    }
    match converse(control, options) {
        // The coordinator itself reports why it closed the connection, so this process reports
        // nothing.
        Err(error) if error.is::<PeerGone>() => Ok(()),
        ended => ended,
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The greetings with which two processes begin a connection.

use std::io;

use super::{lacks_resources, Caller, Engine, LinkId};
use crate::link::{read_greeting, Payload, State};
use crate::transport::Stream;
use crate::wire::{Answer, Hello, Purpose, ANSWER, HELLO};

impl<P: Payload> Engine<P> {
    /// Takes connections from the accept queues.
    pub(super) fn accept(&mut self) {
        for (module, listener) in self.listeners.iter().enumerate() {
            loop {
                match listener.accept() {
                    Ok(Some(stream)) => self.callers.push(Caller {
                        stream,
                        module,
                        bytes: Vec::new(),
                    }),
                    // The connection stays in the accept queue. The caller that has been silent for
                    // longest gives its descriptor.
                    Err(error) if lacks_resources(&error) && !self.callers.is_empty() => {
                        self.callers.remove(0);
                        break;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }

    /// Reads the hellos of accepted connections.
    pub(super) fn greet(&mut self) {
        for mut caller in std::mem::take(&mut self.callers) {
            match read_greeting(&caller.stream, &mut caller.bytes, HELLO) {
                // The hello is incomplete. The caller may compute for a while before it sends its
                // hello.
                Ok(None) => self.callers.push(caller),
                Ok(Some(())) => {
                    let bytes = caller.bytes.first_chunk();
                    let hello = bytes.and_then(|bytes| Hello::decode(bytes).ok());
                    // Without a valid hello, the caller is a different program, version or job.
                    // Its connection is closed, because `caller` is dropped.
                    let is_right = |hello: &Hello| {
                        hello.token == self.token && hello.purpose == Purpose::Frames
                    };
                    if let Some(hello) = hello.filter(is_right) {
                        self.answer(caller.stream, caller.module, hello);
                    }
                }
                // The caller has closed the connection.
                Err(_) => {}
            }
        }
    }

    /// Answers a hello. If both processes connect at once, they keep the connection that the
    /// process with the lower name opened.
    fn answer(&mut self, stream: Stream, module: usize, hello: Hello) {
        let peer = self.peer(hello.caller);
        let link = self.link(peer, module, usize::from(hello.interface));
        let answer = match self.links[link].state {
            State::Idle | State::Awaiting => Answer::Accepted,
            State::Connecting(..) | State::Greeting(..) if hello.caller < self.name => {
                Answer::Accepted
            }
            State::Connecting(..) | State::Greeting(..) | State::Ready(_) => Answer::Refused,
            State::Failed => Answer::Broken,
        };
        // An error is ignored: the send buffer of a new connection has room, and the next receive
        // reports a broken connection.
        let _ = stream.send(&[io::IoSlice::new(&answer.encode())]);
        if answer == Answer::Accepted {
            self.establish(link, stream);
        }
    }

    /// Advances the connections that this process is opening.
    pub(super) fn advance(&mut self) {
        for link in self.opening.clone() {
            if let Err(why) = self.step(link) {
                self.fail(link, &why);
            }
        }
    }

    fn step(&mut self, id: LinkId) -> Result<(), String> {
        let timeout = self.settings.timeout;
        let link = &mut self.links[id];
        let name = self.peers[link.peer].name;
        match std::mem::replace(&mut link.state, State::Idle) {
            State::Connecting(stream, since) => {
                let connected = stream.is_connected().map_err(|error| error.to_string())?;
                if !connected && since.elapsed() >= timeout {
                    return Err(format!("no answer in {} s", timeout.as_secs_f32()));
                }
                if !connected {
                    link.state = State::Connecting(stream, since);
                    return Ok(());
                }
                let hello = Hello {
                    caller: self.name,
                    interface: u16::try_from(link.module).expect("there are few interfaces"),
                    purpose: Purpose::Frames,
                    token: self.peers[link.peer].token,
                };
                let sent = stream
                    .send(&[io::IoSlice::new(&hello.encode())])
                    .map_err(|error| error.to_string())?;
                if sent < HELLO {
                    return Err("the hello does not fit".to_owned());
                }
                link.state = State::Greeting(stream, Vec::new());
            }
            // There is no time limit here: the peer answers when it next calls Open MPI. If the
            // peer dies before that, its kernel closes the connection.
            State::Greeting(stream, mut bytes) => {
                match read_greeting(&stream, &mut bytes, ANSWER) {
                    Ok(None) => link.state = State::Greeting(stream, bytes),
                    Ok(Some(())) => match bytes.first_chunk().map(Answer::decode) {
                        Some(Ok(Answer::Accepted)) => self.establish(id, stream),
                        Some(Ok(Answer::Refused)) if self.name > name => {
                            link.state = State::Awaiting;
                        }
                        _ => return Err("it refused the connection".to_owned()),
                    },
                    // The peer has closed this connection, because it is opening one itself. The
                    // peer's connection will arrive.
                    Err(error)
                        if self.name > name && error.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        link.state = State::Awaiting;
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            // Descriptors or memory lacked before.
            State::Idle => self.open(id),
            state => link.state = state,
        }
        Ok(())
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exchange of the patterns one-one, logp and recovery: the leader sends one or several
//! messages, and the follower answers the last one.
//!
//! Each message is filled with the tag of its exchange, so that late messages are recognised.

use std::io;

use anyhow::Result;

use super::Link;
use crate::transport::Transport;

/// Does the leader's part of one exchange: sends `count` messages, and receives an answer that is
/// as long as the buffer `answer`.
pub(super) fn exchange(
    transport: &mut dyn Transport,
    message: &[u8],
    count: u32,
    answer: &mut [u8],
) -> io::Result<()> {
    for _ in 0..count {
        transport.send(message)?;
    }
    await_answer(transport, message[0], answer)
}

/// Waits for the answer to exchange `tag`, and discards late answers.
pub(super) fn await_answer(
    transport: &mut dyn Transport,
    tag: u8,
    answer: &mut [u8],
) -> io::Result<()> {
    loop {
        transport.recv(answer)?;
        if answer.first() == Some(&tag) {
            return Ok(());
        }
    }
}

/// Does the follower's part of `rounds` exchanges: receives `count` messages of `size` bytes, and
/// answers the last of them with `answer` bytes.
pub(super) fn answer_messages(
    link: &mut Link<'_>,
    rounds: u32,
    (size, count): (usize, u32),
    answer: usize,
) -> Result<()> {
    let (mut message, mut answer) = (vec![0; size], vec![0; answer]);
    let (mut answered, mut came, mut tag) = (0, 0, None);
    loop {
        // Over a lossy transport, the last answer may be lost, and the leader then sends its
        // messages again. So the follower stays until the leader sends a control message.
        if answered >= rounds && (link.is_reliable() || link.wait_for_control()?) {
            return Ok(());
        }
        if !link.receive(&mut message)? {
            return Ok(());
        }
        if tag != message.first().copied() {
            tag = message.first().copied();
            came = 0;
        }
        came += 1;
        if came == count {
            // If the answer has the length of a message, the message itself is sent back, so that
            // no time is spent on filling the answer.
            if size != answer.len() {
                answer.fill(message[0]);
                link.reply(&answer)?;
            } else {
                link.reply(&message)?;
            }
            answered += 1;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Sets the mode of team devices, which is possible only through generic netlink.

use crate::prelude::*;
use crate::socket::interface_index;

const NETLINK_GENERIC: i32 = 16;
/// The bit that marks a netlink attribute as nested.
const NESTED: u16 = 1 << 15;

/// The generic netlink controller, which resolves names of families to numbers.
mod control {
    pub const FAMILY: u16 = 0x10;
    pub const GET_FAMILY: u8 = 3;
    pub const FAMILY_ID: u16 = 1;
    pub const FAMILY_NAME: u16 = 2;
}

/// Numbers of `linux/if_team.h`.
mod number {
    pub const OPTIONS_SET: u8 = 1;
    pub const TEAM_IFINDEX: u16 = 1;
    pub const LIST_OPTION: u16 = 2;
    pub const ITEM_OPTION: u16 = 1;
    pub const OPTION_NAME: u16 = 1;
    pub const OPTION_TYPE: u16 = 3;
    pub const OPTION_DATA: u16 = 4;
    /// `NLA_STRING`, the type of a string.
    pub const STRING: u8 = 5;
}

/// Encodes an attribute with its header and padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends `command` to a generic netlink family, and returns the reply without its two headers.
fn ask(socket: &Socket, family: u16, command: u8, attributes: &[u8]) -> Result<Vec<u8>> {
    const HEADERS: usize = 16 + 4;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const ERROR: u16 = 2;
    let length = (HEADERS + attributes.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0)?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 8192];
        let length = socket.receive(&mut bytes, 0)?;
        ensure!(length >= HEADERS, "a message of {length} bytes");
        if u16::from_ne_bytes([bytes[4], bytes[5]]) != ERROR {
            answer = bytes[HEADERS..length].to_vec();
            continue;
        }
        let errno = -i32::from_ne_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        // ESRCH means that the request has succeeded, and that no socket listens to its
        // notification.
        let unheard = command == number::OPTIONS_SET && errno == libc::ESRCH;
        ensure!(
            errno == 0 || unheard,
            std::io::Error::from_raw_os_error(errno)
        );
        return Ok(answer);
    }
}

/// Returns the number of the generic netlink family `name`.
fn family(socket: &Socket, name: &str) -> Result<u16> {
    let name = attribute(control::FAMILY_NAME, format!("{name}\0").as_bytes());
    let answer = ask(socket, control::FAMILY, control::GET_FAMILY, &name)?;
    let mut rest = &answer[..];
    while let [a, b, c, d, value @ ..] = rest {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        if u16::from_ne_bytes([*c, *d]) == control::FAMILY_ID {
            let bytes = value.first_chunk().context("the family's number")?;
            return Ok(u16::from_ne_bytes(*bytes));
        }
        ensure!(length >= 4, "an attribute of {length} bytes");
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    anyhow::bail!("no number in {answer:?}")
}

/// Sets the mode of the team device `name`, which must not have ports yet.
///
/// # Errors
/// If there is no such device or mode.
pub fn set_mode(namespace: &Netns, name: &str, mode: &str) -> Result<()> {
    use number::*;
    let (socket, ifindex) = namespace.within(|| -> Result<_> {
        let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_GENERIC)?;
        Ok((socket, interface_index(name)?))
    })??;
    let option = [
        attribute(OPTION_NAME, b"mode\0"),
        attribute(OPTION_TYPE, &[STRING]),
        attribute(OPTION_DATA, format!("{mode}\0").as_bytes()),
    ];
    let item = attribute(ITEM_OPTION | NESTED, &option.concat());
    let attributes = [
        attribute(TEAM_IFINDEX, &ifindex.to_ne_bytes()),
        attribute(LIST_OPTION | NESTED, &item),
    ];
    let family = family(&socket, "team").context("the family of teams")?;
    ask(&socket, family, OPTIONS_SET, &attributes.concat())
        .map(drop)
        .with_context(|| format!("mode {mode} of {name}"))
}

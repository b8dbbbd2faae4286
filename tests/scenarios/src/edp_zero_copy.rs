// SPDX-License-Identifier: GPL-2.0-only

//! Tests EZDP, which is EDP whose sends do not copy.

use guest::address::{EDP_SO_CHECKSUM, EPPROTO_EZDP, EP_SO_ZEROCOPY, SO_MTU};
use guest::prelude::*;
use guest::zero_copy::{completed, completed_from, is_on, none_left, Copies};

scenarios! {
    direct ezdp_sends_are_completed;
    direct ezdp_and_edp_share_ports_and_frames;
    direct ezdp_to_its_own_host;
    direct ezdp_makes_no_copy_for_a_device;
    direct ezdp_datagram_of_many_pieces_is_copied;
    direct ezdp_datagram_of_several_sends_is_copied;
    direct ezdp_with_checksums;
    direct ezdp_refusals_are_not_completed;
    direct ezdp_option_cannot_be_switched_off;
    direct ezdp_completions_fill_no_more_than_their_room;
}

fn ezdp(host: &Host) -> Result<Socket> {
    host.namespace
        .within(|| Socket::new(AF_ENET, libc::SOCK_DGRAM, EPPROTO_EZDP))?
        .context("EZDP socket")
}

/// Returns two sockets. The first is an EZDP socket on `a`, and is connected to the second, an EDP
/// socket on `b`.
fn pair(lab: &Lab, port: u16) -> Result<(Socket, Socket)> {
    let (a, b) = (ezdp(&lab.a)?, lab.b.edp_bound(port)?);
    a.connect(&lab.a.to(&lab.b, port))?;
    Ok((a, b))
}

fn ezdp_sends_are_completed(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 70)?;
    let largest = a.int_option(SOL_EP, SO_MTU)? as usize;
    let bytes = random(largest, 70);
    for (number, length) in [1, 46, 1000, largest].into_iter().enumerate() {
        ensure!(a.send(&bytes[..length], 0)? == length);
        receives(&b, &bytes[..length])?;
        // The receiver is on the same machine. The kernel copies the sender's pages before such a
        // receiver gets them.
        let copies = completed_from(&a, number as u32, 1)?;
        ensure!(copies == Copies::All, "{copies:?} copied");
    }
    ensure!(a.send(b"", 0)? == 0);
    receives(&b, b"")?;
    completed_from(&a, 4, 1)?;
    none_left(&a)
}

fn ezdp_and_edp_share_ports_and_frames(lab: &Lab) -> Outcome {
    let socket = ezdp(&lab.a)?;
    let protocol = socket.so(libc::SO_PROTOCOL)?;
    ensure!(protocol == EPPROTO_EZDP, "protocol {protocol}");
    socket.bind(&lab.a.here(71))?;
    let again = lab.a.edp()?;
    refused(again.bind(&lab.a.here(71)), libc::EADDRINUSE, "bind of EDP")?;
    let peer = lab.b.edp_bound(71)?;
    peer.send_to(b"question", 0, &lab.b.to(&lab.a, 71))?;
    receives(&socket, b"question")?;
    socket.send_to(b"answer", 0, &lab.a.to(&lab.b, 71))?;
    receives(&peer, b"answer")?;
    completed(&socket, 1)?;
    Ok(())
}

fn ezdp_to_its_own_host(lab: &Lab) -> Outcome {
    let (a, b) = (ezdp(&lab.a)?, lab.a.edp_bound(72)?);
    let bytes = random(1200, 72);
    a.send_to(&bytes, 0, &lab.a.to(&lab.a, 72))?;
    receives(&b, &bytes)?;
    let copies = completed(&a, 1)?;
    ensure!(copies == Copies::All, "{copies:?} copied");
    Ok(())
}

/// The queueing discipline drops every frame before it reaches the veth device, where the pages
/// would be copied. So nothing copies them.
fn ezdp_makes_no_copy_for_a_device(lab: &Lab) -> Outcome {
    let (a, _b) = pair(lab, 73)?;
    lab.a.queue("add", &["netem", "loss", "100%"])?;
    let bytes = random(1400, 73);
    for _ in 0..10 {
        a.send(&bytes, 0)?;
    }
    let copies = completed(&a, 10)?;
    ensure!(copies == Copies::None, "{copies:?} copied");
    Ok(())
}

fn ezdp_datagram_of_many_pieces_is_copied(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 74)?;
    let pages = random(40 * 8192, 74);
    let pieces: Vec<_> = pages
        .chunks(8192)
        .map(|page| Piece::Good(&page[..10]))
        .collect();
    ensure!(a.send_message(&pieces, 0, &[])? == 400);
    let whole: Vec<u8> = pages
        .chunks(8192)
        .flat_map(|page| page[..10].to_vec())
        .collect();
    receives(&b, &whole)?;
    let copies = completed(&a, 1)?;
    ensure!(copies == Copies::All, "{copies:?} copied");
    Ok(())
}

fn ezdp_datagram_of_several_sends_is_copied(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 75)?;
    a.send(b"one ", libc::MSG_MORE)?;
    a.send(b"two ", libc::MSG_MORE)?;
    a.send(b"three", 0)?;
    receives(&b, b"one two three")?;
    let copies = completed(&a, 3)?;
    ensure!(copies == Copies::All, "{copies:?} copied");
    a.send(b"begun", libc::MSG_MORE)?;
    let far = vec![0; 60_000];
    refused(a.send(&far, 0), libc::EMSGSIZE, "too much")?;
    completed_from(&a, 3, 1)?;
    none_left(&a)
}

fn ezdp_with_checksums(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 76)?;
    a.set_int_option(SOL_EP, EDP_SO_CHECKSUM, 1)?;
    let bytes = random(1300, 76);
    a.send(&bytes, 0)?;
    receives(&b, &bytes)?;
    completed(&a, 1)?;
    Ok(())
}

fn ezdp_refusals_are_not_completed(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 77)?;
    let bad = a.send_message(&[Piece::Good(b"some"), Piece::Bad(100)], 0, &[]);
    refused(bad, libc::EFAULT, "unreadable memory")?;
    refused(a.send(&[0; 60_000], 0), libc::EMSGSIZE, "too long")?;
    let everybody = Address {
        mac: [0xff; 6],
        ..lab.a.to(&lab.b, 77)
    };
    refused(a.send_to(b"?", 0, &everybody), libc::EACCES, "to a group")?;
    a.send(b"good", 0)?;
    receives(&b, b"good")?;
    completed(&a, 1)?;
    lab.a.link("down")?;
    refused(a.send(b"down", 0), libc::ENETDOWN, "a device that is down")?;
    none_left(&a)
}

fn ezdp_option_cannot_be_switched_off(lab: &Lab) -> Outcome {
    let socket = ezdp(&lab.a)?;
    ensure!(is_on(&socket)? == 1);
    let off = socket.set_int_option(SOL_EP, EP_SO_ZEROCOPY, 0);
    refused(off, libc::EINVAL, "switching it off")?;
    socket.set_int_option(SOL_EP, EP_SO_ZEROCOPY, 1)?;
    ensure!(is_on(&socket)? == 1);
    Ok(())
}

/// Unread completions coalesce, so any number of sends is possible.
fn ezdp_completions_fill_no_more_than_their_room(lab: &Lab) -> Outcome {
    let (a, b) = pair(lab, 78)?;
    for number in 0..2000_u32 {
        let bytes = number.to_ne_bytes();
        match a.send(&bytes, 0) {
            Ok(_) => {}
            Err(error) => return Err(error).with_context(|| format!("send {number}")),
        }
        receives(&b, &bytes)?;
    }
    completed(&a, 2000)?;
    Ok(())
}

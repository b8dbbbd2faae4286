// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped connections that a program gives to the kernel's initiator of iSCSI. The initiator
//! replaces the callbacks of the TCP socket, and reads this socket from them.

use guest::mapped::{dial, is_esp, known, listener, pair, MAPPED};
use guest::prelude::*;

use crate::error_queue::has;

scenarios! {
    direct mapped_iscsi_initiator_is_served_by_tcp = served;
    direct mapped_iscsi_initiator_is_refused_a_connection_in_use = in_use;
}

/// The lengths of `struct nlmsghdr`, of `struct iscsi_uevent`, and of the union at its end
/// (`scsi/iscsi_if.h`).
const HEADER: usize = 16;
const EVENT: usize = 56;
const RESULT: usize = 16;

/// The length of a header of iSCSI.
const PDU: usize = 48;

/// Requests to the kernel: `enum iscsi_uevent_e`.
const CREATE_SESSION: u32 = 11;
const DESTROY_SESSION: u32 = 12;
const CREATE_CONNECTION: u32 = 13;
const DESTROY_CONNECTION: u32 = 14;
const BIND_CONNECTION: u32 = 15;
const STOP_CONNECTION: u32 = 18;
const SEND_PDU: u32 = 19;

/// Events of the kernel.
const RECEIVED_PDU: u32 = 101;
const CONNECTION_ERROR: u32 = 102;

/// A session of the kernel's initiator with one connection, whose number is 0.
struct Initiator {
    netlink: Socket,
    transport: u64,
    session: u32,
}

impl Initiator {
    /// Makes a session whose connection is the one of `socket`.
    fn of(socket: &Socket) -> Result<Self> {
        const NETLINK_ISCSI: i32 = 8;
        const EVENTS: u32 = 1;
        let netlink = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_ISCSI)?;
        // struct sockaddr_nl: family and padding, port, groups.
        let name = [libc::AF_NETLINK as u32, 0, EVENTS].map(u32::to_ne_bytes);
        netlink.bind_bytes(&name.concat())?;
        let handle = fs::read_to_string("/sys/class/iscsi_transport/tcp/handle")?;
        let transport = handle.trim().parse()?;
        let mut initiator = Initiator {
            netlink,
            transport,
            session: 0,
        };
        // The first number of a command; the most commands of the session, and of a device.
        let made = initiator.ask(CREATE_SESSION, &[1, 128 | (32 << 16)], &[])?;
        initiator.session = number(&made, 0);
        initiator.ask(CREATE_CONNECTION, &[initiator.session, 0], &[])?;
        let bound = [initiator.session, 0, socket.as_raw_fd() as u32, 0, 1];
        let result = initiator.ask(BIND_CONNECTION, &bound, &[])?;
        ensure!(number(&result, 0) == 0, "bind: {result:?}");
        Ok(initiator)
    }

    /// Makes a request, and returns its result.
    fn ask(&self, kind: u32, arguments: &[u32], rest: &[u8]) -> Result<Vec<u8>> {
        self.request(kind, arguments, rest)?;
        let answer = self.wait_for(kind)?;
        ensure!(number(&answer, 4) == 0, "request {kind}: {answer:?}");
        Ok(answer[EVENT - RESULT..EVENT].to_vec())
    }

    /// Makes a request.
    fn request(&self, kind: u32, arguments: &[u32], rest: &[u8]) -> Outcome {
        let length = (HEADER + EVENT + rest.len()) as u32;
        let mut message = [length, kind, 0, 0].map(u32::to_ne_bytes).concat();
        message.extend([kind, 0].map(u32::to_ne_bytes).concat());
        message.extend(self.transport.to_ne_bytes());
        message.extend(arguments.iter().flat_map(|one| one.to_ne_bytes()));
        message.resize(HEADER + EVENT, 0);
        message.extend(rest);
        Ok(self.netlink.send_all(&message)?)
    }

    /// Returns the next event of this `kind`: the event, and the bytes after it.
    fn wait_for(&self, kind: u32) -> Result<Vec<u8>> {
        loop {
            let mut message = vec![0; 4096];
            let length = self.netlink.receive(&mut message, 0)?;
            ensure!(length >= HEADER + EVENT, "an event of {length} bytes");
            let event = message[HEADER..length].to_vec();
            match number(&event, 0) {
                found if found == kind => return Ok(event),
                CONNECTION_ERROR => bail!("the connection has failed: {event:?}"),
                _ => {}
            }
        }
    }

    /// Sends a login.
    fn log_in(&self) -> Outcome {
        let result = self.ask(SEND_PDU, &self.login_place(), &login())?;
        ensure!(number(&result, 0) == 0, "send: {result:?}");
        Ok(())
    }

    /// Sends a login that ends the connection. The kernel may tell the end before it answers the
    /// request.
    fn fail_to_log_in(&self) -> Outcome {
        self.request(SEND_PDU, &self.login_place(), &login())?;
        self.wait_for(CONNECTION_ERROR)?;
        Ok(())
    }

    /// Returns the session, the connection, and the lengths of a login's header and data.
    fn login_place(&self) -> [u32; 4] {
        [self.session, 0, PDU as u32, 0]
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        const TERMINATE: u32 = 1;
        let this = self.session;
        let _ = self.ask(STOP_CONNECTION, &[this, 0, 0, 0, TERMINATE], &[]);
        let _ = self.ask(DESTROY_CONNECTION, &[this, 0], &[]);
        let _ = self.ask(DESTROY_SESSION, &[this], &[]);
    }
}

/// Returns the header of a login to the phase of full operation, from that before it.
fn login() -> Vec<u8> {
    let mut login = vec![0; PDU];
    login[..2].copy_from_slice(&[0x43, 0x87]);
    login
}

/// Returns the number at byte `at`.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]))
}

/// The first send of the initiator opens TCP's connection in place of ESP's, which ends without a
/// byte.
fn served(lab: &Lab) -> Outcome {
    if !has("iscsi_tcp")? {
        return Ok(());
    }
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 871, 4)?;
    let client = dial(&lab.a, MAPPED, 871)?;
    let (first, _) = listener.accept(0)?;
    ensure!(is_esp(&client) && is_esp(&first), "TCP carries it already");
    let initiator = Initiator::of(&client)?;
    initiator.log_in()?;
    refused(first.receive(&mut [0], 0), libc::ECONNRESET, "ESP's end")?;
    let (second, _) = listener.accept(0)?;
    ensure!(!is_esp(&client) && !is_esp(&second), "ESP carries it");
    let request = second.receive_all(PDU)?;
    ensure!(request[0] == 0x43, "{request:?}");
    let mut response = vec![0; PDU];
    response[..2].copy_from_slice(&[0x23, 0x87]);
    // The task's tag.
    response[16..20].copy_from_slice(&request[16..20]);
    second.send_all(&response)?;
    let event = initiator.wait_for(RECEIVED_PDU)?;
    ensure!(event[EVENT..] == response, "{event:?}");
    ensure!(lab.a.counter("MappedTcpOption")? == 1);
    Ok(())
}

/// TCP cannot continue a connection that has carried bytes. So the initiator's send fails, and the
/// initiator ends the connection.
fn in_use(lab: &Lab) -> Outcome {
    if !has("iscsi_tcp")? {
        return Ok(());
    }
    known(lab)?;
    for (port, from_client) in [(872, true), (873, false)] {
        let [client, server] = pair(lab, MAPPED, port)?;
        let (one, other) = match from_client {
            true => (&client, &server),
            false => (&server, &client),
        };
        one.send_all(b"a")?;
        ensure!(other.receive_all(1)? == b"a");
        let initiator = Initiator::of(&client)?;
        initiator.fail_to_log_in()?;
        drop(initiator);
        ensure!(is_esp(&client) && is_esp(&server), "TCP carries it");
        same(server.receive(&mut [0], 0)?, 0, "bytes of the initiator")?;
    }
    ensure!(lab.a.counter("MappedTcpOption")? == 0);
    Ok(())
}

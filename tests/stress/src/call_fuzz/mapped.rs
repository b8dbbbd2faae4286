// SPDX-License-Identifier: GPL-2.0-only

//! Makes mapped sockets, which meet over the wire: sockets of the Internet families with the
//! protocol of mapped ones, and sockets of the family `ssocks`.

use fastrand::Rng;
use libc::c_int;
use nix::sched::{setns, CloneFlags};

use super::calls::{Caller, Kind};
use guest::address::{internet, internet6, ESP_SO_CHECKSUM, IPPROTO_ENET};
use guest::mapped::{addresses, far6};
use guest::prelude::*;

/// The number of the family `ssocks`.
const SSOCKS: i32 = 27;

/// modprobe's file with the module's parameters.
const PARAMETERS: &str = "/etc/modprobe.d/call-fuzz.conf";

/// Makes modprobe load the module with the family `ssocks` until this value is dropped.
#[derive(Debug)]
pub struct WithSsocks;

impl WithSsocks {
    /// Loads the module anew.
    ///
    /// # Errors
    /// If a socket is open, or the module cannot be loaded.
    pub fn load() -> Result<Self> {
        fs::create_dir_all("/etc/modprobe.d")?;
        fs::write(PARAMETERS, format!("options enet ssocks={SSOCKS}\n"))?;
        let this = WithSsocks;
        module::reload()?;
        Ok(this)
    }
}

impl Drop for WithSsocks {
    fn drop(&mut self) {
        let restored = fs::remove_file(PARAMETERS).map_err(anyhow::Error::from);
        if let Err(error) = restored.and_then(|()| module::reload()) {
            note(&format!("the module cannot be restored: {error:#}"));
        }
    }
}

/// Gives the hosts IP addresses, which stay while a device is down.
///
/// # Errors
/// If a setting or an address is refused.
pub fn prepare(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        host.sysctl(&format!("net/ipv6/conf/{DEVICE}/keep_addr_on_down"), "1")?;
    }
    addresses(lab)?;
    be_patient(lab)
}

/// Lets connections wait for the other host's answer longer than usual, since the machine is busy.
/// The setting is lost with the module.
///
/// # Errors
/// If a setting is refused.
pub fn be_patient(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        // The module may be gone already.
        let _ = Knobs(&host.namespace).write("mapped_wait", b"100000")?;
    }
    Ok(())
}

/// Returns the family and the protocol of any mapped socket.
pub fn any(rng: &mut Rng) -> (i32, i32) {
    let kinds = [
        (libc::AF_INET, IPPROTO_ENET),
        (libc::AF_INET6, IPPROTO_ENET),
        (SSOCKS, 0),
    ];
    *rng.choice(&kinds).unwrap_or(&kinds[0])
}

/// Returns the address of host `number` for a socket of `family`.
pub fn name(family: i32, number: u8, port: u16) -> Vec<u8> {
    if family == libc::AF_INET6 {
        return internet6(far6(number), port);
    }
    let mut name = internet([10, 0, 0, number], port);
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    name
}

/// Returns addresses of all families: of `hosts`, and unspecified ones.
pub fn names(hosts: [u8; 2], ports: &[u16]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for port in ports {
        for family in [libc::AF_INET, libc::AF_INET6, SSOCKS] {
            names.extend(hosts.map(|host| name(family, host, *port)));
        }
        names.push(internet([0; 4], *port));
        names.push(internet6([0; 16], *port));
    }
    names
}

impl Caller<'_> {
    /// Makes a mapped listener on the other host, a connection to it and the accepted socket. The
    /// descriptors are in slots from the start, so other threads may use or close them at any time.
    ///
    /// # Errors
    /// If the thread cannot enter a namespace.
    pub fn meet_over_the_wire(&mut self) -> Result<()> {
        let port = self.rng.u16(2200..2300);
        let (family, protocol) = any(&mut self.rng);
        let common = self.common;
        let [own, other] = &common.namespaces;
        setns(other, CloneFlags::CLONE_NEWNET)?;
        let listener = self.nonblocking(family, libc::SOCK_STREAM, protocol);
        setns(own, CloneFlags::CLONE_NEWNET)?;
        let client = self.nonblocking(family, libc::SOCK_STREAM, protocol);
        let name = name(family, common.other, port);
        let (place, length) = (self.put(&name) as u64, name.len() as u64);
        self.counted(Kind::Bind, [listener, place, length, 0, 0, 0]);
        self.counted(Kind::Listen, [listener, 4, 0, 0, 0, 0]);
        let place = self.put(&name) as u64;
        common.tally.begin(Kind::MappedByEsp);
        self.counted(Kind::Connect, [client, place, length, 0, 0, 0]);
        await_ready(client as c_int, libc::POLLOUT);
        await_ready(listener as c_int, libc::POLLIN);
        let accepted = self.counted(Kind::Accept, [listener, 0, 0, 0, 0, 0]);
        self.keep(accepted);
        let (mut value, mut length) = (0_i32, 4_u32);
        // SAFETY: Both pointers are to local variables, and the length is the value's.
        let got = unsafe {
            let (value, length) = ((&raw mut value).cast(), &raw mut length);
            libc::getsockopt(client as c_int, SOL_EP, ESP_SO_CHECKSUM, value, length)
        };
        common
            .tally
            .end(Kind::MappedByEsp, got == 0 && accepted >= 0);
        Ok(())
    }
}

/// Waits for `events` of a descriptor, for at most 20 ms: another thread may have closed it.
fn await_ready(fd: c_int, events: i16) {
    let mut one = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: The pointer is to one local entry.
    unsafe { libc::poll(&raw mut one, 1, 20) };
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests allocation failures outside of socket calls: in new namespaces, when devices change, and
//! when the module is loaded. Every allocation fails in turn.

use std::io;

use nix::sched::{unshare, CloneFlags};

use super::memory_fails::on_hosts;
use super::memory_fails_on_the_way::{receive_all, send_all};
use guest::device::gone;
use guest::memory::{in_turn, Injection, Trial, Within};
use guest::prelude::*;

scenarios! {
    guest memory_fails_in_new_namespaces = namespaces, within(240), needs_faults;
    guest memory_fails_when_devices_change = devices, within(290), needs_faults;
    guest memory_fails_when_the_module_starts = start, within(240), needs_faults;
}

/// Moves the thread into a new network namespace.
fn leave() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

fn namespaces() -> Outcome {
    on_hosts(Within::Module, |_, injection| {
        let trial = || -> Outcome {
            let made = Trial {
                what: "a new namespace",
                prepare: &|| Ok(()),
                call: &|()| leave(),
                judge: &|()| {
                    Socket::esp()?;
                    Socket::edp()?;
                    for file in ["edp", "esp", "enet"] {
                        fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
                    }
                    let text = fs::read_to_string("/proc/sys/esp/burst_length")?;
                    ensure!(text.trim() == "21", "burst_length is {text:?}");
                    Ok(())
                },
            };
            let tally = made.run(injection)?;
            ensure!(tally.refused > 10, "{tally:?}");
            Ok(())
        };
        thread::scope(|scope| scope.spawn(trial).join())
            .map_err(|_| anyhow!("a thread panicked"))?
    })
}

fn devices() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        let pair = || lab.esp_pair(7);
        in_turn(injection, "a lower MTU", pair, |pair| lower_mtu(lab, pair))?;
        in_turn(injection, "another address", pair, |pair| {
            other_address(lab, pair)
        })?;
        in_turn(injection, "down and up", pair, |pair| {
            down_and_up(lab, pair)
        })?;
        in_turn(
            injection,
            "a device that goes",
            || pair_by_another(lab),
            |pair| removal(lab, pair),
        )
    })
}

type Pair = (Socket, Socket);

/// Lowers the MTU while packets wait because the receiver does not read. The module must cut them
/// to the lower MTU.
fn lower_mtu(lab: &Lab, (client, server): Pair) -> Result<u32> {
    let bytes = random(16_000, 5);
    let mut refused = 0;
    server.set_so(libc::SO_RCVBUF, 8192)?;
    send_all(&mut refused, &client, &bytes)?;
    eventually("what the receive buffer takes", || {
        Ok(server.queued(libc::FIONREAD)? > 0)
    })?;
    lab.a.set_mtu(500)?;
    receive_all(&mut refused, &server, &bytes)?;
    lab.a.set_mtu(1500)?;
    Ok(refused)
}

/// Changes the Ethernet address of host `a`. Host `a` ends the connection at once, and host `b`
/// must end it, too.
fn other_address(lab: &Lab, (client, server): Pair) -> Result<u32> {
    lab.a.set_mac([2, 0, 0, 0, 0, 0x77])?;
    await_events(&client, libc::POLLHUP)?;
    let mut byte = [0];
    refused(client.receive(&mut byte, 0), libc::ECONNABORTED, "receive")?;
    lab.a.set_mac(lab.a.mac)?;
    // The error is ignored: this call fails if the connection is reset already. If the reset was
    // lost, host `a` answers this packet with another reset.
    let _ = server.send(b"?", libc::MSG_NOSIGNAL);
    await_events(&server, libc::POLLHUP)?;
    Ok(0)
}

/// Sends bytes while the device is down. The bytes must arrive when the device is up again.
fn down_and_up(lab: &Lab, (client, server): Pair) -> Result<u32> {
    let mut refused = 0;
    lab.a.link("down")?;
    send_all(&mut refused, &client, b"late")?;
    lab.a.link("up")?;
    receive_all(&mut refused, &server, b"late")?;
    Ok(refused)
}

/// Makes a connection over a pair of new devices. Returns both ends.
fn pair_by_another(lab: &Lab) -> Result<Pair> {
    let (a, b) = (&lab.a.namespace, &lab.b.namespace);
    a.ip(&format!(
        "link add gone0 type veth peer name gone1 netns {}\nlink set gone0 up\n",
        b.path()
    ))?;
    b.ip("link set gone1 up\n")?;
    Device::ready(a, "gone0")?.stream_to(&Device::ready(b, "gone1")?, 7)
}

/// Removes a device. Both ends of the connection must report it.
fn removal(lab: &Lab, (client, server): Pair) -> Result<u32> {
    let mut refused = 0;
    send_all(&mut refused, &client, b"last")?;
    lab.a.namespace.ip("link del gone0\n")?;
    for socket in [&client, &server] {
        await_events(socket, libc::POLLHUP)?;
        gone(socket.send(b"?", libc::MSG_NOSIGNAL), "send")?;
    }
    Ok(refused)
}

/// Calls `finit_module(2)` of the module, without parameters.
fn load(file: &File) -> io::Result<()> {
    // SAFETY: The parameters are a string that ends with a zero byte and lives across the call. The
    // other arguments are integers.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    check(result).map(drop)
}

fn start() -> Outcome {
    let _restore = Restore;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let path = format!(
        "/lib/modules/{}/updates/{}.ko",
        release.trim(),
        module::NAME
    );
    let file = File::open(&path).context(path)?;
    let injection = Injection::new(Within::Start)?;
    let started = Trial {
        what: "the module's start",
        prepare: &|| {
            if module::loaded() {
                module::unload()?;
            }
            Ok(())
        },
        call: &|()| load(&file),
        judge: &|()| {
            for socket in [Socket::edp(), Socket::esp()] {
                drop(socket?);
            }
            Ok(())
        },
    };
    let tally = started.run(&injection)?;
    ensure!(tally.refused > 20, "{tally:?}");
    let host = Host::alone([2, 0, 0, 0, 0, 9])?;
    let (listener, client) = (host.esp_listener(7, 1)?, host.esp()?);
    client.connect(&host.to(&host, 7))?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)
}

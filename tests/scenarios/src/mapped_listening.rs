// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped listeners: ESP listens only as long as TCP listens, whatever ends TCP's listener.
//! Also tests wake-ups of `accept`, and SYNs whose bytes change while the server reads them.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::enet_run::{mount_groups, GROUPS};
use super::mapped_disconnecting::{state, TCP_CLOSE};
use guest::address::internet;
use guest::asleep::asleep;
use guest::lab::NOBODY;
use guest::mapped::stream;
use guest::mapped::{dial, is_esp, known, listener, option, MAPPED, PLAIN, POLICY};
use guest::packet_ring::Ring;
use guest::patience::factor;
use guest::prelude::*;

scenarios! {
    direct mapped_listener_that_is_destroyed_takes_no_esp = destroyed;
    direct mapped_accept_that_sleeps_ends_when_the_listener_is_destroyed = destroyed_in_accept;
    direct mapped_child_of_a_destroyed_listener_is_reset = destroyed_above_a_child;
    direct mapped_listener_shut_down_while_it_begins_takes_no_esp = shut_down_early, within(120), needs_smp;
    direct mapped_accept_that_slept_before_esp_listened_takes_esp = slept_before;
    direct mapped_syn_that_changes_takes_no_place_for_good = changing_syn, within(120), needs_smp;
    direct mapped_listener_is_of_the_control_group_of_its_socket = control_group;
}

/// Destroys TCP's listener at `port` by `ss -K`, as an administrator can.
fn destroy(host: &Host, port: u16) -> Outcome {
    let sport = format!(":{port}");
    let arguments = ["-K", "-H", "-tln", "sport", "=", &sport];
    let killed = host.namespace.run("ss", &arguments)?;
    ensure!(killed.contains("LISTEN"), "ss -K has ended {killed:?}");
    Ok(())
}

/// Returns a listener with `SO_REUSEADDR`. When it has ended, a new listener may take its port.
fn replaceable(host: &Host, kind: (i32, i32), port: u16) -> Result<Socket> {
    let listener = stream(host, kind.0, kind.1)?;
    listener.set_so(libc::SO_REUSEADDR, 1)?;
    listener.bind_bytes(&internet([0; 4], port))?;
    listener.listen(4)?;
    Ok(listener)
}

fn destroyed(lab: &Lab) -> Outcome {
    known(lab)?;
    for (port, replaced) in [(971, false), (972, true)] {
        let old = replaceable(&lab.b, MAPPED, port)?;
        let waiting = dial(&lab.a, MAPPED, port)?;
        ensure!(is_esp(&waiting), "ESP did not listen");
        destroy(&lab.b, port)?;
        if replaced {
            // The new listener may belong to a different user, so ESP's part of the old listener
            // must not take the new listener's connections.
            let new = replaceable(&lab.b, PLAIN, port)?;
            let client = dial(&lab.a, MAPPED, port)?;
            ensure!(!is_esp(&client), "the old listener took the connection");
            let (server, _) = new.accept(0)?;
            exchange(&client, &server)?;
        } else {
            let client = dial(&lab.a, MAPPED, port);
            ensure!(client.is_err(), "it still listens");
        }
        let accepted = old.accept(libc::SOCK_NONBLOCK).map(drop);
        refused(accepted, libc::EINVAL, "accept")?;
        let received = waiting.receive(&mut [0], 0);
        refused(received, libc::ECONNRESET, "a connection that waited")?;
    }
    Ok(())
}

fn destroyed_in_accept(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 973, 4)?;
    let call = || listener.accept(0).map(drop);
    let (slept, accepted, ()) = asleep(libc::SYS_accept4, call, |_| destroy(&lab.b, 973))?;
    ensure!(slept, "accept did not wait");
    refused(accepted, libc::EINVAL, "accept")
}

/// The peer is a packet socket. A host would complete the handshake before the listener is
/// destroyed.
fn destroyed_above_a_child(lab: &Lab) -> Outcome {
    const PORT: u16 = 974;
    const OWN: u16 = 3200;
    known(lab)?;
    let _listener = listener(&lab.b, MAPPED, PORT, 4)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    let send = |flags, sequence, acknowledgement, payload: &[u8]| {
        let header = EspHeader {
            source: OWN,
            destination: PORT,
            length: payload.len() as u16,
            sequence,
            acknowledgement,
            flags,
        };
        let packet = header.packet(payload);
        wire.send(&ethernet(lab.b.mac, NOBODY, ETH_P_ESP, &packet))
    };
    let answer = |wanted: u8| -> Result<EspHeader> {
        wire.wait_for_esp(|header| header.destination == OWN && header.flags & wanted != 0)
    };
    send(
        flag::SYN,
        7,
        0,
        &option([10, 0, 0, 99], [10, 0, 0, 2], PORT),
    )?;
    let syn_ack = answer(flag::SYN).context("no SYN|ACK")?;
    destroy(&lab.b, PORT)?;
    send(flag::ACK, 8, syn_ack.sequence.wrapping_add(1), &[])?;
    answer(flag::RST).context("no reset")?;
    Ok(())
}

/// One thread calls `listen`; another one calls `shutdown` until it succeeds.
fn shut_down_early(lab: &Lab) -> Outcome {
    const ROUNDS: u16 = 100;
    known(lab)?;
    for round in 0..ROUNDS {
        let port = 1100 + round;
        let listener = stream(&lab.b, MAPPED.0, MAPPED.1)?;
        listener.bind_bytes(&internet([0; 4], port))?;
        thread::scope(|scope| {
            let stopping = scope.spawn(|| while listener.shutdown(libc::SHUT_RD).is_err() {});
            let began = listener.listen(4);
            joined(stopping)?;
            began.context("listen")
        })?;
        same(state(&listener)?, TCP_CLOSE, "the state of TCP")?;
        let client = dial(&lab.a, MAPPED, port);
        ensure!(client.is_err(), "round {round}: ESP listens");
    }
    Ok(())
}

fn slept_before(lab: &Lab) -> Outcome {
    known(lab)?;
    let knobs = Knobs(&lab.b.namespace);
    knobs.set("mapped", 0)?;
    let listener = listener(&lab.b, MAPPED, 978, 4)?;
    listener.set_timeout(libc::SO_RCVTIMEO, allow(Duration::from_secs(3)))?;
    let call = || listener.accept(0);
    let (slept, accepted, client) = asleep(libc::SYS_accept4, call, |_| {
        knobs.set("mapped", 1)?;
        listener.listen(4)?;
        dial(&lab.a, MAPPED, 978)
    })?;
    ensure!(slept, "accept did not wait");
    ensure!(is_esp(&client), "TCP carries the connection");
    let (server, _) = accepted.context("accept")?;
    ensure!(is_esp(&server), "accept has taken another connection");
    exchange(&client, &server)
}

/// In this test the kernel sends SYNs from pages of this process. While the server reads their
/// option for mapped connections, the process turns that option into an unknown one and back.
fn changing_syn(lab: &Lab) -> Outcome {
    const PORT: u16 = 979;
    const FRAMES: u16 = 100;
    const HEADERS: usize = 14 + 11;
    /// The bits to flip. They turn the option's type into an unknown type, and back.
    const BITS: u8 = 8 ^ 99;
    let sends = 60 / factor() as u16;
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, PORT, 4)?;
    let options = option([10, 0, 0, 1], [10, 0, 0, 2], PORT);
    let mut ring = Ring::new(lab.a.packets(ETH_P_ESP)?)?;
    for send in 0..sends {
        for frame in 0..FRAMES {
            let source = 10_000 + send * FRAMES + frame;
            let packet = EspHeader::syn(source, PORT, &options).packet(&options);
            let put = ring.put(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &packet));
            ensure!(put, "the ring is full");
        }
        let (started, sent) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !sent.load(Ordering::Relaxed) {
                    ring.flip(HEADERS, BITS);
                    started.store(true, Ordering::Relaxed);
                }
            });
            while !started.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let result = ring.send();
            sent.store(true, Ordering::Relaxed);
            result
        })?;
    }
    // Host `a` does not know the connections that were opened in its name, and resets them.
    lab.b.await_proc("esp", |text| !text.contains("syn-recv"))?;
    let client = dial(&lab.a, MAPPED, PORT)?;
    ensure!(is_esp(&client), "no place is left for a connection");
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)
}

/// A new control group, which the process enters and leaves.
pub struct Group(PathBuf);

impl Group {
    /// Creates the group.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn create() -> Result<Self> {
        mount_groups()?;
        let path = PathBuf::from(GROUPS).join("scenario-mapped");
        fs::create_dir(&path).context("a control group")?;
        Ok(Self(path))
    }

    /// Runs `work` while the process is in the group.
    ///
    /// # Errors
    /// When the process cannot enter or leave the group, or `work` fails.
    pub fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        fs::write(self.0.join("cgroup.procs"), "0").context("entering")?;
        let done = work();
        fs::write(format!("{GROUPS}/cgroup.procs"), "0").context("leaving")?;
        done
    }

    fn number(&self) -> Result<u64> {
        Ok(fs::metadata(&self.0)?.ino())
    }

    /// Opens the group for `bpf(2)`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self) -> Result<File> {
        File::open(&self.0).context("the control group")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(format!("{GROUPS}/cgroup.procs"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// A listener belongs to the group of the task that created its socket, as with TCP, whichever task
/// calls `listen`.
fn control_group(lab: &Lab) -> Outcome {
    known(lab)?;
    let group = Group::create()?;
    let bound = |port| -> Result<Socket> {
        let socket = stream(&lab.b, MAPPED.0, MAPPED.1)?;
        socket.bind_bytes(&internet([0; 4], port))?;
        Ok(socket)
    };
    let inside = group.within(|| bound(986))?;
    inside.listen(4)?;
    let outside = bound(987)?;
    group.within(|| Ok(outside.listen(4)?))?;
    let rule = format!("deny 0.0.0.0/0 0-65535 {}", group.number()?);
    lab.b.namespace.within(|| fs::write(POLICY, rule))??;
    for (listener, port, by_esp) in [(&inside, 986, false), (&outside, 987, true)] {
        let client = dial(&lab.a, MAPPED, port)?;
        ensure!(is_esp(&client) == by_esp, "port {port}: ESP: {}", !by_esp);
        let (server, _) = listener.accept(0)?;
        exchange(&client, &server)?;
    }
    same(lab.b.counter("MappedInPolicy")?, 1, "SYNs refused")
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests allocation failures in socket calls: every allocation of a call fails in turn.

use std::cell::Cell;
use std::io;

use nix::fcntl::{splice, SpliceFFlags};
use nix::sys::sendfile::sendfile;
use nix::unistd::{pipe, read};

use guest::address::{EPPROTO_EZDP, SO_MTU, SO_STATS};
use guest::bpf::{attach, KEEP_ALL};
use guest::knobs;
use guest::memory::{Injection, Trial, Within};
use guest::prelude::*;
use guest::zero_copy;

scenarios! {
    guest memory_fails_in_socket_bind_and_listen = beginning, within(240), needs_faults;
    guest memory_fails_in_connect_and_accept = joining, within(240), needs_faults;
    guest memory_fails_in_stream_calls = stream_calls, within(240), needs_faults;
    guest memory_fails_in_datagram_calls = datagram_calls, within(240), needs_faults;
    guest memory_fails_in_calls_with_large_packets = large_packets, within(240), needs_faults;
    guest memory_fails_in_options_and_files = options_and_files, within(240), needs_faults;
    guest memory_fails_in_shutdown_and_close = ending, within(240), needs_faults;
}

/// Runs `work` on two hosts, where allocations in the scope `within` fail. Verifies that `work`
/// leaves nothing behind. No socket may be listed, and the module must unload. It unloads only if
/// no memory of a socket is in use.
pub fn on_hosts(within: Within, work: impl FnOnce(&Lab, &Injection) -> Outcome) -> Outcome {
    let lab = Lab::new(Wiring::Direct).context("setting up the lab")?;
    work(&lab, &Injection::new(within)?)?;
    lab.await_no_sockets()?;
    drop(lab);
    let _restore = Restore;
    module::unload()
}

/// Checks that `listener` accepts a connection on port 7.
fn accepts(lab: &Lab, listener: &Socket) -> Result<()> {
    let (client, server) = lab.esp_pair_through(listener, 7)?;
    exchange(&client, &server)
}

fn beginning() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        new_sockets(injection)?;
        bind(lab, injection)?;
        listen(lab, injection)
    })
}

fn new_sockets(injection: &Injection) -> Outcome {
    for (what, kind) in [
        ("socket, EDP", libc::SOCK_DGRAM),
        ("socket, ESP", libc::SOCK_STREAM),
    ] {
        let made = Trial {
            what,
            prepare: &|| Ok(None),
            call: &|slot| {
                *slot = Some(Socket::new(AF_ENET, kind, 0)?);
                Ok(())
            },
            judge: &|slot: Option<Socket>| {
                let socket = slot.context("no socket")?;
                has_events(&socket, libc::POLLOUT, what)
            },
        };
        let tally = made.run(injection)?;
        ensure!(tally.refused > 2, "{what}: {tally:?}");
    }
    Ok(())
}

fn bind(lab: &Lab, injection: &Injection) -> Outcome {
    let bound = Trial {
        what: "bind",
        prepare: &|| lab.b.esp(),
        call: &|socket| socket.bind(&lab.b.here(7)),
        judge: &|socket| same(socket.local_address()?.port, 7, "the port"),
    };
    bound.run(injection).map(drop)
}

fn listen(lab: &Lab, injection: &Injection) -> Outcome {
    let begun = Trial {
        what: "listen",
        prepare: &|| {
            let socket = lab.b.esp()?;
            socket.bind(&lab.b.here(7))?;
            Ok(socket)
        },
        call: &|socket| socket.listen(1000),
        judge: &|socket| accepts(lab, &socket),
    };
    // The first `listen` of a socket allocates memory. A second call, for a longer queue, would
    // not, so it is not tested.
    begun.refuses(injection).map(drop)
}

fn joining() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        // The first connection on a device allocates the device's ACK queue.
        let first = Trial {
            what: "connect, the first by a device",
            prepare: &|| {
                let lab = Lab::new(Wiring::Direct)?;
                let (listener, client) = (lab.b.esp_listener(7, 4)?, lab.a.esp()?);
                Ok((lab, listener, client))
            },
            call: &|(lab, _, client)| client.connect(&lab.a.to(&lab.b, 7)),
            judge: &|(_lab, listener, client)| serve(&listener, &client).map(drop),
        };
        first.refuses(injection)?;
        let connected = Trial {
            what: "connect",
            prepare: &|| Ok((lab.b.esp_listener(7, 4)?, lab.a.esp()?)),
            call: &|(_, client)| client.connect(&lab.a.to(&lab.b, 7)),
            judge: &|(listener, client)| serve(&listener, &client).map(drop),
        };
        connected.allocates(injection)?;
        let accepted = Trial {
            what: "accept",
            prepare: &|| {
                let (listener, client) = (lab.b.esp_listener(7, 4)?, lab.a.esp()?);
                client.connect(&lab.a.to(&lab.b, 7))?;
                await_events(&listener, libc::POLLIN)?;
                Ok((listener, client, None))
            },
            call: &|(listener, _, server)| {
                *server = Some(listener.accept(0)?.0);
                Ok(())
            },
            judge: &|(_, client, server)| exchange(&client, &server.context("no connection")?),
        };
        accepted.refuses(injection).map(drop)
    })
}

/// A stream of bytes. Each call continues at the position that the previous call reached.
struct Sending<'a> {
    from: &'a Socket,
    to: &'a Socket,
    bytes: &'a [u8],
    sent: usize,
}

impl<'a> Sending<'a> {
    fn new((from, to): (&'a Socket, &'a Socket), bytes: &'a [u8]) -> Self {
        Self {
            from,
            to,
            bytes,
            sent: 0,
        }
    }

    fn send(&mut self, flags: i32) -> io::Result<()> {
        self.sent += self.from.send(&self.bytes[self.sent..], flags)?;
        Ok(())
    }

    /// Sends the remaining bytes, and checks that all bytes arrive.
    fn arrives(self) -> Result<()> {
        self.from.send_all(&self.bytes[self.sent..])?;
        comes_next(self.to, self.bytes)
    }
}

/// Sends messages of several sizes through a stream.
fn stream_sends(injection: &Injection, (a, b): (&Socket, &Socket), bytes: &[u8]) -> Outcome {
    let mut refused = 0;
    for (what, bytes, flags) in [
        ("send, a small message", &bytes[..10], 0),
        ("send, more to come", &bytes[..10], libc::MSG_MORE),
        ("send, many packets", bytes, 0),
    ] {
        let sending = Trial {
            what,
            prepare: &|| Ok(Sending::new((a, b), bytes)),
            call: &|sending| sending.send(flags),
            judge: &|sending: Sending<'_>| {
                // Bytes that the stream held back are sent with this message.
                sending.from.send_all(b"end")?;
                let (from, to) = (sending.from, sending.to);
                let sent = sending.sent;
                let got = to.receive_all(sent + 3)?;
                ensure!(got[..sent] == bytes[..sent], "the bytes changed");
                ensure!(&got[sent..] == b"end", "something else came");
                exchange(from, to)
            },
        };
        refused += sending.run(injection)?.refused;
    }
    ensure!(refused > 0, "no send was refused");
    Ok(())
}

/// Receives from a stream with a peek and a time stamp, which need memory of their own.
fn stream_receives(injection: &Injection, (a, b): (&Socket, &Socket), bytes: &[u8]) -> Outcome {
    b.set_so(libc::SO_TIMESTAMP, 1)?;
    let receiving = Trial {
        what: "receive",
        prepare: &|| {
            a.send_all(bytes)?;
            arrived(b, bytes.len())?;
            Ok((vec![0; bytes.len()], 0))
        },
        call: &|(room, got)| {
            b.receive(&mut room[..100], libc::MSG_PEEK)?;
            *got += b.receive(&mut room[*got..], 0)?;
            Ok(())
        },
        judge: &|(mut room, got)| {
            b.receive_exact(&mut room[got..])?;
            ensure!(room == bytes, "the bytes changed on the way");
            exchange(a, b)
        },
    };
    receiving.run(injection)?;
    Ok(())
}

/// Sends with zero copy. A send that fails has no completion, and the next send gets the number of
/// the failed send.
fn stream_sends_in_place(
    injection: &Injection,
    (a, b): (&Socket, &Socket),
    bytes: &[u8],
) -> Outcome {
    zero_copy::switch(a, 1)?;
    let done = Cell::new(0);
    for (what, bytes) in [
        ("send in place, a small message", &bytes[..10]),
        ("send in place, many packets", bytes),
    ] {
        let sending = Trial {
            what,
            prepare: &|| Ok((Sending::new((a, b), bytes), 0)),
            call: &|(sending, calls)| {
                sending.send(libc::MSG_ZEROCOPY)?;
                *calls += 1;
                Ok(())
            },
            judge: &|(sending, calls): (Sending<'_>, u32)| {
                sending.arrives()?;
                zero_copy::completed_from(a, done.get(), calls)?;
                done.set(done.get() + calls);
                exchange(a, b)
            },
        };
        sending.refuses(injection)?;
    }
    zero_copy::switch(a, 0)?;
    Ok(())
}

/// Sends datagrams with zero copy.
fn datagrams_in_place(injection: &Injection, lab: &Lab) -> Outcome {
    let a = lab
        .a
        .namespace
        .within(|| Socket::new(AF_ENET, libc::SOCK_DGRAM, EPPROTO_EZDP))??;
    let b = lab.b.edp_bound(8)?;
    a.connect(&lab.a.to(&lab.b, 8))?;
    let bytes = random(1000, 8);
    let done = Cell::new(0);
    let sent = Trial {
        what: "send of EZDP",
        prepare: &|| Ok(()),
        call: &|()| a.send(&bytes, 0).map(drop),
        judge: &|()| {
            // The receiver's copy may have failed. Then the datagram is lost, but its send is
            // completed all the same.
            let mut got = vec![0; 2000];
            if let Ok(length) = b.receive(&mut got, libc::MSG_DONTWAIT) {
                ensure!(got[..length] == bytes, "the bytes changed on the way");
            }
            zero_copy::completed_from(&a, done.get(), 1)?;
            done.set(done.get() + 1);
            Ok(())
        },
    };
    sent.refuses(injection)?;
    Ok(())
}

/// Calls `sendfile` into a stream, and `splice` out of it.
fn stream_splices(injection: &Injection, (a, b): (&Socket, &Socket), bytes: &[u8]) -> Outcome {
    let path = "/tmp/memory-fails";
    fs::write(path, bytes)?;
    let file = File::open(path)?;
    let filed = Trial {
        what: "sendfile",
        prepare: &|| Ok(Sending::new((a, b), bytes)),
        call: &|sending| {
            let mut offset = sending.sent as i64;
            let rest = sending.bytes.len() - sending.sent;
            sending.sent += sendfile(sending.from, &file, Some(&mut offset), rest)?;
            Ok(())
        },
        judge: &Sending::arrives,
    };
    filed.refuses(injection)?;
    let part = &bytes[..10_000.min(bytes.len())];
    let spliced = Trial {
        what: "splice into a pipe",
        prepare: &|| {
            a.send_all(part)?;
            arrived(b, part.len())?;
            Ok((pipe()?, 0))
        },
        call: &|((_out, into), moved)| {
            let rest = part.len() - *moved;
            *moved += splice(b, None, into, None, rest, SpliceFFlags::empty())?;
            Ok(())
        },
        judge: &|((out, into), moved)| {
            drop(into);
            let mut got = Vec::new();
            let mut room = vec![0; part.len()];
            loop {
                match read(&out, &mut room)? {
                    0 => break,
                    length => got.extend_from_slice(&room[..length]),
                }
            }
            ensure!(got.len() == moved, "{} of {moved} bytes", got.len());
            let rest = b.receive_all(part.len() - moved)?;
            got.extend(rest);
            ensure!(got == part, "the bytes changed on the way");
            exchange(a, b)
        },
    };
    // `splice` passes pages by reference, for which it may need no memory. So it is no error if
    // every call of this trial succeeds.
    spliced.run(injection)?;
    fs::remove_file(path)?;
    Ok(())
}

fn stream_calls() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        let (a, b) = lab.esp_pair(7)?;
        let bytes = random(20_000, 5);
        stream_sends(injection, (&a, &b), &bytes)?;
        stream_sends_in_place(injection, (&a, &b), &bytes)?;
        stream_receives(injection, (&a, &b), &bytes)?;
        stream_splices(injection, (&a, &b), &bytes)
    })
}

/// Sends a datagram of `bytes` from `a` to `b` in `parts` calls, and receives it.
fn datagrams(
    injection: &Injection,
    (a, b): (&Socket, &Socket),
    (what, bytes, parts): (&str, &[u8], usize),
) -> Outcome {
    let number = Cell::new(0u64);
    let sent = Trial {
        what,
        prepare: &|| {
            number.set(number.get() + 1);
            let mut datagram = bytes.to_vec();
            datagram[..8].copy_from_slice(&number.get().to_ne_bytes());
            Ok(datagram)
        },
        call: &|datagram| {
            let mut rest = &datagram[..];
            for part in (1..=parts).rev() {
                let (now, later) = rest.split_at(rest.len() / part);
                a.send(now, if part > 1 { libc::MSG_MORE } else { 0 })?;
                rest = later;
            }
            Ok(())
        },
        judge: &|datagram| {
            // The datagram may be lost, as on a wire, but the one that is sent here must arrive.
            a.send(b"end", 0)?;
            let mut room = vec![0; bytes.len() + 1];
            loop {
                let length = b.receive(&mut room, 0)?;
                if &room[..length] == b"end" {
                    return Ok(());
                }
                ensure!(room[..length] == datagram, "another datagram came");
            }
        },
    };
    // If the allocation of a page fragment fails, the datagram's buffer comes from a slab instead.
    // So every call succeeds although one allocation fails.
    sent.allocates(injection)?;
    Ok(())
}

fn datagram_calls() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        datagrams_in_place(injection, lab)?;
        let (a, b) = lab.edp_pair(7)?;
        let bytes = random(1400, 5);
        for trial in [
            ("send, a small datagram", &bytes[..10], 1),
            ("send, a datagram", &bytes[..], 1),
            ("send, a datagram in three parts", &bytes[..], 3),
        ] {
            datagrams(injection, (&a, &b), trial)?;
        }
        b.set_so(libc::SO_TIMESTAMP, 1)?;
        let received = Trial {
            what: "receive, a datagram",
            prepare: &|| {
                a.send(&bytes, 0)?;
                await_events(&b, libc::POLLIN)?;
                Ok(vec![0; bytes.len()])
            },
            call: &|room| {
                b.receive(&mut room[..10], libc::MSG_PEEK)?;
                b.receive_from(room, 0).map(drop)
            },
            judge: &|room| {
                ensure!(room == bytes, "the bytes changed on the way");
                Ok(())
            },
        };
        received.run(injection)?;
        Ok(())
    })
}

fn large_packets() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        lab.set_mtu(60_000)?;
        let bytes = random(100_000, 5);
        let (a, b) = lab.edp_pair(7)?;
        for trial in [
            ("send, a datagram of 30,000 bytes", &bytes[..30_000], 1),
            ("send, 30,000 bytes in three parts", &bytes[..30_000], 3),
        ] {
            datagrams(injection, (&a, &b), trial)?;
        }
        let (a, b) = lab.esp_pair(7)?;
        stream_sends(injection, (&a, &b), &bytes)?;
        stream_receives(injection, (&a, &b), &bytes)?;
        stream_splices(injection, (&a, &b), &bytes)
    })
}

/// A call on a socket, and the name that messages give it.
type Named = (&'static str, fn(&Socket) -> io::Result<()>);

const OPTIONS: &[Named] = &[
    ("SO_ATTACH_FILTER", |socket| attach(socket, &[KEEP_ALL; 60])),
    ("SO_TIMESTAMP", |socket| {
        socket.set_so(libc::SO_TIMESTAMP, 1)
    }),
    ("SO_RCVBUF", |socket| {
        socket.set_so(libc::SO_RCVBUF, 100_000)
    }),
    ("SO_BINDTODEVICE", |socket| {
        socket.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth0")
    }),
    ("SO_LINGER", |socket| {
        socket.set_option(libc::SOL_SOCKET, libc::SO_LINGER, &[0; 8])
    }),
    ("SO_MTU", |socket| {
        socket.int_option(SOL_EP, SO_MTU).map(drop)
    }),
    ("SO_STATS", |socket| {
        socket.option(SOL_EP, SO_STATS, 32, 32).map(drop)
    }),
    ("SIOCGIFHWADDR", |socket| {
        socket.hardware_address("eth0").map(drop)
    }),
    ("FIONREAD", |socket| socket.queued(libc::FIONREAD).map(drop)),
];

/// Reads a file to its end.
fn read_file(path: &str, text: &mut String) -> io::Result<()> {
    *text = fs::read_to_string(path)?;
    Ok(())
}

fn options_and_files() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        let (a, b) = lab.edp_pair(7)?;
        let (client, server) = lab.esp_pair(7)?;
        let refused = Cell::new(0);
        for ((kind, socket), (name, call)) in [("EDP", &a), ("ESP", &client)]
            .into_iter()
            .flat_map(|socket| OPTIONS.iter().map(move |option| (socket, option)))
        {
            let set = Trial {
                what: &format!("{name}, {kind}"),
                prepare: &|| Ok(()),
                call: &|()| call(socket),
                judge: &|()| Ok(()),
            };
            refused.set(refused.get() + set.run(injection)?.refused);
        }
        ensure!(refused.get() > 0, "no option took memory");
        a.send(b"filtered", 0)?;
        receives(&b, b"filtered")?;
        exchange(&client, &server)?;

        lab.a
            .namespace
            .within(|| settings_and_lists(injection, lab))??;
        ensure!(Knobs(&lab.b.namespace).get("burst_length")? == 21);
        Ok(())
    })
}

/// Reads and writes files of host `a`. The calling thread is in that host's namespace.
fn settings_and_lists(injection: &Injection, lab: &Lab) -> Outcome {
    let value = Cell::new(30u32);
    let written = Trial {
        what: "writing to /proc/sys/esp",
        prepare: &|| {
            value.set(if value.get() == 30 { 40 } else { 30 });
            Ok(value.get().to_string())
        },
        call: &|text| knobs::write("burst_length", text.as_bytes()),
        judge: &|text| {
            let found = fs::read_to_string(knobs::path("burst_length"))?;
            ensure!(found.trim() == text, "{found:?} after writing {text:?}");
            Ok(())
        },
    };
    written.refuses(injection)?;
    let path = knobs::path("burst_length");
    let settled = Trial {
        what: "reading from /proc/sys/esp",
        prepare: &|| Ok(String::new()),
        call: &|text| read_file(&path, text),
        judge: &|text| {
            ensure!(text.trim() == value.get().to_string(), "it reads {text:?}");
            Ok(())
        },
    };
    settled.refuses(injection)?;
    // These sockets fill more than the first page of a list.
    let crowd: Vec<Socket> = (0..100)
        .map(|port| lab.a.edp_bound(2000 + port))
        .chain((0..100).map(|port| lab.a.esp_listener(2000 + port, 1)))
        .collect::<Result<_>>()?;
    for file in ["edp", "esp", "enet"] {
        let path = format!("/proc/thread-self/net/{file}");
        let whole = fs::read_to_string(&path)?;
        let listed = Trial {
            what: &format!("reading /proc/net/{file}"),
            prepare: &|| Ok(String::new()),
            call: &|text| read_file(&path, text),
            judge: &|text| {
                ensure!(text == whole, "{file} is another: {text:?}");
                Ok(())
            },
        };
        listed.refuses(injection)?;
    }
    drop(crowd);
    Ok(())
}

fn ending() -> Outcome {
    on_hosts(Within::Call, |lab, injection| {
        let listener = lab.b.esp_listener(7, 4)?;
        let pair = || lab.esp_pair_through(&listener, 7);
        let last_bytes = || {
            let (client, server) = pair()?;
            client.send_all(b"last")?;
            Ok((client, server))
        };
        shutdown(injection, &last_bytes)?;
        close(injection, "close", &last_bytes, &ends)?;
        let unread = || {
            let (client, server) = pair()?;
            server.send_all(b"unread")?;
            await_events(&client, libc::POLLIN)?;
            Ok((client, server))
        };
        close(injection, "close with bytes unread", &unread, &is_cut_off)?;
        let waiting = || {
            let listener = lab.b.esp_listener(8, 4)?;
            Ok((listener, lab.a.esp_connected(&lab.a.to(&lab.b, 8))?))
        };
        close(injection, "close of a listener", &waiting, &is_cut_off)
    })
}

/// A function that creates the two sockets of a trial.
type Prepare<'a> = &'a dyn Fn() -> Result<(Socket, Socket)>;

/// Shuts down the sending side of the first of two sockets. This first socket has sent "last" to
/// the second one.
fn shutdown(injection: &Injection, prepare: Prepare<'_>) -> Outcome {
    let half = Trial {
        what: "shutdown",
        prepare,
        call: &|(client, _)| client.shutdown(libc::SHUT_WR),
        judge: &|(client, server)| {
            ends(&server)?;
            server.send_all(b"done")?;
            drop(server);
            ends(&client)
        },
    };
    // The call may need no allocation: the packet's buffer may come from the processor's cache,
    // which allocates many buffers at once.
    let tally = half.run(injection)?;
    ensure!(tally.refused == 0, "shutdown: {tally:?}");
    Ok(())
}

/// Closes the first of two sockets, and lets `judge` check the second one.
fn close(
    injection: &Injection,
    what: &str,
    prepare: Prepare<'_>,
    judge: &dyn Fn(&Socket) -> Outcome,
) -> Outcome {
    let closed = Trial {
        what,
        prepare: &|| prepare().map(|(socket, peer)| (Some(socket), peer)),
        call: &|(socket, _)| {
            drop(socket.take());
            Ok(())
        },
        judge: &|(_, peer)| judge(&peer),
    };
    closed.run(injection).map(drop)
}

/// Checks that four bytes arrive before the end of the stream.
fn ends(socket: &Socket) -> Outcome {
    let mut bytes = [0; 10];
    ensure!(socket.receive(&mut bytes, 0)? == 4, "the last bytes");
    ensure!(socket.receive(&mut bytes, 0)? == 0, "the end");
    Ok(())
}

/// Checks that the connection is reset. If the reset was lost, this function's packet is answered
/// with another reset.
fn is_cut_off(socket: &Socket) -> Outcome {
    let _ = socket.send(b"?", libc::MSG_NOSIGNAL);
    await_events(socket, libc::POLLHUP).map(drop)
}

// SPDX-License-Identifier: GPL-2.0-only

//! The attacks on a host, each with the bounds that the measured figures must keep.

use super::dialer::{address, Dialed};
use super::flood::{cost, during, wire};
use super::victim::{goodput, held, stream, usual_goodput};
use super::{Bounds, Figures};
use guest::address::{internet, IPPROTO_ENET};
use guest::frame::edp;
use guest::mapped;
use guest::prelude::*;
use guest::station::Station;

/// An attack on host a, and the bounds that its figures must keep.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// The attack's name in the printed table.
    pub what: &'static str,
    /// The function that makes the attack.
    pub make: fn(&Lab) -> Result<Figures>,
    /// The bounds that the figures must keep.
    pub bounds: Bounds,
}

const fn bounds(cost: f64, share: f64, held: f64, of: &'static str) -> Bounds {
    Bounds {
        cost,
        share,
        held,
        of,
    }
}

/// All attacks, in the order of the table.
pub const ALL: &[Attack] = &[
    SYNS,
    MAPPED_SYNS,
    FOREIGN_SYNS,
    STRAYS,
    FORGED,
    GUESSED_REQUESTS,
    REQUESTS,
    EDP_NOBODY,
    EDP_UNREAD,
    ECHOES,
    WINDOWLESS,
    UNREAD,
    SILENT,
    TEASING,
];

const PORT: u16 = 2870;
const BACKLOG: i32 = 128;

/// Encodes an ESP packet for host a, from station `number`.
fn esp(lab: &Lab, number: u64, header: EspHeader) -> Vec<u8> {
    ethernet(lab.a.mac, address(number), ETH_P_ESP, &header.packet(&[]))
}

/// Measures the share of a stream's goodput that remains during a flood, and the cost of a frame.
fn beside_a_stream(lab: &Lab, make: &mut (dyn FnMut(u64) -> Vec<u8> + Send)) -> Result<Figures> {
    let wire = wire(lab)?;
    let (from, to, _listener) = stream(lab, PORT + 50, 16)?;
    // The first transfer measures the round-trip time.
    goodput(&from, &to)?;
    let alone = usual_goodput(&from, &to)?;
    let (sent, beside) = during(&wire, make, || usual_goodput(&from, &to))?;
    ensure!(sent > 100, "only {sent} frames came meanwhile");
    Ok(Figures {
        cost: Some(cost(lab, &wire, make)?),
        share: Some(beside / alone),
        held: None,
    })
}

/// SYNs from random addresses, with many options and a checksum. Some make half-open connections,
/// and the others are answered with SYN cookies.
pub const SYNS: Attack = Attack {
    what: "SYNs from absent hosts",
    make: syns,
    bounds: bounds(5_500.0, 0.7, 160.0, "half-open connections"),
};

fn syns(lab: &Lab) -> Result<Figures> {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    let options = [[4, 2, 5, 0xd1], [9, 2, 0, 0]].concat().repeat(8);
    let mut syn = |number: u64| {
        let header = EspHeader {
            length: options.len() as u16,
            sequence: number as u16,
            ..EspHeader::new(1 + (number >> 16) as u16, PORT, flag::SYN)
        };
        let packet = header.summed_packet(&options);
        ethernet(lab.a.mac, address(number), ETH_P_ESP, &packet)
    };
    let mut figures = beside_a_stream(lab, &mut syn)?;
    // A real host can still connect during the flood.
    let wire = wire(lab)?;
    let mut number = 1 << 20;
    let mut most = 0;
    let mut next = |_| {
        number += 1;
        syn(number)
    };
    let clients = || {
        for _ in 0..20 {
            let client = lab.b.esp()?;
            client
                .connect(&lab.b.to(&lab.a, PORT))
                .context("a client in the flood")?;
            let (server, _) = listener.accept(0)?;
            exchange(&client, &server)?;
            let text = lab.a.namespace.proc_net("esp")?;
            let half_open = text.lines().filter(|line| line.contains(" syn-recv "));
            most = most.max(half_open.count());
        }
        Ok(())
    };
    during(&wire, &mut next, clients)?;
    figures.held = Some(most as f64);
    Ok(figures)
}

/// Encodes SYN `number` of an attack. The SYN asks for a mapped connection, whose ends have IP
/// addresses. The Ethernet address `from` is host b's own, or belongs to a station that claims to
/// be host b.
fn mapped_syn(lab: &Lab, from: [u8; 6], port: u16, number: u64) -> Vec<u8> {
    let options = mapped::option([10, 0, 0, 2], [10, 0, 0, 1], port);
    let header = EspHeader {
        length: options.len() as u16,
        sequence: number as u16,
        ..EspHeader::new(1 + number as u16 % 60_000, port, flag::SYN)
    };
    ethernet(lab.a.mac, from, ETH_P_ESP, &header.packet(&options))
}

/// Makes a listener for mapped connections on host a. A connection from host b makes host a learn
/// host b's Ethernet address.
fn mapped_listener(lab: &Lab, port: u16) -> Result<Socket> {
    for (host, number) in [(&lab.a, 1), (&lab.b, 2)] {
        // `replace` succeeds even if another attack has already set the address.
        (host.namespace).ip(&format!(
            "address replace 10.0.0.{number}/24 dev {DEVICE}\n"
        ))?;
    }
    let listener = mapped::stream(&lab.a, libc::AF_INET, IPPROTO_ENET)?;
    listener.bind_bytes(&internet([0; 4], port))?;
    listener.listen(BACKLOG)?;
    let client = mapped::stream(&lab.b, libc::AF_INET, libc::IPPROTO_TCP)?;
    client.connect_bytes(&internet([10, 0, 0, 1], port))?;
    listener.accept(0)?;
    Ok(listener)
}

/// Adds the present number of host a's half-open connections to the figures.
fn half_open(lab: &Lab, figures: Figures) -> Result<Figures> {
    let text = lab.a.namespace.proc_net("esp")?;
    let half_open = text.lines().filter(|line| line.contains(" syn-recv "));
    Ok(Figures {
        held: Some(half_open.count() as f64),
        ..figures
    })
}

/// SYNs of mapped connections from the neighbour that owns the IP address. Each makes a half-open
/// connection until the backlog is full; later SYNs are dropped.
pub const MAPPED_SYNS: Attack = Attack {
    what: "SYNs of mapped connections",
    make: |lab| {
        let port = PORT + 1;
        let _listener = mapped_listener(lab, port)?;
        let mut syn = |number| mapped_syn(lab, lab.b.mac, port, number);
        let figures = beside_a_stream(lab, &mut syn)?;
        half_open(lab, figures)
    },
    // Each SYN makes a half-open connection, and host b resets it. A SYN costs 19,000 to 54,000
    // instructions, depending on earlier work of the guest.
    bounds: bounds(100_000.0, 0.6, 160.0, "half-open connections"),
};

/// SYNs as in [`MAPPED_SYNS`], but from hosts that do not own the IP address. Host a answers each
/// SYN with a reset and keeps no state.
pub const FOREIGN_SYNS: Attack = Attack {
    what: "SYNs of mapped connections from strangers",
    make: |lab| {
        let port = PORT + 2;
        let _listener = mapped_listener(lab, port)?;
        let mut syn = |number| mapped_syn(lab, address(number), port, number);
        let figures = beside_a_stream(lab, &mut syn)?;
        half_open(lab, figures)
    },
    bounds: bounds(8_000.0, 0.7, 0.0, "half-open connections"),
};

/// Packets for ports without a socket. Each is answered with a reset of the same length.
pub const STRAYS: Attack = Attack {
    what: "packets for ports without a listener",
    make: |lab| {
        beside_a_stream(lab, &mut |number| {
            let header = EspHeader::new(number as u16 | 1, 1 + number as u16 % 2000, flag::ACK);
            esp(lab, number, header)
        })
    },
    bounds: bounds(6_000.0, 0.8, 0.0, ""),
};

/// Sends packets with guessed sequence and acknowledgement numbers to a, in b's name, for the
/// connection between a and b.
fn forged(lab: &Lab, flags: u8) -> Result<Figures> {
    let listener = lab.a.esp_listener(PORT, 16)?;
    let client = lab.b.esp_connected(&lab.b.to(&lab.a, PORT))?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    let source = client.local_address()?.port;
    let mut make = |number: u64| {
        let header = EspHeader {
            sequence: (number as u16).wrapping_mul(251),
            // In one packet of 65536, both numbers are right. Such a packet can only end this
            // connection, which is not the measured one.
            acknowledgement: (number as u16).wrapping_mul(509) ^ 0x5555,
            ..EspHeader::new(source, PORT, flags)
        };
        ethernet(lab.a.mac, lab.b.mac, ETH_P_ESP, &header.packet(&[]))
    };
    beside_a_stream(lab, &mut make)
}

/// An attack by acknowledgements whose sequence and acknowledgement numbers are guessed.
pub const FORGED: Attack = Attack {
    what: "guessed acknowledgements for a connection",
    make: |lab| forged(lab, flag::ACK),
    bounds: bounds(2_000.0, 0.85, 0.0, ""),
};

/// An attack by retransmission requests whose sequence and acknowledgement numbers are guessed.
pub const GUESSED_REQUESTS: Attack = Attack {
    what: "guessed retransmission requests for a connection",
    make: |lab| forged(lab, flag::ACK | flag::RRQ),
    bounds: bounds(2_000.0, 0.85, 0.0, ""),
};

/// An attack by a peer that requests the same packets again and again.
pub const REQUESTS: Attack = Attack {
    what: "retransmission requests by the peer",
    make: requests,
    bounds: bounds(f64::MAX, 0.0, 21.0, "packets for a request"),
};

fn requests(lab: &Lab) -> Result<Figures> {
    const REQUESTS: usize = 1000;
    let (mut station, client) = Station::connect(lab, PORT)?;
    client.set_nonblocking(true)?;
    // The client sends more bytes than a window holds. After the first window the client must wait,
    // since the station acknowledges nothing new.
    client.send(&[7; 60_000], libc::MSG_NOSIGNAL)?;
    station.new_packets()?;
    station.acknowledge()?;
    let window = station.new_packets()?;
    let mut answers = 0;
    for _ in 0..REQUESTS {
        station.send(flag::ACK | flag::RRQ, &[])?;
        let came = station.sent_so_far()?;
        answers += came.iter().filter(|header| header.length > 0).count();
    }
    note(&format!("{answers} packets, after a window of {window}"));
    station.reset()?;
    Ok(Figures {
        held: Some(answers as f64 / REQUESTS as f64),
        ..Figures::default()
    })
}

fn datagram(lab: &Lab, port: u16, payload: &[u8]) -> Vec<u8> {
    let packet = edp(9, port, payload.len() as u16, payload);
    ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, &packet)
}

/// An attack by datagrams for ports without a socket.
pub const EDP_NOBODY: Attack = Attack {
    what: "datagrams for ports without a socket",
    make: |lab| {
        beside_a_stream(lab, &mut |number| {
            datagram(lab, 1 + number as u16 % 2000, b"x")
        })
    },
    bounds: bounds(1_000.0, 0.85, 0.0, ""),
};

/// An attack by datagrams for a socket that no program reads.
pub const EDP_UNREAD: Attack = Attack {
    what: "datagrams that the program does not read",
    make: |lab| {
        let socket = lab.a.edp_bound(PORT)?;
        let figures = beside_a_stream(lab, &mut |_| datagram(lab, PORT, &[1; 1000]))?;
        let (holds, receive, _) = held(&socket)?;
        Ok(Figures {
            held: Some(f64::from(holds) / f64::from(receive)),
            ..figures
        })
    },
    // The socket accepts a whole datagram while any room is left, so the queued datagrams may
    // exceed the buffer.
    bounds: bounds(3_000.0, 0.85, 1.1, "receive buffers"),
};

/// An attack by echo requests. Each is answered with a reply of the same length.
pub const ECHOES: Attack = Attack {
    what: "echo requests",
    make: |lab| beside_a_stream(lab, &mut |_| datagram(lab, 0, &[1, 2, 3])),
    bounds: bounds(6_000.0, 0.8, 0.0, ""),
};

/// An attack by a peer that sends beyond its window, over a connection that no program reads.
pub const WINDOWLESS: Attack = Attack {
    what: "a peer that sends beyond its window",
    make: windowless,
    bounds: bounds(f64::MAX, 0.0, 1.2, "receive buffers"),
};

fn windowless(lab: &Lab) -> Result<Figures> {
    let mut most = 0.0f64;
    for length in [1, 1400] {
        let (mut station, client) = Station::connect(lab, PORT)?;
        for _ in 0..2000 {
            station.send_data(flag::TXS | flag::TXF, &vec![3; length])?;
        }
        station.sent_so_far()?;
        let (holds, receive, _) = held(&client)?;
        most = most.max(f64::from(holds) / f64::from(receive));
        station.reset()?;
    }
    Ok(Figures {
        held: Some(most),
        ..Figures::default()
    })
}

/// Many connections that are not read. Each peer sends until its calls would block.
pub const UNREAD: Attack = Attack {
    what: "32 connections that the program does not read",
    make: unread,
    bounds: bounds(f64::MAX, 0.8, 1.0, "receive buffers each"),
};

fn unread(lab: &Lab) -> Result<Figures> {
    const COUNT: usize = 32;
    let (from, to, listener) = stream(lab, PORT, 128)?;
    goodput(&from, &to)?;
    let alone = usual_goodput(&from, &to)?;
    let mut pairs = Vec::new();
    for _ in 0..COUNT {
        let client = lab.b.esp_connected(&lab.b.to(&lab.a, PORT))?;
        let (server, _) = listener.accept(0)?;
        client.set_nonblocking(true)?;
        while client.send(&[1; 3000], libc::MSG_NOSIGNAL).is_ok() {}
        pairs.push((client, server));
    }
    let share = usual_goodput(&from, &to)? / alone;
    let mut most = 0.0f64;
    for (_, server) in &pairs {
        let (holds, receive, _) = held(server)?;
        most = most.max(f64::from(holds) / f64::from(receive));
    }
    Ok(Figures {
        share: Some(share),
        held: Some(most),
        ..Figures::default()
    })
}

/// Opens `COUNT` connections of stations to a listener of host a. Then measures a stream from b,
/// while a thread sends the frames that `tease` makes.
fn announcers(
    lab: &Lab,
    mut tease: impl FnMut(&mut [Dialed], u64) -> Vec<u8> + Send,
) -> Result<Figures> {
    const COUNT: u64 = 32;
    let (from, to, _listener) = stream(lab, PORT, 128)?;
    goodput(&from, &to)?;
    let alone = goodput(&from, &to)?;
    let hears = lab.b.packets(ETH_P_ESP)?;
    let mut stations = (0..COUNT)
        .map(|number| Dialed::open(lab, &hears, number, PORT))
        .collect::<Result<Vec<_>>>()?;
    drop(hears);
    let wire = wire(lab)?;
    for station in &mut stations {
        wire.send(&station.data(flag::TXS, &[1]))?;
    }
    let (_, beside) = during(&wire, &mut |number| tease(&mut stations, number), || {
        goodput(&from, &to)
    })?;
    for station in &stations {
        wire.send(&station.reset())?;
    }
    Ok(Figures {
        share: Some(beside / alone),
        ..Figures::default()
    })
}

/// An attack by senders that announce a transmission (by the flag TXS) and then send nothing.
pub const SILENT: Attack = Attack {
    what: "32 senders that announce and fall silent",
    make: |lab| {
        announcers(lab, |_, _| {
            // A frame that no host accepts.
            ethernet([2, 0, 0, 0, 0, 0x77], lab.b.mac, ETH_P_ESP, &[0; 11])
        })
    },
    bounds: bounds(f64::MAX, 0.28, 0.0, ""),
};

/// Senders that announce a transmission again whenever host a gives up on them.
pub const TEASING: Attack = Attack {
    what: "32 senders that announce again and again",
    make: |lab| {
        announcers(lab, |stations, number| {
            let count = stations.len() as u64;
            let station = &mut stations[(number / 2 % count) as usize];
            match number % 2 {
                0 => station.data(flag::TXF, &[1]),
                _ => station.data(flag::TXS, &[1]),
            }
        })
    },
    bounds: bounds(f64::MAX, 0.5, 0.0, ""),
};

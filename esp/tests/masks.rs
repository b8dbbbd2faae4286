// SPDX-License-Identifier: GPL-2.0

//! Tests of checksum masks: the mask of each packet, and the packets that fail their checksum.

use esp::options::{NONCE_LEN, OPTIONS_LEN};
use esp::{flags, reset_for, Config, Connection, Header, Options, Outcome, Room, Seq, Transmit};

/// A packet on the wire and its mask.
type Packet = (Header, u32);

const MS: u64 = 1_000_000;

/// One end of a connection, whose program reads at once. Each message is one packet.
struct End {
    conn: Connection,
    /// Number of data packets that the end has taken.
    taken: u32,
}

fn room() -> Room {
    Room {
        queued: 0,
        limit: 1 << 20,
        arriving: 100,
        packet: 100,
    }
}

impl End {
    fn client(isn: u16, nonce: Option<u32>) -> Self {
        let mut conn = Connection::new(1, 2, Config::default());
        if let Some(nonce) = nonce {
            conn.use_nonce(nonce);
        }
        conn.connect(Seq(isn), 0);
        Self { conn, taken: 0 }
    }

    /// Returns a listener's child for a SYN that has the options `told`.
    fn child(syn: &Header, told: &Options, isn: u16, nonce: Option<u32>) -> Self {
        let mut conn = Connection::accept(2, syn, Seq(isn), Config::default(), 0);
        if let Some(nonce) = nonce {
            conn.use_nonce(nonce);
        }
        conn.take_options(told);
        Self { conn, taken: 0 }
    }

    /// Returns everything that the end sends now.
    fn send_all(&mut self, now: u64) -> Vec<Packet> {
        let mut flags = |_: Seq| flags::TXS | flags::TXF;
        let mut sent = Vec::new();
        while let Some(next) = self.conn.poll_transmit(now, &mut flags) {
            let mut header = *next.header();
            if let Transmit::Data { count, .. } = next {
                assert_eq!(count, 1);
                header.len = 7;
            }
            sent.push((header, self.conn.mask(&header)));
        }
        sent
    }

    /// Returns the options of this end's SYN or SYN|ACK.
    fn options(&self) -> Options {
        let mut bytes = Options::emit(1489, &Config::default()).to_vec();
        bytes.extend(
            self.conn
                .nonce()
                .iter()
                .flat_map(|n| Options::emit_nonce(*n)),
        );
        Options::parse(&bytes)
    }

    /// Processes a packet. Returns `None` if the packet's checksum is wrong.
    fn receive(&mut self, (header, mask): Packet, told: &Options, now: u64) -> Option<Outcome> {
        if !self.conn.takes_mask(&header, mask) {
            return None;
        }
        let mut outcome = self.conn.on_packet(&header, room(), now);
        if outcome.answered {
            self.conn.take_answer(told, &mut outcome);
        }
        self.taken += u32::from(outcome.taken);
        self.conn.flush_ack();
        Some(outcome)
    }
}

/// Two ends on a wire without losses and latency.
struct Wire {
    ends: [End; 2],
    now: u64,
    /// All packets that each end has sent.
    log: [Vec<Packet>; 2],
}

impl Wire {
    /// Returns two connected ends with the initial sequence numbers `isns`. The first end is the
    /// client.
    fn new(isns: [u16; 2], nonces: [Option<u32>; 2]) -> Self {
        let mut client = End::client(isns[0], nonces[0]);
        let syn = client.send_all(0)[0];
        let child = End::child(&syn.0, &client.options(), isns[1], nonces[1]);
        let mut wire = Self {
            ends: [client, child],
            now: 0,
            log: [vec![syn], Vec::new()],
        };
        wire.settle();
        wire
    }

    /// Lets both ends send until neither has more to send.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for from in 0..2 {
                let told = self.ends[from].options();
                for packet in self.ends[from].send_all(self.now) {
                    quiet = false;
                    self.log[from].push(packet);
                    let taken = self.ends[1 - from].receive(packet, &told, self.now);
                    assert!(taken.is_some(), "{packet:x?} of {from} fails its sum");
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// Sends `packets` messages from the end `from`, one by one.
    fn send(&mut self, from: usize, packets: u32) {
        let before = self.ends[1 - from].taken;
        for _ in 0..packets {
            self.now += MS / 100;
            self.ends[from].conn.enqueue(1);
            self.settle();
        }
        assert_eq!(self.ends[1 - from].taken - before, packets);
    }

    /// Returns the last packet of `from` that `wanted` accepts.
    fn last(&self, from: usize, wanted: impl Fn(&Header) -> bool) -> Packet {
        let mut packets = self.log[from].iter().rev();
        *packets.find(|(header, _)| wanted(header)).expect("one")
    }
}

const BOTH: [Option<u32>; 2] = [Some(0x0123_4567), Some(0x89ab_cdef)];

fn is_data(header: &Header) -> bool {
    header.len > 0
}

#[test]
fn a_nonce_is_an_option_of_four_bytes() {
    let bytes = Options::emit_nonce(0x0102_0304);
    assert_eq!(bytes, [11, 4, 1, 2, 3, 4]);
    assert_eq!(bytes.len(), NONCE_LEN);
    assert_eq!(Options::parse(&bytes).nonce, Some(0x0102_0304));
    for cut in 0..NONCE_LEN {
        assert_eq!(Options::parse(&bytes[..cut]).nonce, None, "{cut} bytes");
    }
    // An option with a different length ends the list.
    let longer = [
        &[11, 5, 1, 2, 3, 4, 5][..],
        &Options::emit(1489, &Config::default()),
    ]
    .concat();
    assert_eq!(Options::parse(&longer), Options::default());
    let all = OPTIONS_LEN + esp::MAPPED_LEN + NONCE_LEN;
    assert!(all <= esp::OPTIONS_MAX, "{all} bytes are not read");
}

#[test]
fn masks_are_as_documented() {
    // The expected masks are those of the client's last packet and of the server's last packet. An
    // independent program, which was written from docs/protocol.md, has computed them.
    let last = |wire: &Wire| [0, 1].map(|from| wire.last(from, |_| true).1);
    for (from, packets, masks) in [
        (0, 1, [0x0f22_1ade, 0x6114_e9ef]),
        (0, 65_536, [0xc5eb_ac4b, 0xd9ff_8521]),
        (1, 65_536, [0xd3c3_f8eb, 0xb6b3_6145]),
    ] {
        let mut wire = Wire::new([100, 200], BOTH);
        wire.send(from, packets);
        assert_eq!(last(&wire), masks, "{packets} packets of {from}");
    }
}

#[test]
fn both_ends_count_the_wraps_of_both_directions_alike() {
    for isns in [[0, 0], [0xffff, 0xfffe], [0xfff0, 7], [1, 0x8000]] {
        let mut wire = Wire::new(isns, BOTH);
        assert!(wire.ends.iter().all(|end| end.conn.has_masks()));
        for _ in 0..5 {
            wire.send(0, 30_000);
            wire.send(1, 20_000);
        }
    }
}

#[test]
fn data_of_an_earlier_wrap_fails_its_checksum() {
    let mut wire = Wire::new([100, 200], BOTH);
    wire.send(0, 1);
    let (stale, mask) = wire.last(0, is_data);
    wire.send(0, 65_535);
    assert!(!wire.ends[1].conn.takes_mask(&stale, mask));
    wire.ends[0].conn.enqueue(1);
    let (fresh, mask) = wire.ends[0].send_all(wire.now)[0];
    assert_eq!(fresh, stale, "the very same header is due");
    assert!(wire.ends[1].conn.takes_mask(&fresh, mask));
}

#[test]
fn an_acknowledgement_of_an_earlier_wrap_fails_its_checksum() {
    let mut wire = Wire::new([100, 200], BOTH);
    wire.send(0, 40);
    let (stale, mask) = wire.last(1, |header| !is_data(header));
    wire.send(0, 65_536);
    let (fresh, other) = wire.last(1, |header| header.ack == stale.ack);
    assert_eq!(fresh, stale, "its sequence number has not changed");
    assert!(wire.ends[0].conn.takes_mask(&fresh, other));
    assert!(!wire.ends[0].conn.takes_mask(&stale, mask));
}

#[test]
fn a_packet_of_an_earlier_connection_fails_its_checksum() {
    let mut old = Wire::new([100, 200], BOTH);
    old.send(0, 1);
    let (stale, mask) = old.last(0, is_data);
    for nonces in [
        [BOTH[0], Some(1)],
        [Some(1), BOTH[1]],
        // These are the nonces of the old connection, but swapped.
        [BOTH[1], BOTH[0]],
    ] {
        let mut new = Wire::new([100, 200], nonces);
        assert!(!new.ends[1].conn.takes_mask(&stale, mask));
        assert!(!new.ends[1].conn.takes_mask(&stale, 0));
    }
    assert!(Wire::new([100, 200], BOTH).ends[1]
        .conn
        .takes_mask(&stale, mask));
}

#[test]
fn masks_of_all_wraps_are_different() {
    let mut wire = Wire::new([0, 0], BOTH);
    let mut masks = std::collections::HashSet::new();
    for _ in 0..20 {
        wire.send(0, 1);
        masks.insert(wire.last(0, is_data).1);
        wire.send(0, 65_535);
    }
    assert_eq!(masks.len(), 20);
}

#[test]
fn without_a_nonce_of_one_end_no_packet_has_a_mask() {
    for nonces in [[None, None], [None, BOTH[1]], [BOTH[0], None]] {
        let mut wire = Wire::new([100, 200], nonces);
        wire.send(0, 40);
        wire.send(1, 40);
        assert!(wire.log.iter().flatten().all(|(_, mask)| *mask == 0));
        let told = nonces[0].is_some() || wire.ends[1].options().nonce.is_none();
        assert!(told, "a SYN|ACK answers a SYN without a nonce by none");
    }
}

#[test]
fn a_handshake_has_no_masks() {
    let wire = Wire::new([100, 200], BOTH);
    for (header, mask) in wire.log.iter().flatten() {
        assert_eq!(header.has(flags::SYN), *mask == 0, "{header:?}");
    }
}

#[test]
fn the_reset_of_a_host_that_has_forgotten_has_the_mask_of_what_it_answers() {
    // With these initial numbers, the tested numbers include the last one before a wrap and the
    // first one after it.
    for isn in [100, 0xfffb, 0xfffc, 0xfffd] {
        let mut wire = Wire::new([isn, 200], BOTH);
        wire.send(0, 3);
        let (header, mask) = wire.last(0, is_data);
        let reset = reset_for(&header).expect("data is answered");
        let client = &mut wire.ends[0].conn;
        assert!(client.takes_mask(&reset, mask));
        assert!(!client.takes_mask(&reset, 0), "a blind one");
        assert!(!client.takes_mask(&reset, mask ^ 1));
        wire.send(0, 65_536);
        let client = &mut wire.ends[0].conn;
        assert!(!client.takes_mask(&reset, mask), "a stale one");
    }
    let mut wire = Wire::new([100, 200], BOTH);
    wire.send(0, 3);
    // The RST of a peer that ends the connection has a mask.
    let reset = wire.ends[1].conn.abort().expect("the peer knows of it");
    let mask = wire.ends[1].conn.mask(&reset);
    assert!(!wire.ends[0].conn.takes_mask(&reset, 0));
    assert!(wire.ends[0].conn.takes_mask(&reset, mask));
}

#[test]
fn a_restarted_host_answers_packets_of_its_forgotten_connection() {
    let mut old = Wire::new([100, 200], BOTH);
    old.send(1, 1);
    let (stale, mask) = old.last(1, is_data);
    let mut client = End::client(300, Some(5));
    assert_eq!(client.send_all(0).len(), 1);
    assert!(client
        .receive((stale, mask), &Options::default(), 0)
        .is_some());
    let (reset, echo) = client.send_all(0)[0];
    assert!(reset.has(flags::RST));
    assert!(old.ends[1].conn.takes_mask(&reset, echo));
    assert!(!old.ends[1].conn.takes_mask(&reset, 0));
    // In contrast, a RST or SYN|ACK with a wrong checksum is dropped.
    for kind in [flags::RST, flags::SYN] {
        let flags = kind | flags::ACK;
        let ack = Seq(301);
        let header = Header {
            flags,
            ack,
            len: 0,
            ..stale
        };
        assert!(!client.conn.takes_mask(&header, mask));
    }
}

#[test]
fn crossed_syns_exchange_both_nonces() {
    let mut ends = [End::client(100, BOTH[0]), End::client(200, BOTH[1])];
    let mut in_flight: [Vec<(Packet, Options)>; 2] = Default::default();
    for step in 0..12 {
        let now = step * MS;
        for from in 0..2 {
            let told = ends[from].options();
            let mut sent: Vec<_> = ends[from].send_all(now);
            // Both ends are clients with the same ports, so swap the ports of one to make them ends
            // of one connection.
            for (header, _) in &mut sent {
                (header.src, header.dst) = if from == 0 { (1, 2) } else { (2, 1) };
            }
            in_flight[1 - from].extend(sent.into_iter().map(|packet| (packet, told)));
        }
        for to in 0..2 {
            for (packet, told) in std::mem::take(&mut in_flight[to]) {
                assert!(
                    ends[to].receive(packet, &told, now).is_some(),
                    "{packet:x?}"
                );
            }
        }
        if step == 5 {
            ends[0].conn.enqueue(1);
            ends[1].conn.enqueue(1);
        }
    }
    for end in &ends {
        assert!(end.conn.has_masks());
        assert_eq!(end.taken, 1);
    }
}

#[test]
fn a_syn_ack_can_be_refused_by_a_host_that_has_forgotten_its_syn() {
    let mut client = End::client(100, BOTH[0]);
    let (syn, _) = client.send_all(0)[0];
    let mut child = End::child(&syn, &client.options(), 200, BOTH[1]);
    let (answer, mask) = child.send_all(0)[0];
    let reset = reset_for(&answer).expect("a SYN|ACK is answered");
    let outcome = child.receive((reset, mask), &Options::default(), 0);
    assert!(outcome.expect("taken").failed.is_some());
}

/// The server answers a client's SYN with a cookie, and the client's repeated SYN with a child that
/// uses masks. The client accepts the first answer. That SYN|ACK, with the cookie, has no nonce. So
/// the client uses no masks, and its next packet makes the child stop using them.
#[test]
fn a_client_with_a_cookie_has_no_masks() {
    let mut client = End::client(100, BOTH[0]);
    let (syn, _) = client.send_all(0)[0];
    let told = Options {
        selective: true,
        ..client.options()
    };
    let mut child = End::child(&syn, &told, 200, BOTH[1]);
    child.conn.use_checksums();
    let cookie = esp::cookie::answer_to(&syn, Seq(200));
    assert!(client
        .receive((cookie, 0), &Options::default(), 0)
        .is_some());
    assert!(!client.conn.has_masks());
    assert_eq!(child.send_all(0).len(), 1);
    assert!(child.conn.advertised() != esp::Advertised::of(&Config::default()));
    let answer = client.send_all(0)[0];
    assert_eq!(answer.1, 0);
    // A packet that does not answer the SYN|ACK has no effect.
    let (header, _) = answer;
    let ack = header.ack.add(1);
    assert!(!child.conn.takes_mask(&Header { ack, ..header }, 0));
    assert!(child.conn.has_masks());
    let outcome = child
        .receive(answer, &Options::default(), 0)
        .expect("taken");
    assert!(outcome.established && !child.conn.has_masks());
    // Without masks, the child keeps no packets, although its SYN|ACK has offered it.
    let later = Header {
        seq: header.seq.add(2),
        len: 7,
        flags: flags::ACK,
        ..header
    };
    let outcome = child.receive((later, 0), &Options::default(), 0);
    assert!(outcome.is_some_and(|outcome| !outcome.keep));
}

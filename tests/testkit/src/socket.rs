// SPDX-License-Identifier: GPL-2.0-only

//! Plays one end of a connection: the engine, the queues of a socket, and the events that a program
//! sees.
//!
//! Packets enter the engine only in [`Socket::on_packet`], and leave it only in [`Socket::poll`].

use std::collections::VecDeque;

use esp::ack_queue::SHORT;
use esp::records::{Kind, Part};
use esp::{
    flags, Advertised, Config, Connection, Failure, Header, Nanos, Options, Outcome, Room,
    Selective, Seq, Slot, State, Transmit, MISSING_MOST, OPTIONS_LEN,
};

use crate::payload::Payload;

/// A packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet<P> {
    /// The header, with the payload's length.
    pub header: Header,
    /// The payload.
    pub payload: P,
    /// The options of a SYN or SYN|ACK. They are not payload, so they take no sequence number.
    pub options: Options,
    /// Whether the sender's engine marked the packet as a retransmission.
    pub resend: bool,
    /// The missing packets that a request names, as a bitmap.
    pub named: [u8; MISSING_MOST],
}

impl<P: Payload> Packet<P> {
    /// Makes a packet that has no payload and is not queued.
    pub fn control(header: Header) -> Self {
        Self {
            header,
            payload: P::default(),
            options: Options::default(),
            resend: false,
            named: [0; MISSING_MOST],
        }
    }

    /// Returns the requested packets: the packets that the request names or, if it names none, the
    /// first missing packet.
    pub fn requested(&self) -> impl Iterator<Item = Seq> + '_ {
        let names = self.header.names_missing();
        (0..8 * MISSING_MOST as u16)
            .filter(move |n| {
                if names {
                    (self.named[usize::from(n / 8)] >> (n % 8)) & 1 != 0
                } else {
                    *n == 0
                }
            })
            .map(|n| self.header.ack.add(n))
    }

    /// Returns the part of the payload that names missing packets.
    fn named(&self) -> &[u8] {
        let len = usize::from(self.header.len).min(MISSING_MOST);
        &self.named[..len]
    }
}

impl Packet<VecDeque<u8>> {
    /// Parses a packet from the wire.
    pub fn parse(header: &Header, payload: &[u8]) -> Self {
        let mut packet = Self::control(*header);
        if header.has(flags::SYN) {
            packet.options = Options::parse(payload);
        } else {
            packet.payload.extend(payload);
        }
        if header.names_missing() {
            let len = payload.len().min(MISSING_MOST);
            packet.named[..len].copy_from_slice(&payload[..len]);
        }
        packet
    }
}

impl Socket<VecDeque<u8>> {
    /// Returns the bytes that follow the header of a packet that this socket sends: options or
    /// payload.
    pub fn bytes_of(&self, packet: Packet<VecDeque<u8>>) -> Vec<u8> {
        if packet.header.names_missing() && packet.payload.is_empty() {
            packet.named().to_vec()
        } else if packet.options == Options::default() {
            packet.payload.into()
        } else {
            let mut options = self.syn_options().to_vec();
            options.extend(
                self.records
                    .iter()
                    .flat_map(|kind| Options::emit_records(*kind)),
            );
            let nonce = packet.options.nonce;
            options.extend(nonce.iter().flat_map(|n| Options::emit_nonce(*n)));
            options
        }
    }
}

/// A packet in the write queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queued<P> {
    payload: P,
    /// The packet's TXS and TXF flags when it was first sent; `None` if it was never sent.
    flags: Option<u8>,
    /// TXS if a record begins with the packet, and TXF if a record ends with the packet.
    bounds: u8,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Socket<P> {
    /// The engine, once there is a connection.
    pub conn: Option<Connection>,
    /// The socket's slot in the ACK queue of its device.
    pub slot: Slot,
    /// Whether the ACK queue counts the connection, as its most recent demand asked.
    pub counted: bool,
    /// The parameters of the next connection.
    pub config: Config,
    /// Whether a SYN opens a connection when there is none.
    pub listens: bool,
    /// Whether the socket's SYN or SYN|ACK carries options.
    pub sends_options: bool,
    /// Whether the socket's options announce that many connections send to its device.
    pub crowded: bool,
    /// The nonce of the socket's options. If both ends have one, the packets count as packets with
    /// masked checksums.
    pub nonce: Option<u32>,
    /// The initial sequence number.
    pub isn: Seq,
    /// The payload of a full packet, in bytes.
    pub mss: usize,
    /// The size of the receive buffer, in bytes.
    pub limit: u32,
    /// Number of bytes that a packet takes in the receive buffer in addition to its payload.
    pub overhead: u32,
    /// Number of packets that the write queue may hold.
    pub send_room: usize,
    /// Number of bytes that an arriving packet takes in the receive buffer. If this is `None`, the
    /// packet takes as many bytes as a full packet.
    pub arriving: Option<u32>,
    /// The largest record that the socket's connections accept, in bytes; `None` if they have no
    /// records.
    pub records: Option<Kind>,
    write: VecDeque<Queued<P>>,
    /// The sequence number of the first packet in the write queue, unless the queue is empty.
    head: Seq,
    receive: VecDeque<P>,
    /// The payloads that could be delivered because the most recent packet arrived, in order.
    delivered: Vec<P>,
    /// Out-of-order packets, sorted by sequence number.
    kept: VecDeque<Packet<P>>,
    /// For each whole record in the receive queue, the number of its packets.
    whole: VecDeque<usize>,
    /// Number of arrived packets of the incomplete record, which follows the records of `whole`.
    begun: usize,
    /// Whether the handshake is complete.
    pub established: bool,
    /// Whether the other side's stream has ended.
    pub eof: bool,
    /// Why the connection has failed, if it has.
    pub failed: Option<Failure>,
    /// Whether the connection is over.
    pub closed: bool,
}

impl<P: Payload> Socket<P> {
    /// Makes a socket without a connection, with an empty receive buffer of `limit` bytes.
    pub fn new(config: Config, mss: usize, limit: u32) -> Self {
        Self {
            conn: None,
            slot: Slot::default(),
            counted: false,
            config,
            listens: false,
            sends_options: false,
            crowded: false,
            nonce: None,
            isn: Seq(0),
            mss,
            limit,
            overhead: 0,
            send_room: usize::MAX,
            arriving: None,
            records: None,
            write: VecDeque::new(),
            head: Seq(0),
            receive: VecDeque::new(),
            delivered: Vec::new(),
            kept: VecDeque::new(),
            whole: VecDeque::new(),
            begun: 0,
            established: false,
            eof: false,
            failed: None,
            closed: false,
        }
    }

    /// Returns the engine of the connection.
    ///
    /// # Panics
    /// If there is no connection.
    #[track_caller]
    pub fn conn(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a connection")
    }

    /// Returns the connection's state.
    pub fn state(&self) -> State {
        self.conn.as_ref().map_or(State::Closed, Connection::state)
    }

    /// Sets the parameters of this connection and of the next one.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
        if let Some(conn) = &mut self.conn {
            conn.set_config(config);
        }
    }

    /// Returns the parameters of the next connection. If the socket sends no options, the features
    /// that both ends must agree on are off.
    fn negotiable(&self) -> Config {
        Config {
            selective: if self.sends_options {
                self.config.selective
            } else {
                Selective::Never
            },
            ..self.config
        }
    }

    /// Returns the time at which the engine's timer expires.
    pub fn deadline(&self) -> Option<Nanos> {
        self.conn.as_ref()?.deadline()
    }

    /// Returns the options of the socket's SYN or SYN|ACK, in wire format.
    fn syn_options(&self) -> [u8; OPTIONS_LEN] {
        let told = self.conn.as_ref().map(Connection::advertised);
        let told = told.unwrap_or_else(|| Advertised::of(&self.config));
        let options = Options::emit_advertised(self.mss as u32, told);
        if self.crowded {
            Options::crowded(options)
        } else {
            options
        }
    }

    /// Returns the number of bytes that a full packet takes in the receive buffer.
    pub fn packet_cost(&self) -> u32 {
        self.mss as u32 + self.overhead
    }

    /// Returns the receive queue as the engine sees it. If no whole record is queued, the queue
    /// counts as empty, so that a record can arrive even if it is larger than the receive buffer.
    pub fn room(&self) -> Room {
        let room = Room {
            queued: self.receive.len() as u32 * self.packet_cost(),
            limit: self.limit,
            arriving: self.arriving.unwrap_or(self.packet_cost()),
            packet: self.packet_cost(),
        };
        if self.records.is_none() || !self.whole.is_empty() {
            return room;
        }
        Room {
            queued: 0,
            arriving: 0,
            ..room
        }
    }

    /// Returns the number of packets in the write queue.
    pub fn to_send(&self) -> usize {
        self.write.len()
    }

    /// Returns the number of packets in the receive queue.
    pub fn to_read(&self) -> usize {
        self.receive.len()
    }

    /// Returns the number of whole records in the receive queue.
    pub fn records_to_read(&self) -> usize {
        self.whole.len()
    }

    /// Returns the payload of packet `seq` of the write queue.
    pub fn payload_mut(&mut self, seq: Seq) -> Option<&mut P> {
        let place = self.head.distance(seq);
        let queued = self.write.get_mut(usize::from(place))?;
        Some(&mut queued.payload)
    }

    /// Connects from port `own` to port `peer`.
    pub fn connect(&mut self, [own, peer]: [u16; 2], now: Nanos) {
        let mut conn = Connection::new(own, peer, self.negotiable());
        if let Some(kind) = self.records {
            conn.use_records(kind);
        }
        self.use_nonce(&mut conn);
        conn.connect(self.isn, now);
        self.conn = Some(conn);
    }

    /// Accepts the connection that `syn` opens.
    pub fn accept(&mut self, syn: &Packet<P>, now: Nanos) {
        let header = &syn.header;
        let mut conn = Connection::accept(header.dst, header, self.isn, self.negotiable(), now);
        if let Some(kind) = self.records {
            conn.use_records(kind);
        }
        self.use_nonce(&mut conn);
        conn.take_options(&syn.options);
        self.conn = Some(conn);
    }

    fn use_nonce(&self, conn: &mut Connection) {
        if let Some(nonce) = self.nonce.filter(|_| self.sends_options) {
            conn.use_nonce(nonce);
            conn.use_checksums();
        }
    }

    /// Returns whether a listener accepts a SYN with `options`.
    pub fn agrees_with(&self, options: &Options) -> bool {
        Kind::agree(self.records, options.records)
    }

    /// Moves a part of a message to the write queue, as much as fits into one packet. The bytes go
    /// into the queue's last packet or, if that packet is full or has been sent, into a new one.
    /// Returns `false` if the message is empty, the queue is full or no sequence number is free.
    pub fn queue_one(&mut self, message: &mut P) -> bool {
        let conn = self.conn.as_mut().expect("a connection");
        if message.is_empty() {
            return false;
        }
        if conn.last_takes_more() {
            let last = self.write.back_mut().expect("an unsent packet");
            let room = self.mss.saturating_sub(last.payload.len());
            if room > 0 {
                last.payload.append(message.take(room));
                return true;
            }
        }
        if !conn.can_enqueue() || self.write.len() >= self.send_room {
            return false;
        }
        if self.write.is_empty() {
            self.head = conn.next_number();
        }
        let short = conn.announces_short() && message.len() > self.mss;
        let most = if short { SHORT.min(self.mss) } else { self.mss };
        self.write.push_back(Queued {
            payload: message.take(most),
            flags: None,
            bounds: 0,
        });
        conn.enqueue(1);
        if short {
            conn.seal_last();
        }
        assert_eq!(usize::from(conn.unacked()), self.write.len());
        true
    }

    /// Queues a whole record. Returns `false` if the record is empty or longer than the peer
    /// accepts, the queue is full or too few sequence numbers are free.
    pub fn queue_record(&mut self, mut record: P) -> bool {
        let conn = self.conn.as_mut().expect("a connection");
        let packets = record.len().div_ceil(self.mss);
        let fits = packets <= conn.free_numbers().into() && self.write.len() < self.send_room;
        if record.is_empty() || record.len() > conn.largest_record() as usize || !fits {
            return false;
        }
        if self.write.is_empty() {
            self.head = conn.next_number();
        }
        let mut bounds = flags::TXS;
        while !record.is_empty() {
            let payload = record.take(self.mss);
            if record.is_empty() {
                bounds |= flags::TXF;
            }
            self.write.push_back(Queued {
                payload,
                flags: None,
                bounds,
            });
            bounds = 0;
        }
        conn.enqueue(packets as u16);
        true
    }

    /// Handles a packet. Call [`settle`](crate::Host::settle) next.
    ///
    /// # Panics
    /// If the engine contradicts itself, or there is no connection.
    pub fn on_packet(&mut self, packet: &Packet<P>, room: Room, now: Nanos) -> Outcome {
        self.delivered.clear();
        let conn = self.conn.as_mut().expect("a connection");
        let names = packet.header.names_missing();
        let header = conn.without_names(&packet.header);
        let mut outcome = conn.on_packet(&header, room, now);
        if names {
            conn.on_named(&packet.header, packet.named(), &outcome, now);
        }
        if outcome.answered {
            conn.take_answer(&packet.options, &mut outcome);
        }
        if outcome.keep {
            assert_eq!(outcome.drop, None, "kept and dropped");
            self.keep(packet);
        }
        self.take(packet, &mut outcome);
        while let Some(next) = self.next_kept() {
            let room = self.room();
            let mut more = self.conn().on_kept(&next.header, 1, room, now);
            assert!(!more.keep, "a packet that is reached is taken or dropped");
            self.take(&next, &mut more);
            outcome.deliver |= more.deliver;
            outcome.fin |= more.fin;
            outcome.closed |= more.closed;
            outcome.failed = outcome.failed.or(more.failed);
        }
        if !self.conn().keeps() {
            self.kept.clear();
            self.charge_kept();
        }
        outcome
    }

    /// Keeps a packet that arrived out of order.
    fn keep(&mut self, packet: &Packet<P>) {
        let place = self
            .kept
            .partition_point(|kept| kept.header.seq.before(packet.header.seq));
        self.kept.insert(place, packet.clone());
        self.charge_kept();
        assert!(
            self.kept.len() < 8 * MISSING_MOST,
            "no more than a window is kept"
        );
    }

    /// Removes and returns the first out-of-order packet if it is next in order now.
    fn next_kept(&mut self) -> Option<Packet<P>> {
        let first = self.kept.front()?;
        if !self.conn.as_ref()?.reaches(first.header.seq) {
            return None;
        }
        let first = self.kept.pop_front();
        self.charge_kept();
        first
    }

    /// Tells the engine how much memory the out-of-order packets take.
    fn charge_kept(&mut self) {
        let cost = self.kept.len() as u32 * self.packet_cost();
        self.conn().set_kept(cost);
    }

    /// Returns the payloads that could be delivered because the most recent packet arrived, in
    /// order. These are the packet's own payload, and the payloads of the kept packets that follow
    /// it.
    pub fn take_delivered(&mut self) -> Vec<P> {
        std::mem::take(&mut self.delivered)
    }

    /// Returns the number of out-of-order packets.
    pub fn to_hand(&self) -> usize {
        self.kept.len()
    }

    /// Applies the engine's outcome for a packet.
    fn take(&mut self, packet: &Packet<P>, outcome: &mut Outcome) {
        let conn = self.conn.as_mut().expect("a connection");
        if outcome.deliver && conn.has_records() {
            let bytes = packet.payload.len() as u32;
            let part = conn.take_part(packet.header.flags, 1, bytes, outcome);
            assert_eq!(part.is_some(), outcome.deliver, "a part is delivered");
            self.begun += usize::from(part.is_some());
            if let Some(Part::Last(_)) = part {
                self.whole.push_back(self.begun);
                self.begun = 0;
            }
        }
        self.note(outcome);
        if outcome.deliver {
            assert!(outcome.drop.is_none(), "delivered and dropped");
            assert_eq!((outcome.skip, outcome.taken), (0, 1));
            assert!(!packet.payload.is_empty(), "an empty packet is delivered");
            assert!(!self.eof, "no data behind the end");
            self.receive.push_back(packet.payload.clone());
            self.delivered.push(packet.payload.clone());
        }
        if outcome.fin {
            assert!(!self.eof, "one end of stream");
            self.eof = true;
        }
    }

    /// Runs the engine's timers. Call [`settle`](crate::Host::settle) next.
    pub fn on_deadline(&mut self, heard: Nanos, now: Nanos) -> Outcome {
        let outcome = self.conn().on_deadline(heard, now);
        self.note(&outcome);
        outcome
    }

    fn note(&mut self, outcome: &Outcome) {
        self.established |= outcome.established;
        self.failed = self.failed.or(outcome.failed);
        self.closed |= outcome.closed;
    }

    /// Takes up to `most` packets out of the receive queue. `sleeps` is set if the reader sleeps
    /// afterwards.
    pub fn read(&mut self, most: usize, sleeps: bool, now: Nanos) -> Vec<P> {
        let n = if self.records.is_some() {
            assert_eq!(most, usize::MAX, "records are read whole");
            self.whole.drain(..).sum()
        } else {
            self.receive.len().min(most)
        };
        let read = self.receive.drain(..n).collect();
        self.has_read(sleeps, now);
        read
    }

    /// Takes a whole record out of the receive queue, if there is one. `sleeps` is set if the
    /// reader sleeps afterwards.
    pub fn read_record(&mut self, sleeps: bool, now: Nanos) -> Option<P> {
        let packets = self.whole.pop_front()?;
        let mut record = P::default();
        for (i, payload) in self.receive.drain(..packets).enumerate() {
            if i == 0 {
                record = payload;
            } else {
                record.append(payload);
            }
        }
        self.has_read(sleeps, now);
        Some(record)
    }

    fn has_read(&mut self, sleeps: bool, now: Nanos) {
        let room = self.room();
        if let Some(conn) = &mut self.conn {
            if conn.waits_for_room() {
                conn.on_read(room, now);
            }
            if sleeps && conn.waits_for_sleep() {
                conn.flush_ack();
            }
        }
    }

    /// Returns the next packet that the engine wants to send.
    ///
    /// # Panics
    ///
    /// If the engine sends a packet that is not queued, retransmits a packet that was never sent,
    /// or sends although it has reported that it waits for the peer's window.
    pub fn poll(&mut self, now: Nanos) -> Option<Packet<P>> {
        let (head, write) = (self.head, &mut self.write);
        let records = self.records.is_some();
        let place = |seq: Seq| usize::from(head.distance(seq));
        let mut sent_flags = |seq| {
            let queued = write.get(place(seq)).expect("only data is sent again");
            if records {
                return queued.bounds;
            }
            queued
                .flags
                .expect("a retransmitted packet was sent before")
        };
        let conn = self.conn.as_mut()?;
        let before = conn.awaits_window().then(|| conn.clone());
        let next = conn.poll_transmit(now, &mut sent_flags);
        if let Some(before) = before {
            assert_eq!(next, None, "it awaits the window");
            assert!(*conn == before, "a call that finds nothing changes nothing");
        }
        let (mut header, resend) = match next? {
            Transmit::Data {
                header,
                count,
                resend,
            } => {
                assert_eq!(count, 1, "a packet leaves alone");
                (header, resend)
            }
            Transmit::Control { header, resend } => {
                let nonce = conn.nonce();
                let sent =
                    (self.sends_options && header.has(flags::SYN)).then(|| self.syn_options());
                let options = sent.map_or_else(Options::default, |sent| Options {
                    records: self.records,
                    nonce,
                    ..Options::parse(&sent)
                });
                return Some(Packet {
                    options,
                    resend,
                    ..Packet::control(header)
                });
            }
            Transmit::Probe(header) => return Some(Packet::control(header)),
            Transmit::Request(header) => {
                return Some(Packet {
                    named: conn.named(),
                    ..Packet::control(header)
                });
            }
        };
        let queued = write.get_mut(place(header.seq));
        let queued = queued.expect("only queued packets leave");
        let kept = header.flags & (flags::TXS | flags::TXF);
        assert!(
            !records || kept == queued.bounds,
            "{header:?} has the bounds of its record"
        );
        match queued.flags.replace(kept) {
            None => assert!(!resend, "{header:?} was not sent before"),
            Some(first) => assert!(
                resend && kept == first,
                "{header:?} was sent with {first:#x}"
            ),
        }
        assert_eq!(header.len, 0, "the caller fills in the length");
        header.len = queued.payload.len() as u16;
        Some(Packet {
            header,
            payload: queued.payload.clone(),
            options: Options::default(),
            resend,
            named: [0; MISSING_MOST],
        })
    }

    /// Removes acknowledged packets from the write queue.
    pub fn free(&mut self, acked: u16) {
        let packets = usize::from(acked);
        assert!(
            packets <= self.write.len(),
            "only queued data is acknowledged"
        );
        self.write.drain(..packets);
        self.head = self.head.add(acked);
    }

    /// Limits packets to `mss` bytes from now on.
    pub fn shrink(&mut self, mss: usize, now: Nanos) {
        self.mss = mss;
        let oversized = self.write.iter().position(|q| q.payload.len() > mss);
        if let Some(oversized) = oversized {
            self.cut_or_pause(oversized, now);
        }
    }

    /// [Cuts](Self::cut) the packets after the first `keep` packets if none of them was ever sent.
    /// Otherwise pauses the engine, which asks for the [cut](Outcome::cut) later.
    pub fn cut_or_pause(&mut self, keep: usize, now: Nanos) {
        let from = self.head.add(keep as u16);
        if self.conn().is_unsent(from) {
            self.cut(keep);
        } else {
            self.conn().pause(now);
        }
    }

    /// Cuts the packets after the first `keep` packets into packets of at most `mss` bytes.
    pub fn cut(&mut self, keep: usize) {
        let mss = self.mss;
        self.cut_by(keep, |mut payload| {
            let mut pieces = Vec::new();
            while !payload.is_empty() {
                pieces.push(payload.take(mss));
            }
            pieces
        });
    }

    /// Cuts each packet after the first `keep` packets into the pieces that `cut` returns.
    pub fn cut_by(&mut self, keep: usize, mut cut: impl FnMut(P) -> Vec<P>) {
        if self.write.is_empty() {
            self.head = self.conn().first_unacked();
        }
        let from = self.head.add(keep as u16);
        let old: Vec<_> = self.write.drain(keep..).collect();
        let sent_flags = old.first().and_then(|queued| queued.flags);
        for queued in old {
            let pieces = cut(queued.payload);
            let last = pieces.len().saturating_sub(1);
            for (i, payload) in pieces.into_iter().enumerate() {
                let mut bounds = queued.bounds;
                if i > 0 {
                    bounds &= !flags::TXS;
                }
                if i < last {
                    bounds &= !flags::TXF;
                }
                self.write.push_back(Queued {
                    payload,
                    flags: None,
                    bounds,
                });
            }
        }
        let packets = self.write.len() - keep;
        let first = self.conn().number_behind(from);
        self.conn().recut(from, packets as u16, |seq| {
            assert_eq!(seq, from);
            sent_flags.expect("a packet whose flags are requested was sent")
        });
        assert!(first == from || keep == 0, "the queue has one first number");
        self.head = first.sub(keep as u16);
    }
}

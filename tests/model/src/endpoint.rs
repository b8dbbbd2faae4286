// SPDX-License-Identifier: GPL-2.0-only

//! One end of a connection: the engine, the queues a socket has, and the program that uses it.

use std::collections::VecDeque;

use esp::{flags, Connection, Failure, Header, Nanos, Outcome, Room, Seq, Slot, State, Transmit};

use crate::case::{Close, Program, Reader, Sabotage, MSS};
use crate::fault::Fault;
use crate::host::HASTE;
use crate::scene::{Packet, Scene, Sights, Span};

/// A packet in the write queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Queued {
    span: Span,
    /// With which it left, for resends.
    flags: u8,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The engine, once there is a connection.
    pub conn: Option<Connection>,
    /// Its slot in the ACK queue.
    pub slot: Slot,
    host: u8,
    index: u8,
    write: VecDeque<Queued>,
    receive: VecDeque<Span>,
    /// Messages whose send call has begun.
    begun: u8,
    /// Bytes of the last of these that are not queued yet.
    rest: u16,
    /// That call holds the last packet back.
    holding: bool,
    /// Bytes queued, taken from the wire, and read.
    sent: u16,
    arrived: u16,
    read: u16,
    /// The acknowledgement number that opened the window last.
    opened: Seq,
    established: bool,
    eof: bool,
    closed: bool,
    /// When the reader reads next.
    read_at: Option<Nanos>,
}

impl Endpoint {
    /// An end without a connection.
    pub fn new(host: u8, index: u8) -> Self {
        Self {
            conn: None,
            slot: Slot::default(),
            host,
            index,
            write: VecDeque::new(),
            receive: VecDeque::new(),
            begun: 0,
            rest: 0,
            holding: false,
            sent: 0,
            arrived: 0,
            read: 0,
            opened: Seq::default(),
            established: false,
            eof: false,
            closed: false,
            read_at: None,
        }
    }

    /// The host at the other end.
    pub fn peer(&self) -> u8 {
        match self.host {
            0 => self.index + 1,
            _ => 0,
        }
    }

    /// The name of the stream that this end writes.
    fn stream(&self) -> u8 {
        match self.host {
            0 => 2 * self.index,
            n => 2 * (n - 1) + 1,
        }
    }

    fn program<'a>(&self, scene: &Scene<'a>) -> &'a Program {
        scene.case.program(self.host, self.index)
    }

    /// The state.
    pub fn state(&self) -> State {
        self.conn.as_ref().map_or(State::Closed, Connection::state)
    }

    /// Whether the handshake is done.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// When the engine or the reader is next to be run.
    pub fn deadlines(&self) -> [Option<Nanos>; 2] {
        [
            self.conn.as_ref().and_then(Connection::deadline),
            self.read_at,
        ]
    }

    fn room(&self, program: &Program) -> Room {
        Room {
            queued: self.receive.len() as u32,
            limit: program.limit,
            arriving: 1,
            packet: 1,
        }
    }

    /// A packet for this connection arrives; the program is run by [`Self::run`].
    pub fn on_packet(&mut self, packet: &Packet, scene: &mut Scene<'_>) {
        let program = self.program(scene);
        let mut room = self.room(program);
        if scene.is_made_wrong(Sabotage::PromiseRoom) {
            room.limit = u32::MAX;
        }
        let Some(conn) = &mut self.conn else { return };
        let outcome = conn.on_packet(&packet.header, room, scene.now);
        self.take(&outcome, scene);
        let forced = scene.is_made_wrong(Sabotage::DeliverAll) && packet.header.len > 0;
        if outcome.deliver || forced {
            self.deliver(packet.span, program, scene);
        }
    }

    fn deliver(&mut self, span: Span, program: &Program, scene: &mut Scene<'_>) {
        let in_order = span.first == self.arrived && span.stream == self.stream() ^ 1;
        if !in_order || span.len == 0 || self.eof {
            scene.fail(Fault::Misplaced(format!(
                "{} bytes from {} of stream {} are delivered, expected are those from {} of stream {}",
                span.len,
                span.first,
                span.stream,
                self.arrived,
                self.stream() ^ 1
            )));
        }
        self.arrived += span.len;
        self.receive.push_back(span);
        let most = scene.case.most_queued(self.host, self.index);
        if self.receive.len() > most {
            scene.fail(Fault::Overfull {
                queued: self.receive.len(),
                most,
            });
        }
        if self.read_at.is_none() {
            self.read_at = match program.reader {
                Reader::AtOnce { .. } => None,
                Reader::Late(after) | Reader::Paced(after) => Some(scene.now + after),
            };
        }
    }

    /// Runs the engine's timers. `heard`: when a packet last reached this device.
    pub fn on_deadline(&mut self, heard: Nanos, scene: &mut Scene<'_>) {
        let Some(conn) = &mut self.conn else { return };
        let now = match scene.case.sabotage {
            Some(Sabotage::StoppedClock) => scene.now - 1,
            Some(Sabotage::HastyClock) => scene.now + HASTE,
            _ => scene.now,
        };
        let outcome = conn.on_deadline(heard, now);
        self.take(&outcome, scene);
    }

    /// Books what the engine says.
    fn take(&mut self, outcome: &Outcome, scene: &mut Scene<'_>) {
        for _ in 0..outcome.acked {
            if self.write.pop_front().is_none() {
                scene.fail(Fault::Misplaced(
                    "more is acknowledged than was queued".into(),
                ));
            }
        }
        self.established |= outcome.established;
        if outcome.fin {
            self.eof = true;
        }
        if let Some(failure) = outcome.failed {
            let died = failure == Failure::TimedOut && scene.dead == Some(self.peer());
            // A host that has had everything and knows nothing of it any more resets a late copy as one that never had
            // it does: the other end is told of a failure, to be safe. Whether all came is looked at in the end.
            let safe = failure == Failure::Reset && scene.echoed && self.eof && self.closed;
            if !died && !safe {
                scene.fail(Fault::Failed(failure));
            }
        }
        if let Some(conn) = &mut self.conn {
            if conn.waits_for_room() {
                scene.see(Sights::CONGESTED);
            }
            // Counters decide nothing, and would keep equal states apart.
            conn.stats = esp::Stats::default();
        }
    }

    /// The program does the next thing it can do now. `true`: it did, and is to be asked again after the engine has
    /// sent what it has to send.
    pub fn run(&mut self, scene: &mut Scene<'_>) -> bool {
        if !scene.awake || !self.established {
            return false;
        }
        let program = self.program(scene);
        self.run_reader(program, scene)
            || self.run_writer(program)
            || self.run_close(program, scene)
    }

    fn run_reader(&mut self, program: &Program, scene: &mut Scene<'_>) -> bool {
        if self.receive.is_empty() {
            return false;
        }
        let due = self.read_at.is_some_and(|at| at <= scene.now);
        let most = match program.reader {
            Reader::AtOnce { .. } => usize::MAX,
            Reader::Late(_) if due => usize::MAX,
            Reader::Paced(_) if due => 1,
            _ => return false,
        };
        let n = most.min(self.receive.len());
        self.read += self.receive.drain(..n).map(|span| span.len).sum::<u16>();
        self.read_at = match program.reader {
            Reader::Paced(after) if !self.receive.is_empty() => Some(scene.now + after),
            _ => None,
        };
        let read = self.read;
        let host = self.host;
        scene.log.note(scene.now, || {
            format!("{} has read {read} bytes", crate::scene::host_name(host))
        });
        let room = self.room(program);
        let Some(conn) = &mut self.conn else {
            return true;
        };
        conn.on_read(room, scene.now);
        if program.reader == (Reader::AtOnce { sleeps: true }) {
            conn.flush_ack();
        }
        true
    }

    /// One packet of a send call.
    fn run_writer(&mut self, program: &Program) -> bool {
        let stream = self.stream();
        let Some(conn) = &mut self.conn else {
            return false;
        };
        if self.rest == 0 {
            let Some(packets) = program.messages.get(usize::from(self.begun)) else {
                return false;
            };
            if self.read < program.begin.before(self.begun) {
                return false;
            }
            self.rest = Program::bytes(*packets);
            self.begun += 1;
        }
        let last = self.write.back_mut().filter(|_| conn.last_takes_more());
        if let Some(last) = last.filter(|last| last.span.len < MSS) {
            let n = self.rest.min(MSS - last.span.len);
            last.span.len += n;
            self.sent += n;
            self.rest -= n;
        } else if self.write.len() < program.send_room && conn.can_enqueue() {
            let n = self.rest.min(MSS);
            let span = Span {
                stream,
                first: self.sent,
                len: n,
            };
            self.write.push_back(Queued { span, flags: 0 });
            self.sent += n;
            self.rest -= n;
            conn.enqueue(1);
        } else {
            // The call sleeps.
            let held = self.holding;
            self.holding = false;
            conn.hold_last(false);
            return held;
        }
        self.holding = self.rest > 0;
        conn.hold_last(self.holding);
        true
    }

    fn run_close(&mut self, program: &Program, scene: &mut Scene<'_>) -> bool {
        let written = self.sent == program.total() && self.rest == 0;
        let ended = self.eof && self.receive.is_empty();
        let now = match program.close {
            Close::Never => false,
            Close::Written | Close::Abandoned => written,
            Close::Ended => written && ended,
        };
        if self.closed || !now {
            return false;
        }
        self.closed = true;
        let host = self.host;
        scene.log.note(scene.now, || {
            format!("{} closes", crate::scene::host_name(host))
        });
        let Some(conn) = &mut self.conn else {
            return true;
        };
        if program.close == Close::Abandoned {
            conn.orphan(scene.now);
        } else {
            conn.close_send();
        }
        true
    }

    /// Sends all that the engine gives out.
    pub fn emit(&mut self, scene: &mut Scene<'_>) {
        let (from, to) = (self.host, self.peer());
        let Some(conn) = &mut self.conn else { return };
        loop {
            let first = conn.first_unacked();
            let write = &self.write;
            let mut kept = |seq: Seq| {
                write
                    .get(usize::from(first.distance(seq)))
                    .map_or(0, |q| q.flags)
            };
            let (header, span) = match conn.poll_transmit(scene.now, &mut kept) {
                None => break,
                Some(Transmit::Control { header, .. } | Transmit::Probe(header)) => {
                    (header, Span::default())
                }
                Some(Transmit::Data { mut header, .. }) => {
                    let at = usize::from(first.distance(header.seq));
                    let Some(queued) = self.write.get_mut(at) else {
                        scene.fail(Fault::Misplaced(format!(
                            "packet {} is to be sent, which is not queued",
                            header.seq.0
                        )));
                        break;
                    };
                    queued.flags = header.flags & (flags::TXS | flags::TXF);
                    let mut span = queued.span;
                    if scene.is_made_wrong(Sabotage::SendNext) {
                        span = self.write.get(at + 1).map_or(span, |q| q.span);
                    }
                    header.len = span.len;
                    (header, span)
                }
            };
            if header.has(flags::RRQ) {
                assert!(
                    !scene.is_made_wrong(Sabotage::PanicAtRequest),
                    "made wrong on purpose"
                );
                if scene.is_made_wrong(Sabotage::SwallowRequests) {
                    continue;
                }
            }
            let hold = header.len == 0 && header.has(flags::TXS);
            if header.has(flags::ACK) && !header.has(flags::RST) && !hold {
                if self.slot.is_waiting() && header.ack != self.opened {
                    scene.fail(Fault::OutOfTurn);
                }
                self.opened = header.ack;
            }
            if scene.calm && header.has(flags::RRQ) {
                scene.fail(Fault::Needless);
            }
            note_sights(&header, scene);
            scene.out.push(Packet {
                to,
                from,
                header,
                span,
            });
        }
        if conn.stats.pkt_rtx > 0 {
            scene.see(Sights::RESENT);
            if scene.calm {
                scene.fail(Fault::Needless);
            }
        }
        conn.stats = esp::Stats::default();
    }

    /// Whether this end has done all it was to do, knows that the other end has what it sent, and has come to the end of
    /// a connection that both close.
    ///
    /// A connection may end well without the last acknowledgement: the other host, which forgets it when it has
    /// all, then says that it knows of none. That it has all shows at its own end.
    pub fn is_done(&self, program: &Program, peer: &Program) -> bool {
        let over = self.state() == State::Closed;
        let closing = program.close != Close::Never && peer.close != Close::Never;
        self.established
            && self.sent == program.total()
            && self.rest == 0
            && (self.write.is_empty() || over)
            && self.read == peer.total()
            && self.receive.is_empty()
            && over == closing
    }
}

fn note_sights(header: &Header, scene: &mut Scene<'_>) {
    if header.has(flags::RRQ) {
        scene.see(Sights::REQUEST);
    }
    if header.has(flags::RST) {
        scene.see(Sights::RESET);
    }
    if header.len == 0 && header.has(flags::TXS) {
        scene.see(Sights::HOLD);
    }
}

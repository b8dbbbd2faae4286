// SPDX-License-Identifier: GPL-2.0-only

//! One end of a connection: its socket, and its program.

use esp::records::{Kind, LEAST_RECORD};
use esp::{flags, Connection, Failure, Nanos, Outcome, Seq, Slot, State};
use esp_testkit::{Packet, Payload, Socket, Span};

use crate::case::{Case, Close, Program, Reader, Sabotage, MSS};
use crate::fault::Fault;
use crate::host::isn;
use crate::scene::{host_name, Scene, Sights};

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The engine with its queues.
    pub socket: Socket<Span>,
    host: u8,
    index: u8,
    /// Number of messages whose send call has begun.
    begun: u8,
    /// The part of the last send call's message that is not queued yet.
    rest: Span,
    /// Whether the current send call holds back the last packet.
    holding: bool,
    /// Total bytes of the messages whose send call has begun.
    sent: u16,
    /// Number of bytes received from the wire.
    arrived: u16,
    /// Number of bytes that the program has read.
    read: u16,
    /// Number of records that the program has read.
    records: u8,
    /// The acknowledgement number that last opened the window.
    opened: Seq,
    /// Whether the program has closed its end.
    closed: bool,
    /// The time at which the reader reads next.
    read_at: Option<Nanos>,
}

impl Endpoint {
    /// Returns an end without a connection.
    pub fn new(host: u8, index: u8, case: &Case) -> Self {
        let program = case.program(host, index);
        let limit = match case.sabotage {
            Some(Sabotage::PromiseRoom) => u32::MAX,
            _ => program.limit * u32::from(MSS),
        };
        let mut socket = Socket::new(case.config(host, false), MSS.into(), limit);
        socket.slot = Slot::of(case.peer_host(host, index).into());
        if host == 0 && index == 0 {
            socket.slot.set_priority(case.priority);
        }
        socket.listens = true;
        socket.records = case.records.then_some(Kind::plain(LEAST_RECORD));
        socket.sends_options = (case.reports_windows || case.records)
            && case.sabotage != Some(Sabotage::SendNoOptions);
        socket.isn = isn(host, index);
        socket.send_room = program.send_room;
        Self {
            socket,
            host,
            index,
            begun: 0,
            rest: Span::default(),
            holding: false,
            sent: 0,
            arrived: 0,
            read: 0,
            records: 0,
            opened: Seq::default(),
            closed: false,
            read_at: None,
        }
    }

    /// Returns the host at the other end.
    pub fn peer(&self) -> u8 {
        match self.host {
            0 => self.index + 1,
            _ => 0,
        }
    }

    /// Returns the identifier of the stream that this end writes.
    fn stream(&self) -> u8 {
        match self.host {
            0 => 2 * self.index,
            n => 2 * (n - 1) + 1,
        }
    }

    fn program<'a>(&self, scene: &Scene<'a>) -> &'a Program {
        scene.case.program(self.host, self.index)
    }

    /// Returns the times at which the engine and the reader must run next, in this order.
    pub fn deadlines(&self) -> [Option<Nanos>; 2] {
        [self.socket.deadline(), self.read_at]
    }

    /// Handles an arriving packet. Call [`Self::run`] next, to run the program.
    pub fn on_packet(&mut self, packet: &Packet<Span>, outcome: &Outcome, scene: &mut Scene<'_>) {
        self.judge(outcome, scene);
        let forced = scene.is_made_wrong(Sabotage::DeliverAll) && !packet.payload.is_empty();
        let delivered = self.socket.take_delivered();
        if delivered.is_empty() && forced {
            self.on_data(packet.payload, scene);
        }
        for span in delivered {
            self.on_data(span, scene);
        }
    }

    fn on_data(&mut self, span: Span, scene: &mut Scene<'_>) {
        let expected = place(self.stream() ^ 1, self.arrived);
        if span.first != expected {
            scene.fail(Fault::Misplaced(format!(
                "{} bytes from {:#x} are delivered, expected are those from {expected:#x}",
                span.len, span.first,
            )));
        }
        self.arrived += span.len as u16;
        let (queued, most) = (
            self.socket.to_read(),
            scene.case.most_queued(self.host, self.index),
        );
        if queued > most {
            scene.fail(Fault::Overfull { queued, most });
        }
        if self.read_at.is_none() {
            self.read_at = match self.program(scene).reader {
                Reader::AtOnce { .. } => None,
                Reader::Late(after) | Reader::Paced(after) => Some(scene.now + after),
            };
        }
    }

    /// Checks an outcome of the engine.
    pub fn judge(&self, outcome: &Outcome, scene: &mut Scene<'_>) {
        if let Some(failure) = outcome.failed {
            let died = failure == Failure::TimedOut && scene.dead == Some(self.peer());
            // A host that received everything may have discarded the connection. It then answers a
            // late copy of a packet with a RST, like a host that never had the connection. This end
            // cannot tell the two cases apart, so it reports a failure. That is no fault here: the
            // end of the run checks that everything arrived.
            let safe = failure == Failure::Reset && scene.echoed && self.socket.eof && self.closed;
            if !died && !safe {
                scene.fail(Fault::Failed(failure));
            }
        }
        let conn = self.socket.conn.as_ref();
        if conn.is_some_and(Connection::waits_for_room) {
            scene.see(Sights::CONGESTED);
        }
    }

    /// Runs the program's next action, and returns whether there was one. After an action, let the
    /// engine send, and call this function again.
    pub fn run(&mut self, scene: &mut Scene<'_>) -> bool {
        if !scene.awake || !self.socket.established {
            return false;
        }
        let program = self.program(scene);
        self.run_reader(program, scene)
            || self.run_writer(program, scene.case.records)
            || self.run_close(program, scene)
    }

    fn run_reader(&mut self, program: &Program, scene: &mut Scene<'_>) -> bool {
        if scene.case.records {
            return self.run_record_reader(program, scene);
        }
        if self.socket.to_read() == 0 {
            return false;
        }
        let due = self.read_at.is_some_and(|at| at <= scene.now);
        let most = match program.reader {
            Reader::AtOnce { .. } => usize::MAX,
            Reader::Late(_) if due => usize::MAX,
            Reader::Paced(_) if due => 1,
            _ => return false,
        };
        let sleeps = program.reader == Reader::AtOnce { sleeps: true };
        let spans = self.socket.read(most, sleeps, scene.now);
        self.read += spans.iter().map(|span| span.len as u16).sum::<u16>();
        self.read_at = match program.reader {
            Reader::Paced(after) if self.socket.to_read() > 0 => Some(scene.now + after),
            _ => None,
        };
        scene.log.note(scene.now, || {
            format!("{} has read {} bytes", host_name(self.host), self.read)
        });
        true
    }

    /// Runs a reader of records, and checks that each record is the whole next message.
    fn run_record_reader(&mut self, program: &Program, scene: &mut Scene<'_>) -> bool {
        let due = match program.reader {
            Reader::AtOnce { .. } => true,
            Reader::Late(_) | Reader::Paced(_) => self.read_at.is_some_and(|at| at <= scene.now),
        };
        if !due {
            return false;
        }
        let sleeps = program.reader == Reader::AtOnce { sleeps: true };
        let Some(record) = self.socket.read_record(sleeps, scene.now) else {
            self.read_at = None;
            return false;
        };
        let peer = scene.case.peer(self.host, self.index);
        let wanted = peer.messages.get(usize::from(self.records));
        let expected = Span {
            first: place(self.stream() ^ 1, self.read),
            len: wanted.map_or(0, |packets| Program::bytes(*packets).into()),
        };
        if record != expected {
            scene.fail(Fault::Misplaced(format!(
                "a record of {} bytes from {:#x} is read, expected is one of {} from {:#x}",
                record.len, record.first, expected.len, expected.first,
            )));
        }
        self.read += record.len as u16;
        self.records += 1;
        scene.log.note(scene.now, || {
            format!("{} has read {} bytes", host_name(self.host), self.read)
        });
        true
    }

    /// Queues one packet of a send call, or a record.
    fn run_writer(&mut self, program: &Program, records: bool) -> bool {
        if self.rest.is_empty() {
            let Some(packets) = program.messages.get(usize::from(self.begun)) else {
                return false;
            };
            if self.read < program.begin.before(self.begun) {
                return false;
            }
            let len = Program::bytes(*packets);
            self.rest = Span {
                first: place(self.stream(), self.sent),
                len: len.into(),
            };
            self.sent += len;
            self.begun += 1;
        }
        if records {
            let queued = self.socket.queue_record(self.rest);
            if queued {
                self.rest = Span::default();
            }
            return queued;
        }
        if !self.socket.queue_one(&mut self.rest) {
            // The queue has no room, so the send call sleeps. While it sleeps, it does not hold
            // back the last packet.
            let held = self.holding;
            self.holding = false;
            self.socket.conn().hold_last(false);
            return held;
        }
        self.holding = !self.rest.is_empty();
        self.socket.conn().hold_last(self.holding);
        true
    }

    fn has_written(&self, program: &Program) -> bool {
        self.sent == program.total() && self.rest.is_empty()
    }

    fn run_close(&mut self, program: &Program, scene: &mut Scene<'_>) -> bool {
        let written = self.has_written(program);
        let ended = self.socket.eof && self.socket.to_read() == 0;
        let now = match program.close {
            Close::Never => false,
            Close::Written | Close::Abandoned => written,
            Close::Ended => written && ended,
        };
        if self.closed || !now {
            return false;
        }
        self.closed = true;
        scene
            .log
            .note(scene.now, || format!("{} closes", host_name(self.host)));
        let conn = self.socket.conn();
        if program.close == Close::Abandoned {
            conn.orphan(scene.now);
        } else {
            conn.close_send();
        }
        true
    }

    /// Checks whether a packet may be sent.
    pub fn on_emit(&mut self, packet: &Packet<Span>, scene: &mut Scene<'_>) {
        let header = &packet.header;
        let hold = header.len == 0 && header.has(flags::TXS);
        if header.has(flags::ACK) && !header.has(flags::RST) && !hold {
            if self.socket.slot.is_waiting() && header.ack != self.opened {
                scene.fail(Fault::OutOfTurn);
            }
            self.opened = header.ack;
        }
        let sights = [
            (header.is_request(), Sights::REQUEST),
            (header.has(flags::RST), Sights::RESET),
            (hold, Sights::HOLD),
            (packet.resend, Sights::RESENT),
        ];
        for (_, sight) in sights.into_iter().filter(|(seen, _)| *seen) {
            scene.see(sight);
        }
        // A probe has the number before the first unacknowledged packet. Other acknowledgements
        // have the number of the next packet.
        let conn = self.socket.conn.as_ref();
        let probe = header.flags == flags::ACK
            && conn.is_some_and(|conn| header.seq.add(1) == conn.first_unacked());
        if scene.calm && (header.is_request() || packet.resend || probe) {
            scene.fail(Fault::Needless);
        }
    }

    /// Returns whether this end has sent and read everything, and has no unacknowledged packets. If
    /// both ends close the connection, it must be over; then packets may be unacknowledged.
    ///
    /// A connection may end properly without its last acknowledgement: the peer discards the
    /// connection once it has everything, and answers later packets with a RST. The check of the
    /// peer's own end shows that the peer has everything.
    pub fn is_done(&self, program: &Program, peer: &Program) -> bool {
        let over = self.socket.state() == State::Closed;
        let closing = program.close != Close::Never && peer.close != Close::Never;
        self.socket.established
            && self.has_written(program)
            && (self.socket.to_send() == 0 || over)
            && self.read == peer.total()
            && self.socket.to_read() == 0
            && over == closing
    }
}

/// Returns an identifier of a byte. The identifier is unique among the bytes of all streams.
fn place(stream: u8, offset: u16) -> u64 {
    (u64::from(stream) << 16) | u64::from(offset)
}

// SPDX-License-Identifier: GPL-2.0

//! Runs the test vectors of `docs/esp-vectors.txt`: bytes that arrive, and bytes that must be sent.

use std::collections::VecDeque;

use esp::{reset_for, Config, Header, Options, Seq, CHECKSUM_LEN, HEADER_LEN};
use esp_testkit::host::{Device, Host};
use esp_testkit::socket::{Packet, Socket};

const VECTORS: &str = include_str!("../../docs/esp-vectors.txt");

const PAYLOAD: usize = 1489;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}

/// A host, with at most one connection.
struct Station {
    device: Device,
    socket: Socket<VecDeque<u8>>,
    has_checksum: bool,
    told: Options,
    now: u64,
    out: VecDeque<Vec<u8>>,
}

impl Host for Station {
    type Payload = VecDeque<u8>;

    fn at(&mut self, _id: usize) -> (&mut Device, &mut Socket<VecDeque<u8>>) {
        (&mut self.device, &mut self.socket)
    }

    fn emit(&mut self, _id: usize, packet: Packet<VecDeque<u8>>) {
        let header = packet.header;
        let payload = self.socket.bytes_of(packet);
        self.put(header, payload, self.has_checksum);
    }
}

impl Station {
    fn new() -> Self {
        let config = Config {
            selective: true.into(),
            ..Config::default()
        };
        let mut socket = Socket::new(config, PAYLOAD, 1 << 20);
        socket.isn = Seq(4096);
        socket.sends_options = true;
        Self {
            device: Device::default(),
            socket,
            has_checksum: false,
            told: Options::default(),
            now: 1_000_000_000,
            out: VecDeque::new(),
        }
    }

    /// Puts a packet of the engine on the wire, with its payload, and with a checksum if `sum` is
    /// set.
    fn put(&mut self, header: Header, payload: Vec<u8>, sum: bool) {
        let len = payload.len() as u16;
        let mut packet = Header { len, ..header }.with_checksum(sum).emit().to_vec();
        packet.extend_from_slice(&payload);
        if sum {
            packet.extend_from_slice(&crc32c::crc32c(&packet).to_be_bytes());
        }
        self.out.push_back(packet);
    }

    fn take(&mut self, bytes: &[u8]) {
        let header = Header::parse(bytes).expect("a header");
        let (before, sum) = bytes.split_at(HEADER_LEN + usize::from(header.payload()));
        let has_checksum = header.has_checksum();
        if has_checksum {
            assert_eq!(sum.len(), CHECKSUM_LEN);
            if sum != crc32c::crc32c(before).to_be_bytes() {
                return;
            }
        }
        let plain = header.with_checksum(false);
        let packet = Packet::parse(&plain, &before[HEADER_LEN..]);
        if self.socket.conn.is_none() {
            if !self.socket.listens || !plain.opens() {
                if let Some(reset) = reset_for(&header) {
                    self.put(reset, Vec::new(), reset.has_checksum());
                }
                return;
            }
            self.told = packet.options;
            self.has_checksum = has_checksum;
        }
        if self.has_checksum && !has_checksum && !plain.opens() {
            return;
        }
        let outcome = self.receive(0, &packet, self.now);
        if outcome.answered {
            self.told = packet.options;
        }
        self.has_checksum |= has_checksum && outcome.is_of_open_connection();
    }

    fn wait(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while let Some(deadline) = self.socket.deadline().filter(|&deadline| deadline <= until) {
            self.now = self.now.max(deadline);
            let _ = self.expire(0, self.now);
        }
        self.now = until;
    }

    /// Executes a line of the vectors. If the line is a packet that is expected, compares it with
    /// the packet that was sent.
    fn line(&mut self, line: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "listen" => self.socket.listens = true,
            "connect" => self.connect(0, [50_000, 2805], self.now),
            "in" => self.take(&bytes(rest)),
            "out" => {
                let left = self.out.pop_front().expect("a packet leaves");
                assert_eq!(left, bytes(rest), "{left:02x?} left");
            }
            "nothing" => assert_eq!(self.out, [] as [Vec<u8>; 0]),
            "send" => {
                let message = bytes(rest);
                let sent = self.send(0, message.clone().into(), self.now);
                assert_eq!(sent, message.len());
            }
            "read" => {
                let read = Host::read(self, 0, usize::MAX, true, self.now);
                let read: Vec<u8> = read.into_iter().flatten().collect();
                assert_eq!(read, bytes(rest));
            }
            "close" => {
                self.socket.conn().close_send();
                self.transmit(0, self.now);
            }
            "wait" => self.wait(rest.parse::<u64>().unwrap() * 1_000_000),
            "told" => {
                let number = |value: Option<u32>| value.map_or("-".to_owned(), |n| n.to_string());
                let Options {
                    largest_payload,
                    window,
                    version,
                    ..
                } = self.told;
                let told = [
                    number(largest_payload.map(u32::from)),
                    number(window.map(|w| w.burst_length.into())),
                    number(window.map(|w| w.initial_ack_burst_length.into())),
                    number(version.map(u32::from)),
                ];
                assert_eq!(told.join(" "), rest);
            }
            "refused" => assert_eq!(self.socket.failed, Some(esp::Failure::Refused)),
            _ => panic!("a verb is expected"),
        }
    }
}

#[test]
fn the_documented_exchanges_take_place() {
    let mut host = Station::new();
    let mut exchanges = 0;
    for (number, line) in (1..).zip(VECTORS.lines()) {
        match line.as_bytes().first() {
            None | Some(b'#') => {}
            Some(b'=') => {
                assert!(host.out.is_empty(), "line {number}: more left than is told");
                host = Station::new();
                exchanges += 1;
            }
            Some(_) => {
                println!("line {number}: {line}");
                host.line(line);
            }
        }
    }
    assert!(host.out.is_empty() && exchanges > 10);
}

#[test]
fn the_checksum_is_castagnolis() {
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""A second implementation of ESP, over a packet socket, written from docs/protocol.md.

The module must interoperate with it.

esp_second.py listen INTERFACE MAC PORT [WORD...]              echoes one connection's bytes
esp_second.py connect INTERFACE MAC PEER PORT BYTES [WORD...]  sends BYTES bytes, compares the echo

WORDs:
no-options     sends no options
checksum       uses checksums
want-checksum  fails without checksums
masks          uses masks, and fails without
wrap           starts with a number that soon wraps
selective      loses packets and keeps out-of-order packets; fails if the module does not accept
               requests that name packets

MAC is the local address, which differs from the interface's, so that the module on this host
ignores the packets. Names in brackets are rules of docs/protocol.md.
"""

import os
import select
import socket
import struct
import sys
import time

SYN, ACK, FIN, RST, RRQ, TXS, TXF, CRC = 1, 2, 4, 8, 16, 32, 64, 128
HEADER = struct.Struct("!HHHHHB")
ETHERTYPE = 0x88B6
BURST, INITIAL, PACKETS_TO_ACK = 21, 1, 10
SILENCE, PATIENCE = 1.0, 15.0


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mixed(x):
    x ^= x >> 16
    x = x * 0x85EBCA6B & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


def mask(own, other, number, acknowledgement):
    """Returns the mask of a packet's checksum, computed from nonces and unwrapped numbers."""
    wraps = (number >> 16 & 0xFFFF) << 16 | acknowledgement >> 16 & 0xFFFF
    return mixed(mixed(mixed(own) ^ other) ^ wraps)


def nearest(number, to):
    """Returns the unwrapped value of `number` that is nearest to `to`."""
    return to + ((number - to + 0x8000) & 0xFFFF) - 0x8000


def address(text):
    return bytes.fromhex(text.replace(":", ""))


def before(a, b):
    """Returns whether sequence number `a` is earlier than `b`, with wrapping."""
    return (a - b) & 0xFFFF > 0x7FFF


class Connection:
    def __init__(self, interface, mac, words):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        self.socket.bind((interface, ETHERTYPE))
        self.mac, self.peer, self.ports = address(mac), None, None
        self.tells, self.summed = "no-options" not in words, "checksum" in words
        self.payload = self.own_payload = 1500 - HEADER.size
        self.isn = struct.unpack("!H", os.urandom(2))[0]
        if "wrap" in words:
            self.isn = 0xFFF8
        # The nonces of both ends, then the unwrapped values of `una` and `expected`.
        self.nonce = int.from_bytes(os.urandom(4), "big") if "masks" in words else None
        self.other_nonce, self.una_wide, self.expected_wide = None, self.isn, 0
        # Sending: `queue` has the packets from number `una` on, each as (payload, flags). `sent` is
        # the number of packets in `queue` that were sent. `window` is the window's end, counted
        # from `una`.
        self.una, self.queue, self.sent = self.isn, [], 0
        self.window, self.announced, self.since_sent, self.tries = 0, False, 0.0, 0
        # Receiving.
        self.expected, self.asked, self.received = None, None, bytearray()
        self.in_transmission, self.unacknowledged, self.quiet = False, 0, 0.0
        # `kept` has out-of-order packets by number. `names` says whether requests name the missing
        # packets.
        self.selective, self.names, self.kept = "selective" in words, False, {}
        self.out, self.came = 0, 0
        self.ended, self.opened, self.heard = False, False, time.monotonic()

    def put(self, flags, number, payload=b""):
        self.out += 1
        if self.selective and payload and not flags & SYN and self.out % 41 == 0:
            return  # lost
        acknowledgement = self.expected if flags & ACK else 0
        flags |= CRC if self.summed else 0
        packet = HEADER.pack(*self.ports, len(payload), number & 0xFFFF, acknowledgement, flags) + payload
        if self.summed:
            numbers = nearest(number, self.una_wide), nearest(acknowledgement, self.expected_wide)
            sum = crc32c(packet) ^ (mask(self.nonce, self.other_nonce, *numbers) if self.masked(flags) else 0)
            packet += sum.to_bytes(4, "big")
        ethernet = self.peer + self.mac + ETHERTYPE.to_bytes(2, "big")
        self.socket.send((ethernet + packet).ljust(60, b"\0"))

    def masked(self, flags):
        told = self.nonce is not None and self.other_nonce is not None
        return told and not flags & SYN and (not flags & RST or flags & ACK)

    def options(self):
        if not self.tells:
            return b""
        told = struct.pack("!BBBBBHBBHH", 1, 1, 1, 4, 2, self.own_payload, 5, 4, BURST, INITIAL)
        if self.selective:
            told += struct.pack("!BBH", 10, 2, 2)
        if self.nonce is not None and (self.expected is None or self.other_nonce is not None):
            told += struct.pack("!BBI", 11, 4, self.nonce)
        return told

    def take_options(self, data):
        while len(data) >= 2 and len(data) >= 2 + data[1]:
            kind, value, data = data[0], data[2 : 2 + data[1]], data[2 + data[1] :]
            if len(value) != {1: 1, 4: 2, 5: 4, 10: 2, 11: 4}.get(kind, len(value)):
                break
            if kind == 4:
                self.payload = min(self.own_payload, max(57, int.from_bytes(value, "big")))
            if kind == 10:
                self.names = self.selective and value[1] & 2 != 0
            if kind == 11:
                self.other_nonce = int.from_bytes(value, "big")

    def acknowledge(self, flags=ACK, named=b""):
        self.put(flags, self.una + self.sent, named)
        self.unacknowledged = 0

    def probe(self):
        self.put(ACK, self.una - 1)

    def send(self, data):
        """Queues one transmission, and sends what the window allows [S1, S6]."""
        size = self.payload - (4 if self.summed else 0)
        packets = [data[i : i + size] for i in range(0, len(data), size)]
        for i, packet in enumerate(packets):
            flags = (TXS if i == 0 else 0) | (TXF if i == len(packets) - 1 else 0)
            self.queue.append((packet, flags | ACK))
        self.send_allowed()

    def send_allowed(self):
        """Sends up to the window's end [S2]."""
        while self.sent < len(self.queue) and self.sent < self.window:
            payload, flags = self.queue[self.sent]
            if flags & TXS:
                self.window = min(self.window, self.sent + 1 + INITIAL)
            self.put(flags, self.una + self.sent, payload)
            self.sent += 1
            self.since_sent = time.monotonic()

    def send_named(self, number, named):
        """Retransmits the named packets that were sent and are unacknowledged."""
        for place in range(8 * len(named)):
            index = (number + place - self.una) & 0xFFFF
            if named[place // 8] >> place % 8 & 1 and index < self.sent:
                payload, flags = self.queue[index]
                self.put(flags, self.una + index, payload)

    def take_ack(self, number, flags, length, naming=False):
        acked = (number - self.una) & 0xFFFF
        if acked > self.sent:
            return
        if acked:
            self.una, self.sent, self.tries = number, self.sent - acked, 0
            self.una_wide += acked
            del self.queue[:acked]
            self.window -= acked
            self.since_sent = time.monotonic()
        if length or flags != ACK | TXS:  # no hold
            self.window = BURST
        if flags & RRQ and acked == 0 and not naming:
            self.sent = 0  # go back [S8]
        self.send_allowed()

    def ask(self):
        """Requests the expected packet, once for each hole [R1]."""
        if self.asked == self.expected:
            return
        self.asked = self.expected
        if not self.kept:
            return self.acknowledge(ACK | RRQ)
        last = max((number - self.expected) & 0xFFFF for number in self.kept)
        missing = [i for i in range(last) if (self.expected + i) & 0xFFFF not in self.kept]
        self.acknowledge(ACK | RRQ | TXS, sum(1 << i for i in missing).to_bytes(last // 8 + 1, "little"))

    def take_numbered(self, number, flags, payload):
        if before(number, self.expected):
            return self.acknowledge()
        if number != self.expected:
            if self.names and (number - self.expected) & 0xFFFF < 384:
                self.kept[number] = flags, payload
            return self.ask()
        self.take_expected(flags, payload)
        while self.expected in self.kept:
            self.take_expected(*self.kept.pop(self.expected))

    def take_expected(self, flags, payload):
        self.expected = (self.expected + 1) & 0xFFFF
        self.expected_wide += 1
        self.asked = None
        if flags & FIN:
            self.ended = True
            return self.acknowledge()
        self.received += payload
        self.unacknowledged += 1
        self.in_transmission = not flags & TXF and (self.in_transmission or bool(flags & TXS))
        if flags & (TXS | TXF) or self.unacknowledged >= PACKETS_TO_ACK:  # [R2]
            self.acknowledge()

    def take(self, frame):
        """Processes a frame; returns whether it belongs to this connection."""
        if frame[:6] != self.mac or len(frame) < 14 + HEADER.size:
            return False
        source, destination, length, number, acknowledgement, flags = HEADER.unpack_from(frame, 14)
        end = 14 + HEADER.size + length
        payload = frame[14 + HEADER.size : end]
        if flags & CRC:
            numbers = nearest(number, self.expected_wide), nearest(acknowledgement, self.una_wide)
            right = mask(self.other_nonce, self.nonce, *numbers) if self.masked(flags) else 0
            found = int.from_bytes(frame[end : end + 4], "big") ^ crc32c(frame[14:end])
            if found != right and flags & (RST | ACK) != RST:
                return False
        if self.summed and not flags & CRC and flags != SYN:
            return False
        summed, flags = bool(flags & CRC), flags & ~CRC
        if self.peer is None and destination == self.ports[0] and flags == SYN:
            self.peer, self.ports = frame[6:12], (destination, source)
            self.summed |= summed
            self.take_options(payload)
            self.expected, self.expected_wide = (number + 1) & 0xFFFF, number + 1
            self.queue, self.sent = [(b"", SYN | ACK)], 1
            self.put(SYN | ACK, self.isn, self.options())
            return True
        if (frame[6:12], (destination, source)) != (self.peer, self.ports):
            return False
        self.came += 1
        if self.selective and length and not flags & SYN and self.came % 37 == 0:
            return True  # lost
        self.heard = self.quiet = time.monotonic()
        self.summed |= summed
        if flags & RST:
            sys.exit("the connection was reset")
        if flags & SYN:
            if flags & ACK and not self.opened and acknowledgement == (self.isn + 1) & 0xFFFF:
                self.expected, self.opened = (number + 1) & 0xFFFF, True
                self.expected_wide, self.una_wide = number + 1, self.isn + 1
                self.take_options(payload)
                self.una, self.queue, self.sent, self.window = acknowledgement, [], 0, BURST
            if self.opened:
                self.acknowledge()
            else:
                self.put(SYN | ACK, self.isn, self.options())
            return True
        if flags & ACK:
            self.opened |= acknowledgement == (self.isn + 1) & 0xFFFF or self.una != self.isn
            naming = length > 0 and flags == ACK | RRQ | TXS
            self.take_ack(acknowledgement, flags, length, naming)
            if naming:
                self.send_named(acknowledgement, payload if self.names else b"")
                return True
        if length or flags & FIN:
            self.take_numbered(number, flags, payload)
        elif before(number, self.expected):
            self.acknowledge()  # a probe
        elif number != self.expected:
            self.ask()
        return True

    def on_time(self):
        now = time.monotonic()
        if now - self.heard > PATIENCE:
            sys.exit("the peer is silent")
        if self.sent and now - self.since_sent > min(0.05 * 2**self.tries, 2):
            payload, flags = self.queue[0]
            in_window = self.queue[: self.sent]
            if any(f & (SYN | FIN | TXS | TXF) for _, f in in_window):  # [S3]
                self.put(flags, self.una, self.options() if flags & SYN else payload)
            else:
                self.probe()
            self.since_sent, self.tries = now, self.tries + 1
        elif self.queue and not self.sent and now - self.since_sent > 0.05:
            self.probe()  # a closed window
            self.since_sent = now
        if self.in_transmission and now - self.quiet > 0.01:  # [R4]
            self.probe()
            self.asked, self.quiet = None, now

    def run(self, done):
        while not done():
            if select.select([self.socket], [], [], 0.005)[0]:
                self.take(self.socket.recv(65536))
            else:
                self.on_time()

    def close(self):
        """Ends the stream after the queued data, and waits for the peer's end."""
        self.run(lambda: not self.queue)
        self.queue.append((b"", FIN | ACK))
        self.send_allowed()
        self.run(lambda: not self.queue and self.ended)


def listen(interface, mac, port, words):
    connection = Connection(interface, mac, words)
    connection.ports = (port, 0)
    print("listening", file=sys.stderr, flush=True)
    connection.run(lambda: connection.opened and connection.ended)
    connection.send(bytes(connection.received))
    connection.close()
    return connection


def connect(interface, mac, peer, port, size, words):
    connection = Connection(interface, mac, words)
    connection.peer, connection.ports = address(peer), (49152 + os.getpid() % 16384, port)
    connection.queue, connection.sent = [(b"", SYN)], 1
    connection.put(SYN, connection.isn, connection.options())
    connection.run(lambda: connection.opened)
    question = os.urandom(size)
    connection.send(question)
    connection.close()
    if bytes(connection.received) != question:
        sys.exit(f"{len(connection.received)} bytes came back, not the {size} that were sent")
    print(f"{size} bytes came back in packets of {connection.payload}")
    return connection


match sys.argv[1:]:
    case ["listen", interface, mac, port, *words]:
        ended = listen(interface, mac, int(port), words)
    case ["connect", interface, mac, peer, port, size, *words]:
        ended = connect(interface, mac, peer, int(port), int(size), words)
    case _:
        sys.exit(__doc__)
if "want-checksum" in words and not ended.summed:
    sys.exit("the module sent no checksums")
if "selective" in words and not ended.names:
    sys.exit("the module takes no requests that name packets")
if "masks" in words and ended.other_nonce is None:
    sys.exit("the module told no nonce")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests sockets without the module.

The sockets are of AF_UNIX. A `struct sockaddr_en` with a port below 256 is an abstract address of
that family, because the byte behind the family's number is zero. `guest_sockets.py` tests the same
calls with PF_ENET.
"""

import array
import asyncio
import copy
import ctypes
import errno
import gc
import os
import pickle
import select
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest
from unittest import mock

import sockaddr_en
from sockaddr_en import SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, Address, Socket, sockets

HERE = b"\2" + os.urandom(5)


def place(port):
    return Address(HERE, 1, port)


class WithoutModule(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, sockaddr_en, "FAMILY", sockaddr_en.FAMILY)
        sockaddr_en.FAMILY = socket.AF_UNIX

    def pair(self, type):
        """Two connected sockets without addresses."""
        ends = [Socket(fileno=end.detach()) for end in socket.socketpair(type=type)]
        for end in ends:
            self.addCleanup(end.close)
        return ends

    def socket(self, type, port=None):
        end = Socket(type)
        self.addCleanup(end.close)
        if port is not None:
            end.bind(place(port))
        return end


class Receiving(WithoutModule):
    def test_connections_have_no_sender(self):
        for type in (SOCK_STREAM, SOCK_SEQPACKET):
            one, two = self.pair(type)
            buffer = bytearray(10)
            for receive, result in [
                (lambda: two.recvfrom(10), (b"bytes", None)),
                (lambda: two.recvfrom_into(buffer), (5, None)),
                (lambda: two.recvmsg(10), (b"bytes", [], 0, None)),
                (lambda: two.recvmsg_into([buffer]), (5, [], 0, None)),
            ]:
                one.send(b"bytes")
                received = receive()
                if type == SOCK_SEQPACKET and len(received) == 4:
                    received = (*received[:2], received[2] & ~socket.MSG_EOR, received[3])
                self.assertEqual(received, result)
            one.close()
            self.assertEqual(two.recvfrom(10), (b"", None))

    def test_a_foreign_sender_costs_no_bytes(self):
        two = self.socket(SOCK_DGRAM, 2)
        with socket.socket(socket.AF_UNIX, SOCK_DGRAM) as foreign:
            foreign.bind("\0" + os.urandom(8).hex())
            foreign.sendto(b"bytes", place(2).to_bytes()[2:])
            foreign.sendto(b"bytes", place(2).to_bytes()[2:])
        self.assertEqual(two.recvfrom(10), (b"bytes", None))
        self.assertEqual(two.recvmsg(10), (b"bytes", [], 0, None))

    def test_datagrams_have_senders(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        small, rest = bytearray(2), bytearray(5)
        for receive, result in [
            (lambda: two.recvfrom(3), (b"dat", place(1))),
            (lambda: two.recvfrom(9, socket.MSG_PEEK | socket.MSG_TRUNC), (b"datagram", place(1))),
            (lambda: two.recvfrom_into(rest, 3), (3, place(1))),
            (lambda: two.recvmsg(8), (b"datagram", [], 0, place(1))),
            (lambda: two.recvmsg(3), (b"dat", [], socket.MSG_TRUNC, place(1))),
            (lambda: two.recvmsg_into([small, rest]), (7, [], socket.MSG_TRUNC, place(1))),
        ]:
            self.assertEqual(one.sendto(b"datagram", place(2)), 8)
            self.assertEqual(receive(), result)
            while select.select([two], [], [], 0)[0]:
                two.recv(1)
        self.assertEqual((small, rest), (b"da", b"tagra"))

    def test_control_messages_come_as_with_pythons_own_socket(self):
        for type in (SOCK_STREAM, SOCK_DGRAM):
            one, two = self.pair(type)
            two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            plain = socket.socket(fileno=os.dup(two.fileno()))
            self.addCleanup(plain.close)
            for room in (0, 1, 16, 20, 28, 32, 200):
                for _ in range(2):
                    one.send(b"x")
                with self.subTest(room=room):
                    self.assertEqual(two.recvmsg(1, room)[:3], plain.recvmsg(1, room)[:3])
        credentials = two.recvmsg(1, 200, socket.MSG_DONTWAIT) if one.send(b"x") else None
        self.assertEqual(
            credentials[1],
            [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("=iII", os.getpid(), os.getuid(), os.getgid()))],
        )

    def test_wrong_arguments_receive_nothing(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        two.settimeout(5)
        one.sendto(b"abc", place(2))
        for error, wrong in [
            (TypeError, lambda: two.recvfrom([1, 2])),
            (TypeError, lambda: two.recvfrom(b"abc")),
            (TypeError, lambda: two.recvfrom(1.0)),
            (TypeError, lambda: two.recvfrom(1, "a")),
            (TypeError, lambda: two.recvfrom()),
            (ValueError, lambda: two.recvfrom(-1)),
            (OverflowError, lambda: two.recvfrom(1, 1 << 32)),
            (TypeError, lambda: two.recvfrom_into(b"abc")),
            (TypeError, lambda: two.recvfrom_into(5)),
            (TypeError, lambda: two.recvfrom_into(bytearray(4), "a")),
            (ValueError, lambda: two.recvfrom_into(bytearray(4), 5)),
            (ValueError, lambda: two.recvfrom_into(bytearray(4), -1)),
            (TypeError, lambda: two.recvmsg("a")),
            (TypeError, lambda: two.recvmsg(1, None)),
            (ValueError, lambda: two.recvmsg(1, -1)),
            (ValueError, lambda: two.recvmsg(-1)),
            (TypeError, lambda: two.recvmsg_into(bytearray(4))),
            (TypeError, lambda: two.recvmsg_into([b"abc"])),
            (BufferError, lambda: two.recvmsg_into([memoryview(bytearray(4))[::2]])),
        ]:
            with self.assertRaises(error):
                wrong()
        self.assertEqual(two.recvfrom(10), (b"abc", place(1)))

    def test_a_time_out_of_the_kernel_ends_the_call(self):
        two = self.socket(SOCK_DGRAM, 2)
        two.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 1000))
        for receive in (two.recvfrom, two.recvmsg):
            with self.assertRaises(BlockingIOError):
                receive(10)


class Sending(WithoutModule):
    def test_every_buffer_is_sent(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        numbers = array.array("H", [1, 2])
        for data in [b"abc", bytearray(b"abc"), memoryview(b"abc"), numbers, b"", bytearray()]:
            with self.subTest(repr(data)):
                expected = (bytes(memoryview(data)), place(1))
                self.assertEqual(one.sendto(data, place(2)), len(expected[0]))
                self.assertEqual(two.recvfrom(10), expected)
                self.assertEqual(one.sendto(data, 0, str(place(2))), len(expected[0]))
                self.assertEqual(two.recvfrom(10), expected)
                self.assertEqual(one.sendmsg([data, b"de"], [], 0, place(2)), len(expected[0]) + 2)
                self.assertEqual(two.recvfrom(10), (expected[0] + b"de", place(1)))

    def test_wrong_arguments_send_nothing(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        for error, wrong in [
            (TypeError, lambda: one.sendto(5, place(2))),
            (TypeError, lambda: one.sendto(True, place(2))),
            (TypeError, lambda: one.sendto("abc", place(2))),
            (TypeError, lambda: one.sendto(None, place(2))),
            (TypeError, lambda: one.sendto([1, 2], place(2))),
            (TypeError, lambda: one.sendto(b"abc")),
            (TypeError, lambda: one.sendto(b"abc", 0, place(2), 1)),
            (TypeError, lambda: one.sendto(b"abc", 0, 1, place(2))),
            (TypeError, lambda: one.sendto(b"abc", 1.5, place(2))),
            (TypeError, lambda: one.sendto(b"abc", "0", place(2))),
            (OverflowError, lambda: one.sendto(b"abc", 1 << 32, place(2))),
            (TypeError, lambda: one.sendto(b"abc", 0)),
            (TypeError, lambda: one.sendto(b"abc", None)),
            (BufferError, lambda: one.sendto(memoryview(b"abcd")[::2], place(2))),
            (ValueError, lambda: one.sendto(b"abc", Address(bytes(6), 0, 1))),
            (TypeError, lambda: one.sendmsg(b"abc", [], 0, place(2))),
            (TypeError, lambda: one.sendmsg([b"abc"], [], 0, 5)),
            (TypeError, lambda: one.sendmsg([b"abc"], [], "0", place(2))),
            (TypeError, lambda: one.sendmsg([b"abc"], 5, 0, place(2))),
        ]:
            with self.assertRaises(error):
                wrong()
        two.setblocking(False)
        with self.assertRaises(BlockingIOError):
            two.recv(10)

    def test_control_messages_are_sent(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        rights = array.array("i", [one.fileno()])
        ancillary = [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, rights),
            (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("=iII", os.getpid(), os.getuid(), os.getgid())),
        ]
        two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        one.sendmsg([b"ab", b"c"], ancillary, 0, place(2))
        data, received, flags, sender = two.recvmsg(10, 200)
        self.assertEqual((data, flags, sender), (b"abc", 0, place(1)))
        self.assertIn(ancillary[1], received)
        number = dict((kind, content) for _, kind, content in received)[socket.SCM_RIGHTS]
        os.close(struct.unpack("=i", number)[0])


class Inherited(WithoutModule):
    def test_a_duplicate_is_a_socket_of_its_own(self):
        for type in (SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM):
            one, two = self.pair(type)
            for timeout in (None, 0, 2.5):
                one.settimeout(timeout)
                duplicate = one.dup()
                with duplicate:
                    self.assertIs(duplicate.__class__, Socket)
                    self.assertEqual((duplicate.type, duplicate.gettimeout()), (type, timeout))
                    self.assertNotEqual(duplicate.fileno(), one.fileno())
                    self.assertFalse(duplicate.get_inheritable())
                    duplicate.send(b"by the duplicate")
                self.assertEqual(two.recv(100), b"by the duplicate")
            one.send(b"by the first")
            self.assertEqual(two.recv(100), b"by the first")

    def test_a_failed_duplicate_leaves_no_descriptor(self):
        class Refusing(Socket):
            def __init__(self, type, fileno=None):
                if fileno is not None:
                    raise RuntimeError("no")
                super().__init__(type)

        with Refusing(SOCK_DGRAM) as one:
            before = os.listdir("/proc/self/fd")
            with self.assertRaisesRegex(RuntimeError, "no"):
                one.dup()
            self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_a_descriptor_knows_its_type(self):
        for type in (SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM):
            with Socket(type) as one:
                fd = one.detach()
                self.assertEqual(one.fileno(), -1)
            with Socket(fileno=fd) as one:
                self.assertEqual((one.type, one.fileno()), (type, fd))

    def test_connections_are_accepted(self):
        listener = self.socket(SOCK_STREAM, 3)
        listener.listen()
        listener.settimeout(5)
        with Socket() as client:
            client.bind(place(4))
            client.connect(place(3))
            self.assertEqual(client.getpeername(), place(3))
            accepted, peer = listener.accept()
            with accepted:
                self.assertIs(accepted.__class__, Socket)
                self.assertEqual((peer, accepted.gettimeout()), (place(4), None))
                self.assertFalse(accepted.get_inheritable())
                with client.makefile("rwb") as file:
                    file.write(b"a line\n")
                    file.flush()
                    self.assertEqual(accepted.recv(100), b"a line\n")
                    accepted.sendall(b"another\n")
                    self.assertEqual(file.readline(), b"another\n")
                with tempfile.TemporaryFile() as file:
                    file.write(b"0123456789")
                    file.flush()
                    self.assertEqual(client.sendfile(file, 2, 5), 5)
                self.assertEqual(accepted.recv(100), b"23456")
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(accepted.recvfrom(10)[0], b"")
        self.assertEqual(client.fileno(), -1)

    def test_sockets_are_neither_copied_nor_pickled(self):
        one = self.socket(SOCK_DGRAM, 1)
        for wrong in (copy.copy, pickle.dumps):
            with self.assertRaises(TypeError):
                wrong(one)
        self.assertEqual(pickle.loads(pickle.dumps(one.getsockname())), place(1))
        self.assertIn(str(place(1)), repr(one))

    def test_the_calls_of_an_asyncio_loop(self):
        async def calls():
            loop = asyncio.get_running_loop()
            one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
            listener, client = self.socket(SOCK_STREAM, 3), self.socket(SOCK_STREAM, 4)
            listener.listen()
            for end in (one, two, listener, client):
                end.setblocking(False)
            await loop.sock_sendto(one, b"first", place(2))
            self.assertEqual(await loop.sock_recvfrom(two, 10), (b"first", place(1)))
            await loop.sock_sendto(one, b"second", place(2))
            buffer = bytearray(10)
            self.assertEqual(await loop.sock_recvfrom_into(two, buffer), (6, place(1)))
            await loop.sock_connect(client, place(3))
            accepted, peer = await loop.sock_accept(listener)
            with accepted:
                self.assertEqual(peer, place(4))
                await loop.sock_sendall(client, b"bytes")
                self.assertEqual(await loop.sock_recv(accepted, 10), b"bytes")
                with tempfile.TemporaryFile() as file:
                    file.write(b"of a file")
                    file.seek(0)
                    await loop.sock_sendfile(client, file)
                self.assertEqual(await loop.sock_recv_into(accepted, buffer), 9)

        asyncio.run(calls())


class TimeOuts(WithoutModule):
    def test_a_time_out_of_years_is_no_error(self):
        two = self.socket(SOCK_DGRAM, 2)
        two.settimeout(1e9)
        timer = threading.Timer(0.05, self.socket(SOCK_DGRAM, 1).sendto, (b"late", place(2)))
        timer.start()
        self.assertEqual(two.recvfrom(10), (b"late", place(1)))
        timer.join()

    def test_a_connection_may_take_years(self):
        def connect(*_):
            ctypes.set_errno(errno.EINPROGRESS)
            return -1

        client = self.socket(SOCK_STREAM)
        client.settimeout(1e9)
        libc = mock.Mock(wraps=sockets._libc, connect=connect)
        with mock.patch.object(sockets, "_libc", libc), mock.patch.object(select, "poll") as poll:
            poll.return_value.poll.side_effect = [[], [], [(3, select.POLLOUT)]]
            client.connect(place(3))
        waits = [call.args[0] for call in poll.return_value.poll.call_args_list]
        self.assertEqual(waits, [(1 << 31) - 1] * 3)

    def test_a_wait_of_several_polls_ends_in_time(self):
        two = self.socket(SOCK_DGRAM, 2)
        two.settimeout(0.05)
        with mock.patch.object(sockets, "_INT_MAX", 10), self.assertRaises(TimeoutError):
            start = time.monotonic()
            two.recvfrom(10)
        self.assertGreaterEqual(time.monotonic() - start, 0.05)

    def test_a_buffer_is_free_after_the_call(self):
        one, two = self.socket(SOCK_DGRAM, 1), self.socket(SOCK_DGRAM, 2)
        one.sendto(b"abc", place(2))
        room = bytearray(10)
        gc.disable()
        self.addCleanup(gc.enable)
        two.recvmsg_into([room])
        room.clear()

    def test_an_ended_wait_is_told_without_the_error_that_began_it(self):
        two = self.socket(SOCK_DGRAM, 2)
        two.settimeout(0.01)
        with self.assertRaises(TimeoutError) as caught:
            two.recvfrom(10)
        self.assertIsNone(caught.exception.__context__)

    def test_a_signal_does_not_end_a_wait(self):
        two = self.socket(SOCK_DGRAM, 2)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: None))
        one = self.socket(SOCK_DGRAM, 1)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        for timeout in (None, 20):
            two.settimeout(timeout)
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
            timer = threading.Timer(0.1, one.sendto, (b"late", place(2)))
            timer.start()
            self.assertEqual(two.recvmsg(10)[0], b"late")
            timer.join()


class WrongAddresses(WithoutModule):
    def test_a_wrong_type_is_told(self):
        one = self.socket(SOCK_STREAM)
        calls = [
            one.bind, one.connect, one.connect_ex, sockaddr_en.create_server,
            sockaddr_en.create_connection, Address.parse,
            lambda address: sockaddr_en.create_connection(place(1), 1, address or 0),
            lambda address: asyncio.run(sockaddr_en.open_connection(address)),
            lambda address: asyncio.run(sockaddr_en.start_server(None, address)),
        ]
        sockaddr_en.FAMILY = 39  # AF_NFC: no socket can be opened, but addresses are checked first
        for number, call in enumerate(calls):
            for address in (5, None, ("eth0", 5), b"*:1", 1.5):
                with self.subTest(number=number, address=address):
                    with self.assertRaisesRegex(TypeError, "an address is text"):
                        call(address)


if __name__ == "__main__":
    unittest.main()

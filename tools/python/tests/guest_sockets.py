# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests sockets on one host, which exchange frames through the interface's own address.

A scenario runs these tests. They need the module and an interface. ENET_INTERFACE is the interface's name and
ENET_MAC its Ethernet address.
"""

import asyncio
import errno
import os
import socket
import threading
import unittest

import sockaddr_en
from sockaddr_en import SOCK_DGRAM, SOCK_SEQPACKET, Address, Socket, create_connection, create_server

INTERFACE = os.environ["ENET_INTERFACE"]
MAC = os.environ["ENET_MAC"]
HERE = f"*%{INTERFACE}:0"
SO_TIMESTAMP = 29


def there(port):
    return f"{MAC}%{INTERFACE}:{port}"


def port_of(end):
    return end.getsockname().port


class Streams(unittest.TestCase):
    def setUp(self):
        self.listener = create_server(HERE)
        self.addCleanup(self.listener.close)
        self.port = port_of(self.listener)

    def test_bytes_go_both_ways_and_addresses_are_told(self):
        with create_connection(there(self.port), timeout=20) as client:
            server, peer = self.listener.accept()
            with server:
                self.assertEqual((peer.mac.hex(":"), peer.port), (MAC, port_of(client)))
                self.assertEqual(client.getpeername(), Address.parse(there(self.port)))
                self.assertEqual(server.getpeername(), peer)
                client.sendall(b"question")
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(server.makefile("rb").read(), b"question")
                server.sendall(b"answer")
                self.assertEqual(client.recv(6, socket.MSG_WAITALL), b"answer")
                self.assertFalse(os.get_inheritable(server.fileno()))

    def test_every_receive_returns_the_bytes_and_no_sender(self):
        client = create_connection(there(self.port), timeout=20)
        server, _ = self.listener.accept()
        buffer = bytearray(20)
        with client, server:
            server.settimeout(1e9)
            for receive, result in [
                (lambda: server.recvfrom(20), (b"bytes", None)),
                (lambda: server.recvfrom_into(buffer), (5, None)),
                (lambda: server.recvmsg(20), (b"bytes", [], 0, None)),
                (lambda: server.recvmsg_into([buffer]), (5, [], 0, None)),
            ]:
                client.sendall(b"bytes")
                self.assertEqual(receive(), result)
            client.close()
            self.assertEqual(server.recvfrom(20), (b"", None))

    def test_a_connection_has_years_of_time(self):
        with create_connection(there(self.port), timeout=1e9) as client:
            self.assertEqual(client.gettimeout(), 1e9)

    def test_inherited_methods(self):
        client = create_connection(there(self.port), timeout=20)
        server, _ = self.listener.accept()
        with client, server, client.dup() as duplicate, open(os.memfd_create("file"), "w+b") as file:
            self.assertIs(duplicate.__class__, Socket)
            self.assertEqual((duplicate.type, duplicate.gettimeout()), (socket.SOCK_STREAM, 20))
            self.assertEqual(duplicate.getsockname(), client.getsockname())
            file.write(bytes(range(200)))
            file.flush()
            self.assertEqual(duplicate.sendfile(file, 50, 100), 100)
            self.assertEqual(server.recv(100, socket.MSG_WAITALL), bytes(range(50, 150)))
            client.sendmsg([b"several ", bytearray(b"buffers")])
            self.assertEqual(server.recv(15, socket.MSG_WAITALL), b"several buffers")
            with Socket(fileno=client.detach()) as again:
                self.assertEqual(again.type, socket.SOCK_STREAM)
                self.assertEqual(again.getpeername(), Address.parse(there(self.port)))
                self.assertIn(str(again.getsockname()), repr(again))

    def test_a_local_port_is_taken(self):
        with Socket() as reserved:
            reserved.bind(HERE)
            port = port_of(reserved)
        with create_connection(there(self.port), source_address=f"*%{INTERFACE}:{port}") as client:
            self.assertEqual(port_of(client), port)

    def test_nobody_listens(self):
        self.listener.close()
        with self.assertRaises(ConnectionRefusedError):
            create_connection(there(self.port))
        with self.assertRaises(ConnectionRefusedError):
            create_connection(there(self.port), timeout=20)
        with Socket() as client:
            self.assertEqual(client.connect_ex(there(self.port)), errno.ECONNREFUSED)

    def test_an_absent_interface_is_no_success(self):
        with Socket() as client:
            self.assertEqual(client.connect_ex(f"{MAC}%nowhere0:1"), errno.ENODEV)
            self.assertEqual(client.connect_ex(Address(bytes.fromhex(MAC.replace(":", "")), 4711, 1)), errno.ENODEV)

    def test_nobody_answers_in_time(self):
        with self.assertRaises(TimeoutError):
            create_connection(f"02:00:00:00:0f:0f%{INTERFACE}:1", timeout=0.2)

    def test_accept_keeps_to_its_time_out(self):
        self.listener.settimeout(0.05)
        with self.assertRaises(TimeoutError):
            self.listener.accept()
        self.listener.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.listener.accept()

    def test_an_address_in_use_and_a_wildcard_peer(self):
        with self.assertRaises(OSError) as caught:
            create_server(f"*%{INTERFACE}:{self.port}")
        self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
        with self.assertRaisesRegex(ValueError, "can only be bound"):
            create_connection("*:1")


class Records(unittest.TestCase):
    def test_one_send_is_one_receive(self):
        with Socket(SOCK_SEQPACKET) as listener, Socket(SOCK_SEQPACKET) as client:
            listener.bind(HERE)
            listener.listen(1)
            client.connect(there(port_of(listener)))
            server, _ = listener.accept()
            with server:
                for record in (b"one", b"and two", bytes(5000)):
                    self.assertEqual(client.send(record), len(record))
                for record in (b"one", b"and two", bytes(5000)):
                    self.assertEqual(server.recv(10000), record)
                client.send(b"received with its flags")
                self.assertEqual(server.recvmsg(100, 0, socket.MSG_PEEK)[::3], (b"received with its flags", None))
                self.assertEqual(server.recvfrom(100), (b"received with its flags", None))
                client.send(b"cut")
                data, _, flags, _ = server.recvmsg(2)
                self.assertEqual((data, flags & socket.MSG_TRUNC), (b"cu", socket.MSG_TRUNC))
                with Socket(fileno=client.dup().detach()) as again:
                    self.assertEqual(again.type, SOCK_SEQPACKET)


class Datagrams(unittest.TestCase):
    def setUp(self):
        self.one, self.two = Socket(SOCK_DGRAM), Socket(SOCK_DGRAM)
        for end in (self.one, self.two):
            self.addCleanup(end.close)
            end.bind(HERE)

    def test_datagrams_and_their_senders(self):
        address = there(port_of(self.two))
        self.assertEqual(self.one.sendto(b"first", address), 5)
        self.assertEqual(self.one.sendto(bytearray(b"second"), 0, Address.parse(address)), 6)
        data, sender = self.two.recvfrom(1500)
        self.assertEqual((data, sender.port), (b"first", port_of(self.one)))
        buffer = bytearray(4)
        length, sender = self.two.recvfrom_into(buffer)
        self.assertEqual((length, bytes(buffer)), (4, b"seco"))
        self.two.connect(sender)
        self.two.send(b"answer")
        self.assertEqual(self.one.recv(100), b"answer")

    def test_messages_have_senders_and_flags(self):
        address = there(port_of(self.two))
        sender = Address.parse(there(port_of(self.one)))
        self.two.settimeout(20)
        small, rest = bytearray(2), bytearray(50)
        for receive, result in [
            (lambda: self.two.recvmsg(50), (b"datagram", [], 0, sender)),
            (lambda: self.two.recvmsg(3), (b"dat", [], socket.MSG_TRUNC, sender)),
            (lambda: self.two.recvmsg_into([small, rest]), (8, [], 0, sender)),
        ]:
            self.assertEqual(self.one.sendmsg([b"data", bytearray(b"gram")], [], 0, address), 8)
            self.assertEqual(receive(), result)
        self.assertEqual((small, rest[:6]), (b"da", b"tagram"))

    def test_control_messages_tell_the_time(self):
        self.two.settimeout(20)
        self.two.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        self.one.sendto(b"", there(port_of(self.two)))
        data, [(level, kind, time)], _, sender = self.two.recvmsg(10, 100)
        self.assertEqual((data, level, kind), (b"", socket.SOL_SOCKET, SO_TIMESTAMP))
        self.assertEqual((len(time), sender.port), (16, port_of(self.one)))

    def test_wrong_arguments_send_nothing(self):
        address = there(port_of(self.two))
        for wrong in [(5, address), (True, address), (b"a",), (b"a", 0, address, 1), (b"a", "0", address), (b"a", 5)]:
            with self.assertRaises(TypeError):
                self.one.sendto(*wrong)
        self.two.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.two.recvfrom(10)

    def test_waiting_keeps_to_its_time_out(self):
        self.two.settimeout(0.05)
        with self.assertRaises(TimeoutError):
            self.two.recvfrom(10)
        self.two.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.two.recvfrom(10)

    def test_a_datagram_too_large_is_refused(self):
        with self.assertRaises(OSError) as caught:
            self.one.sendto(bytes(65536), there(port_of(self.two)))
        self.assertEqual(caught.exception.errno, errno.EMSGSIZE)

    def test_a_reader_that_waits_is_woken(self):
        got = []
        reader = threading.Thread(target=lambda: got.append(self.two.recvfrom(100)[0]))
        reader.start()
        self.one.sendto(b"wake up", there(port_of(self.two)))
        reader.join(20)
        self.assertEqual(got, [b"wake up"])


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_streams(self):
        async def echo(reader, writer):
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
            writer.close()

        server = await sockaddr_en.start_server(echo, HERE)
        port = port_of(server.sockets[0])
        reader, writer = await sockaddr_en.open_connection(there(port))
        self.assertEqual(writer.get_extra_info("peername"), Address.parse(there(port)))
        question = os.urandom(1_000_000)

        async def ask():
            writer.write(question)
            await writer.drain()
            writer.write_eof()

        _, answer = await asyncio.gather(ask(), reader.read(-1))
        self.assertEqual(answer, question)
        writer.close()
        await writer.wait_closed()
        server.close()

    async def test_a_refused_stream(self):
        with create_server(HERE) as listener:
            port = port_of(listener)
        with self.assertRaises(ConnectionRefusedError):
            await sockaddr_en.open_connection(there(port))

    async def test_an_absent_interface_is_no_success(self):
        with self.assertRaises(OSError) as caught:
            await sockaddr_en.open_connection(f"{MAC}%nowhere0:1")
        self.assertEqual(caught.exception.errno, errno.ENODEV)

    async def test_the_calls_of_a_loop(self):
        loop = asyncio.get_running_loop()
        with create_server(HERE) as listener, Socket() as client, open(os.memfd_create("file"), "w+b") as file:
            listener.setblocking(False)
            client.setblocking(False)
            connecting = loop.create_task(loop.sock_connect(client, there(port_of(listener))))
            server, peer = await loop.sock_accept(listener)
            with server:
                await connecting
                self.assertEqual(peer.port, port_of(client))
                await loop.sock_sendall(client, b"bytes")
                self.assertEqual(await loop.sock_recvfrom(server, 10), (b"bytes", None))
                file.write(b"of a file")
                file.seek(0)
                await loop.sock_sendfile(client, file)
                self.assertEqual(await loop.sock_recv(server, 20), b"of a file")
        with Socket(SOCK_DGRAM) as one, Socket(SOCK_DGRAM) as two:
            for end in (one, two):
                end.setblocking(False)
                end.bind(HERE)
            await loop.sock_sendto(one, b"datagram", there(port_of(two)))
            data, sender = await loop.sock_recvfrom(two, 10)
            self.assertEqual((data, sender.port), (b"datagram", port_of(one)))

    async def test_datagrams(self):
        class Echo(asyncio.DatagramProtocol):
            def connection_made(self, transport):
                self.transport = transport

            def datagram_received(self, data, sender):
                self.transport.sendto(data.upper(), sender)

        end = Socket(SOCK_DGRAM)
        end.bind(HERE)
        port = port_of(end)
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Echo, sock=end)
        with Socket(SOCK_DGRAM) as asker:
            asker.setblocking(False)
            asker.bind(HERE)
            asker.sendto(b"loud", there(port))
            self.assertEqual(await asyncio.wait_for(loop.sock_recv(asker, 100), 20), b"LOUD")
        transport.close()


if __name__ == "__main__":
    unittest.main()

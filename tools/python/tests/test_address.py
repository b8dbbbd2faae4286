# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests addresses as text, as values and in system calls. These tests need no module."""

import asyncio
import errno
import socket
import unittest

import sockaddr_en
from sockaddr_en import Address

MAC = bytes([2, 0, 0, 0, 0, 1])
LO = socket.if_nametoindex("lo")


class AddressTest(unittest.TestCase):
    def test_every_form_is_read_and_written(self):
        for text, address in [
            ("02:00:00:00:00:01%lo:2805", Address(MAC, LO, 2805)),
            ("02:00:00:00:00:01%0:1", Address(MAC, 0, 1)),
            ("02:00:00:00:00:01%4294967295:0", Address(MAC, 0xFFFFFFFF, 0)),
            ("*%lo:65535", Address(bytes(6), LO, 65535)),
            ("*:0", Address(bytes(6), 0, 0)),
        ]:
            with self.subTest(text):
                self.assertEqual(Address.parse(text), address)
                self.assertEqual(str(address), text)
                self.assertEqual(Address.from_bytes(address.to_bytes()), address)

    def test_other_texts_are_refused(self):
        for text in [
            "", "*", ":", "*:", "*:65536", "*:+1", "*:1x", "*x:1", "%lo:1", "*%:1", "*%lo", "*%l o:1",
            "*%l/o:1", "*%4294967296:1", f"*%{'a' * 128}:1", "02:00:00:00:00:01:2805",
            "02:00:00:00:00:01", "02:00:00:00:00%lo:1", "02:00:00:00:00:0g%lo:1", "*:٣",
        ]:
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                Address.parse(text)
            self.assertIn("02:00:00:00:00:01%eth0:2805", str(caught.exception))

    def test_an_ip_address_is_referred_to_lookup(self):
        for text in ["10.0.0.2:4444", "[fe80::1]:1", "fe80::1%lo:1"]:
            with self.subTest(text), self.assertRaisesRegex(ValueError, "sockaddr_en.lookup"):
                Address.parse(text)

    def test_an_absent_interface_is_an_error_of_the_system(self):
        with self.assertRaisesRegex(OSError, "nowhere0") as caught:
            Address.parse("*%nowhere0:1")
        self.assertEqual(caught.exception.errno, errno.ENODEV)

        with self.assertRaisesRegex(OSError, "sixteen-letters-") as caught:
            Address.parse("*%sixteen-letters-:1")
        self.assertEqual(caught.exception.errno, errno.ENODEV)

    def test_the_layout_is_that_of_sockaddr_en(self):
        raw = Address(MAC, 3, 0x1234).to_bytes()
        self.assertEqual(raw[:2], (28).to_bytes(2, "little" if raw[0] else "big"))
        self.assertEqual(raw[2:4], b"\x12\x34")
        self.assertEqual(raw[8:], bytes([6]) + MAC + b"\0")
        self.assertEqual(len(raw), 16)

    def test_foreign_structures_are_refused(self):
        raw = Address(MAC, 3, 1).to_bytes()
        for wrong in [raw[:15], b"\2\0" + raw[2:], raw[:8] + b"\5" + raw[9:]]:
            with self.assertRaises(ValueError):
                Address.from_bytes(wrong)

    def test_fields_out_of_range_are_refused(self):
        for fields in [(b"", 0, 0), (MAC, -1, 0), (MAC, 1 << 32, 0), (MAC, 0, -1), (MAC, 0, 1 << 16)]:
            with self.assertRaises(ValueError):
                Address(*fields)

    def test_fields_of_wrong_types_are_refused(self):
        for fields in [("abcdef", 0, 1), (bytearray(6), 0, 1), (MAC, 1.5, 1), (MAC, "1", 1), (MAC, 1, 1.0), (MAC, 1, None)]:
            with self.subTest(fields), self.assertRaises(TypeError):
                Address(*fields)

    def test_an_absent_interface_of_an_ip_address_is_told(self):
        for text in ["127.0.0.1%nowhere0", "127.0.0.1%4294967295", "10.0.0.2%4294967295", "fe80::1%4294967295"]:
            with self.subTest(text), self.assertRaises(OSError) as caught:
                sockaddr_en.lookup(text, 1)
            self.assertEqual(caught.exception.errno, errno.ENODEV)

    def test_arguments_of_lookup_are_checked_before_the_resolver_is_asked(self):
        for error, host, port in [
            (ValueError, "127.0.0.1", -1), (ValueError, "127.0.0.1", 65536), (ValueError, "02:00:00:00:00:01%lo", -1),
            (ValueError, "a\0b", 1), (TypeError, "127.0.0.1", "80"), (TypeError, "127.0.0.1", None),
            (TypeError, "127.0.0.1", 1.5), (TypeError, None, 1), (TypeError, 5, 1), (TypeError, b"127.0.0.1", 1),
        ]:
            with self.subTest((host, port)), self.assertRaises(error):
                sockaddr_en.lookup(host, port)

    def test_hosts_are_looked_up(self):
        lookup = sockaddr_en.lookup
        self.assertEqual(lookup("02:00:00:00:00:01%lo", 7), Address(MAC, LO, 7))
        for text in ["", "%lo", "02:00:00:00:00:01", "02:00:00:00:00:02:veth0", "10.0.0.2:2805"]:
            with self.subTest(text), self.assertRaisesRegex(ValueError, "02:00:00:00:00:01%eth0"):
                lookup(text, 1)
        for text in ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1", "localhost", "127.0.0.1%lo", "127.0.0.1%nowhere0"]:
            with self.subTest(text), self.assertRaises(OSError) as caught:
                lookup(text, 1)
            self.assertEqual(caught.exception.errno, errno.ENODEV)

    def test_other_notations_are_refused_with_what_to_write(self):
        for mac in ["02-00-00-00-00-0A", "0200.0000.000a"]:
            with self.assertRaisesRegex(ValueError, "write 02:00:00:00:00:0a%lo"):
                sockaddr_en.lookup(f"{mac}%lo", 1)
            with self.assertRaisesRegex(ValueError, "write 02:00:00:00:00:0a$"):
                Address.parse(f"{mac}%lo:1")

    def test_addresses_of_no_host_are_refused_at_once(self):
        for text in ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1%lo", "127.255.255.255", "fe80::1:2:3:4"]:
            with self.subTest(text), self.assertRaises(OSError) as caught:
                sockaddr_en.lookup(text, 1)
            self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_a_missing_module_says_what_to_do(self):
        self.addCleanup(setattr, sockaddr_en, "FAMILY", sockaddr_en.FAMILY)
        sockaddr_en.FAMILY = 39  # AF_NFC: the kernels that these tests run on have no such sockets
        with self.assertRaisesRegex(OSError, "modprobe enet"):
            sockaddr_en.Socket()
        with self.assertRaisesRegex(OSError, "modprobe enet"):
            sockaddr_en.create_server("*:1")

    def test_a_wrong_address_is_told_before_a_missing_module(self):
        self.addCleanup(setattr, sockaddr_en, "FAMILY", sockaddr_en.FAMILY)
        sockaddr_en.FAMILY = 39
        calls = [
            sockaddr_en.create_server,
            sockaddr_en.create_connection,
            lambda address: asyncio.run(sockaddr_en.open_connection(address)),
            lambda address: asyncio.run(sockaddr_en.start_server(None, address)),
        ]
        for number, call in enumerate(calls):
            with self.subTest(number), self.assertRaisesRegex(ValueError, "is no address"):
                call("02:00:00:00:00:01:2805")
            with self.subTest(number), self.assertRaisesRegex(OSError, "nowhere0"):
                call("02:00:00:00:00:01%nowhere0:2805")


if __name__ == "__main__":
    unittest.main()

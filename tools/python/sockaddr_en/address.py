# SPDX-License-Identifier: MIT OR Apache-2.0
"""Addresses: `struct sockaddr_en` as a value and as text."""

from __future__ import annotations

import errno
import ipaddress
import operator
import re
import socket
import struct
from dataclasses import dataclass

#: The family number that the module registers unless its parameter `family` sets another.
AF_ENET = 28

# The fields of `struct sockaddr_en`: family (host order), port (network order), interface (host
# order), address length, address, zero.
_LAYOUT = struct.Struct("=H2sIB6sx")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}")
# Up to 127 bytes: an interface's alternative name may be this long, its own name only 15 bytes.
_NAME = re.compile(r"[^/:\s]{1,127}")
_OTHER_NOTATION = re.compile(r"[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2}")
_UNSPECIFIED = bytes(6)
_RTM_NEWLINK, _RTM_GETLINK, _NLM_F_REQUEST, _IFLA_ALT_IFNAME = 16, 18, 1, 53


def _bad(text: str, why: str) -> ValueError:
    return ValueError(f"`{text}` is no address: {why}, as in 02:00:00:00:00:01%eth0:2805")


def _bad_host(text: str) -> ValueError:
    return ValueError(
        f"`{text}` is no host: write a name, an IP address, or an Ethernet address as in 02:00:00:00:00:01%eth0"
    )


def _with_colons(mac: str) -> str:
    return bytes.fromhex(mac.replace("-", "").replace(".", "")).hex(":")


@dataclass(frozen=True, order=True)
class Address:
    """A port of a host, reached through an interface.

    `mac` has 6 bytes, all zero in an address for `bind`. `interface` is the interface's number; 0 stands
    for every interface. A `port` of 0 in an address for `bind` asks for a free port.
    """

    mac: bytes
    interface: int
    port: int

    def __post_init__(self) -> None:
        if not isinstance(self.mac, bytes):
            raise TypeError(f"an Ethernet address is bytes, not {type(self.mac).__name__}")
        if len(self.mac) != 6:
            raise ValueError(f"an Ethernet address has 6 bytes, not {len(self.mac)}")
        if not 0 <= operator.index(self.interface) < 1 << 32:
            raise ValueError(f"{self.interface} is not the number of an interface")
        _check_port(self.port)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads ``MAC%INTERFACE:PORT``, ``*%INTERFACE:PORT`` or ``*:PORT``.

        Raises `ValueError` for other text, and `OSError` (`ENODEV`) if no interface has the name.
        """
        if not isinstance(text, str):
            raise TypeError(f"an address is text, not {type(text).__name__}")
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch("[0-9]+", port) or int(port) > 65535:
            raise _bad(text, "it ends in no port from 0 to 65535")
        host, percent, interface = host.partition("%")
        if host == "*":
            mac = _UNSPECIFIED
        elif _MAC.fullmatch(host):
            mac = bytes.fromhex(host.replace(":", ""))
        elif _OTHER_NOTATION.fullmatch(host):
            raise ValueError(f"`{text}` is no address: `{host}` has colons here, write {_with_colons(host)}")
        elif _is_ip(host):
            raise ValueError(
                f"`{text}` begins with an IP address: `sockaddr_en.lookup` finds the Ethernet address of its host"
            )
        else:
            raise _bad(text, "an Ethernet address or `*` stands first")
        if not percent and host != "*":
            raise _bad(text, "it names no interface to send through")
        return cls(mac, _interface(text, interface) if percent else 0, int(port))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Address:
        """Reads a `struct sockaddr_en` that a system call returned."""
        if len(raw) < _LAYOUT.size:
            raise ValueError(f"a socket address of {len(raw)} bytes")
        family, port, interface, length, mac = _LAYOUT.unpack_from(raw)
        if family != _family() or length not in (0, 6):
            raise ValueError(f"a socket address of family {family} with {length} bytes of address")
        return cls(mac, interface, int.from_bytes(port, "big"))

    def to_bytes(self) -> bytes:
        """Returns the `struct sockaddr_en` for system calls."""
        return _LAYOUT.pack(_family(), self.port.to_bytes(2, "big"), self.interface, 6, self.mac)

    @property
    def is_wildcard(self) -> bool:
        """Whether the Ethernet address is unspecified. Such an address can be bound but not sent to."""
        return self.mac == _UNSPECIFIED

    def __str__(self) -> str:
        host = "*" if self.is_wildcard else self.mac.hex(":")
        if self.interface == 0:
            return f"{host}:{self.port}" if self.is_wildcard else f"{host}%0:{self.port}"
        try:
            interface = socket.if_indextoname(self.interface)
        except OSError:
            interface = str(self.interface)
        return f"{host}%{interface}:{self.port}"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _check_port(port: int) -> None:
    if not 0 <= operator.index(port) < 1 << 16:
        raise ValueError(f"{port} is not a port: it is not from 0 to 65535")


def _interface(text: str, interface: str) -> int:
    if not _NAME.fullmatch(interface):
        raise _bad(text, "an interface is a name or a number")
    if re.fullmatch("[0-9]+", interface):
        if int(interface) >= 1 << 32:
            raise _bad(text, "an interface is a name or a number")
        return int(interface)
    try:
        return _alternative(interface) if len(interface.encode()) > 15 else socket.if_nametoindex(interface)
    except OSError:
        # Before Python 3.14, the error of `if_nametoindex` has no errno.
        raise OSError(errno.ENODEV, f"there is no interface `{interface}` here") from None


def _alternative(name: str) -> int:
    """Asks `rtnetlink(7)` for the interface with the alternative name `name`, too long for `if_nametoindex`."""
    attribute = struct.pack("=HH", 4 + len(name.encode()) + 1, _IFLA_ALT_IFNAME) + name.encode() + b"\0"
    body = bytes(16) + attribute + bytes(-len(attribute) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(5)
        link.send(struct.pack("=IHHII", 16 + len(body), _RTM_GETLINK, _NLM_F_REQUEST, 0, 0) + body)
        kind, first, index = struct.unpack_from("=4xH10xii", link.recv(4096))
    if kind != _RTM_NEWLINK:
        raise OSError(-first, "no such interface")
    return index


def _family() -> int:
    # The package is imported here and not above, because the package itself imports this module.
    import sockaddr_en

    return sockaddr_en.FAMILY

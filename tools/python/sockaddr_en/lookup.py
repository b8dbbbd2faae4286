# SPDX-License-Identifier: MIT OR Apache-2.0
"""Finds the Ethernet address for a host's name or IP address in the kernel's neighbour table (`rtnetlink(7)`)."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator

from .address import _MAC, Address, _bad_host, _interface

#: The discard port. A host without this service reports the port as closed.
_DISCARD = 9
#: Upper bound for the kernel's address resolution, in seconds. The kernel asks three times, once a
#: second.
_PATIENCE = 3.5
#: After a packet is sent, the kernel has a neighbour entry for the packet's destination within this
#: time, in seconds. It makes no such entry if it sends the packet to a router.
_ENTRY = 0.3

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
# The fields of `struct ndmsg`: family, padding, interface, state, flags, type.
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
# The fields of `struct ifaddrmsg`: family, prefix, flags, scope, interface.
_OWN = struct.Struct("=BBBBI")
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWADDR, _RTM_GETADDR, _RTM_NEWNEIGH, _RTM_GETNEIGH = 20, 22, 28, 30
_REQUEST_DUMP = 0x1 | 0x300
_IFA_ADDRESS, _IFA_LOCAL, _NDA_DST, _NDA_LLADDR = 1, 2, 1, 2
# States of neighbour entries: reachable, stale, delay, probe or permanent; failed.
_USABLE, _FAILED = 0x02 | 0x04 | 0x08 | 0x10 | 0x80, 0x20
_SIOCGIFHWADDR, _ARPHRD_ETHER = 0x8927, 1


def lookup(host: str, port: int) -> Address:
    """Returns the address of port `port` of `host`.

    `host` is a name, an IP address, or an Ethernet address with its interface as in ``02:00:00:00:00:02%eth0``. The
    interface may follow a name or an IP address, too. The call blocks for up to three seconds if no host answers, so
    use `asyncio.to_thread` with asyncio.

    Raises `ValueError` if the text is no valid host, `socket.gaierror` if the name has no IP address, and `OSError`:
    `ENODEV` if the interface does not exist or is not Ethernet, `EHOSTUNREACH` if no host answers, `ENETUNREACH` if the
    host is behind a router.
    """
    if not isinstance(host, str):
        raise TypeError(f"a host is text, not {type(host).__name__}")
    # The resolver would stop reading at a NUL.
    if "\0" in host:
        raise _bad_host(host)
    # An address refuses a port that is none.
    Address(bytes(6), 0, port)
    name, percent, interface = host.rpartition("%") if "%" in host else (host, "", "")
    index = _interface(host, interface) if percent else 0
    if _MAC.fullmatch(name):
        if not percent:
            raise _bad_host(host)
        return Address(bytes.fromhex(name.replace(":", "")), index, port)
    if not name or (":" in name and not _is_ipv6(name)):
        raise _bad_host(host)
    first = None
    for *_, address in socket.getaddrinfo(name, port, type=socket.SOCK_DGRAM):
        try:
            mac, found = _resolve(address[0].partition("%")[0], index)
            return Address(mac, found, port)
        except OSError as error:
            first = first or error
    raise first or _bad_host(host)


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def _resolve(ip: str, index: int) -> tuple[bytes, int]:
    """Returns the Ethernet address of `ip` and the number of the interface that leads there.
    If `index` is not 0, only that interface is searched.
    """
    version = socket.AF_INET6 if ":" in ip else socket.AF_INET
    raw = socket.inet_pton(version, ip)
    own = _own(raw)
    if own:
        return _mac_of(own), own
    state, mac, found = _neighbour(raw, index)
    if state & _USABLE and mac:
        return mac, found
    with socket.socket(version, socket.SOCK_DGRAM) as poke:
        if index:
            try:
                device = socket.if_indextoname(index)
            except OSError:
                raise OSError(errno.ENODEV, f"there is no interface {index} here") from None
            poke.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, os.fsencode(device))
        poke.connect((ip, _DISCARD) if version == socket.AF_INET else (ip, _DISCARD, 0, index))
        poke.send(b"")
        start = time.monotonic()
        while True:
            state, mac, found = _neighbour(raw, index)
            if state & _USABLE and mac:
                return mac, found
            passed = time.monotonic() - start
            if state & _FAILED or passed > _PATIENCE:
                raise OSError(errno.EHOSTUNREACH, f"nobody answers for {ip}")
            if not found and passed > _ENTRY:
                raise OSError(errno.ENETUNREACH, f"{ip} is behind a router")
            time.sleep(0.02)


def _dump(question: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Requests a table from the kernel. Yields the type and body of each message of the answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(5)
        link.send(_HEADER.pack(_HEADER.size + len(body), question, _REQUEST_DUMP, 0, 0) + body)
        while True:
            answer = link.recv(1 << 16)
            while len(answer) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(answer)
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
                    raise OSError(number, os.strerror(number))
                if kind == _NLMSG_DONE:
                    return
                yield kind, answer[_HEADER.size : length]
                answer = answer[max(length, 1) + 3 & ~3 :]


def _attributes(body: bytes) -> dict[int, bytes]:
    found = {}
    while len(body) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(body)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = body[_ATTRIBUTE.size : length]
        body = body[length + 3 & ~3 :]
    return found


def _own(ip: bytes) -> int:
    """Returns the number of the interface that has the address `ip`; 0 if none has it."""
    for kind, body in _dump(_RTM_GETADDR, bytes(_OWN.size)):
        attributes = _attributes(body[_OWN.size :])
        local = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if kind == _RTM_NEWADDR and local == ip:
            return _OWN.unpack_from(body)[4]
    return 0


def _neighbour(ip: bytes, index: int) -> tuple[int, bytes, int]:
    """Returns the state, Ethernet address and interface in the kernel's entry for `ip`; zeroes without an entry."""
    for kind, body in _dump(_RTM_GETNEIGH, bytes(_NEIGHBOUR.size)):
        attributes = _attributes(body[_NEIGHBOUR.size :])
        if kind != _RTM_NEWNEIGH or attributes.get(_NDA_DST) != ip:
            continue
        _, interface, state, *_ = _NEIGHBOUR.unpack_from(body)
        if index in (0, interface):
            mac = attributes.get(_NDA_LLADDR, b"")
            return state, mac if len(mac) == 6 else b"", interface
    return 0, b"", 0


def _mac_of(index: int) -> bytes:
    name = socket.if_indextoname(index)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFHWADDR, struct.pack("=16s24x", name.encode()))
    kind, mac = struct.unpack_from("=16xH6s", answer)
    if kind != _ARPHRD_ETHER:
        raise OSError(errno.ENODEV, f"{name} is not an Ethernet device")
    return mac

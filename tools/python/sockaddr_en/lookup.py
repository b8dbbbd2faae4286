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

from .address import _MAC, _OTHER_NOTATION, Address, _bad_host, _interface, _with_colons

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
_MAPPED = bytes(10) + b"\xff\xff"
_SIOCGIFHWADDR, _ARPHRD_ETHER = 0x8927, 1


def lookup(host: str, port: int) -> Address:
    """Returns the address of port `port` of `host`.

    `host` is a name, an IP address, or an Ethernet address with its interface as in ``02:00:00:00:00:02%eth0``. The
    interface may follow a name or an IP address, too. The call blocks for up to three seconds if no host answers, so
    use `asyncio.to_thread` with asyncio.

    Raises `ValueError` if the text is no valid host, `socket.gaierror` if the name has no IP address, and `OSError`:
    `ENODEV` if the interface does not exist or is not Ethernet, `EHOSTUNREACH` if no host answers, `ENETUNREACH` if the
    host is behind a router, `EINVAL` if the IP address is a multicast, broadcast or unspecified address, or link-local
    without an interface.
    """
    if not isinstance(host, str):
        raise TypeError(f"a host is text, not {type(host).__name__}")
    # The resolver would stop reading at a NUL, and look up only the text before it.
    if "\0" in host:
        raise _bad_host(host)
    # Raise an error early if the port is invalid.
    Address(bytes(6), 0, port)
    name, percent, interface = host.rpartition("%") if "%" in host else (host, "", "")
    index = _interface(host, interface) if percent else 0
    if _MAC.fullmatch(name):
        if not percent:
            raise _bad_host(host)
        return Address(bytes.fromhex(name.replace(":", "")), index, port)
    if _OTHER_NOTATION.fullmatch(name):
        meant = f"{_with_colons(name)}%{interface or 'eth0'}"
        raise ValueError(f"`{host}` is no host: an Ethernet address has colons here, write {meant}")
    if not name or (":" in name and not _is_ipv6(name)):
        raise _bad_host(host)
    first = None
    for *_, address in socket.getaddrinfo(name, port, type=socket.SOCK_DGRAM):
        try:
            # The fourth part of an IPv6 address is the interface that the resolver found for it.
            mac, found = _resolve(address[0].partition("%")[0], index or (address[3:] or (0,))[0])
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
    raw = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    # The kernel sends to an IPv4-mapped IPv6 address by IPv4, so the neighbour entry is one of
    # IPv4.
    raw = raw.removeprefix(_MAPPED)
    version = socket.AF_INET6 if len(raw) == 16 else socket.AF_INET
    ip = socket.inet_ntop(version, raw)
    own, is_broadcast = _role(raw)
    if not _is_one_host(raw) or (is_broadcast and not own):
        raise OSError(errno.EINVAL, f"{ip} is not the IP address of one host")
    if own:
        return _mac_of(own), own
    if version == socket.AF_INET and raw[0] == 127:
        raise OSError(errno.ENODEV, "lo is not an Ethernet device")
    if version == socket.AF_INET6 and raw[0] == 0xFE and raw[1] & 0xC0 == 0x80 and not index:
        raise OSError(errno.EINVAL, f"{ip} is link-local: write the interface, as in {ip}%eth0")
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


def _is_one_host(ip: bytes) -> bool:
    """Returns whether `ip` can be the address of one host: not a multicast, unspecified or broadcast address."""
    is_group = ip[0] == 0xFF if len(ip) == 16 else ip[0] >> 4 == 0xE
    return any(ip) and not is_group and ip != b"\xff\xff\xff\xff"


def _role(ip: bytes) -> tuple[int, bool]:
    """Returns the number of the interface that has the address `ip`, 0 if none has it, and whether `ip` is the
    broadcast address of an interface's network.
    """
    own, is_broadcast = 0, False
    for kind, body in _dump(_RTM_GETADDR, bytes(_OWN.size)):
        if kind != _RTM_NEWADDR:
            continue
        attributes = _attributes(body[_OWN.size :])
        _, prefix, *_, interface = _OWN.unpack_from(body)
        member = attributes.get(_IFA_ADDRESS, b"")
        if (attributes.get(_IFA_LOCAL) or member) == ip:
            own = interface
        # Networks of one or two addresses have no broadcast address (RFC 3021).
        if len(ip) == len(member) == 4 and prefix < 31:
            last = int.from_bytes(member, "big") | 0xFFFFFFFF >> prefix
            is_broadcast |= int.from_bytes(ip, "big") == last
    return own, is_broadcast


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

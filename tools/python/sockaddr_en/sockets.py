# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sockets. `socket.socket` refuses some calls for unknown families, so this module calls the C
library directly."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from .address import Address, _family

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("bind", "connect", "accept4", "getsockname", "getpeername"):
    getattr(_libc, _name).restype = ctypes.c_int
for _name in ("sendto", "recvfrom"):
    getattr(_libc, _name).restype = ctypes.c_ssize_t

#: The size of `struct sockaddr_storage`, which holds an address of any family.
_ROOM = 128
_CONNECTING = (errno.EINPROGRESS, errno.EALREADY, errno.EINTR)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Socket(socket.socket):
    """A socket of PF_ENET: ESP streams for `SOCK_STREAM`, ESP records for `SOCK_SEQPACKET`, EDP datagrams for `SOCK_DGRAM`.

    Methods take an `Address` or text that `Address.parse` reads, and return an `Address`.
    Timeouts, blocking and all methods without addresses are inherited from `socket.socket`.
    """

    def __init__(self, type: int = socket.SOCK_STREAM, fileno: int | None = None) -> None:
        try:
            super().__init__(_family(), type, 0, fileno)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:
                raise
            text = f"{error.strerror}: load the module with `modprobe enet`"
            raise OSError(error.errno, text) from None

    def bind(self, address: Address | str, /) -> None:
        """Binds to a port of one interface, or of all interfaces."""
        raw = _read(address).to_bytes()
        _check(_libc.bind(self.fileno(), raw, len(raw)))

    def connect(self, address: Address | str, /) -> None:
        """Connects; raises `TimeoutError` after the socket's timeout."""
        raw = _peer(address).to_bytes()
        try:
            _check(_libc.connect(self.fileno(), raw, len(raw)))
        except OSError as error:
            if error.errno not in _CONNECTING or self.gettimeout() == 0:
                raise
            self._wait(select.POLLOUT, self._deadline())
            number = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number)) from None

    def connect_ex(self, address: Address | str, /) -> int:
        """Connects like `connect`, but returns the error's number, or 0."""
        try:
            self.connect(address)
        except TimeoutError as error:
            return error.errno or errno.EAGAIN
        except OSError as error:
            if error.errno is None:
                raise
            return error.errno
        return 0

    def accept(self) -> tuple[Socket, Address]:
        """Waits for a connection. Returns its socket and its peer's address."""
        raw, size = _buffer()
        flags = socket.SOCK_CLOEXEC
        fd = self._retry(select.POLLIN, lambda: _libc.accept4(self.fileno(), raw, size, flags))
        accepted = type(self)(self.type, fileno=fd)
        if socket.getdefaulttimeout() is None and self.gettimeout():
            accepted.setblocking(True)
        return accepted, _address(raw, size)

    def getsockname(self) -> Address:
        """Returns the address that the socket is bound to."""
        raw, size = _buffer()
        _check(_libc.getsockname(self.fileno(), raw, size))
        return _address(raw, size)

    def getpeername(self) -> Address:
        """Returns the address that the socket is connected to."""
        raw, size = _buffer()
        _check(_libc.getpeername(self.fileno(), raw, size))
        return _address(raw, size)

    def sendto(self, data: Any, *where: Any) -> int:
        """Sends a datagram: ``sendto(data, address)`` or ``sendto(data, flags, address)``."""
        *flags, address = where
        raw = _peer(address).to_bytes()
        data = bytes(data)
        options = (flags[0] if flags else 0) | socket.MSG_NOSIGNAL
        return self._retry(
            select.POLLOUT,
            lambda: _libc.sendto(
                self.fileno(), data, ctypes.c_size_t(len(data)), options, raw, len(raw)
            ),
        )

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Address]:
        """Receives a datagram. Returns its bytes and its sender. Bytes that exceed `bufsize` are lost."""
        buffer = bytearray(bufsize)
        length, sender = self.recvfrom_into(buffer, 0, flags)
        return bytes(buffer[:length]), sender

    def recvfrom_into(
        self, buffer: Any, nbytes: int = 0, flags: int = 0
    ) -> tuple[int, Address]:
        """Receives a datagram into `buffer`. Returns the number of bytes stored and the sender."""
        room = memoryview(buffer).cast("B")
        if nbytes < 0 or nbytes > len(room):
            raise ValueError(f"{nbytes} bytes do not fit into a buffer of {len(room)}")
        count = nbytes or len(room)
        place = (ctypes.c_char * count).from_buffer(room) if count else None
        raw, size = _buffer()
        length = self._retry(
            select.POLLIN,
            lambda: _libc.recvfrom(
                self.fileno(), place, ctypes.c_size_t(count), flags, raw, size
            ),
        )
        return length, _address(raw, size)

    def _deadline(self) -> float | None:
        timeout = self.gettimeout()
        return None if timeout is None else time.monotonic() + timeout

    def _retry(self, event: int, call: Callable[[], int]) -> int:
        """Repeats a call while it would block, until the socket's timeout."""
        deadline = self._deadline()
        while True:
            try:
                return _check(call())
            except InterruptedError:
                continue
            except BlockingIOError:
                if self.gettimeout() == 0:
                    raise
                self._wait(event, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self.fileno(), event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError("timed out")


def create_connection(
    address: Address | str,
    timeout: float | None = None,
    source_address: Address | str | None = None,
) -> Socket:
    """Opens a stream to `address` like `socket.create_connection`. `timeout` is in seconds."""
    address = _peer(address)
    if source_address is not None:
        source_address = _read(source_address)
    stream = Socket()
    try:
        stream.settimeout(timeout)
        if source_address is not None:
            stream.bind(source_address)
        stream.connect(address)
    except BaseException:
        stream.close()
        raise
    return stream


def create_server(address: Address | str, *, backlog: int = socket.SOMAXCONN) -> Socket:
    """Opens a socket that accepts streams at `address`."""
    address = _read(address)
    listener = Socket()
    try:
        listener.bind(address)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def _read(address: Address | str) -> Address:
    return Address.parse(address) if isinstance(address, str) else address


def _peer(address: Address | str) -> Address:
    """Returns the address to connect or send to. Refuses a wildcard."""
    address = _read(address)
    if address.is_wildcard:
        raise ValueError(f"`{address}` can only be bound: write the peer's address for `*`")
    return address


def _buffer() -> tuple[Any, Any]:
    return ctypes.create_string_buffer(_ROOM), ctypes.byref(ctypes.c_uint32(_ROOM))


def _address(raw: Any, size: Any) -> Address:
    return Address.from_bytes(raw.raw[: size._obj.value])

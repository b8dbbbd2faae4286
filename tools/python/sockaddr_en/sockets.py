# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sockets. `socket.socket` refuses some calls for unknown families, so this module calls the C
library directly."""

from __future__ import annotations

import ctypes
import errno
import operator
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, overload

from .address import Address, _family
from .messages import Ancillary, Message, _place

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("bind", "connect", "accept4", "getsockname", "getpeername"):
    getattr(_libc, _name).restype = ctypes.c_int
for _name in ("sendto", "recvfrom", "sendmsg", "recvmsg"):
    getattr(_libc, _name).restype = ctypes.c_ssize_t

#: The size of `struct sockaddr_storage`, which holds an address of any family.
_ROOM = 128
_INT_MAX = (1 << 31) - 1
_CONNECTING = (errno.EINPROGRESS, errno.EALREADY)


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
        """Opens a socket. With `fileno`, takes over that descriptor, which knows its own type."""
        try:
            if fileno is None:
                super().__init__(_family(), type, 0)
            else:
                super().__init__(_family(), -1, -1, fileno)
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
            return
        except OSError as error:
            # As in `socket.socket`: if there is no timeout, the kernel itself waits, at most for
            # SO_SNDTIMEO. If a signal ends that wait, `_wait` continues it.
            interrupted = error.errno == errno.EINTR and self.gettimeout() != 0
            if not interrupted and not (error.errno in _CONNECTING and self.gettimeout()):
                raise
        # The wait is outside of the `except` clause. Otherwise a traceback of its error would also
        # show the error of `connect`.
        self._wait(select.POLLOUT, self._deadline())
        number = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))

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
        accepted = self._wrap(fd)
        if socket.getdefaulttimeout() is None and self.gettimeout():
            accepted.setblocking(True)
        return accepted, _address(raw, size)

    def dup(self) -> Socket:
        """Returns a socket with a duplicate of the descriptor, which child processes do not inherit."""
        copy = self._wrap(os.dup(self.fileno()))
        copy.settimeout(self.gettimeout())
        return copy

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

    @overload
    def sendto(self, data: Any, address: Address | str, /) -> int: ...
    @overload
    def sendto(self, data: Any, flags: int, address: Address | str, /) -> int: ...
    def sendto(self, data: Any, *where: Any) -> int:
        """Sends a datagram: ``sendto(data, address)`` or ``sendto(data, flags, address)``."""
        if len(where) not in (1, 2):
            raise TypeError(f"sendto() takes 2 or 3 arguments ({len(where) + 1} given)")
        place, count = _place(data)
        options = (_int(where[0]) if len(where) == 2 else 0) | socket.MSG_NOSIGNAL
        raw = _peer(where[-1]).to_bytes()
        return self._retry(
            select.POLLOUT,
            lambda: _libc.sendto(
                self.fileno(), place, ctypes.c_size_t(count), options, raw, len(raw)
            ),
        )

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Address | None]:
        """Receives a datagram. Returns its bytes and its sender. Bytes that exceed `bufsize` are lost.

        On a stream or a socket of records, receives bytes or a record, and the sender is None.
        """
        buffer = _buffer_of(bufsize)
        length, sender = self.recvfrom_into(buffer, 0, flags)
        return bytes(buffer[:length]), sender

    def recvfrom_into(
        self, buffer: Any, nbytes: int = 0, flags: int = 0
    ) -> tuple[int, Address | None]:
        """Receives like `recvfrom`, into `buffer`. Returns the number of bytes stored and the sender."""
        place, room = _place(buffer, writable=True)
        nbytes = operator.index(nbytes)
        if nbytes < 0 or nbytes > room:
            raise ValueError(f"{nbytes} bytes do not fit into a buffer of {room}")
        flags = _int(flags)
        raw, size = _buffer()
        length = self._retry(
            select.POLLIN,
            lambda: _libc.recvfrom(
                self.fileno(), place, ctypes.c_size_t(nbytes or room), flags, raw, size
            ),
        )
        return length, _sender(raw.raw[: size._obj.value])

    def sendmsg(
        self,
        buffers: Iterable[Any],
        ancdata: Iterable[Ancillary] = (),
        flags: int = 0,
        address: Address | str | None = None,
        /,
    ) -> int:
        """Sends the bytes of all `buffers` with control messages, to `address` if it is given."""
        if address is None:
            return super().sendmsg(buffers, ancdata, flags)
        flags = _int(flags) | socket.MSG_NOSIGNAL
        message = Message([_place(buffer) for buffer in buffers], _peer(address).to_bytes())
        message.set_control(ancdata)
        return self._retry(
            select.POLLOUT, lambda: _libc.sendmsg(self.fileno(), message.pointer(), flags)
        )

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[Ancillary], int, Address | None]:
        """Receives with control messages, of which `ancbufsize` bytes are kept.

        Returns the bytes, the control messages as (level, type, bytes), the flags, and the sender or
        None. `MSG_TRUNC` among the flags says that a datagram or record was longer than `bufsize`.
        """
        buffer = _buffer_of(bufsize)
        length, *rest = self.recvmsg_into([buffer], ancbufsize, flags)
        return bytes(buffer[:length]), *rest

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[Ancillary], int, Address | None]:
        """Receives like `recvmsg`, into `buffers` one after the other. Returns the number of bytes first."""
        places = [_place(buffer, writable=True) for buffer in buffers]
        flags = _int(flags)
        message = Message(places, bytes(_ROOM), operator.index(ancbufsize))
        length = self._retry(
            select.POLLIN, lambda: _libc.recvmsg(self.fileno(), message.pointer(), flags)
        )
        return length, message.control(), message.flags, _sender(message.name())

    def _wrap(self, fd: int) -> Socket:
        """Returns a socket of the same class for a new descriptor."""
        try:
            return type(self)(self.type, fileno=fd)
        except BaseException:
            os.close(fd)
            raise

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
                # A socket with a timeout waits below. A non-blocking socket does not wait. If a
                # blocking socket has no timeout, SO_RCVTIMEO or SO_SNDTIMEO has expired.
                if not self.gettimeout():
                    raise
            self._wait(event, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self.fileno(), event)
        if deadline is None:
            poll.poll()
            return
        while True:
            left = max(0.0, deadline - time.monotonic()) * 1000
            # One call of poll waits for 24 days at most.
            if poll.poll(min(left, _INT_MAX)):
                return
            if left <= _INT_MAX:
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
    if isinstance(address, str):
        return Address.parse(address)
    if not isinstance(address, Address):
        raise TypeError(f"an address is text or an Address, not {type(address).__name__}")
    return address


def _peer(address: Address | str) -> Address:
    """Returns the address to connect or send to. Refuses a wildcard."""
    address = _read(address)
    if address.is_wildcard:
        raise ValueError(f"`{address}` can only be bound: write the peer's address for `*`")
    return address


def _int(flags: int) -> int:
    """Returns `flags` as an integer. Refuses a number that ctypes would truncate to an int."""
    flags = operator.index(flags)
    if not -_INT_MAX - 1 <= flags <= _INT_MAX:
        raise OverflowError("flags do not fit into an int")
    return flags


def _buffer_of(bufsize: int) -> bytearray:
    bufsize = operator.index(bufsize)
    if bufsize < 0:
        raise ValueError(f"no buffer has {bufsize} bytes")
    return bytearray(bufsize)


def _buffer() -> tuple[Any, Any]:
    return ctypes.create_string_buffer(_ROOM), ctypes.byref(ctypes.c_uint32(_ROOM))


def _address(raw: Any, size: Any) -> Address:
    return Address.from_bytes(raw.raw[: size._obj.value])


def _sender(raw: bytes) -> Address | None:
    """Returns the sender in a received message. A connection's messages have none.

    Does not fail, because the caller would lose the bytes that were received.
    """
    try:
        return Address.from_bytes(raw)
    except ValueError:
        return None

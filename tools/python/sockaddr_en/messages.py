# SPDX-License-Identifier: MIT OR Apache-2.0
"""`struct msghdr` and its parts, for `sendmsg(2)` and `recvmsg(2)`."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterable
from typing import Any

#: A control message: level, type, bytes.
Ancillary = tuple[int, int, bytes]

#: The number of bytes of the largest control buffer that a call can have.
_CONTROL_MAX = (1 << 31) - 1


class _Vector(ctypes.Structure):
    """`struct iovec`"""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    """`struct msghdr`"""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Control(ctypes.Structure):
    """`struct cmsghdr`"""

    _fields_ = [("length", ctypes.c_size_t), ("level", ctypes.c_int), ("type", ctypes.c_int)]


def _address_of(place: Any) -> int | None:
    """Returns the address of a ctypes object. `ctypes.cast` would create a reference cycle."""
    if place is None:
        return None
    if isinstance(place, ctypes.c_char_p):
        return ctypes.c_void_p.from_buffer(place).value
    return ctypes.addressof(place)


class Message:
    """A `struct msghdr` with the memory that it refers to."""

    def __init__(self, places: list[tuple[Any, int]], name: bytes, control_size: int = 0) -> None:
        self._places = places
        self._vectors = (_Vector * len(places))()
        for vector, (place, length) in zip(self._vectors, places):
            vector.base = _address_of(place)
            vector.length = length
        self._name = ctypes.create_string_buffer(name, len(name))
        self._header = _Header()
        self._make_control(control_size)

    def _make_control(self, size: int) -> None:
        if not 0 <= size <= _CONTROL_MAX:
            raise ValueError(f"no buffer for control messages has {size} bytes")
        self._control = ctypes.create_string_buffer(size) if size else None
        self._size = size

    def set_control(self, messages: Iterable[Ancillary]) -> None:
        """Adds control messages to send."""
        whole = bytearray()
        for level, kind, data in messages:
            data = memoryview(data).tobytes()
            one = bytes(_Control(socket.CMSG_LEN(len(data)), level, kind)) + data
            whole += one.ljust(socket.CMSG_SPACE(len(data)), b"\0")
        self._make_control(len(whole))
        if whole:
            self._control.raw = bytes(whole)

    def pointer(self) -> Any:
        """Returns the pointer to pass to a call, which may have changed the fields before."""
        header = self._header
        header.name = _address_of(self._name)
        header.name_length = len(self._name)
        header.vectors = self._vectors
        header.vector_count = len(self._vectors)
        header.control = _address_of(self._control)
        header.control_length = self._size
        header.flags = 0
        return ctypes.byref(header)

    @property
    def flags(self) -> int:
        """The flags of a received message."""
        return self._header.flags

    def name(self) -> bytes:
        """Returns the address of a received message."""
        return self._name.raw[: self._header.name_length]

    def control(self) -> list[Ancillary]:
        """Returns the control messages of a received message. The last one may be cut."""
        left = self._control.raw[: self._header.control_length] if self._control else b""
        start, found = socket.CMSG_LEN(0), []
        while len(left) >= start:
            head = _Control.from_buffer_copy(left)
            if head.length < start:
                break
            found.append((head.level, head.type, left[start : head.length]))
            left = left[socket.CMSG_SPACE(head.length - start) :]
        return found


def _place(data: Any, writable: bool = False) -> tuple[Any, int]:
    """Returns the bytes of `data` as a pointer, and their number. The pointer keeps `data` alive.

    The bytes are copied only if `data` is read-only and is no `bytes` object.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous")
    if view.readonly:
        if writable:
            raise TypeError(f"a buffer that can be written is required, not {type(data).__name__}")
        return ctypes.c_char_p(data if isinstance(data, bytes) else view.tobytes()), view.nbytes
    if not view.nbytes:
        return None, 0
    return (ctypes.c_char * view.nbytes).from_buffer(view), view.nbytes

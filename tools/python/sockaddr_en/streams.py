# SPDX-License-Identifier: MIT OR Apache-2.0
"""Streams for asyncio."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from .address import Address
from .sockets import Socket, _peer, create_server


async def open_connection(
    address: Address | str, **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a stream like `asyncio.open_connection`. Passes `options` on to that function."""
    address = _peer(address)
    stream = Socket()
    try:
        stream.setblocking(False)
        await _connect(stream, address)
        return await asyncio.open_connection(sock=stream, **options)
    except BaseException:
        stream.close()
        raise


async def start_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
    address: Address | str,
    **options: Any,
) -> asyncio.Server:
    """Like `asyncio.start_server`, serves each stream that connects to `address`.

    Passes `options` on to that function.
    """
    listener = create_server(address)
    try:
        listener.setblocking(False)
        return await asyncio.start_server(serve, sock=listener, **options)
    except BaseException:
        listener.close()
        raise


async def _connect(stream: Socket, address: Address | str) -> None:
    number = stream.connect_ex(address)
    if number == errno.EINPROGRESS:
        loop = asyncio.get_running_loop()
        decided = loop.create_future()
        loop.add_writer(stream.fileno(), lambda: decided.done() or decided.set_result(None))
        try:
            await decided
        finally:
            loop.remove_writer(stream.fileno())
        number = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))

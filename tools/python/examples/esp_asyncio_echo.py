#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""An echo server for ESP and its client, with asyncio.

esp_asyncio_echo.py serve '*%eth0:2805'
esp_asyncio_echo.py ask 02:00:00:00:00:01%eth0:2805 CONNECTIONS BYTES

The client opens all connections at once, sends BYTES over each, and compares the echo.
"""

import asyncio
import os
import sys

import sockaddr_en

CHUNK = 64 * 1024


async def echo(reader, writer):
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def serve(address):
    server = await sockaddr_en.start_server(echo, address)
    print(f"listening on {server.sockets[0].getsockname()}", file=sys.stderr, flush=True)
    await server.serve_forever()


async def ask_once(address, size):
    reader, writer = await sockaddr_en.open_connection(address)
    question = os.urandom(size)

    async def send():
        writer.write(question)
        await writer.drain()
        writer.write_eof()

    _, answer = await asyncio.gather(send(), reader.read(-1))
    writer.close()
    if answer != question:
        raise SystemExit(f"{len(answer)} bytes came back, not the {size} that were sent")


async def ask(address, connections, size):
    await asyncio.gather(*(ask_once(address, int(size)) for _ in range(int(connections))))
    print(f"{connections} connections echoed {size} bytes each")


match sys.argv[1:]:
    case ["serve", address]:
        asyncio.run(serve(address))
    case ["ask", address, connections, size]:
        asyncio.run(ask(address, connections, size))
    case _:
        sys.exit(__doc__)

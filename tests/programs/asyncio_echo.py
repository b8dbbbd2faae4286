# SPDX-License-Identifier: GPL-2.0-only
"""An echo server and its clients, with asyncio."""

import asyncio
import os
import sys
import time

CLIENTS = 8
BYTES = 100_000


async def echo(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    # The host None makes one listener for each address family.
    server = await asyncio.start_server(echo, None, port)
    await server.serve_forever()


async def client(host, port):
    reader, writer = await asyncio.open_connection(host, port)
    data = os.urandom(BYTES)

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    came_back = await reader.read(-1)
    await sending
    writer.close()
    assert came_back == data, f"{len(came_back)} of {BYTES} bytes"


async def ask(host, port):
    await asyncio.gather(*(client(host, port) for _ in range(CLIENTS)))


async def rate(host, port, requests):
    """Prints the time of a request of 64 bytes, in nanoseconds."""
    reader, writer = await asyncio.open_connection(host, port)
    start = time.monotonic_ns()
    for _ in range(requests):
        writer.write(bytes(64))
        await reader.readexactly(64)
    print((time.monotonic_ns() - start) // requests)
    writer.close()


match sys.argv[1:]:
    case ["serve", port]:
        asyncio.run(serve(int(port)))
    case ["ask", host, port]:
        asyncio.run(ask(host, int(port)))
    case ["rate", host, port, requests]:
        asyncio.run(rate(host, int(port), int(requests)))

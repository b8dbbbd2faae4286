# SPDX-License-Identifier: GPL-2.0-only
"""An echo server and its clients, by asyncio."""

import asyncio
import os
import sys

CLIENTS = 8
BYTES = 100_000


async def echo(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    # on both families: a listener for each
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


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(ask(sys.argv[2], int(sys.argv[3])))

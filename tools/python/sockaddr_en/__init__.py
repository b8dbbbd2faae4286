# SPDX-License-Identifier: MIT OR Apache-2.0
"""Addresses and sockets of PF_ENET: datagrams (EDP), streams and records (ESP) directly on Ethernet.

`Socket` is a `socket.socket` whose addresses are text such as ``02:00:00:00:00:01%eth0:2805`` or an
`Address`. `lookup` finds a host by its name or IP address. `create_connection` and `create_server`
open streams; `open_connection` and `start_server` do so for asyncio. Sockets need the kernel module
enet (``modprobe enet``).
"""

from socket import SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM

from .address import AF_ENET, Address
from .lookup import lookup
from .sockets import Socket, create_connection, create_server
from .streams import open_connection, start_server

#: The family number of this program's sockets and addresses. If the module was loaded with a number
#: other than 28 (``modprobe enet family=29``), set `FAMILY` to that number before opening sockets.
FAMILY = AF_ENET

__all__ = [
    "AF_ENET",
    "FAMILY",
    "SOCK_DGRAM",
    "SOCK_SEQPACKET",
    "SOCK_STREAM",
    "Address",
    "Socket",
    "create_connection",
    "create_server",
    "lookup",
    "open_connection",
    "start_server",
]

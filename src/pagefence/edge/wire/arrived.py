"""What has come and lies in the kernel, before the event loop tells of it."""

from __future__ import annotations

import asyncio
import select
import socket


def arrival(sock: socket.socket) -> select.poll:
    """`poll(0)` of it says whether there are bytes, an end, or a connection to accept. It costs half a microsecond."""
    found = select.poll()
    found.register(sock.fileno(), select.POLLIN)
    return found


def readable(transport: asyncio.Transport) -> bool:
    """The same, once."""
    return not transport.is_closing() and bool(arrival(transport.get_extra_info("socket")).poll(0))

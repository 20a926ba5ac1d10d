"""A listening socket and a server on it: in a thread of its own, or wherever the caller runs it."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

STOP_S = 5.0


def listening_socket(host: str, port: int) -> socket.socket:
    """Bound and listening, so that a port in use is known here and now, by the caller. Port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named in full: asyncio sets TCP_NODELAY only where the protocol is, and without it tokens wait 40 ms for an ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        number = error.errno if isinstance(error, OSError) else None
        raise OSError(number, f"cannot listen on {host}:{port}: {reason}") from None
    return sock


def server_config(app: ASGIApp) -> uvicorn.Config:
    """Quiet (an access log would tell who asked for what), plain h11, a bounded goodbye."""
    return uvicorn.Config(
        app,
        access_log=False,
        http="h11",
        loop="asyncio",  # whatever else is installed: what is tested is what runs
        lifespan="off",
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )


@dataclass(frozen=True, slots=True)
class ThreadedServer:
    """A server in a daemon thread. It takes no signals: those are the main thread's."""

    port: int
    _server: uvicorn.Server
    _thread: threading.Thread

    def stop(self) -> None:
        """Stop listening and wait for the thread; safe to call twice."""
        self._server.should_exit = True
        self._thread.join(STOP_S)


def serve_in_thread(app: ASGIApp, sock: socket.socket, name: str = "pagefence-http") -> ThreadedServer:
    """Serve `app` on `sock`; returns when it answers."""
    server = uvicorn.Server(server_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name=name, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            sock.close()
            raise RuntimeError("the HTTP server did not start")
        time.sleep(0.005)
    return ThreadedServer(sock.getsockname()[1], server, thread)

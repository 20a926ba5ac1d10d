"""Messages between processes: MessagePack over ZeroMQ, one inbox per incarnation, in a private folder.

Between two processes messages keep their order and are not lost while both live; everything else the protocol
handles. No message carries KV.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

import msgspec
import zmq

from pagefence.protocol.messages import Capacity, Envelope, PeerMessage, Role, WorkerRef


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker is ready: what it has, the port of its HTTP face, and where its segment is offered (decode)."""

    worker: WorkerRef
    role: Role
    capacity: Capacity
    http_port: int
    address: str


class Beat(msgspec.Struct, frozen=True, tag=True):
    """A worker's loop turns."""

    worker: WorkerRef


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """A worker cannot start; the message is for the operator."""

    worker: WorkerRef
    message: str


Parcel = Envelope | Hello | Beat | StartFailed
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Parcel] = msgspec.msgpack.Decoder(Parcel)


def encode(parcel: Parcel) -> bytes:
    """To the wire."""
    return _ENCODER.encode(parcel)


def decode(data: bytes) -> Parcel:
    """From the wire. Raises msgspec.DecodeError on what is no parcel."""
    return _DECODER.decode(data)


def address(run_dir: Path, worker: WorkerRef) -> str:
    """Where an incarnation listens. A new epoch is a new address, so nothing queued for the old one reaches it."""
    return f"ipc://{run_dir}/{worker.name}.{worker.epoch:x}.inbox"


class Post:
    """Outgoing sockets, one per peer incarnation, opened on first use."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], run_dir: Path, me: WorkerRef) -> None:
        self._context, self._run_dir, self._me = context, run_dir, me
        self._sockets: dict[WorkerRef, zmq.Socket[bytes]] = {}
        self._gone: set[WorkerRef] = set()

    def send(self, to: WorkerRef, body: PeerMessage) -> None:
        """Queue a message; to a peer that is gone it is lost, which the protocol expects."""
        self.send_parcel(to, Envelope(self._me, to, body))

    def send_parcel(self, to: WorkerRef, parcel: Parcel) -> None:
        """Queue a parcel without waiting."""
        if to in self._gone:
            return  # nobody listens there ever again, and a new socket would never be closed
        socket = self._sockets.get(to)
        if socket is None:
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.connect(address(self._run_dir, to))
            self._sockets[to] = socket
        socket.send(encode(parcel), zmq.NOBLOCK)

    def flush_and_close(self, linger_ms: int = 500) -> None:
        """Give what is queued a moment to leave."""
        for socket in self._sockets.values():
            socket.close(linger=linger_ms)
        self._sockets.clear()

    def forget(self, peer: WorkerRef) -> None:
        """Close the socket to an incarnation that is over."""
        self._gone.add(peer)
        socket = self._sockets.pop(peer, None)
        if socket is not None:
            socket.close(linger=0)


class Inbox:
    """Incoming parcels of this incarnation."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], run_dir: Path, me: WorkerRef) -> None:
        self._socket = context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(address(run_dir, me))

    def receive(self, timeout_s: float) -> list[Parcel]:
        """All parcels that are here, after waiting at most `timeout_s` for the first. Unreadable ones are dropped."""
        parcels: list[Parcel] = []
        deadline = time.monotonic() + timeout_s
        wait_ms = max(0, int(timeout_s * 1000))
        while self._poll(wait_ms):
            try:
                parcels.append(decode(self._socket.recv(zmq.NOBLOCK)))
            except (zmq.Again, msgspec.DecodeError):
                continue
            wait_ms = 0 if parcels else max(0, int((deadline - time.monotonic()) * 1000))
        return parcels

    def _poll(self, wait_ms: int) -> bool:
        try:
            return bool(self._socket.poll(wait_ms))
        except zmq.ZMQError as error:
            if error.errno == errno.EINTR:
                return False
            raise

    def close(self) -> None:
        """Stop listening."""
        self._socket.close(linger=0)

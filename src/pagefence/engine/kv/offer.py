"""Handing a segment to a peer: over a Unix socket in a private directory, to whoever has the same uid and the token.

The exchange is one packet each way: the peer sends the token, the owner answers with (layout, epoch) and the file
descriptor, or hangs up. Decode offers, prefill connects; nothing of a transfer passes here.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import stat
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import RemotePages
from pagefence.protocol.messages import WorkerRef

log = logging.getLogger(__name__)

TOKEN_BYTES: Final = 32
_PEER_SECONDS: Final = 1.0  # for a peer to say its token; peers are served one after the other
_WIRE_BYTES: Final = 4096
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid


class PeerRefused(Exception):
    """The owner hung up instead of handing over its segment: wrong token, wrong user, or it is stopping."""


class NotPrivate(Exception):
    """The directory of the socket is open to other users."""


class _Granted(msgspec.Struct, frozen=True, array_like=True):
    layout: Layout
    epoch: int


def new_token() -> bytes:
    """A secret for one pair of incarnations."""
    return secrets.token_bytes(TOKEN_BYTES)


class SegmentServer:
    """A thread that hands out one segment until `stop`. The path is for one incarnation: it must not exist yet."""

    def __init__(self, path: Path, segment: Segment, token: bytes, epoch: int, uid: int | None = None) -> None:
        """Listen on `path`. `uid`: the user whose processes may map the segment, our own by default.

        Raises ValueError on a token of another length, NotPrivate, OSError when the socket cannot be made.
        """
        if len(token) != TOKEN_BYTES:
            raise ValueError(f"the token must have {TOKEN_BYTES} bytes")
        _require_private(path.parent)
        self._path = path
        self._token = token
        self._uid = os.getuid() if uid is None else uid
        self._answer = msgspec.msgpack.encode(_Granted(segment.layout, epoch))
        self._stopping = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(str(path))
            self._listener.listen()
            # Our own descriptor: the segment's number could be another file's once the segment is closed.
            self._fd = os.dup(segment.fd)
        except BaseException:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="pagefence-offer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The path of the socket."""
        return str(self._path)

    def revoke(self, writer: WorkerRef) -> None:
        """Nothing to do: the mapping of a reaped process is gone with it, and a copy has landed when it is made."""

    def stop(self) -> None:
        """Serve no further peer; remove the socket. Peers that have mapped the segment keep it."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._listener.close()
        os.close(self._fd)
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError as error:
                # Out of descriptors, or stopping: the first passes, the second ends the loop.
                if not self._stopping.wait(0.05):
                    log.warning("cannot accept a peer: %s", error)
                continue
            with peer:
                try:
                    self._hand_over(peer)
                except OSError as error:
                    log.warning("a peer did not take the segment: %s", error)

    def _hand_over(self, peer: socket.socket) -> None:
        pid, uid = _peer(peer)
        if uid != self._uid:
            log.warning("refused pid %d: user %d", pid, uid)
            return
        peer.settimeout(_PEER_SECONDS)
        said = peer.recv(TOKEN_BYTES + 1)  # one more than a token, so that a longer packet is not cut to one
        if not hmac.compare_digest(said, self._token):
            log.warning("refused pid %d: wrong token", pid)
            return
        socket.send_fds(peer, [self._answer], [self._fd])


def connect(path: Path, token: bytes, timeout: float = 10.0) -> RemotePages:
    """Map the segment offered at `path`. `timeout` in seconds.

    Raises PeerRefused, SegmentMismatch, OSError when nobody listens or nobody answers in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as owner:
        owner.settimeout(timeout)
        owner.connect(str(path))
        _, uid = _peer(owner)
        if uid != os.getuid():
            raise PeerRefused(f"{path} belongs to user {uid}; the token was not sent")
        try:
            owner.sendall(token)
            body, fds, _, _ = socket.recv_fds(owner, _WIRE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerRefused(f"the owner of {path} hung up") from error
    try:
        if not body or len(fds) != 1:
            raise PeerRefused(f"the owner of {path} hung up")
        granted = msgspec.msgpack.decode(body, type=_Granted)
        return RemotePages(Segment.map(fds[0], granted.layout), granted.epoch)
    finally:
        for fd in fds:
            os.close(fd)


def _peer(connection: socket.socket) -> tuple[int, int]:
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def _require_private(directory: Path) -> None:
    status = directory.stat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NotPrivate(f"{directory} must be ours alone (mode 0700)")

"""One-sided writes between hosts: Mooncake's transfer engine, over TCP.

Decode registers its segment with an engine and offers it; prefill writes head frames, then bytes, then tail frames,
and waits after each for the peer's acknowledgement, because the writes of one batch travel on several connections and
land in any order. An acknowledged write lies in decode's memory.

A write that was not acknowledged may land later, even after its writer was reaped: what lies in a socket's buffer
outlives the process that put it there. So decode opens an engine *for each writer*, and `revoke` destroys it: its
connections are closed and its threads joined, and nothing of that writer can land any more (I2).

The engine neither encrypts nor authenticates: whoever reaches its ports can ask it where the segment lies, read it and
write it. The handshake here decides whom we serve; it does not close those ports. Trusted networks only.

The handshake, one connection: the owner sends a nonce; the writer answers with a nonce of its own, its name and a MAC;
the owner answers with where its memory lies and a MAC, or hangs up. The token itself is never sent.
"""

from __future__ import annotations

import hmac
import importlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self, cast
from urllib.parse import urlsplit

import msgspec

from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import expect
from pagefence.engine.kv.layout import FRAME_BYTES, Layout
from pagefence.engine.kv.offer import TOKEN_BYTES, PeerRefused
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import BackendMissing, TransferFailed, require_fit
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef

log = logging.getLogger(__name__)

SCHEME: Final = "mooncake"
DEBIAN_PACKAGES: Final = "libibverbs1 libnl-3-200 libnl-route-3-200 libnuma1 libcurl4"
# Read by the engine when it is loaded. The timeout bounds a write, in seconds, 5 at least; prefill stands still for it.
_ENVIRONMENT: Final = {"MC_TRANSFER_TIMEOUT": "10", "MC_LOG_LEVEL": "ERROR", "GLOG_minloglevel": "3"}
_NONCE_BYTES: Final = 32
_MAC_BYTES: Final = 32
_WIRE_BYTES: Final = 4096
_PEER_SECONDS: Final = 2.0  # for a peer to prove the token; peers are served one after the other


class _Engine(Protocol):
    """What is used of `mooncake.engine.TransferEngine`. Codes are 0 when all went well."""

    def initialize(self, host: str, metadata: str, protocol: str, devices: str, /) -> int: ...
    def get_rpc_port(self) -> int: ...
    def get_first_buffer_address(self, target: str, /) -> int: ...
    def register_memory(self, address: int, length: int, /) -> int: ...
    def batch_transfer_sync_write(
        self, target: str, sources: list[int], targets: list[int], lengths: list[int], /
    ) -> int: ...


class _Knock(msgspec.Struct, frozen=True, array_like=True):
    """`owner` is the incarnation that the writer means: ports are used again, also by others."""

    nonce: bytes
    writer: WorkerRef
    owner: WorkerRef


class _Granted(msgspec.Struct, frozen=True, array_like=True):
    """`target` is the engine's own name for itself, `base` where the segment lies in the owner's process."""

    target: str
    base: int
    layout: Layout
    epoch: int


def require() -> None:
    """Raise BackendMissing unless an engine could be made here."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        importlib.import_module("mooncake.engine")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mooncake":
            raise
        raise BackendMissing("--transfer mooncake needs Mooncake: pip install 'pagefence[mooncake]'") from error
    except ImportError as error:  # it links RDMA's libraries even for TCP
        message = f"--transfer mooncake cannot load Mooncake ({error}): apt-get install {DEBIAN_PACKAGES}"
        raise BackendMissing(message) from error


def _new_engine(host: str) -> _Engine:
    require()
    engine = cast("_Engine", importlib.import_module("mooncake.engine").TransferEngine())
    if engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
        raise OSError(f"Mooncake cannot listen on {host}")
    return engine


class MooncakeOffer:
    """A segment on offer over the network: one thread that grants, one engine for each writer, until `stop`."""

    def __init__(self, host: str, segment: Segment, token: bytes, owner: WorkerRef) -> None:
        """Listen on a free port of `host`, an address under which writers reach this machine. `owner`: who we are.

        Raises ValueError on a token of another length, BackendMissing, OSError when the port cannot be had.
        """
        if len(token) != TOKEN_BYTES:
            raise ValueError(f"the token must have {TOKEN_BYTES} bytes")
        require()
        self._host, self._token, self._owner = host, token, owner
        self._base, self._layout = segment.base, segment.layout
        self._ground = segment.kv  # a view: whatever else is closed, the memory stays while an engine may write to it
        self._engines: dict[WorkerRef, _Engine] = {}
        self._revoked: set[WorkerRef] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._listener = socket.create_server((host, 0))
        self._address = f"{SCHEME}://{host}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, name="pagefence-offer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """mooncake://host:port"""
        return self._address

    def revoke(self, writer: WorkerRef) -> None:
        """As `Offer.revoke`: destroys the writer's engine, which takes up to a second, and grants it nothing more."""
        with self._lock:
            self._revoked.add(writer)
            # The last reference: the destructor closes the connections and joins the threads that write.
            self._engines.pop(writer, None)

    def stop(self) -> None:
        """Grant nothing more and destroy all engines. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join()
        self._listener.close()
        with self._lock:
            self._engines.clear()
        del self._ground

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                peer, whence = self._listener.accept()
            except OSError as error:
                if not self._stopping.wait(0.05):
                    log.warning("cannot accept a peer: %s", error)
                continue
            with peer:
                try:
                    self._answer(peer)
                except (OSError, PeerRefused, msgspec.MsgspecError) as error:
                    log.warning("refused %s: %s", whence[0], error)

    def _answer(self, peer: socket.socket) -> None:
        deadline = time.monotonic() + _PEER_SECONDS
        ours = secrets.token_bytes(_NONCE_BYTES)
        peer.settimeout(_PEER_SECONDS)
        peer.sendall(ours)
        said = _proven(self._token, b"knock", ours, _read(peer, _WIRE_BYTES, deadline))
        knock = msgspec.msgpack.decode(said, type=_Knock)
        if knock.owner != self._owner:
            raise PeerRefused(f"{knock.writer} means {knock.owner}, this is {self._owner}")
        granted = msgspec.msgpack.encode(self._grant(knock.writer))
        peer.sendall(granted + _mac(self._token, b"grant", ours + knock.nonce, granted))

    def _grant(self, writer: WorkerRef) -> _Granted:
        with self._lock:
            if writer in self._revoked:
                raise PeerRefused(f"{writer} was reaped")
            if writer not in self._engines:
                self._engines[writer] = self._serving_engine()
            # No name of ours may keep the engine past the lock: `revoke` has to drop the last one.
            target = f"{self._host}:{self._engines[writer].get_rpc_port()}"
        return _Granted(target, self._base, self._layout, self._owner.epoch)

    def _serving_engine(self) -> _Engine:
        engine = _new_engine(self._host)
        if engine.register_memory(self._base, self._layout.total_bytes):
            raise OSError("Mooncake cannot register the segment")
        return engine


class MooncakePages:
    """A remote pool through Mooncake. Made by `connect`."""

    def __init__(self, engine: _Engine, granted: _Granted) -> None:
        self._engine: _Engine | None = engine
        self._granted = granted

    @property
    def layout(self) -> Layout:
        """The shape of the remote pool."""
        return self._granted.layout

    @property
    def epoch(self) -> int:
        """The incarnation that owns the remote pool."""
        return self._granted.epoch

    def write(
        self, source: Segment, source_pages: Sequence[int], target: Sequence[PageRef], room: Room
    ) -> tuple[bytes, ...]:
        """As `Transfer.write`: all head frames, then the bytes of all pages, then all tail frames."""
        require_fit(source, source_pages, self.layout, target)
        layout = self.layout
        digests = page_digests(source, source_pages)
        # TCP needs no registered source, so nothing of prefill can be read or written from outside.
        frames = expect(target, room).words
        frame_at = [frames.ctypes.data + row * FRAME_BYTES for row in range(len(target))]
        bytes_at = [source.base + page * layout.stride + layout.payload_offset for page in source_pages]
        there = [self._granted.base + page.index * layout.stride for page in target]
        self._put(frame_at, there, FRAME_BYTES)
        self._put(bytes_at, [page + layout.payload_offset for page in there], layout.payload_bytes)
        self._put(frame_at, [page + layout.tail_offset for page in there], FRAME_BYTES)
        return digests

    def close(self) -> None:
        """Destroy the engine, which takes up to a second: afterwards it reads no source any more."""
        self._engine = None

    def _put(self, sources: list[int], targets: list[int], length: int) -> None:
        if not targets:
            return
        target = self._granted.target
        if self._engine is None:
            raise TransferFailed(f"the transfer to {target} is closed")
        code = self._engine.batch_transfer_sync_write(target, sources, targets, [length] * len(targets))
        if code:
            self.close()
            raise TransferFailed(f"writing to {target} failed with code {code}")


def connect(address: str, token: bytes, me: WorkerRef, owner: WorkerRef, timeout: float = 10.0) -> MooncakePages:
    """Get access to the segment of `owner`, offered at `address`, as the writer `me`. `timeout` in seconds.

    Raises BackendMissing, PeerRefused, ValueError on an address that is none, OSError when nobody listens or nobody
    answers in time.
    """
    url = urlsplit(address)
    if url.scheme != SCHEME or url.hostname is None or url.port is None:
        raise ValueError(f"{address!r} is no {SCHEME}://host:port")
    deadline = time.monotonic() + timeout
    with socket.create_connection((url.hostname, url.port), timeout) as peer:
        here = peer.getsockname()[0]
        try:
            theirs = _read(peer, _NONCE_BYTES, deadline)
            knock = _Knock(secrets.token_bytes(_NONCE_BYTES), me, owner)
            said = msgspec.msgpack.encode(knock)
            peer.sendall(said + _mac(token, b"knock", theirs, said))
            peer.shutdown(socket.SHUT_WR)
            answer = _read(peer, _WIRE_BYTES, deadline)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerRefused(f"the owner of {address} hung up") from error
    body = _proven(token, b"grant", theirs + knock.nonce, answer)
    granted = msgspec.msgpack.decode(body, type=_Granted)
    engine = _new_engine(here)
    # The two engines exchange what they know of each other here: at the first write, a peer that is stuck by then would
    # hold it up for a minute.
    if engine.get_first_buffer_address(granted.target) != granted.base:
        raise OSError(f"the engine of {address} does not offer the segment that was granted")
    return MooncakePages(engine, granted)


def _mac(token: bytes, purpose: bytes, nonces: bytes, body: bytes) -> bytes:
    return hmac.digest(token, purpose + nonces + body, "sha256")


def _proven(token: bytes, purpose: bytes, nonces: bytes, said: bytes) -> bytes:
    """The body of a message that ends in its MAC. Raises PeerRefused."""
    body, mac = said[:-_MAC_BYTES], said[-_MAC_BYTES:]
    if not body or not hmac.compare_digest(mac, _mac(token, purpose, nonces, body)):
        raise PeerRefused("the peer hung up or does not know the token")
    return body


def _read(peer: socket.socket, most: int, deadline: float) -> bytes:
    """Up to `most` bytes, or what came before the peer ended its side. Raises TimeoutError at the deadline."""
    said = b""
    while len(said) < most:
        peer.settimeout(max(0.001, deadline - time.monotonic()))
        part = peer.recv(most - len(said))
        if not part:
            break
        said += part
    return said

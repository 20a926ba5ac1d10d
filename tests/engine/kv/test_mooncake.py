"""Mooncake over TCP: who gets in, what a failed write means, and what ends a writer for good."""

from __future__ import annotations

import contextlib
import importlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pagefence.engine.kv import mooncake
from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect
from pagefence.engine.kv.mooncake import MooncakeOffer, MooncakePages, connect
from pagefence.engine.kv.offer import PeerRefused
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import BackendMissing, TransferFailed
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef
from tests.namespaces import THERE

from .conftest import OWNER, SMALL, TOKEN

pytestmark = pytest.mark.mooncake

PROJECT = Path(__file__).parents[3]
ROOM = Room(3, 1, "room")
WRITER = WorkerRef("prefill-0", 2)
TARGET = (PageRef(6, 1), PageRef(2, 5), PageRef(4, 3))


class Owner:
    """Another process that owns a segment, possibly on another host."""

    def __init__(self, host: str, *through: str) -> None:
        command = [*through, sys.executable, "-m", "tests.engine.kv.owner", host]
        self.process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.address = self._ask(TOKEN.hex())[0]

    def look(self) -> tuple[int, list[str]]:
        """Bytes and frame words that are not zero, and the digests of TARGET."""
        written, *digests = self._ask("look")
        return int(written), digests

    def _ask(self, line: str) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().split()

    def freeze(self) -> None:
        """Stop every thread: the kernel takes a moment for those that the signal did not reach first."""
        self.process.send_signal(signal.SIGSTOP)
        while any(thread.read_text().rpartition(")")[2].split()[0] != "T" for thread in self._threads()):
            time.sleep(0.001)

    def _threads(self) -> Iterator[Path]:
        return Path(f"/proc/{self.process.pid}/task").glob("*/stat")

    def end(self) -> None:
        """Kill and reap."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.fixture
def owner(mooncake_loads: None) -> Iterator[Owner]:
    """A segment in another process."""
    made = Owner("127.0.0.1")
    yield made
    made.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes give up after the least time that the engine knows."""
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")


# --- who gets in --------------------------------------------------------------------------------------------------


def test_the_token_never_crosses_the_network_and_what_was_said_once_opens_nothing(over_mooncake: MooncakeOffer) -> None:
    host, port = over_mooncake.address.removeprefix("mooncake://").split(":")
    said: list[bytes] = []

    def overhear(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, socket.create_connection((host, int(port))) as owner:
            for source, target in ((owner, peer), (peer, owner), (owner, peer)):
                said.append(source.recv(4096))
                target.sendall(said[-1])
                if source is peer:
                    owner.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=overhear, args=(listener,))
        thread.start()
        connect(f"mooncake://127.0.0.1:{listener.getsockname()[1]}", TOKEN, WRITER, OWNER).close()
        thread.join()
    assert len(said) == 3
    assert all(TOKEN not in part for part in said)
    with socket.create_connection((host, int(port))) as replay:
        replay.recv(4096)  # another nonce
        replay.sendall(said[1])
        replay.shutdown(socket.SHUT_WR)
        assert replay.recv(4096) == b""


def test_an_owner_that_does_not_know_the_token_is_not_believed(mooncake_loads: None) -> None:
    granted = msgspec.msgpack.encode(mooncake._Granted("127.0.0.1:1", 4096, SMALL, 1))

    def pretend(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(bytes(32))
            while peer.recv(4096):
                pass
            peer.sendall(granted + bytes(32))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=pretend, args=(listener,))
        thread.start()
        with pytest.raises(PeerRefused):
            connect(f"mooncake://127.0.0.1:{listener.getsockname()[1]}", TOKEN, WRITER, OWNER)
        thread.join()


def test_whoever_has_the_port_of_another_incarnation_by_now_is_not_taken_for_it(over_mooncake: MooncakeOffer) -> None:
    for meant in (WorkerRef(OWNER.name, OWNER.epoch - 1), WorkerRef("decode-1", OWNER.epoch)):
        with pytest.raises(PeerRefused):
            connect(over_mooncake.address, TOKEN, WRITER, meant)


def test_a_peer_that_says_nothing_holds_up_the_others_for_two_seconds_only(over_mooncake: MooncakeOffer) -> None:
    host, port = over_mooncake.address.removeprefix("mooncake://").split(":")
    with socket.create_connection((host, int(port))):
        started = time.monotonic()
        connect(over_mooncake.address, TOKEN, WRITER, OWNER).close()
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("address", ["mooncake://host", "http://host:1", "mooncake://:1"])
def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no mooncake"):
        connect(address, TOKEN, WRITER, OWNER)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise ImportError("libibverbs.so.1: cannot open shared object file: No such file or directory")

    def no_package(name: str) -> None:
        raise ModuleNotFoundError("No module named 'mooncake'", name="mooncake")

    with (
        monkeypatch.context() as patch,
        pytest.raises(BackendMissing, match=r"libibverbs\.so\.1.*apt-get install libibverbs1"),
    ):
        patch.setattr(importlib, "import_module", no_library)
        mooncake.require()
    with monkeypatch.context() as patch, pytest.raises(BackendMissing, match="pip install"):
        patch.setattr(importlib, "import_module", no_package)
        mooncake.require()


# --- writes that fail ---------------------------------------------------------------------------------------------


def test_a_write_that_ends_between_its_parts_leaves_torn_pages(
    segment: Segment, source: Segment, over_mooncake: MooncakeOffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = connect(over_mooncake.address, TOKEN, WRITER, OWNER)
    put, calls = MooncakePages._put, iter((True, False))

    def dies(self: MooncakePages, sources: list[int], targets: list[int], length: int) -> None:
        if not next(calls):
            raise KeyboardInterrupt
        put(self, sources, targets, length)

    monkeypatch.setattr(MooncakePages, "_put", dies)
    with pytest.raises(KeyboardInterrupt):
        remote.write(source, (0, 1, 2), TARGET, ROOM)
    remote.close()
    assert {broken.kind for broken in check(segment, expect(TARGET, ROOM))} == {"torn"}


def test_a_write_to_a_dead_owner_fails_at_once_and_closes_the_transfer(owner: Owner, source: Segment) -> None:
    remote = connect(owner.address, TOKEN, WRITER, OWNER)
    digests = remote.write(source, (0, 1, 2), TARGET, ROOM)
    assert owner.look()[1] == [digest.hex() for digest in digests]
    owner.end()
    started = time.monotonic()
    with pytest.raises(TransferFailed):
        remote.write(source, (0, 1, 2), TARGET, ROOM)
    with pytest.raises(TransferFailed, match="closed"):
        remote.write(source, (0, 1, 2), TARGET, ROOM)
    assert time.monotonic() - started < 5.0


def test_a_write_to_a_stuck_owner_fails_in_time_and_lands_later_all_the_same(
    owner: Owner, source: Segment, impatient: None
) -> None:
    """Why a room whose write failed is never said to be drained, and why reaping its writer is not enough."""
    remote = connect(owner.address, TOKEN, WRITER, OWNER)
    assert owner.look()[0] == 0
    owner.freeze()
    started = time.monotonic()
    with pytest.raises(TransferFailed):
        remote.write(source, (0, 1, 2), TARGET, ROOM)
    assert time.monotonic() - started < 15.0
    owner.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 5.0
    while not (landed := owner.look()[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert landed > 0


# --- what ends a writer for good ----------------------------------------------------------------------------------


def test_nothing_of_a_revoked_writer_lands_any_more_though_it_goes_on_writing(
    segment: Segment, source: Segment, over_mooncake: MooncakeOffer
) -> None:
    doomed = connect(over_mooncake.address, TOKEN, WRITER, OWNER)
    other = connect(over_mooncake.address, TOKEN, WorkerRef("prefill-1", 1), OWNER)
    writes = 0

    def write_on() -> None:
        nonlocal writes
        with contextlib.suppress(TransferFailed):
            while True:
                doomed.write(source, (0, 1, 2), TARGET, ROOM)
                writes += 1

    thread = threading.Thread(target=write_on)
    thread.start()
    while writes < 10:
        time.sleep(0.01)
    over_mooncake.revoke(WRITER)
    segment.zero(range(SMALL.pages))
    thread.join()
    time.sleep(0.2)
    assert not any(segment.payload(page).any() for page in range(SMALL.pages))
    assert not segment.heads.any()
    assert not segment.tails.any()
    with pytest.raises(PeerRefused):
        connect(over_mooncake.address, TOKEN, WRITER, OWNER)
    digests = other.write(source, (0,), TARGET[:1], ROOM)
    assert page_digests(segment, (TARGET[0].index,)) == digests
    connect(over_mooncake.address, TOKEN, WorkerRef(WRITER.name, WRITER.epoch + 1), OWNER).close()
    other.close()


def test_a_segment_that_is_closed_first_stays_under_the_engines_until_they_stop(
    segment: Segment, source: Segment, over_mooncake: MooncakeOffer
) -> None:
    remote = connect(over_mooncake.address, TOKEN, WRITER, OWNER)
    segment.close()
    remote.write(source, (0, 1, 2), TARGET, ROOM)
    over_mooncake.stop()
    with pytest.raises(TransferFailed):
        remote.write(source, (0, 1, 2), TARGET, ROOM)


# --- two hosts ----------------------------------------------------------------------------------------------------


def test_the_same_pages_and_digests_arrive_on_another_host(mooncake_loads: None, namespaces: tuple[str, str]) -> None:
    inside = [("ip", "netns", "exec", name) for name in namespaces]
    owner = Owner(THERE, *inside[1])
    try:
        refs = [f"{page.index}@{page.generation}" for page in TARGET]
        command = [*inside[0], sys.executable, "-m", "tests.engine.kv.peer", owner.address, "5", *refs]
        said = subprocess.run(
            command, cwd=PROJECT, input=f"{TOKEN.hex()}\n", capture_output=True, text=True, timeout=60, check=True
        )
        epoch, *digests = said.stdout.split()
        assert int(epoch) == 11
        assert owner.look()[1] == digests
        with pytest.raises(OSError, match=r"timed out|unreachable|refused"):
            connect(owner.address, TOKEN, WRITER, OWNER, timeout=0.5)  # this host has no wire to that one
    finally:
        owner.end()

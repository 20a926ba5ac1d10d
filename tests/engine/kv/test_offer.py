"""Handing over the segment: to the right peer, in another process, and to nobody else."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from pagefence.engine.kv.offer import NotPrivate, PeerRefused, SegmentServer, connect, new_token
from pagefence.engine.kv.segment import Segment

from .conftest import SMALL, TOKEN


def say(path: Path, *packets: bytes) -> bytes:
    """Speak to the server like a bad peer; b"" means that it hung up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(5)
        peer.connect(str(path))
        try:
            for packet in packets:
                peer.sendall(packet)
            return peer.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_bad_peers_are_refused_and_a_good_one_is_served_afterwards(path: Path, server: SegmentServer) -> None:
    wrong = bytes([TOKEN[0] ^ 1]) + TOKEN[1:]
    for packets in ((wrong,), (TOKEN[:-1],), (TOKEN + b"!",), (b"x" * 4000,), (b"G", TOKEN)):
        assert say(path, *packets) == b"", packets
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.connect(str(path))  # hangs up at once
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.connect(str(path))
        gone.sendall(TOKEN)  # and does not wait for the answer
    remote = connect(path, TOKEN)
    assert (remote.epoch, remote.layout) == (11, SMALL)
    remote.close()


def test_a_peer_that_says_nothing_holds_up_the_others_for_a_second_only(path: Path, server: SegmentServer) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(path))
        connect(path, TOKEN, timeout=5).close()
        assert silent.recv(16) == b""


def test_a_peer_of_another_user_is_refused_even_with_the_token(path: Path, segment: Segment) -> None:
    with SegmentServer(path, segment, TOKEN, epoch=1, uid=os.getuid() + 1), pytest.raises(PeerRefused):
        connect(path, TOKEN)


def test_an_owner_of_another_user_does_not_get_to_see_the_token(
    path: Path, server: SegmentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(path, TOKEN).close()
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(PeerRefused, match="was not sent"):
        connect(path, TOKEN)


def test_a_wrong_token_raises_here(path: Path, server: SegmentServer) -> None:
    with pytest.raises(PeerRefused):
        connect(path, new_token())


def test_an_open_directory_is_refused(tmp_path: Path, segment: Segment) -> None:
    for mode in (0o710, 0o701, 0o777):
        directory = tmp_path / oct(mode)
        directory.mkdir()
        directory.chmod(mode)
        with pytest.raises(NotPrivate):
            SegmentServer(directory / "kv", segment, TOKEN, epoch=1)
        assert not list(directory.iterdir())


def test_a_short_token_is_refused(path: Path, segment: Segment) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SegmentServer(path, segment, b"", epoch=1)


def test_a_path_belongs_to_one_incarnation(path: Path, server: SegmentServer, segment: Segment) -> None:
    with pytest.raises(OSError, match="in use"):
        SegmentServer(path, segment, TOKEN, epoch=12)
    connect(path, TOKEN).close()  # the first is unharmed


def test_stop_ends_the_thread_and_the_offer_but_not_the_mappings(path: Path, segment: Segment) -> None:
    threads = threading.active_count()
    server = SegmentServer(path, segment, TOKEN, epoch=1)
    remote = connect(path, TOKEN)
    server.stop()
    server.stop()
    assert threading.active_count() == threads
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        connect(path, TOKEN)
    remote.segment.kv[0] = 2.0
    assert bool((segment.kv[0] == 2.0).all())
    remote.close()


def test_the_offer_outlives_the_descriptor_of_a_closed_segment(path: Path) -> None:
    segment = Segment.create(SMALL)
    number = segment.fd
    with SegmentServer(path, segment, TOKEN, epoch=1):
        segment.close()
        with Path("/dev/null").open("rb") as other:
            assert other.fileno() == number  # the number now names another file, which must not be handed out
            connect(path, TOKEN).close()


def test_no_descriptor_is_left_behind(path: Path, server: SegmentServer) -> None:
    connect(path, TOKEN).close()

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(5):
        connect(path, TOKEN).close()
        with pytest.raises(PeerRefused):
            connect(path, new_token())
    assert count() <= before

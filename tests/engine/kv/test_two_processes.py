"""Real one-sided writes: another process fills our pages while we do nothing, and dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect
from pagefence.engine.kv.offer import SegmentServer, new_token
from pagefence.engine.kv.segment import Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

from .conftest import TOKEN

TARGET = (PageRef(6, 1), PageRef(2, 5), PageRef(4, 3))


def start_peer(path: Path, token: bytes, seed: int = 5) -> subprocess.Popen[str]:
    """Another process that maps the segment and writes TARGET."""
    refs = [f"{page.index}@{page.generation}" for page in TARGET]
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), str(path), str(seed), *refs]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdin is not None
    peer.stdin.write(token.hex() + "\n")  # not an argument: those are for everybody to read
    peer.stdin.flush()
    return peer


def line(peer: subprocess.Popen[str]) -> list[str]:
    """What the peer reports."""
    assert peer.stdout is not None
    return peer.stdout.readline().split()


def end(peer: subprocess.Popen[str]) -> None:
    """Kill the peer as the supervisor would, and reap it."""
    peer.send_signal(signal.SIGKILL)
    assert peer.wait() == -signal.SIGKILL
    for stream in (peer.stdin, peer.stdout):
        assert stream is not None
        stream.close()


def test_another_process_writes_our_pages_while_we_do_nothing_and_its_death_leaves_nothing(
    path: Path, server: SegmentServer, segment: Segment
) -> None:
    before = {entry.name for entry in Path("/dev/shm").iterdir() if "pagefence" in entry.name}
    peer = start_peer(path, TOKEN)
    epoch, *digests = line(peer)
    assert int(epoch) == 11
    assert check(segment, expect(TARGET, Room(1, 5, "peer"))) == []
    assert len(check(segment, expect(TARGET, Room(1, 6, "peer")))) == len(TARGET)
    assert [digest.hex() for digest in page_digests(segment, [page.index for page in TARGET])] == digests
    segment.payload(2)[0] ^= 1
    assert page_digests(segment, (2,))[0].hex() != digests[1]
    end(peer)
    assert not Path(f"/proc/{peer.pid}").exists()
    assert {entry.name for entry in Path("/dev/shm").iterdir() if "pagefence" in entry.name} == before
    assert segment.heads[6].any()  # what it wrote stays ours
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 0)


def test_another_process_with_a_wrong_token_gets_nothing(path: Path, server: SegmentServer, segment: Segment) -> None:
    peer = start_peer(path, new_token())
    assert line(peer) == ["refused"]
    end_code = peer.wait()
    assert end_code == 0
    assert not segment.heads.any()
    for stream in (peer.stdin, peer.stdout):
        assert stream is not None
        stream.close()

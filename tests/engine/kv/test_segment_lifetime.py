"""The end of a segment: unmapped with its last view, gone with its last process, under no name."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from pagefence.engine.kv.segment import Segment, SegmentClosed

from .conftest import SMALL


def mapped() -> int:
    """How many KV segments this process has mapped."""
    return Path("/proc/self/maps").read_text().count("pagefence-kv")


def test_close_returns_every_descriptor(segment: Segment) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    Segment.create(SMALL).close()
    Segment.map(segment.fd, SMALL).close()
    assert count() == before


def test_close_unmaps_with_the_last_view_and_not_under_it() -> None:
    gc.collect()
    before = mapped()
    segment = Segment.create(SMALL)
    kv, bytes_, heads = segment.kv, segment.payload(1), segment.heads
    segment.close()
    segment.close()
    assert mapped() == before + 1
    kv[1] = 3.0  # still memory, not a fault
    assert bytes_.any()
    assert not heads.any()
    with pytest.raises(SegmentClosed):
        _ = segment.kv
    with pytest.raises(SegmentClosed):
        _ = segment.fd
    del kv, bytes_, heads
    assert mapped() == before


@pytest.mark.slow
def test_an_interpreter_that_exits_with_views_exits_cleanly() -> None:
    program = (
        "from pagefence.engine.kv.layout import Layout\n"
        "from pagefence.engine.kv.segment import Segment\n"
        "s = Segment.create(Layout(2, 4, 1, 1, 8, 'bfloat16')); kv, raw = s.kv, s.payload(1); s.close()\n"
        "t = Segment.create(Layout(2, 4, 1, 1, 8, 'float16')); view = t.kv[1]\n"
    )
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_fork_does_not_keep_the_mapping(segment: Segment) -> None:
    assert mapped() >= 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"%d" % mapped())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 16) == b"0"
    os.close(read)
    os.close(write)


def test_nothing_is_named_in_dev_shm() -> None:
    def names() -> set[str]:
        return {entry.name for entry in Path("/dev/shm").iterdir()}

    before = names()
    with Segment.create(SMALL):
        assert not {name for name in names() - before if "pagefence" in name}
    control = shared_memory.SharedMemory(create=True, size=64, name=f"pagefence-control-{os.getpid()}")
    try:
        assert {name for name in names() - before if "pagefence" in name}  # the look would have seen it
    finally:
        control.close()
        control.unlink()

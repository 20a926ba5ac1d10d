"""The segment: views that mean the same bytes, and memory that neither grows, shrinks, leaks nor crashes."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.kv.capacity import NotEnoughMemory
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment, SegmentClosed, SegmentMismatch

from .conftest import SMALL
from .test_layout import DTYPES, layouts

HUGE = Layout(pages=10**9, page_size=64, layers=30, kv_heads=3, head_dim=64, dtype="float16")


def mapped() -> int:
    """How many KV segments this process has mapped."""
    return Path("/proc/self/maps").read_text().count("pagefence-kv")


@given(layouts, st.data())
def test_an_element_of_the_tensor_lies_where_the_layout_says(layout: Layout, data: st.DataObject) -> None:
    place = tuple(data.draw(st.integers(0, n - 1)) for n in (layout.pages, *layout.page_shape))
    with Segment.create(layout) as segment:
        assert segment.kv.shape == (layout.pages, *layout.page_shape)
        segment.kv[place] = 1.5
        touched = np.flatnonzero(segment.payload(place[0]))
        element = int(np.ravel_multi_index(place[1:], layout.page_shape))
        start = element * layout.item_bytes
        assert len(touched) > 0
        assert all(start <= byte < start + layout.item_bytes for byte in touched)
        assert not segment.heads.any()
        assert not segment.tails.any()
        others = [page for page in range(layout.pages) if page != place[0]]
        assert not any(segment.payload(page).any() for page in others)


def test_zero_clears_payload_padding_and_frames_of_its_pages_only(segment: Segment) -> None:
    everything = np.ndarray((SMALL.pages, SMALL.stride), np.uint8, segment.heads.base)
    everything[:] = 0xEE
    segment.zero([2, 5])
    for page in range(SMALL.pages):
        assert set(everything[page].tolist()) == ({0} if page in (2, 5) else {0xEE})


@pytest.mark.parametrize("page", [-1, SMALL.pages])
def test_a_page_that_does_not_exist_is_refused_and_nothing_is_cleared(segment: Segment, page: int) -> None:
    segment.payload(0)[:] = 1
    with pytest.raises(IndexError):
        segment.payload(page)
    with pytest.raises(IndexError):
        segment.zero([0, page])
    assert segment.payload(0).all()


def test_a_peer_sees_the_same_bytes_in_both_directions(segment: Segment) -> None:
    with Segment.map(segment.fd, SMALL) as peer:
        peer.kv[3, 1, 0, 2, 1, 4] = 7.0
        segment.kv[4, 0, 1, 0, 0, 0] = 8.0
        assert segment.kv[3, 1, 0, 2, 1, 4] == 7.0
        assert peer.kv[4, 0, 1, 0, 0, 0] == 8.0


@pytest.mark.parametrize("pages", [SMALL.pages - 1, SMALL.pages + 1])
def test_a_size_that_is_not_the_layouts_is_refused(segment: Segment, pages: int) -> None:
    with pytest.raises(SegmentMismatch, match="bytes"):
        Segment.map(segment.fd, SMALL.with_pages(pages))


def test_a_file_that_can_shrink_under_us_is_refused(tmp_path: Path) -> None:
    unsealed = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    plain = os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT)
    try:
        for fd in (unsealed, plain):
            os.ftruncate(fd, SMALL.total_bytes)
            with pytest.raises(SegmentMismatch):
                Segment.map(fd, SMALL)
    finally:
        os.close(unsealed)
        os.close(plain)


def test_the_segment_is_sealed_against_resizing(segment: Segment) -> None:
    for size in (0, SMALL.total_bytes - 1, SMALL.total_bytes + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fd, size)


def test_space_is_reserved_before_the_first_write(segment: Segment) -> None:
    assert os.fstat(segment.fd).st_blocks * 512 >= SMALL.total_bytes


def test_too_much_is_refused_with_both_numbers_before_the_kernel_is_asked() -> None:
    with pytest.raises(NotEnoughMemory) as refused:
        Segment.create(HUGE)
    assert refused.value.asked == HUGE.total_bytes
    assert f"{refused.value.asked:,} bytes asked for, {refused.value.available:,} available" in str(refused.value)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_a_kernel_that_cannot_reserve_is_an_error_at_start(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(NotEnoughMemory):
        Segment.create(SMALL)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


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


def test_the_tensor_is_of_the_layouts_type() -> None:
    for name in DTYPES:
        with Segment.create(Layout(1, 2, 1, 1, 4, name)) as segment:
            assert segment.kv.dtype == getattr(torch, name)

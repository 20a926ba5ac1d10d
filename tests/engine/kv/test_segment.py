"""The segment: views that mean the same bytes, and memory that neither grows, shrinks, leaks nor crashes."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.kv import segment as segment_module
from pagefence.engine.kv.capacity import NotEnoughMemory
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment, SegmentMismatch

from .conftest import SMALL
from .test_layout import DTYPES, layouts

# Beyond what a file can be: without the check this must fail too, not fill the machine.
HUGE = Layout(pages=10**13, page_size=64, layers=30, kv_heads=3, head_dim=64, dtype="float16")


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


def test_a_peer_cannot_seal_the_segment_against_the_next_writer(segment: Segment) -> None:
    with Segment.map(segment.fd, SMALL) as peer, pytest.raises(PermissionError):
        fcntl.fcntl(peer.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_space_is_reserved_before_the_first_write(segment: Segment) -> None:
    assert os.fstat(segment.fd).st_blocks * 512 >= SMALL.total_bytes


def test_too_much_is_refused_with_both_numbers_before_the_kernel_is_asked() -> None:
    with pytest.raises(NotEnoughMemory) as refused:
        Segment.create(HUGE)
    assert refused.value.asked == HUGE.total_bytes
    assert f"{refused.value.asked:,} bytes asked for, {refused.value.available:,} available" in str(refused.value)


def test_a_pool_larger_than_memory_by_one_byte_never_reaches_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "available_bytes", lambda: SMALL.total_bytes - 1)
    with pytest.raises(NotEnoughMemory, match=f"{SMALL.total_bytes:,} bytes asked for, {SMALL.total_bytes - 1:,} av"):
        Segment.create(SMALL)
    monkeypatch.setattr(segment_module, "available_bytes", lambda: SMALL.total_bytes)
    Segment.create(SMALL).close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_a_kernel_that_cannot_reserve_is_an_error_at_start(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(NotEnoughMemory):
        Segment.create(SMALL)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_tensor_is_of_the_layouts_type() -> None:
    for name in DTYPES:
        with Segment.create(Layout(1, 2, 1, 1, 4, name)) as segment:
            assert segment.kv.dtype == getattr(torch, name)

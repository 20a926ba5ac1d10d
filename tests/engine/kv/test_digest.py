"""Digests: whatever changes a page's bytes or their places changes the digest, and nobody waits for it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from pagefence.engine.kv.digest import page_digest, page_digests
from pagefence.engine.kv.frames import write_frames
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

from .conftest import SMALL

offsets = st.integers(0, SMALL.payload_bytes - 1)


@given(offsets, offsets)
def test_bytes_swapped_inside_a_page_change_the_digest_and_swapping_back_restores_it(one: int, other: int) -> None:
    with Segment.create(SMALL) as segment:
        payload = segment.payload(1)
        payload[:] = np.random.default_rng(one).integers(0, 256, len(payload), np.uint8)
        assume(payload[one] != payload[other])
        before = page_digest(segment, 1)
        payload[[one, other]] = payload[[other, one]]
        assert page_digest(segment, 1) != before
        payload[[one, other]] = payload[[other, one]]
        assert page_digest(segment, 1) == before


@given(offsets, st.integers(1, 255))
def test_any_changed_byte_changes_the_digest(offset: int, flip: int) -> None:
    with Segment.create(SMALL) as segment:
        before = page_digest(segment, 0)
        segment.payload(0)[offset] ^= flip
        assert page_digest(segment, 0) != before


def test_swapped_layers_keys_and_positions_change_the_digest(source: Segment) -> None:
    original = source.kv[0].clone()
    seen = {page_digest(source, 0)}
    for dim in range(3):  # layer, K or V, position
        source.kv[0] = original.flip(dim)
        seen.add(page_digest(source, 0))
    assert len(seen) == 4


def test_the_digest_is_of_the_bytes_not_of_their_place_or_their_owner(source: Segment) -> None:
    source.payload(2)[:] = source.payload(0)
    write_frames(source, [PageRef(2, 9)], Room(1, 1, "x"))
    first, other, copy = page_digests(source, (0, 1, 2))
    assert first == copy != other
    assert len(first) == 32


def blocked_share(call: Callable[[], object]) -> float:
    """The longest stretch in which this thread stood still while another was inside `call`, as a share of the call."""
    entered, left = threading.Event(), threading.Event()
    times: list[float] = []

    def work() -> None:
        times.append(time.perf_counter())
        entered.set()
        call()
        times.append(time.perf_counter())
        left.set()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    longest, last = 0.0, times[0]
    while not left.is_set():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    longest = max(longest, time.perf_counter() - last)
    thread.join()
    return longest / (times[1] - times[0])


def test_digesting_leaves_the_interpreter_to_others() -> None:
    libc = ctypes.PyDLL(None)  # its calls keep the GIL: the measurement must see that
    assert blocked_share(lambda: libc.usleep(100_000)) > 0.7
    with Segment.create(Layout(1, 4096, 16, 4, 64, "float32")) as segment:  # 128 MiB, tens of milliseconds
        assert blocked_share(lambda: page_digest(segment, 0)) < 0.5

"""One-sided writes, alike over every back-end: what the receipt will say is what prefill had, whatever comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pagefence.engine.kv.backends import reach
from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.offer import PeerRefused, new_token
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import Offer, RemotePages, Transfer
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef

from .conftest import OWNER, SMALL, TOKEN

ROOM = Room(3, 1, "room")
WRITER = WorkerRef("prefill-0", 2)
TARGET = (PageRef(6, 1), PageRef(2, 5), PageRef(4, 3))
INDICES = tuple(page.index for page in TARGET)


@pytest.fixture
def remote(offer: Offer) -> Iterator[Transfer]:
    """The decode segment as a writer has it."""
    transfer = reach(offer.address, TOKEN, WRITER, OWNER)
    yield transfer
    transfer.close()


def test_a_write_lands_framed_and_byte_for_byte(segment: Segment, source: Segment, remote: Transfer) -> None:
    digests = remote.write(source, (3, 0, 1), TARGET, ROOM)
    assert check(segment, expect(TARGET, ROOM)) == []
    assert digests == page_digests(source, (3, 0, 1)) == page_digests(segment, INDICES)
    assert bool((segment.kv[6] == source.kv[3]).all())
    others = [page for page in range(SMALL.pages) if page not in INDICES]
    assert not any(segment.payload(page).any() or segment.heads[page].any() for page in others)


def test_writing_no_pages_writes_nothing(segment: Segment, source: Segment, remote: Transfer) -> None:
    assert remote.write(source, (), (), ROOM) == ()
    assert not segment.heads.any()


def a_flipped_bit(segment: Segment) -> None:
    segment.payload(2)[17] ^= 1


def two_tokens_swapped_in_a_page(segment: Segment) -> None:
    segment.kv[2][:, :, [0, 2]] = segment.kv[2][:, :, [2, 0]]


def one_token_swapped_in_one_layer(segment: Segment) -> None:
    segment.kv[2][1, :, [0, 1]] = segment.kv[2][1, :, [1, 0]]


def keys_and_values_swapped(segment: Segment) -> None:
    segment.kv[2][:, [0, 1]] = segment.kv[2][:, [1, 0]]


def two_pages_swapped(segment: Segment) -> None:
    segment.kv[[2, 4]] = segment.kv[[4, 2]]


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (a_flipped_bit, {1}),
        (two_tokens_swapped_in_a_page, {1}),
        (one_token_swapped_in_one_layer, {1}),
        (keys_and_values_swapped, {1}),
        (two_pages_swapped, {1, 2}),
    ],
)
def test_digests_are_of_the_source_so_bytes_changed_or_moved_on_the_way_show(
    segment: Segment, source: Segment, remote: Transfer, damage: Callable[[Segment], None], wrong: set[int]
) -> None:
    digests = remote.write(source, (0, 1, 2), TARGET, ROOM)
    assert page_digests(segment, INDICES) == digests
    damage(segment)
    found = page_digests(segment, INDICES)
    assert {row for row in range(3) if found[row] != digests[row]} == wrong
    assert check(segment, expect(TARGET, ROOM)) == []  # the frames alone would not have seen it


def test_a_writer_that_dies_in_the_middle_leaves_a_torn_page(
    segment: Segment, source: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: Segment, page: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        raise KeyboardInterrupt

    mapped = RemotePages(Segment.map(segment.fd, SMALL), epoch=9)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pagefence.engine.kv.transfer.page_digest", lambda segment, page: b"")
        patch.setattr(Segment, "payload", dies)
        mapped.write(source, (0, 1, 2), TARGET, ROOM)
    mapped.close()
    kinds = [(broken.page, broken.kind) for broken in check(segment, expect(TARGET, ROOM))]
    assert kinds == [(TARGET[0], "torn"), (TARGET[1], "blank"), (TARGET[2], "blank")]


@pytest.mark.parametrize(
    ("pages", "target"),
    [((0, 1), TARGET), ((0, 1, 4), TARGET), ((0, -1, 1), TARGET), ((0, 1, 2), (*TARGET[:2], PageRef(8, 1)))],
)
def test_what_does_not_fit_is_refused_before_the_first_byte(
    segment: Segment, source: Segment, remote: Transfer, pages: tuple[int, ...], target: tuple[PageRef, ...]
) -> None:
    with pytest.raises((ValueError, IndexError)):
        remote.write(source, pages, target, ROOM)
    assert not segment.heads.any()
    assert not segment.tails.any()


def test_pages_of_another_shape_are_refused_even_when_the_bytes_add_up(remote: Transfer) -> None:
    swapped = Layout(4, SMALL.page_size, SMALL.layers, SMALL.head_dim, SMALL.kv_heads, SMALL.dtype)
    assert swapped.payload_bytes == SMALL.payload_bytes
    with Segment.create(swapped) as other, pytest.raises(ValueError, match="differ in shape"):
        remote.write(other, (0,), TARGET[:1], ROOM)


def test_a_remote_pool_names_its_layout_and_incarnation(remote: Transfer) -> None:
    assert (remote.layout, remote.epoch) == (SMALL, 11)


def test_a_writer_with_another_token_is_refused(offer: Offer) -> None:
    with pytest.raises(PeerRefused):
        reach(offer.address, new_token(), WRITER, OWNER)
    reach(offer.address, TOKEN, WRITER, OWNER).close()  # and does not stand in the way of a good one


def test_an_owner_that_has_gone_is_an_error_at_once(offer: Offer) -> None:
    offer.stop()
    offer.stop()
    started = time.monotonic()
    with pytest.raises(OSError, match=r"refused|No such file"):
        reach(offer.address, TOKEN, WRITER, OWNER)
    assert time.monotonic() - started < 2.0


def test_two_writers_write_side_by_side(segment: Segment, source: Segment, offer: Offer, remote: Transfer) -> None:
    other = reach(offer.address, TOKEN, WorkerRef("prefill-1", 1), OWNER)
    first, second = Room(3, 2, "first"), Room(3, 3, "second")
    remote.write(source, (0,), TARGET[:1], first)
    other.write(source, (1, 2), TARGET[1:], second)
    remote.write(source, (3,), (PageRef(0, 1),), first)
    assert check(segment, expect((TARGET[0], PageRef(0, 1)), first)) == []
    assert check(segment, expect(TARGET[1:], second)) == []
    assert np.array_equal(segment.payload(0), source.payload(3))
    other.close()

"""One-sided writes: what the receipt will say is what prefill had, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import RemotePages, Transfer
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

from .conftest import SMALL

ROOM = Room(3, 1, "room")
TARGET = (PageRef(6, 1), PageRef(2, 5), PageRef(4, 3))


@pytest.fixture
def remote(segment: Segment) -> Iterator[RemotePages]:
    """The decode segment as a peer has it."""
    pages = RemotePages(Segment.map(segment.fd, SMALL), epoch=9)
    yield pages
    pages.close()


def test_a_write_lands_framed_and_byte_for_byte(segment: Segment, source: Segment, remote: RemotePages) -> None:
    transfer: Transfer = remote
    digests = transfer.write(source, (3, 0, 1), TARGET, ROOM)
    assert check(segment, expect(TARGET, ROOM)) == []
    landed = tuple(page.index for page in TARGET)
    assert digests == page_digests(source, (3, 0, 1)) == page_digests(segment, landed)
    assert bool((segment.kv[6] == source.kv[3]).all())
    others = [page for page in range(SMALL.pages) if page not in landed]
    assert not any(segment.payload(page).any() or segment.heads[page].any() for page in others)


def test_digests_are_of_the_source_so_damage_on_the_way_shows(
    segment: Segment, source: Segment, remote: RemotePages
) -> None:
    digests = remote.write(source, (0, 1, 2), TARGET, ROOM)
    segment.payload(2)[17] ^= 1
    found = page_digests(segment, [page.index for page in TARGET])
    assert [said == read for said, read in zip(digests, found, strict=True)] == [True, False, True]


def test_a_writer_that_dies_in_the_middle_leaves_a_torn_page(
    segment: Segment, source: Segment, remote: RemotePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: Segment, page: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pagefence.engine.kv.transfer.page_digest", lambda segment, page: b"")
        patch.setattr(Segment, "payload", dies)
        remote.write(source, (0, 1, 2), TARGET, ROOM)
    kinds = [(broken.page, broken.kind) for broken in check(segment, expect(TARGET, ROOM))]
    assert kinds == [(TARGET[0], "torn"), (TARGET[1], "blank"), (TARGET[2], "blank")]


@pytest.mark.parametrize(
    ("pages", "target"),
    [((0, 1), TARGET), ((0, 1, 4), TARGET), ((0, -1, 1), TARGET), ((0, 1, 2), (*TARGET[:2], PageRef(8, 1)))],
)
def test_what_does_not_fit_is_refused_before_the_first_byte(
    segment: Segment, source: Segment, remote: RemotePages, pages: tuple[int, ...], target: tuple[PageRef, ...]
) -> None:
    with pytest.raises((ValueError, IndexError)):
        remote.write(source, pages, target, ROOM)
    assert not segment.heads.any()
    assert not segment.tails.any()


def test_pages_of_another_shape_are_refused_even_when_the_bytes_add_up(remote: RemotePages) -> None:
    swapped = Layout(4, SMALL.page_size, SMALL.layers, SMALL.head_dim, SMALL.kv_heads, SMALL.dtype)
    assert swapped.payload_bytes == SMALL.payload_bytes
    with Segment.create(swapped) as other, pytest.raises(ValueError, match="differ in shape"):
        remote.write(other, (0,), TARGET[:1], ROOM)


def test_a_remote_pool_names_its_layout_and_incarnation(remote: RemotePages) -> None:
    transfer: Transfer = remote
    assert (transfer.layout, transfer.epoch) == (SMALL, 9)

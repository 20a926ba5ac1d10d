"""Frames: every kind of broken page is found, named, and told from the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.kv.frames import (
    BrokenFrame,
    Expected,
    check,
    expect,
    join,
    room_words,
    write_frames,
    write_head,
    write_tail,
)
from pagefence.engine.kv.segment import Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

from .conftest import SMALL

OURS, THEIRS = Room(1, 1, "aaaa"), Room(1, 2, "bbbb")
PAGES = (PageRef(5, 3), PageRef(0, 1), PageRef(7, 2**63 + 1))


def only(segment: Segment) -> BrokenFrame:
    """The one broken frame among PAGES."""
    (broken,) = check(segment, expect(PAGES, OURS))
    return broken


def test_pages_written_by_their_lease_pass(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    assert check(segment, expect(PAGES, OURS)) == []


def test_frames_are_as_documented(segment: Segment) -> None:
    write_frames(segment, PAGES[:1], OURS)
    words = segment.heads[5].tolist()
    assert words[0].to_bytes(8, "little") == b"PGFENCE1"
    assert words[1:3] == room_words(OURS).tolist()
    assert words[3:] == [3, 5, 0, 0, 0]
    assert segment.tails[5].tolist() == words


def test_frames_touch_no_payload(segment: Segment) -> None:
    for page in range(SMALL.pages):
        segment.payload(page)[:] = 0xAB
    write_frames(segment, [PageRef(i, 1) for i in range(SMALL.pages)], OURS)
    assert all((segment.payload(page) == 0xAB).all() for page in range(SMALL.pages))


def test_a_cleared_page_is_blank_and_not_foreign(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    segment.zero([0])
    assert only(segment) == BrokenFrame(1, PageRef(0, 1), "blank", False, "blank")


def test_another_room_is_foreign(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    write_frames(segment, PAGES[1:2], THEIRS)
    assert only(segment) == BrokenFrame(1, PageRef(0, 1), "foreign", True, "another room, generation 1, page 0")


def test_a_stale_generation_of_the_same_room_is_foreign_and_named(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    write_frames(segment, [PageRef(5, 1)], OURS)
    assert only(segment) == BrokenFrame(0, PageRef(5, 3), "foreign", True, "this room, generation 1, page 5")


def test_generations_beyond_a_double_are_told_apart(segment: Segment) -> None:
    write_frames(segment, [*PAGES[:2], PageRef(7, 2**63 + 3)], OURS)
    assert only(segment).found == f"this room, generation {2**63 + 3}, page 7"


def test_a_frame_copied_to_another_page_is_foreign(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    segment.heads[0] = segment.tails[0] = segment.heads[5]
    assert only(segment).found == "this room, generation 3, page 5"


def test_our_own_unfinished_write_is_torn_and_not_foreign(segment: Segment) -> None:
    write_frames(segment, [PAGES[0], PAGES[2]], OURS)
    write_head(segment, PAGES[1], OURS)
    broken = only(segment)
    assert (broken.kind, broken.foreign) == ("torn", False)
    assert broken.found == "head this room, generation 1, page 0; tail blank"
    write_tail(segment, PAGES[1], OURS)
    assert check(segment, expect(PAGES, OURS)) == []


@pytest.mark.parametrize("write", [write_head, write_tail])
def test_a_foreign_write_on_its_way_is_torn_and_foreign(
    segment: Segment, write: Callable[[Segment, PageRef, Room], None]
) -> None:
    write_frames(segment, PAGES, OURS)
    write(segment, PAGES[1], THEIRS)
    broken = only(segment)
    assert (broken.kind, broken.foreign) == ("torn", True)
    assert "another room, generation 1, page 0" in broken.found


def test_bytes_that_are_no_frame_are_foreign(segment: Segment) -> None:
    write_frames(segment, PAGES, OURS)
    segment.heads[0] = segment.tails[0] = 0xDEAD
    assert only(segment) == BrokenFrame(1, PageRef(0, 1), "foreign", True, "bytes that are no frame")


@given(st.integers(0, 2), st.booleans(), st.integers(0, 7), st.integers(0, 63))
def test_any_single_bit_in_either_frame_shows_on_its_row(row: int, head: bool, word: int, bit: int) -> None:
    with Segment.create(SMALL) as segment:
        write_frames(segment, PAGES, OURS)
        frames = segment.heads if head else segment.tails
        frames[PAGES[row].index, word] ^= np.uint64(1 << bit)
        broken = only(segment)
        assert (broken.row, broken.page, broken.kind) == (row, PAGES[row], "torn")


states = st.sampled_from(["ours", "theirs", "stale", "blank", "head only", "foreign head"])


@given(st.lists(states, min_size=1, max_size=SMALL.pages), st.data())
def test_a_batch_says_of_each_page_what_the_page_alone_says(written: list[str], data: st.DataObject) -> None:
    indices = data.draw(st.permutations(range(SMALL.pages)))
    pages = [PageRef(index, 5) for index in indices[: len(written)]]
    said = {"theirs": "foreign", "stale": "foreign", "blank": "blank", "head only": "torn", "foreign head": "torn"}
    with Segment.create(SMALL) as segment:
        for page, state in zip(pages, written, strict=True):
            if state in ("ours", "foreign head"):
                write_frames(segment, [page], OURS)
            if state == "theirs":
                write_frames(segment, [page], THEIRS)
            if state == "stale":
                write_frames(segment, [PageRef(page.index, 3)], OURS)
            if state in ("head only", "foreign head"):
                write_head(segment, page, OURS if state == "head only" else THEIRS)
        found = check(segment, expect(pages, OURS))
    wanted = [(row, pages[row], said[state]) for row, state in enumerate(written) if state != "ours"]
    assert [(broken.row, broken.page, broken.kind) for broken in found] == wanted


def test_leases_of_several_rooms_are_checked_in_one_batch(segment: Segment) -> None:
    write_frames(segment, PAGES[:2], OURS)
    write_frames(segment, PAGES[2:], THEIRS)
    batch = join([expect(PAGES[:2], OURS), expect(PAGES[2:], THEIRS)])
    assert check(segment, batch) == []
    swapped = join([expect(PAGES[:2], THEIRS), expect(PAGES[2:], OURS)])
    assert [broken.row for broken in check(segment, swapped)] == [0, 1, 2]


def test_an_empty_batch_is_well(segment: Segment) -> None:
    assert check(segment, join([])) == []
    assert join([]).words.shape == (0, 8)


@pytest.mark.parametrize("index", [-1, SMALL.pages])
def test_a_page_that_does_not_exist_is_refused(segment: Segment, index: int) -> None:
    write_frames(segment, [PageRef(SMALL.pages - 1, 1)], OURS)
    stray = Expected(np.array([index]), expect((PageRef(0, 1),), OURS).words)
    with pytest.raises(IndexError):
        check(segment, stray)
    for write in (write_head, write_tail):
        with pytest.raises(IndexError):
            write(segment, PageRef(index, 1), OURS)
    with pytest.raises(IndexError):
        write_frames(segment, [PageRef(index, 1)], OURS)

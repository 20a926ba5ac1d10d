"""Page frames: who a page's bytes belong to, written beside the bytes by whoever writes them.

A frame is 64 bytes, eight words of 64 bits in the machine's order:

    0     magic
    1, 2  blake2b-16 of the room's text
    3     generation of the page
    4     index of the page
    5-7   zero

A writer writes the head frame, then the bytes, then the tail frame. Bookkeeping alone cannot see a foreign write that
arrives late; the frame lies in the memory that it overwrites, so it can (I1, I2). Frames are no secret and no proof
against a writer that lies: the digest and the MAC of the receipt are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pagefence.engine.kv.segment import FRAME_WORDS, Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

MAGIC: Final = np.uint64(int.from_bytes(b"PGFENCE1", "little"))

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the frames of n pages should say: `page_index` int64 [n], and the frames, `words` uint64 [n, 8]."""

    page_index: NDArray[np.int64]
    words: Words

    def __len__(self) -> int:
        return len(self.page_index)


@dataclass(frozen=True, slots=True)
class BrokenFrame:
    """A page whose frames are not its lease's. `row` counts the rows of Expected.

    `kind`: blank - never written since it was cleared; foreign - both frames agree on something else; torn - head and
    tail differ, a write began and did not end. `foreign` is true when any frame names somebody else, torn or not.
    """

    row: int
    page: PageRef
    kind: Literal["blank", "foreign", "torn"]
    foreign: bool
    found: str


def room_words(room: Room) -> Words:
    """The room as it stands in a frame: uint64 [2]."""
    return np.frombuffer(hashlib.blake2b(str(room).encode(), digest_size=16).digest(), np.uint64)


def expect(pages: Sequence[PageRef], room: Room) -> Expected:
    """The frames that the pages of one lease should have. Build it once per lease and `join` for each batch."""
    index = np.array([page.index for page in pages], np.int64)
    words = np.zeros((len(pages), FRAME_WORDS), np.uint64)
    words[:, 0] = MAGIC
    words[:, 1:3] = room_words(room)
    words[:, 3] = np.array([page.generation for page in pages], np.uint64)
    words[:, 4] = index
    return Expected(index, words)


def join(parts: Iterable[Expected]) -> Expected:
    """One batch out of several leases, in order."""
    parts = (expect((), Room(0, 0, "")), *parts)  # an empty batch has its shapes too
    return Expected(np.concatenate([part.page_index for part in parts]), np.concatenate([part.words for part in parts]))


def write_head(segment: Segment, page: PageRef, room: Room) -> None:
    """Claim a page: before its bytes. Raises IndexError."""
    segment.require_pages((page.index,))
    segment.heads[page.index] = expect((page,), room).words[0]


def write_tail(segment: Segment, page: PageRef, room: Room) -> None:
    """Complete a page: after its bytes. Raises IndexError."""
    segment.require_pages((page.index,))
    segment.tails[page.index] = expect((page,), room).words[0]


def write_frames(segment: Segment, pages: Sequence[PageRef], room: Room) -> None:
    """Both frames of pages that nobody else writes: decode's own generation pages. Raises IndexError."""
    expected = expect(pages, room)
    segment.require_pages(page.index for page in pages)
    segment.heads[expected.page_index] = expected.words
    segment.tails[expected.page_index] = expected.words


def check(segment: Segment, expected: Expected) -> list[BrokenFrame]:
    """Compare both frames of every page with what they should say; empty when all agree (I1). Raises IndexError.

    Runs before every decode step on all pages that the step reads, so the agreeing case does no Python per page.
    """
    index = expected.page_index
    if len(index) == 0:
        return []
    if index.min() < 0 or index.max() >= segment.layout.pages:
        raise IndexError(f"pages {index.min()} to {index.max()} of {segment.layout.pages}")
    want = expected.words
    heads, tails = segment.heads[index], segment.tails[index]
    wrong = ((heads != want) | (tails != want)).any(axis=1)
    return [_broken(int(row), expected, want[row], heads[row], tails[row]) for row in np.flatnonzero(wrong)]


def _broken(row: int, expected: Expected, want: Words, head: Words, tail: Words) -> BrokenFrame:
    page = PageRef(int(expected.page_index[row]), int(want[3]))
    kind: Literal["blank", "foreign", "torn"]
    if not np.array_equal(head, tail):
        kind, found = "torn", f"head {_told(head, want)}; tail {_told(tail, want)}"
    elif not head.any():
        kind, found = "blank", "blank"
    else:
        kind, found = "foreign", _told(head, want)
    foreign = any(frame.any() and not np.array_equal(frame, want) for frame in (head, tail))
    return BrokenFrame(row, page, kind, foreign, found)


def _told(frame: Words, want: Words) -> str:
    if not frame.any():
        return "blank"
    if frame[0] != MAGIC or frame[5:].any():
        return "bytes that are no frame"
    whose = "this room" if np.array_equal(frame[1:3], want[1:3]) else "another room"
    return f"{whose}, generation {frame[3]}, page {frame[4]}"

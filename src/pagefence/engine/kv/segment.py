"""The memory of a KV pool: an anonymous shared segment that a peer can map and write, and that dies with its users.

A memfd has no name, so `kill -9` leaves nothing behind. Its space is reserved before the first use, so a full machine
is an error at start and not a SIGBUS in the middle of an answer; and it is sealed against resizing, so a peer cannot
take the ground away from under a mapping.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pagefence.engine.kv.capacity import NotEnoughMemory, available_bytes
from pagefence.engine.kv.layout import FRAME_BYTES, Layout

SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
FRAME_WORDS: Final = FRAME_BYTES // 8


class SegmentMismatch(Exception):
    """The file handed over is not the segment that the layout describes."""


class SegmentClosed(Exception):
    """The segment was used after `close`."""


@dataclass(frozen=True, slots=True)
class _Views:
    raw: NDArray[np.uint8]
    heads: NDArray[np.uint64]
    tails: NDArray[np.uint64]
    kv: torch.Tensor


class Segment:
    """One mapping of a KV pool. Made by `create` (the owner) or `map` (a peer); both see the same bytes."""

    def __init__(self, fd: int, layout: Layout) -> None:
        """Map `fd` and take it over. Use `create` or `map`."""
        # Populated at once: the first write to a page would otherwise pay for a fault every 4 KiB (10 x a copy).
        mapping = mmap.mmap(fd, layout.total_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        # A fork of a worker would keep the mapping past the worker's reaping and could still write (I2).
        mapping.madvise(mmap.MADV_DONTFORK)
        self.layout = layout
        self._fd = fd
        self._views: _Views | None = _view(mapping, layout)

    @classmethod
    def create(cls, layout: Layout) -> Segment:
        """A new, zeroed segment whose space is reserved. Raises NotEnoughMemory."""
        asked, available = layout.total_bytes, available_bytes()
        if asked > available:
            # Asking the kernel first would let it kill somebody inside the cgroup instead of failing.
            raise NotEnoughMemory("KV segment", asked, available)
        fd = os.memfd_create("pagefence-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, asked)
            os.posix_fallocate(fd, 0, asked)
            # F_SEAL_SEAL too: a peer could otherwise add a seal against new writers.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS | fcntl.F_SEAL_SEAL)
            return cls(fd, layout)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
                raise NotEnoughMemory("KV segment", asked, available) from error
            raise

    @classmethod
    def map(cls, fd: int, layout: Layout) -> Segment:
        """Map a segment that another process made. `fd` stays the caller's. Raises SegmentMismatch."""
        size = os.fstat(fd).st_size
        if size != layout.total_bytes:
            raise SegmentMismatch(f"the segment has {size:,} bytes, its layout {layout.total_bytes:,}")
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError as error:
            raise SegmentMismatch("the file handed over is not a memfd") from error
        if seals & SEALS != SEALS:
            raise SegmentMismatch("the segment is not sealed against resizing")
        own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)
        try:
            return cls(own, layout)
        except BaseException:
            os.close(own)
            raise

    @property
    def fd(self) -> int:
        """The file descriptor to hand to a peer. Raises SegmentClosed."""
        self._live()
        return self._fd

    @property
    def base(self) -> int:
        """Where the first page lies in this process; good while a view of the segment lives. Raises SegmentClosed."""
        return int(self._live().raw.ctypes.data)

    @property
    def kv(self) -> torch.Tensor:
        """View [pages, layers, 2, page_size, kv_heads, head_dim], strided over pages, contiguous inside one."""
        return self._live().kv

    @property
    def heads(self) -> NDArray[np.uint64]:
        """Head frames as words: view [pages, 8]."""
        return self._live().heads

    @property
    def tails(self) -> NDArray[np.uint64]:
        """Tail frames as words: view [pages, 8]."""
        return self._live().tails

    def payload(self, page: int) -> NDArray[np.uint8]:
        """The bytes of one page's keys and values: view [payload_bytes]. Raises IndexError."""
        self.require_pages((page,))
        start = self.layout.payload_offset
        return self._live().raw[page, start : start + self.layout.payload_bytes]

    def zero(self, pages: Iterable[int]) -> None:
        """Clear payload, padding and both frames, so that a page read before it is written shows as blank (I1)."""
        pages = tuple(pages)
        self.require_pages(pages)
        raw = self._live().raw
        for page in pages:
            raw[page].fill(0)

    def require_pages(self, pages: Iterable[int]) -> None:
        """Raise IndexError unless every page exists."""
        self.layout.require_pages(pages)

    def close(self) -> None:
        """Let go of the memory. It is never unmapped under a view that others still hold: it goes with the last."""
        if self._views is not None:
            self._views = None
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _live(self) -> _Views:
        if self._views is None:
            raise SegmentClosed("the KV segment is closed")
        return self._views


def _view(mapping: mmap.mmap, layout: Layout) -> _Views:
    # Every view, torch's included, holds a numpy array that exports the mapping: the last of them to go unmaps it.
    stride = layout.stride
    raw = np.ndarray((layout.pages, stride), np.uint8, mapping)
    strides = (stride, 8)
    heads = np.ndarray((layout.pages, FRAME_WORDS), np.uint64, mapping, 0, strides)
    tails = np.ndarray((layout.pages, FRAME_WORDS), np.uint64, mapping, layout.tail_offset, strides)
    shape = layout.page_shape
    inner = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    flat = torch.from_numpy(raw).view(-1).view(getattr(torch, layout.dtype))
    kv = flat.as_strided(
        (layout.pages, *shape), (stride // layout.item_bytes, *inner), layout.payload_offset // layout.item_bytes
    )
    return _Views(raw, heads, tails, kv)

"""How many pages fit: measured from the memory this process may really use, never from a constant (I8).

The pool is what memory leaves, capped by what was asked for. A pool smaller than asked is reported, not refused here:
readiness decides whether what is left covers the context, and one place should decide that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from pagefence.engine.kv.layout import Layout

LEFT_FREE: Final = 0.1
"""The part of a machine's memory that no worker is given: for the router, activations and buffers."""

_CGROUP_FILES: Final = (
    ("memory.max", "memory.current", "inactive_file"),  # v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # v1
)


class NotEnoughMemory(Exception):
    """The pool does not fit. `asked` and `available` in bytes."""

    def __init__(self, what: str, asked: int, available: int) -> None:
        super().__init__(f"{what}: {asked:,} bytes asked for, {available:,} available")
        self.asked = asked
        self.available = available


@dataclass(frozen=True, slots=True)
class Fit:
    """How large the pool became, and whether that is less than was asked for."""

    pages: int
    page_size: int
    cap_tokens: int
    bytes_per_page: int
    available: int

    @property
    def tokens(self) -> int:
        """Tokens that fit into the pool."""
        return self.pages * self.page_size

    @property
    def shrunk(self) -> bool:
        """True when memory, not the cap, set the size."""
        return self.pages < self.cap_tokens // self.page_size

    def __str__(self) -> str:
        text = f"{self.tokens:,} tokens in {self.pages:,} pages, {self.pages * self.bytes_per_page:,} bytes"
        if self.shrunk:
            text += f"; {self.cap_tokens:,} tokens asked for, memory leaves {self.available:,} bytes"
        return text


def fit_pages(available_bytes: int, bytes_per_page: int, cap_tokens: int, page_size: int) -> Fit:
    """The largest pool within `available_bytes` and `cap_tokens`. `bytes_per_page` includes the frames.

    Raises ValueError when the cap is smaller than a page, NotEnoughMemory when memory is.
    """
    if bytes_per_page < 1 or page_size < 1:
        raise ValueError(f"a page needs tokens and bytes, got {page_size} tokens of {bytes_per_page} bytes")
    if cap_tokens < page_size:
        raise ValueError(f"a pool of {cap_tokens} tokens does not hold one page of {page_size} tokens")
    available = max(available_bytes, 0)
    pages = min(available // bytes_per_page, cap_tokens // page_size)
    if pages < 1:
        raise NotEnoughMemory(f"not one page of {page_size} tokens fits", bytes_per_page, available)
    return Fit(pages, page_size, cap_tokens, bytes_per_page, available)


def size_pool(page: Layout, cap_tokens: int, budget_bytes: int) -> tuple[Layout, Fit]:
    """The layout of the largest pool of pages like `page` (its own number of pages is ignored), and the report.

    It takes no more than `budget_bytes`, nor than there are now. Raises as `fit_pages` does.
    """
    fit = fit_pages(min(budget_bytes, available_bytes()), page.stride, cap_tokens, page.page_size)
    return page.with_pages(fit.pages), fit


def memory_share(workers: int) -> int:
    """Bytes that each of so many workers may have, weights and pool together, of what is available now.

    To be asked once, before any of them starts. Workers that measured for themselves would see as free what the others
    are about to take, and one that comes back would be left a smaller pool than the one that died.
    """
    return int(available_bytes() * (1 - LEFT_FREE)) // workers


def own_bytes() -> int:
    """Bytes of memory that this process has taken for itself: weights and interpreter, but no file that is mapped."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def available_bytes() -> int:
    """Bytes that this process could still take: what the machine has, and what every enclosing cgroup leaves."""
    machine = int(psutil.virtual_memory().available)
    group = cgroup_bytes(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return machine if group is None else min(machine, group)


def cgroup_bytes(root: Path, membership: Path) -> int | None:
    """What the tightest cgroup (v2 or v1) above this process leaves; None when none sets a limit.

    `root` is where the hierarchies are mounted, `membership` is a file like /proc/self/cgroup. A limit above us binds
    as much as our own, so every ancestor counts.
    """
    rooms = [room for group in _groups(root, membership) if (room := _room(group)) is not None]
    return min(rooms, default=None)


def _groups(root: Path, membership: Path) -> list[Path]:
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    groups: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "memory" if controllers else root
        # Inside a container the path may be the host's and not exist here: then the mount itself is our group.
        here = mount / path.lstrip("/")
        groups += [here, *(parent for parent in here.parents if parent.is_relative_to(mount))]
    return groups


def _room(group: Path) -> int | None:
    for limit_name, usage_name, cache_name in _CGROUP_FILES:
        try:
            limit = (group / limit_name).read_text().strip()
            if limit == "max":
                return None
            usage = int((group / usage_name).read_text())
        except OSError:
            continue
        # Clean file pages are charged to the group and given up under pressure: freshly read weights are not "used".
        return max(0, int(limit) - max(0, usage - _stat(group / "memory.stat", cache_name)))
    return None


def _stat(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(value) for key, _, value in (line.partition(" ") for line in lines) if key == name), 0)

"""A real edge, with every step it has, before a small honest upstream in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.edge.soak.clients import TENANTS
from tests.edge.soak.guard import Guard, Metrics, write_settings
from tests.edge.soak.upstreams import upstreams

KEY, OTHER_KEY = TENANTS["acme"], TENANTS["globex"]


@dataclass(frozen=True, slots=True)
class Served:
    """Where it is, and its process."""

    url: str
    guard: Guard

    def metrics(self) -> Metrics:
        found: Metrics = _waited(self.guard.metrics())
        return found


@contextlib.contextmanager
def served(folder: Path, origins: Sequence[str] = (), flags: Sequence[str] = ("--engine", "vllm")) -> Iterator[Served]:
    """`origins`: pages of a browser that may ask."""
    behind = upstreams(1, 0.0, 0, folder).all[0]
    behind.start()
    guard = Guard(folder, write_settings(folder, [behind.url], origins=origins), [behind.port], None, flags)
    try:
        _waited(behind.listens())
        _waited(guard.ready(1))
        yield Served(f"http://127.0.0.1:{guard.port}", guard)
    finally:
        guard.end()
        behind.kill()


def _waited(what: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser's driver may have the event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, what).result()

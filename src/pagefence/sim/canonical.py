"""When two states of a world are the same: the key under which the explorer knows a state.

Three things are forgotten, each because no machine can tell the difference:
- which page is which: pages are renamed by their place in the free list and in the leases, with everything that
  refers to them (symmetry over pages);
- how often a page was let: generations count by their rank among those that anything in the world still names;
- which of two like requests is which: tickets and rooms are numbered in order of arrival, so this one is forgotten
  already by how worlds are built (`Bounds.asks` are made in order).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec
from immutables import Map

from pagefence.pool.pages import PagePool, PageRef
from pagefence.protocol.messages import Receipt, Reservation, WorkerRef
from pagefence.sim.processes import DecodeProcess, Process
from pagefence.sim.state import WorldState

# A page, said so that it can be renamed: (worker, index, generation).
Ref = tuple[WorkerRef | None, int, int]
# What a value looks like with every page cut out, and the pages in the order in which they stood there.
Shape = tuple[Any, tuple[Ref, ...]]
# Where a page was cut out. Not None: a page that is missing must not look like one.
_A_PAGE = ("page",)
_ENCODER = msgspec.msgpack.Encoder()
_KEEP = 300_000


class Canon:
    """Keys of states. Shapes are remembered by object: most of a state is shared with the one before."""

    def __init__(self, symmetry: bool = True) -> None:
        self.symmetry = symmetry
        self._known: dict[tuple[int, WorkerRef | None], tuple[object, Shape]] = {}
        self._processes: dict[int, tuple[Process, Shape, dict[int, int]]] = {}

    def keys(self, state: WorldState) -> tuple[bytes, bytes]:
        """Canonical and raw key, 16 bytes each: equal canonical keys for states that no machine can tell apart."""
        if len(self._known) + len(self._processes) > _KEEP:
            self._known.clear()
            self._processes.clear()
        places: dict[WorkerRef, dict[int, int]] = {}
        parts: list[Shape] = [self._shape(state.router, None), self._network(state)]
        for process in state.processes:
            if process is None:
                parts.append((None, ()))
                continue
            shape, places[process.ref] = self._process(process)
            parts.append(shape)
        rest = (state.epochs, tuple(state.budget), state.submitted)
        parts.append((rest, ()))
        parts += [self._shape(state.timers, None), self._outcomes(state)]
        refs = [ref for _, found in parts for ref in found]
        shapes = [shape for shape, _ in parts]
        raw = _digest((shapes, refs))
        return _digest((shapes, _renamed(refs, places))) if self.symmetry else raw, raw

    def _process(self, process: Process) -> tuple[Shape, dict[int, int]]:
        """A process with what lies in its memory, and its pages' places. A move changes one process, seldom two."""
        known = self._processes.get(id(process))
        if known is None:
            places = _places(process.state.pool)
            shape = _joined([self._shape(process, process.ref), self._memory(process, places)])
            known = self._processes[id(process)] = process, shape, places
        return known[1], known[2]

    def _network(self, state: WorldState) -> Shape:
        """Messages by channel; the order between channels means nothing."""
        channels: dict[tuple[WorkerRef, WorkerRef], list[Shape]] = defaultdict(list)
        for envelope in state.network:
            channels[envelope.sender, envelope.receiver].append(self._shape(envelope, None))
        queues = [shape for _, shapes in sorted(channels.items()) for shape in shapes]
        echoes = sorted((self._shape(envelope, None) for envelope in state.echoes), key=repr)
        return _joined([*queues, (None, ()), *echoes])

    def _memory(self, process: Process, places: Mapping[int, int]) -> Shape:
        """Pages in canonical order, each with its present generation and what lies in it."""
        memory = process.memory if isinstance(process, DecodeProcess) else process.source
        pool, shapes = process.state.pool, []
        order = sorted(places, key=places.__getitem__) if self.symmetry else range(len(pool.generations))
        for index in order:
            cell = memory.get(index)
            here: Shape = (index in memory, ((process.ref, index, pool.generations[index]),))
            shapes.append(here)
            if cell is not None:
                frame = ((process.ref, index, cell.generation),) if cell.room else ()
                room = self._shape(cell.room, None)[0]
                shapes.append(((room, cell.tokens, cell.tenant), frame))
        return _joined(shapes)

    def _outcomes(self, state: WorldState) -> Shape:
        """Of requests that are over nothing matters any more but that they are."""
        o = state.outcomes
        still = tuple((t, t in o.begun, o.emitted[t]) for t in sorted(o.open))
        return (still, tuple(sorted(o.ended))), ()

    def _shape(self, value: Any, home: WorkerRef | None) -> Shape:
        kind = type(value)
        if kind is int or kind is str or value is None or kind is bool or kind is bytes or kind is float:
            return value, ()
        key = (id(value), home)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        shape = self._walk(value, kind, home)
        self._known[key] = (value, shape)
        return shape

    def _walk(self, value: Any, kind: type, home: WorkerRef | None) -> Shape:
        if kind is tuple:
            return _joined([self._shape(item, home) for item in value])
        if kind is PageRef:
            return _A_PAGE, ((home, value.index, value.generation),)
        if kind is PagePool:
            return self._pool(value, home)
        if issubclass(kind, Enum):
            return value.value, ()
        if kind is frozenset:
            return _joined([self._shape(item, home) for item in sorted(value, key=str)])
        if isinstance(value, Map):
            return _joined([self._shape(part, home) for item in sorted(value.items(), key=_by_key) for part in item])
        if kind is Reservation or kind is Receipt:
            home = value.decode
        skip = _SKIPPED.get(kind.__name__, ())
        names = [name for name in _fields(kind) if name not in skip]
        shape, refs = _joined([self._shape(getattr(value, name), home) for name in names])
        return (kind.__name__, *shape), refs

    def _pool(self, pool: PagePool, home: WorkerRef | None) -> Shape:
        """The free list by its pages, like every list of them: a broken pool may name one twice."""
        free = tuple((home, index, pool.generations[index]) for index in pool.free)
        named = _joined([self._shape(getattr(pool, name), home) for name in _fields(PagePool) if name not in _POOL])
        return (len(free), named[0]), free + named[1]


# What a MAC is follows from the rest of the receipt; an error's words may name a page, and no machine reads them;
# memory and pages of a process are told by `_memory`.
_SKIPPED = {
    "ErrorInfo": ("message",),
    "Receipt": ("mac",),
    "PrefillProcess": ("source",),
    "DecodeProcess": ("memory",),
    "DecodeState": ("config",),
    "PrefillState": ("config",),
    "RouterState": ("config",),
}
_POOL = ("page_size", "generations", "free")


def _fields(kind: type) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        struct = getattr(kind, "__struct_fields__", None)
        names = tuple(struct) if struct is not None else tuple(f.name for f in dataclasses.fields(kind))
        _FIELDS[kind] = names
    return names


_FIELDS: dict[type, tuple[str, ...]] = {}


def _by_key(item: tuple[Any, Any]) -> Any:
    return item[0]


def _digest(value: object) -> bytes:
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=16).digest()


def _joined(shapes: Iterable[Shape]) -> Shape:
    found = list(shapes)
    return tuple(shape for shape, _ in found), tuple(ref for _, refs in found for ref in refs)


def _places(pool: PagePool) -> dict[int, int]:
    """A name for every page that depends on its place and not on its number."""
    order = dict.fromkeys(pool.free)
    for _, lease in sorted(pool.leases.items(), key=_by_key):
        order.update(dict.fromkeys(ref.index for ref in lease.pages))
    order.update(dict.fromkeys(pool.cache.pages[key].page.index for key in pool.cache.order))
    order.update(dict.fromkeys(range(len(pool.generations))))
    return {index: place for place, index in enumerate(order)}


def _renamed(refs: Iterable[Ref], places: Mapping[WorkerRef, Mapping[int, int]]) -> list[Ref]:
    """Pages by place, generations by rank."""
    named = list(refs)
    seen: dict[tuple[WorkerRef | None, int], set[int]] = defaultdict(set)
    for worker, index, generation in named:
        seen[worker, index].add(generation)
    ranks = {page: {g: rank for rank, g in enumerate(sorted(found))} for page, found in seen.items()}
    result = []
    for worker, index, generation in named:
        here = places.get(worker) if worker is not None else None
        place = here[index] if here is not None and index in here else index
        result.append((worker, place, ranks[worker, index][generation]))
    return result

"""What a running machine writes down: the configuration that it began with, then every input and what came of it.

The machines are pure, so this is all that it takes to run them again (`pagefence.sim.correspondence`). Records are
MessagePack in frames that bear their number and two checksums: a process that dies in the middle of a record leaves
a readable prefix, and a damaged length cannot pass for such a tail.

A recording holds prompts and the fleet's MAC key. The key is made anew at every start, so it opens nothing else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Effect
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    ChunkComputed,
    ClientGone,
    ComputeFailed,
    Envelope,
    FrameBroken,
    Generated,
    Landed,
    LastOrders,
    PagesDigested,
    Room,
    Submit,
    Timer,
    WorkerGone,
    WorkerRef,
    WorkerUp,
    WriteFailed,
)
from pagefence.protocol.prefill import PrefillConfig, PrefillState
from pagefence.protocol.router import RouterConfig, RouterState

FORMAT: Final = 2
SUFFIX: Final = ".trace"

State = RouterState | PrefillState | DecodeState
Input = (
    Envelope | Timer | Submit | ClientGone | LastOrders | WorkerUp | WorkerGone
    | ChunkComputed | Landed | WriteFailed | ComputeFailed | PagesDigested | Generated | FrameBroken
)  # fmt: skip


class RouterBegan(msgspec.Struct, frozen=True, tag=True):
    """The first record of a router."""

    format: int
    me: WorkerRef
    config: RouterConfig


class PrefillBegan(msgspec.Struct, frozen=True, tag=True):
    """The first record of a prefill incarnation. Pages of `page_size` tokens."""

    format: int
    me: WorkerRef
    router: WorkerRef
    config: PrefillConfig
    pages: int
    page_size: int


class DecodeBegan(msgspec.Struct, frozen=True, tag=True):
    """The first record of a decode incarnation. Pages of `page_size` tokens, `rows` in the batch."""

    format: int
    me: WorkerRef
    router: WorkerRef
    config: DecodeConfig
    pages: int
    page_size: int
    rows: int


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """One step: the input exactly as the machine got it, and its effects in their order, each as `told` writes it."""

    message: Input
    effects: tuple[bytes, ...]


class Raised(msgspec.Struct, frozen=True, tag=True):
    """A step that ended in an exception."""

    message: Input
    error: str


class Closing(msgspec.Struct, frozen=True, tag=True):
    """The router ends in order. What it steps after this is for waiting clients; nothing is sent to workers any more,
    and a worker is declared gone although it still ends."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The process ended in order; nothing follows. Without it, it crashed or was killed."""


Began = RouterBegan | PrefillBegan | DecodeBegan
Record = Began | Stepped | Raised | Closing | Ended


class BadRecording(Exception):
    """The bytes are no recording, or a damaged one."""


def file_name(worker: WorkerRef) -> str:
    """One file for one incarnation."""
    return f"{worker.name}.{worker.epoch:x}{SUFFIX}"


def began(state: State) -> Began:
    """The first record of a machine that starts in this state."""
    if isinstance(state, RouterState):
        return RouterBegan(FORMAT, state.me, state.config)
    me, router, pool = state.members.me, state.members.router, state.pool
    pages, size = len(pool.generations), pool.page_size
    if isinstance(state, PrefillState):
        return PrefillBegan(FORMAT, me, router, state.config, pages, size)
    return DecodeBegan(FORMAT, me, router, state.config, pages, size, len(state.slots.slots))


def first_state(record: Began) -> State:
    """The state in which the machine of this recording began. Raises ValueError for sizes that no pool has."""
    if isinstance(record, RouterBegan):
        return RouterState(record.me, record.config)
    members, pool = Membership(record.me, record.router), PagePool.of(record.pages, record.page_size)
    if isinstance(record, PrefillBegan):
        return PrefillState(members, record.config, pool)
    return DecodeState(members, record.config, pool, SlotPool[Room].of(record.rows))


def told(effects: Iterable[Effect]) -> tuple[bytes, ...]:
    """Effects as they are recorded and compared: equal bytes, equal effects."""
    return tuple(msgspec.msgpack.encode((type(effect).__name__, effect)) for effect in effects)


# --- frames -------------------------------------------------------------------------------------------------------

_NUMBER = struct.Struct(">I")
_HEAD: Final = 2 * _NUMBER.size
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def frame(index: int, record: Record) -> bytes:
    """The record as the `index`-th of its file: length, checksum of length and index, content, its checksum."""
    content = msgspec.msgpack.encode(record)
    return _head(index, len(content)) + content + _NUMBER.pack(zlib.crc32(content))


def _head(index: int, length: int) -> bytes:
    said = _NUMBER.pack(length)
    return said + _NUMBER.pack(zlib.crc32(said, index))


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of one file. `torn`: the last one was not written to its end."""

    records: tuple[Record, ...]
    torn: bool


def read(data: bytes) -> Contents:
    """The records in `data`. A record that breaks off at the end is left out. Raises BadRecording for all else."""
    records: list[Record] = []
    at = 0
    while at < len(data):
        number = len(records)
        if records and isinstance(records[-1], Ended):
            raise BadRecording(f"{len(data) - at} bytes follow the end of the recording")
        if at + _HEAD > len(data):
            return Contents(tuple(records), torn=True)
        length: int = _NUMBER.unpack_from(data, at)[0]
        if data[at : at + _HEAD] != _head(number, length):
            raise BadRecording(f"record {number} (byte {at}) does not begin as one")
        start, end = at + _HEAD, at + _HEAD + length
        if end + _NUMBER.size > len(data):
            return Contents(tuple(records), torn=True)
        records.append(_decoded(number, data[start:end], data[end : end + _NUMBER.size]))
        at = end + _NUMBER.size
    return Contents(tuple(records), torn=False)


def _decoded(number: int, content: bytes, checksum: bytes) -> Record:
    if _NUMBER.pack(zlib.crc32(content)) != checksum:
        raise BadRecording(f"the content of record {number} is damaged")
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError as error:
        raise BadRecording(f"record {number} is of no known kind: {error}") from None

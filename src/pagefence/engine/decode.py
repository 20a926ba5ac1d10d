"""The decode worker: checks what arrived in its memory, and generates for all committed rooms in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from pagefence.engine.kv import frames
from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.segment import Segment
from pagefence.engine.loop import Loop
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.sampling import draw
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.pool.pages import PageRef
from pagefence.pool.slots import Handle
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Effect, Run, Stop, Verify, Zero
from pagefence.protocol.messages import (
    ComputeFailed,
    FinishReason,
    FrameBroken,
    Generated,
    Logprob,
    PagesDigested,
    PeerUp,
    Reaped,
    Room,
    WorkerRef,
)


@dataclass(slots=True)
class _Row:
    """A row of the decode batch. `length` tokens lie in `pages`; `last` is the newest token, whose KV does not yet."""

    slot: Handle
    pages: tuple[PageRef, ...]
    indices: tuple[int, ...]
    frames: frames.Expected
    length: int
    last: int
    sampling: SamplingParams
    max_new_tokens: int
    emitted: int = 0


@dataclass(frozen=True, slots=True)
class _Watched:
    """The frames of all rows, put together when a row comes or goes: its pages stay the same as long as it is there."""

    rooms: tuple[Room, ...]
    frames: frames.Expected
    owners: tuple[tuple[Room, int], ...]  # room and position of each frame


class DecodeWork:
    """Tensors of one decode incarnation."""

    def __init__(
        self,
        loop: Loop[DecodeState],
        model: Decoder,
        segment: Segment,
        decisions: Decisions,
        revoke: Callable[[WorkerRef], None],
    ) -> None:
        """`revoke`: as `Offer.revoke` of the segment."""
        self._loop, self._model, self._segment = loop, model, segment
        self._decisions, self._revoke = decisions, revoke
        self._rows: dict[Room, _Row] = {}
        self._watched = _watch(self._rows)
        self._eos = frozenset(model.config.eos_ids)
        self.generated_tokens = 0
        self.handoffs = self.prompt_tokens = 0

    def perform(self, effect: Effect) -> None:
        """Carry out one effect of the decode machine."""
        if isinstance(effect, Zero):
            if self._decisions.zero_on_lease:
                self._segment.zero(page.index for page in effect.pages)
        elif isinstance(effect, Verify):
            self._verify(effect)
        elif isinstance(effect, Run):
            self._run(effect)
        elif isinstance(effect, Stop):
            self._rows.pop(effect.room, None)
        else:
            raise TypeError(f"decode cannot perform {effect}")

    def has_work(self) -> bool:
        """True while any row generates."""
        return bool(self._rows)

    def do_one(self) -> None:
        """One decode step: every frame that it reads is checked before and after; a token for each row that passed."""
        self._check_frames()
        rows = list(self._rows.items())
        if not rows:
            return
        spans = [Span(row.indices, row.length, (row.last,)) for _, row in rows]
        logits = self._model.forward(spans, self._segment.kv)
        # Again: what was written while the step was reading must not reach a client either.
        self._check_frames()
        for i, (room, row) in enumerate(rows):
            if room not in self._rows:
                continue
            # A row that lost its slot must never reach a client; `get` raises rather than guesses.
            assert self._loop.state.slots.get(row.slot) == room
            row.length += 1
            try:
                token, likely = draw(logits[i], row.sampling, row.emitted)
            except ValueError as error:  # one row's logits must not end the others' answers
                self._rows.pop(room)
                self._loop.post_local(ComputeFailed(room, f"decode could not go on: {error}"))
                continue
            self._emit(room, row, token, likely)

    def peer_up(self, peer: PeerUp) -> None:
        """Prefill writes into our pages; we open nothing towards it."""

    def peer_gone(self, peer: Reaped) -> None:
        """What it sent and what has not landed yet must not land in pages that are about to be freed (I2)."""
        self._revoke(peer.worker)

    def info(self) -> dict[str, object]:
        """Live figures beyond those that every worker has."""
        return {
            "generated_tokens": self.generated_tokens,
            "handoffs": self.handoffs,
            "prompt_tokens": self.prompt_tokens,
            "running": len(self._rows),
            "waiting": len(self._loop.state.waiting),
        }

    def _verify(self, effect: Verify) -> None:
        expected = frames.expect(effect.pages, effect.room)
        if self._decisions.check_frames:
            broken = frames.check(self._segment, expected)
            if broken:
                self._loop.post_local(_told(effect.room, broken[0], broken[0].row))
                return
        indices = [page.index for page in effect.pages]
        self._loop.run_beside(lambda: PagesDigested(effect.room, page_digests(self._segment, indices)))

    def _run(self, effect: Run) -> None:
        """The row's own generation pages get their frames here: from now on all its pages name it."""
        own = effect.pages[effect.prompt_pages :]
        frames.write_frames(self._segment, own, effect.room)
        row = _Row(
            slot=effect.slot,
            pages=effect.pages,
            indices=tuple(page.index for page in effect.pages),
            frames=frames.expect(effect.pages, effect.room),
            length=effect.prompt_tokens,
            last=effect.first_token,
            sampling=msgspec.msgpack.decode(effect.sampling, type=SamplingParams),
            max_new_tokens=effect.max_new_tokens,
        )
        self.handoffs += 1
        self.prompt_tokens += effect.prompt_tokens
        self._rows[effect.room] = row
        self._emit(effect.room, row, effect.first_token, effect.first_logprobs)

    def _emit(self, room: Room, row: _Row, token: int, likely: tuple[Logprob, ...]) -> None:
        row.last = token
        row.emitted += 1
        self.generated_tokens += 1
        finish: FinishReason | None = None
        if token in self._eos:
            finish = "stop"
        elif row.emitted == row.max_new_tokens:
            finish = "length"
        if finish:
            self._rows.pop(room)
        self._loop.post_local(Generated(room, (token,), finish, likely))

    def _check_frames(self) -> None:
        """The frame lies in the memory that a foreign write would hit, so bookkeeping cannot hide one (I1, I2)."""
        if not self._decisions.check_frames:
            return
        if self._watched.rooms != tuple(self._rows):
            self._watched = _watch(self._rows)
        for broken in frames.check(self._segment, self._watched.frames):
            room, position = self._watched.owners[broken.row]
            if self._rows.pop(room, None) is not None:
                self._loop.post_local(_told(room, broken, position))


def _watch(rows: Mapping[Room, _Row]) -> _Watched:
    owners = tuple((room, position) for room, row in rows.items() for position in range(len(row.pages)))
    return _Watched(tuple(rows), frames.join(row.frames for row in rows.values()), owners)


def _told(room: Room, broken: frames.BrokenFrame, position: int) -> FrameBroken:
    return FrameBroken(room, broken.page, position, broken.found, broken.foreign)

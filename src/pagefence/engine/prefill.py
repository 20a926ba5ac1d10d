"""The prefill worker: forward passes over its own pages, chunk by chunk, and one-sided writes into decode's pages."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass

import msgspec
from torch import Tensor

from pagefence.engine.kv.backends import reach
from pagefence.engine.kv.offer import PeerRefused
from pagefence.engine.kv.segment import Segment, SegmentMismatch
from pagefence.engine.kv.transfer import BackendMissing, Transfer, TransferFailed
from pagefence.engine.loop import Loop
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.sampling import draw
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.portions import portions
from pagefence.pool.pages import PageRef
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Compute, Effect, StopCompute, WriteChunk, Zero
from pagefence.protocol.messages import (
    ChunkComputed,
    ComputeFailed,
    Landed,
    Logprob,
    PeerUp,
    Reaped,
    Reservation,
    Room,
    WorkerRef,
    WriteFailed,
)
from pagefence.protocol.prefill import PrefillState

# What a forward pass or a draw may raise: the end of a request, not of the worker.
_FAILURES = (ValueError, ArithmeticError, RuntimeError)


@dataclass(slots=True)
class _Prompt:
    """A prompt being computed: `pages` are its source pages, `computed` tokens lie in them, cached ones included."""

    room: Room
    token_ids: tuple[int, ...]
    pages: tuple[int, ...]
    reservation: Reservation
    sampling: SamplingParams
    computed: int


class PrefillWork:
    """Tensors and transfers of one prefill incarnation."""

    def __init__(self, loop: Loop[PrefillState], model: Decoder, segment: Segment, decisions: Decisions) -> None:
        self._loop, self._model, self._segment = loop, model, segment
        self._zero_on_lease = decisions.zero_on_lease
        self._chunk = loop.orders.settings.chunk_tokens
        self._prompts: OrderedDict[Room, _Prompt] = OrderedDict()
        self._addresses: dict[WorkerRef, str] = {}
        self._transfers: dict[WorkerRef, Transfer] = {}
        self.prompts = self.computed_tokens = self.cached_tokens = 0

    def perform(self, effect: Effect) -> None:
        """Carry out one effect of the prefill machine."""
        if isinstance(effect, Zero):
            self._zero(effect.pages)
        elif isinstance(effect, Compute):
            room = effect.reservation.room
            sampling = msgspec.msgpack.decode(effect.sampling, type=SamplingParams)
            pages = tuple(page.index for page in effect.pages)
            # Cached tokens end on a page border, so the forward pass writes no page that others read.
            self._prompts[room] = _Prompt(
                room, effect.admitted.token_ids, pages, effect.reservation, sampling, effect.cached
            )
            self.prompts += 1
            self.cached_tokens += effect.cached
        elif isinstance(effect, StopCompute):
            self._prompts.pop(effect.room, None)
        elif isinstance(effect, WriteChunk):
            self._write(effect)
        else:
            raise TypeError(f"prefill cannot perform {effect}")

    def has_work(self) -> bool:
        """True while a prompt is unfinished."""
        return any(prompt.computed < len(prompt.token_ids) for prompt in self._prompts.values())

    def do_one(self) -> None:
        """One forward pass: a chunk of the oldest prompt and, as far as that leaves room, of those behind it."""
        shared = portions(self._prompts.values(), self._chunk, self._segment.layout.page_size)
        # Once for each decode, not for each prompt: that a peer is stuck shows after seconds.
        mapped = {decode for decode in {prompt.reservation.decode for prompt, _ in shared} if self._mapped(decode)}
        for prompt, _ in shared:
            if prompt.reservation.decode not in mapped:
                self._fail(prompt, "prefill cannot reach the memory of decode")
        self._compute([(prompt, count) for prompt, count in shared if prompt.reservation.decode in mapped])

    def peer_up(self, peer: PeerUp) -> None:
        """Reach for the memory of a new decode incarnation, if it still lives."""
        self._addresses[peer.worker] = peer.address
        self._mapped(peer.worker)

    def peer_gone(self, peer: Reaped) -> None:
        """Let go of what nobody owns any more."""
        self._addresses.pop(peer.worker, None)
        transfer = self._transfers.pop(peer.worker, None)
        if transfer is not None:
            transfer.close()

    def info(self) -> dict[str, object]:
        """Live figures beyond those that every worker has."""
        return {
            "prompts": self.prompts,
            "computed_tokens": self.computed_tokens,
            "cached_tokens": self.cached_tokens,
            "waiting": len(self._loop.state.waiting),
        }

    def _mapped(self, decode: WorkerRef) -> bool:
        """True when its memory can be reached, now if not before. One that died must not take this process along."""
        if decode in self._transfers:
            return True
        address = self._addresses.get(decode)
        if address is None:
            return False
        orders = self._loop.orders
        try:
            self._transfers[decode] = reach(address, orders.segment_token, orders.me, decode)
        except (OSError, ValueError, BackendMissing, PeerRefused, SegmentMismatch) as error:
            print(f"pagefence {orders.me.name}: cannot reach the memory of {decode}: {error}", file=sys.stderr)
            return False
        return True

    def _compute(self, shared: list[tuple[_Prompt, int]]) -> None:
        """All in one pass. If it fails, each alone: only the prompt that made it fail does."""
        if not shared:
            return
        spans = [
            Span(prompt.pages, prompt.computed, prompt.token_ids[prompt.computed : prompt.computed + count])
            for prompt, count in shared
        ]
        try:
            logits = self._model.forward(spans, self._segment.kv)
        except _FAILURES as error:
            if len(shared) == 1:
                self._fail(shared[0][0], f"prefill could not compute the prompt: {error}")
                return
            # What the failed pass wrote lies in the prompts' own pages, where the next one writes it again.
            for portion in shared:
                self._compute([portion])
            return
        for (prompt, _), span, row in zip(shared, spans, logits, strict=True):
            self._advance(prompt, span.end, row)

    def _advance(self, prompt: _Prompt, done: int, logits: Tensor) -> None:
        """Tell what was computed, and the first token with the last chunk."""
        first: int | None = None
        likely: tuple[Logprob, ...] = ()
        if done == len(prompt.token_ids):
            try:
                first, likely = draw(logits, prompt.sampling, 0)
            except _FAILURES as error:
                self._fail(prompt, f"prefill could not compute the prompt: {error}")
                return
        self.computed_tokens += done - prompt.computed
        # It leaves the queue when its last chunk is written. Until then it waits, and others are computed.
        prompt.computed = done
        self._loop.post_local(ChunkComputed(prompt.room, done, first, likely))

    def _fail(self, prompt: _Prompt, message: str) -> None:
        self._prompts.pop(prompt.room)
        self._loop.post_local(ComputeFailed(prompt.room, message))

    def _zero(self, pages: tuple[PageRef, ...]) -> None:
        if self._zero_on_lease:
            self._segment.zero(page.index for page in pages)

    def _write(self, effect: WriteChunk) -> None:
        """The one-sided write of the pages that [start, stop) covers. Synchronous: it has landed when it returns.

        A failed write has closed its connection, and so failed those that its pass had still to write there: reaching
        for a stuck peer again for each of them would keep this process silent until it is taken for dead. Later passes
        write over a new connection; what becomes of a room that failed, which may be written to at any later time, is
        for the machine to say.
        """
        prompt = self._prompts[effect.room]
        size = self._segment.layout.page_size
        first, last = effect.start // size, -(-effect.stop // size)
        target = prompt.reservation.pages[first:last]
        decode = prompt.reservation.decode
        transfer = self._transfers.get(decode)
        if transfer is None:
            self._loop.post_local(WriteFailed(effect.room, effect.stop))
            return
        try:
            digests = transfer.write(self._segment, prompt.pages[first:last], target, effect.room)
        except TransferFailed as error:
            print(f"pagefence {self._loop.orders.me.name}: {decode}: {error}; it may still land", file=sys.stderr)
            self._transfers.pop(decode)
            self._loop.post_local(WriteFailed(effect.room, effect.stop))
            return
        if effect.stop == len(prompt.token_ids):
            self._prompts.pop(effect.room)
        self._loop.post_local(Landed(effect.room, effect.stop, digests))

"""Exact counts, beside the event loop: in a few threads, behind a queue that has an end.

The tokenizer lets other threads run while it works, and a text is given to it in parts, so that a count can be given
up when the client goes or when enough is known.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagefence.edge.admission import Counted, ModelBounds, NeedsCount, bounds_of_model
from pagefence.edge.beside import Beside, Queue
from pagefence.edge.cuts import OverLimit, Stopped, can_cut, count_by_parts
from pagefence.edge.demand import Prompt
from pagefence.edge.engine_readings import ALL, EngineReading, Segments, chat_readings, text_readings
from pagefence.edge.refusal import Refusal
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.models import ModelError

_SOON = 65_536  # characters that are counted to their end, so that a refusal can say how many tokens they are


@dataclass(frozen=True, slots=True)
class CountingSettings:
    """`threads` count at once; `waiting` and `characters` may wait, `per_tenant` of them from one tenant."""

    threads: int = 2
    waiting: int = 64
    characters: int = 256_000_000
    per_tenant: int = 16


class PromptCounter:
    """Counts prompts of one model. Safe to share between threads."""

    def __init__(
        self, tokenizer: Tokenizer, bounds: ModelBounds | None = None, readings: Sequence[EngineReading] = ALL
    ) -> None:
        self.bounds = bounds or bounds_of_model(tokenizer)
        self._tokenizer = tokenizer
        self._readings = tuple(readings)
        self._cuts = can_cut(tokenizer.definition())

    def count(self, prompt: Prompt, limit: int, enough: int, stopped: Callable[[], bool]) -> Counted:
        """Tokens of a prompt, as the engine that needs most for it reads it.

        Stops counting when there are more than `limit`, or when there cannot be more than `enough`. Raises Stopped,
        ValueError for messages that the template refuses, ModelError where there is no template.
        """
        # What surrounds a conversation besides its template differs between engines.
        around = len(self._tokenizer.prefix) if prompt.special or prompt.chat is not None else 0
        fixed = prompt.ids + prompt.extra + around
        seen: list[Counted] = []
        for segments in self._read(prompt):
            seen.append(self._count(segments, limit - fixed, enough - fixed, stopped))
            if seen[-1].most is None:
                return Counted(seen[-1].least + prompt.ids, None)
        least = prompt.ids + min((count.least for count in seen), default=0)
        most = fixed + max((count.most or 0 for count in seen), default=0)
        exacts = {count.exact for count in seen}
        exact = exacts.pop() if len(exacts) == 1 else None
        if exact is None or prompt.extra or (prompt.chat is not None and around):
            return Counted(least, most)
        return Counted(most, most, most)

    def _read(self, prompt: Prompt) -> list[Segments]:
        if prompt.chat is not None:
            return chat_readings(self._tokenizer, prompt.chat, self._readings)
        found: list[Segments] = [[]]
        for text in prompt.texts:
            found = [[*one, *more] for one in found for more in text_readings(self._tokenizer, text, self._readings)]
        return found

    def _count(self, segments: Segments, limit: int, enough: int, stopped: Callable[[], bool]) -> Counted:
        texts = [segment for segment in segments if isinstance(segment, str)]
        total, bounds = len(segments) - len(texts), self.bounds.text
        if bounds is not None:
            most = total + sum(map(bounds.at_most, texts))
            if most <= enough:
                return Counted(0, most)
            # Joined: of many short texts none is at least anything by itself.
            least = bounds.at_least("".join(texts), limit)
            if least > limit:
                return Counted(least, None)
        ends_early = sum(map(len, texts)) > _SOON  # else the number is worth more than the moment
        for text in texts:
            if stopped():
                raise Stopped
            try:
                total += self._count_text(text, limit - total if ends_early else sys.maxsize, stopped)
            except OverLimit as over:
                return Counted(total + over.tokens, None)
        return Counted(total, total, total)

    def _count_text(self, text: str, limit: int, stopped: Callable[[], bool]) -> int:
        if self._cuts:
            return count_by_parts(self._tokenizer.count, text, limit, self._at_least, stopped)
        tokens = self._tokenizer.count(text)
        if tokens > limit:
            raise OverLimit(tokens)
        return tokens

    def _at_least(self, text: str) -> int:
        return 0 if self.bounds.text is None else self.bounds.text.at_least(text)


class Counting:
    """The queue before the counting threads. One event loop uses it."""

    def __init__(self, counter: PromptCounter, settings: CountingSettings) -> None:
        self.counter = counter
        queue = Queue(settings.threads, settings.waiting, settings.characters, settings.per_tenant)
        self._beside = Beside(queue, "count")

    @property
    def waiting(self) -> int:
        """Calls that are counted or wait for it."""
        return self._beside.inside

    async def count(self, needs: NeedsCount) -> Sequence[Counted] | Refusal:
        """Counts of all prompts, or why there are none. A cancelled one is given up at the next part."""
        stop = threading.Event()
        try:
            return await self._beside.run(needs.call.tenant.tag, _characters(needs), self._work, needs, stop.is_set)
        except (ValueError, ModelError) as error:
            return Refusal(400, "invalid_value", str(error)[:300], needs.demand.param)
        finally:
            stop.set()

    def _work(self, needs: NeedsCount, stopped: Callable[[], bool]) -> Sequence[Counted]:
        counts = []
        margin = needs.limit
        for prompt in needs.demand.prompts:
            counts.append(self.counter.count(prompt, margin, needs.enough, stopped))
            if counts[-1].most is None or counts[-1].most > margin:
                break  # it is refused: the others need not be looked at
        return counts


def _characters(needs: NeedsCount) -> int:
    """About how much there is to read."""
    return sum(sum(map(len, p.texts)) + (_size(p.chat.messages) if p.chat else 0) for p in needs.demand.prompts)


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0

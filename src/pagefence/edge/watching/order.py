"""Whether a stream is one answer: one id, one model, choices that were asked for, an end that is the end (I5, I10)."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from pagefence.edge.watching.chunks import Chunk
from pagefence.edge.watching.elsewhere import Elsewhere
from pagefence.edge.watching.finding import Doubt, Kind

_REMEMBERED = 4096
_LONGEST = 128  # characters
_SHARED = "the response id is one that another request got"
# Some servers and gateways take their ids from a clock or a small number, and a few mint one for each chunk: only a
# long one belongs to one answer for sure.
_LONG_ID = re.compile("[0-9A-Za-z]{16}")


class ResponseIds:
    """Which request got which response id: of those that live, and of the last ones that did; `elsewhere`, too."""

    def __init__(self, remembered: int = _REMEMBERED, elsewhere: Elsewhere | None = None) -> None:
        self._live: dict[str, str] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._remembered = remembered
        self._elsewhere = elsewhere

    def claim(self, response_id: str, request_id: str) -> bool:
        """Whether no other request got it. Release it at the end."""
        response_id = _kept(response_id)
        other = self._live.setdefault(response_id, request_id)
        alone = self._elsewhere is None or self._elsewhere.claim(response_id, request_id)
        return alone and other == request_id and self._ended.get(response_id, request_id) == request_id

    def others(self, response_id: str, request_id: str) -> bool:
        """Whether another request of this process got it. Nothing is kept."""
        response_id = _kept(response_id)
        return any(got.get(response_id, request_id) != request_id for got in (self._live, self._ended))

    def release(self, response_id: str, request_id: str) -> bool:
        """The request has ended; whether it was not told meanwhile that another process has that id."""
        response_id = _kept(response_id)
        if self._live.get(response_id) != request_id:
            return True
        del self._live[response_id]
        self._ended[response_id] = request_id
        if len(self._ended) > self._remembered:
            self._ended.popitem(last=False)
        return self._elsewhere is None or self._elsewhere.release(response_id, request_id)


@dataclass(slots=True)
class Order:
    """Follows the events of one answer. `choices`: how many were asked for, None when nobody knows."""

    ids: ResponseIds
    request_id: str
    choices: int | None
    id: str | None = None
    model: str | None = None
    done: bool = False
    finishes: dict[int, str] = field(default_factory=dict)
    spoke: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    told: set[str] = field(default_factory=set)

    def see(self, chunk: Chunk) -> Iterator[Doubt]:
        """What is wrong with the next event, each thing once an answer."""
        for doubt in self._wrong(chunk):
            if doubt.what not in self.told:
                self.told.add(doubt.what)
                yield doubt

    def plain(self, chunk: Chunk) -> bool:
        """Whether it only goes on with a text that had begun: most events do, and nothing can be wrong with them."""
        if self.done or chunk.id != self.id or chunk.model != self.model or len(chunk.parts) != 1 or chunk.last:
            return False
        part = chunk.parts[0]
        return part.finish is None and part.index in self.spoke and part.index not in self.finishes

    def close(self) -> Iterator[Doubt]:
        """Nothing comes any more."""
        if self.id is not None and not self.ids.release(self.id, self.request_id) and _SHARED not in self.told:
            yield Doubt(Kind.SHARED_ID, _SHARED, _sure(self.id))

    def _wrong(self, chunk: Chunk) -> Iterator[Doubt]:
        if self.done:
            yield Doubt(Kind.AFTER_END, "an event came after the end of the stream")
        if chunk.id and chunk.id != self.id:
            # Only the first one is kept: an upstream that mints one for each event fills no memory.
            if self.id is None:
                self.id = chunk.id
                alone = self.ids.claim(chunk.id, self.request_id)
            else:
                yield Doubt(Kind.MIXED_STREAM, "the id changed inside of one answer", _sure(chunk.id))
                alone = not self.ids.others(chunk.id, self.request_id)
            if not alone:
                yield Doubt(Kind.SHARED_ID, _SHARED, _sure(chunk.id))
        if chunk.model is not None and chunk.model != self.model:
            if self.model is not None:
                yield Doubt(Kind.MIXED_STREAM, "the model changed inside of one answer")
            self.model = self.model or chunk.model
        for part in chunk.parts:
            if part.index < 0 or (self.choices is not None and part.index >= self.choices):
                facts = {"index": part.index, "choices": self.choices or 0}
                yield Doubt(Kind.MIXED_STREAM, "a choice that was not asked for", facts=facts)
                continue
            self.begun.add(part.index)
            if part.index in self.finishes and (part.texts or part.finish):
                yield Doubt(Kind.AFTER_END, "a choice went on after its finish reason", facts={"index": part.index})
            if part.texts:
                self.spoke.add(part.index)
            if part.finish is not None:
                self.finishes.setdefault(part.index, part.finish)
        self.done = self.done or chunk.last


def _kept(response_id: str) -> str:
    """What of an id is remembered: upstream may say one of megabytes, and thousands are kept."""
    if len(response_id) <= _LONGEST:
        return response_id
    return sha256(response_id.encode("utf-8", "surrogatepass")).hexdigest()


def _sure(response_id: str) -> bool:
    return _LONG_ID.search(response_id) is not None

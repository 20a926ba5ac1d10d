"""One answer, watched as it passes. No I/O and no clock: times are given, findings come back.

    watch = Watch(book, expected, sent_at)
    watch.headers(status, at)
    findings = watch.event(data, at)     each event of a stream, or
    findings = watch.body(data, at)      the whole body
    findings = watch.end(at)             always, however it ended

Before `event` returns, what it was given has been looked at as far as it can be: the proxy passes it on, or does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from pagefence.edge.events import events_of
from pagefence.edge.watching import endings, timing
from pagefence.edge.watching.anything import texts_of, values_of
from pagefence.edge.watching.book import Book
from pagefence.edge.watching.chunks import DONE, Chunk, Usage, read_chunk
from pagefence.edge.watching.expected import Expected
from pagefence.edge.watching.finding import Doubt, Finding, Kind
from pagefence.edge.watching.memory import EVERY
from pagefence.edge.watching.order import Order
from pagefence.edge.watching.scanner import Scanner, Sighting
from pagefence.edge.watching.sentinels import Reading

_TEXTS = 64  # texts of one answer that are scanned apart, or one for each choice; what more there is, as one text
_MORE = -1  # no choice: what `Chunk.more` has


class _Text:
    """One text of an answer: what has not been scanned of it yet, and where both scans stand."""

    __slots__ = ("pending", "reading", "scanner")

    def __init__(self, book: Book, expected: Expected) -> None:
        self.pending = bytearray()
        self.scanner = None if book.memory is None else Scanner(book.memory, expected.own, expected.tenant_tag)
        self.reading = Reading(book.sentinels) if book.sentinels else None


class Watch:
    """`not_judged` tells after the end what could not be held against anything, and why."""

    __slots__ = (
        "_book",
        "_ended",
        "_every",
        "_expected",
        "_failed",
        "_first_text_at",
        "_order",
        "_owners",
        "_scans",
        "_seen",
        "_sent_at",
        "_status",
        "_stream",
        "_texts",
        "_usage",
        "not_judged",
    )

    def __init__(self, book: Book, expected: Expected, sent_at: float) -> None:
        self._book = book
        self._expected = expected
        self._sent_at = sent_at
        self._scans = book.memory is not None or len(book.sentinels) > 0
        self._order = Order(book.ids, expected.request_id, expected.choices)
        self._texts: dict[tuple[int, str], _Text] = {}
        self._every = EVERY if book.memory is None else book.memory.manner.every
        self._seen: dict[int, bool] = {}  # sentinels that were told, and whether for sure
        self._owners: set[str] = set()  # other tenants whose text was found and told
        self._usage: Usage | None = None
        self._first_text_at: float | None = None
        self._status = 0
        self._failed = self._stream = self._ended = False
        self.not_judged: tuple[str, ...] = ()

    def headers(self, status: int, at: float) -> None:
        """The status line came. Only an answer with 200 is one."""
        self._status = status

    def event(self, data: bytes, at: float) -> list[Finding]:
        """The data of one event, without `data:`."""
        self._stream = True
        if data.strip() != DONE:
            return self._read(data, at)
        twice = self._order.done
        self._order.done = True
        return self._found([Doubt(Kind.AFTER_END, "the end of the stream came twice")] if twice else [])

    def body(self, data: bytes, at: float) -> list[Finding]:
        """A whole answer. Its end is still to be told."""
        events = events_of(data) if data.lstrip(b"\xef\xbb\xbf \r\n")[:1] in (b"d", b"e", b":", b"i", b"r") else []
        if events:  # a stream that is not said to be one: clients read what they asked for
            return [finding for event in events for finding in self.event(event, at)]
        return self._read(data, at)

    def stray(self, data: bytes) -> list[Finding]:
        """What is in a stream and no data of an event."""
        return self._found(self._scan_more(texts_of(values_of(data))))

    def end(self, at: float, complete: bool = True) -> list[Finding]:
        """Nothing comes any more. `complete` False: our side let go of it, so what is missing tells nothing."""
        if self._ended:
            return []
        self._ended = True
        doubts = [*self._order.close(), *self._last_texts(at)]
        if self._status == 200:
            doubts += self._judged(complete)
        return self._found(doubts)

    def _read(self, data: bytes, at: float) -> list[Finding]:
        chunk = read_chunk(data)
        if self._status != 200:  # an error is no answer, but may quote one
            return self._found(self._scan(chunk))
        more: Iterable[Doubt] = self._scan_more(chunk.more) if chunk.more else ()
        if chunk.malformed:
            more = chain([Doubt(Kind.MALFORMED, "no JSON of an answer", sure=False)], more)
            if not chunk.parts:
                return self._found(more)
        if chunk.usage is not None:
            self._usage = chunk.usage
        doubts: Iterable[Doubt] = () if self._order.plain(chunk) else self._order.see(chunk)
        if chunk.error:
            first, self._failed = not self._failed, True
            if self._stream and self._status == 200 and first:
                facts = {"choices_begun": len(self._order.begun)}
                doubts = chain(doubts, [Doubt(Kind.ERROR_IN_STREAM, "an error inside of a stream", facts=facts)])
        if chunk.parts and (chunk.parts[0].texts or any(part.texts for part in chunk.parts[1:])):
            if self._first_text_at is None:
                self._first_text_at = at
            if self._scans:
                doubts = chain(doubts, self._scan_parts(chunk))
        return self._found(chain(doubts, more))

    def _scan(self, chunk: Chunk) -> list[Doubt]:
        return [*self._scan_parts(chunk), *self._scan_more(chunk.more)]

    def _scan_parts(self, chunk: Chunk) -> Iterator[Doubt]:
        for part in chunk.parts:
            for channel, said in part.texts:
                yield from self._scan_text(part.index, channel, said)

    def _scan_more(self, texts: Iterable[tuple[str, str]]) -> Iterator[Doubt]:
        for channel, said in texts if self._scans else ():
            yield from self._scan_text(_MORE, channel, said)

    def _scan_text(self, index: int, channel: str, said: str) -> Iterator[Doubt]:
        if not self._scans:
            return
        text = self._texts.get((index, channel))
        if text is None:
            if len(self._texts) >= max(_TEXTS, 2 * (self._expected.choices or 0)):
                index, channel = _MORE, "\n"
                if (index, channel) not in self._texts:
                    yield Doubt(Kind.MIXED_STREAM, "more texts than one answer has", sure=False)
                said += "\n"
            text = self._texts.get((index, channel)) or _Text(self._book, self._expected)
            self._texts[index, channel] = text
        text.pending += said.encode("utf-8", "surrogatepass")
        if len(text.pending) >= self._every:
            yield from self._look(text)

    def _look(self, text: _Text) -> Iterator[Doubt]:
        """Scan what is pending of a text."""
        raw = bytes(text.pending)
        text.pending.clear()
        if text.scanner is not None:
            yield from self._foreign(text.scanner.feed(raw))
        if text.reading is not None:
            text.reading.feed(raw)
            yield from self._planted(text.reading)

    def _last_texts(self, at: float) -> Iterator[Doubt]:
        for (index, _), text in self._texts.items():
            yield from self._look(text)
            if text.scanner is not None:
                # The model's habits are learned from what it said, not from errors and what else surrounds that.
                yield from self._foreign(text.scanner.rest() if index == _MORE else text.scanner.end(at))
            if text.reading is not None:
                text.reading.end()
                yield from self._planted(text.reading)

    def _foreign(self, sightings: Iterable[Sighting]) -> Iterator[Doubt]:
        """Runs of one other tenant's text."""
        for seen in sightings:
            if seen.owner_tag in self._owners:  # some servers say the same in several places
                continue
            self._owners.add(seen.owner_tag)
            facts = {"folded_bytes": seen.folded_bytes, "k_grams": len(seen.names)}
            what = "a run of text that another tenant, and nobody else, sent"
            yield Doubt(Kind.FOREIGN_TEXT, what, True, facts, seen.owner_tag, seen.names)

    def _planted(self, reading: Reading) -> Iterator[Doubt]:
        for number, sure in reading.found() if reading.shards else ():
            told = self._seen.get(number)
            if number in self._expected.own_sentinels or (told is not None and told >= sure):
                continue
            self._seen[number] = sure
            facts = {"sentinel": number, "shards": len(reading.shards[number])}
            yield Doubt(Kind.SENTINEL, "words that were planted for another tenant", sure, facts)

    def _judged(self, complete: bool) -> Iterator[Doubt]:
        usage, expected, unknown = self._usage, self._expected, []
        generates = expected.choices is not None or self._order.begun
        if complete and generates:
            yield from endings.finishes(self._order, usage, expected, self._stream, self._failed)
        if usage is None:
            unknown.append("counts: the answer told no usage")
        elif not self._failed:
            yield from endings.prompt_tokens(usage, expected)
            yield from endings.sane(usage, expected)
            yield from endings.foreign_cache(usage, expected)
            if usage.cached_tokens is not None and expected.cached_at_most is None:
                unknown.append("cached tokens: what this tenant had sent is not known")
        if self._first_text_at is not None:
            floors = self._book.floors
            if floors is None or not timing.known(floors):
                unknown.append("time: no floor is known")
            else:
                cached = None if usage is None else usage.cached_tokens
                ttft = self._first_text_at - self._sent_at
                doubt = timing.too_fast(floors, ttft, expected.least_tokens, cached)
                if doubt is not None:
                    yield doubt
        self.not_judged = tuple(unknown)

    def _found(self, doubts: Iterable[Doubt]) -> list[Finding]:
        expected = self._expected
        return [Finding(expected.request_id, expected.tenant_tag, doubt) for doubt in doubts]

"""Answers are watched while they pass: bytes of an answer to what `watching/` judges, its findings to what is done.

`Watching` belongs to a process, `Watched` to one answer. What was remembered of prompts lives on over a reload.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pagefence.edge.admission import ModelBounds, least_tokens
from pagefence.edge.alerts import OUTCOMES, Alerts, postable
from pagefence.edge.beside import Beside
from pagefence.edge.demand import Admitted
from pagefence.edge.events import Events, data_of, stray_of
from pagefence.edge.metrics import Family
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Tells
from pagefence.edge.watching import (
    Book,
    Expected,
    Finding,
    Kind,
    Memory,
    Prefixes,
    ResponseIds,
    Sentinels,
    Watch,
    orders,
)
from pagefence.edge.watching.actions import Actions
from pagefence.edge.watching.settings import WatchTable, actions_of, bounds_of, floors_of, public_texts
from pagefence.mistakes import Usage
from pagefence.probes.sentinel_file import read_sentinels

if TYPE_CHECKING:
    from pagefence.edge.sharing.sharing import Sharing

_LONGEST_EVENT = 16 * 1024 * 1024
_LOOK_EVERY_S = 1.0  # for a new file of sentinels
_TOO_LARGE = Refusal(502, "upstream_too_large", "one event of the upstream's answer is larger than any answer.")
_UNJUDGED = ("counts", "cached tokens", "time")

FAMILIES = (
    Family(
        "pagefence_edge_findings_total", "counter", "What watching found in answers, doubts too.",
        (("kind", (*(kind.value for kind in Kind), "other")), ("sure", ("true", "false"))),
    ),
    Family("pagefence_edge_answers_watched_total", "counter", "Answers that were watched to their end."),
    Family(
        "pagefence_edge_answers_not_judged_total", "counter", "Watched answers of which something could not be judged.",
        (("what", (*_UNJUDGED, "other")),),
    ),
    Family("pagefence_edge_alerts_total", "counter", "Alerts, by how they ended.", (("outcome", OUTCOMES),)),
    Family("pagefence_edge_live_sentinels", "gauge", "Sentinels that answers are scanned for."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """
    least      a lower bound of the prompt's tokens
    buffered   no byte of an answer goes out before all of it was judged
    public     texts that anybody may get
    sentinels  a file that is read anew when it changes
    alert      where alerts are posted
    """

    book: Book
    actions: Actions
    least: Callable[[Admitted], int]
    buffered: bool = False
    public: Sequence[bytes] = ()
    sentinels: Path | None = None
    alert: str | None = None


def book_of(said: WatchTable, folder: Path, old: Book | None, sharing: Sharing | None = None) -> Book:
    """What the table asks for, with what the old book remembers where it may. Raises Usage."""
    memory = old.memory if old is not None and said.scan else None
    if said.scan and (memory is None or memory.bounds != bounds_of(said)):
        try:
            memory = Memory(bounds_of(said), now=time.monotonic(), shared=sharing.shared if sharing else None)
        except MemoryError:
            raise Usage(f"watching.memory_mib: there is not as much memory as {said.memory_mib} MiB") from None
    ids = ResponseIds(elsewhere=sharing.elsewhere if sharing else None)
    book = Book(prefixes=Prefixes(complete=said.sees_all), ids=ids) if old is None else old
    return replace(book, memory=memory, floors=floors_of(said, folder))


def plan_of(said: WatchTable, folder: Path, environment: Mapping[str, str], book: Book, bounds: ModelBounds) -> Plan:
    """Raises Usage."""
    public = public_texts(said, folder)
    sentinels = None if said.sentinels is None else folder / Path(said.sentinels).expanduser()
    alert = None if said.alert_env is None else environment.get(said.alert_env, "")
    if alert is not None and not postable(alert):
        raise Usage(f"watching.alert_env names {str(said.alert_env)[:80]!r}, and there is no http(s) address in it")
    return Plan(
        book, actions_of(said), lambda admitted: least_tokens(admitted, bounds), said.buffered, public, sentinels, alert
    )


class Watching:
    """Watches all answers of a process."""

    def __init__(self, plan: Plan, tells: Tells, beside: Beside, sharing: Sharing | None = None) -> None:
        self._plan, self._tells, self._beside, self._sharing = plan, tells, beside, sharing
        self.book = plan.book
        self._read_at: tuple[int, ...] | None = None
        self._refused = ""
        self._alerts: Alerts | None = None
        if plan.alert is not None:
            self._alerts = Alerts(plan.alert, lambda outcome: tells.count("pagefence_edge_alerts_total", outcome))
        self._looking: asyncio.Task[None] | None = None
        if plan.sentinels is not None:
            self._look(plan.sentinels)

    async def start(self) -> None:
        """On the event loop that serves."""
        if self.book.memory is not None:
            await asyncio.to_thread(self.book.memory.publish, self._plan.public)  # a reload has others in progress
        if self._sharing is not None:
            self._sharing.start(self.book.memory)
        if self._plan.sentinels is not None:
            self._looking = asyncio.get_running_loop().create_task(self._look_again(self._plan.sentinels))

    def stop(self) -> None:
        """Answers in progress are watched to their end all the same."""
        if self._looking is not None:
            self._looking.cancel()
        if self._sharing is not None:
            self._sharing.stop()

    def unready(self) -> str | None:
        return self._sharing.unready() if self._sharing is not None else None

    async def watch(self, admitted: Admitted) -> Watched | Refusal:
        """Remember the prompt, and be ready for its answer."""
        book = self.book  # the same for both: sentinels go by their number, and a new file has other numbers
        call = admitted.call
        expected: Expected | Refusal
        if call.size:
            expected = await self._beside.run(call.tenant.tag, call.size, self._opened, book, admitted)
        else:
            expected = self._opened(book, admitted)
        return expected if isinstance(expected, Refusal) else Watched(self, book, expected, self._plan.buffered)

    def _opened(self, book: Book, admitted: Admitted) -> Expected:
        least = self._plan.least(admitted) if admitted.prompt_tokens is None else 0
        return book.opened(admitted, time.monotonic(), least)

    def told(self, findings: Sequence[Finding]) -> Refusal | None:
        """Do what is to be done; what the client gets instead of the answer, if so."""
        done = orders(findings, self._plan.actions, self._plan.buffered, time.time())
        for line in done.lines:
            self._tells.log("finding", line)
        for finding in done.counted:
            sure = "true" if finding.doubt.sure else "false"
            self._tells.count("pagefence_edge_findings_total", finding.kind.value, sure)
        if done.alert is not None and self._alerts is not None:
            self._alerts.put(done.alert)
        return done.instead

    def ended(self, not_judged: Sequence[str]) -> None:
        """One answer came to its end."""
        self._tells.count("pagefence_edge_answers_watched_total")
        for why in not_judged:
            self._tells.count("pagefence_edge_answers_not_judged_total", why.partition(":")[0])

    async def _look_again(self, path: Path) -> None:
        while True:
            self._tells.gauge("pagefence_edge_live_sentinels", len(self.book.sentinels))
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self._look(path)
                self._refused = ""
            except Usage as error:  # the last good ones stay live; it is tried again, and said once
                if str(error) != self._refused:
                    self._refused = str(error)
                    self._tells.log("sentinels_refused", {"why": self._refused})

    def _look(self, path: Path) -> None:
        """Read the file if it changed. One that is not there yet holds none: a canary will write it. Raises Usage."""
        try:
            status = path.stat()
        except FileNotFoundError:
            now = None
        except OSError as error:
            raise Usage(f"cannot read the sentinels {path}: {error.strerror}") from None
        else:
            now = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
        if now == self._read_at:
            return
        if now is None:
            self._read_at = now
            raise Usage(f"the sentinels {path} are gone; those that were in it stay live")
        self.book = replace(self.book, sentinels=Sentinels(read_sentinels(path)))
        self._read_at = now


class Watched:
    """One answer (`steps.Watch`). Events of a stream are held back until they are whole and were looked at."""

    __slots__ = ("_all", "_book", "_events", "_expected", "_over", "_parts", "_stream", "_watch", "buffered")

    def __init__(self, watching: Watching, book: Book, expected: Expected, buffered: bool) -> None:
        self._all, self._book, self._expected = watching, book, expected
        self.buffered = buffered
        self._parts: list[bytes] = []
        self._events = Events()
        self._stream = self._over = False
        self._watch: Watch | None = None

    def sent(self, at: float) -> None:
        self._watch = Watch(self._book, self._expected, at)

    def begins(self, status: int, stream: bool, at: float) -> None:
        self._stream = stream
        if self._watch is not None:
            self._watch.headers(status, at)

    def part(self, data: bytes, at: float) -> bytes | Refusal:
        assert self._watch is not None
        if not self._stream:
            self._parts.append(data)
            return data
        whole, events = self._events.feed(data)
        stray, self._events.stray = self._events.stray, b""
        looks = chain((self._watch.event(event, at) for event in events), [self._watch.stray(stray)] if stray else ())
        for findings in looks:
            refusal = self._all.told(findings) if findings else None
            if refusal is not None:
                return refusal
        return whole if len(self._events.rest) <= _LONGEST_EVENT else _TOO_LARGE

    def ends(self, whole: bool, at: float) -> bytes | Refusal:
        if self._watch is None or self._over:
            return b""
        self._over = True
        left = bytes(self._events.rest)
        findings: list[Finding] = []
        if whole and self._stream and left:
            if (data := data_of(left)) is not None:
                findings += self._watch.event(data, at)
            if stray := stray_of(left):
                findings += self._watch.stray(stray)
        if whole and not self._stream:
            findings += self._watch.body(b"".join(self._parts), at)
        findings += self._watch.end(at, whole)
        refusal = self._all.told(findings)
        if whole:
            self._all.ended(self._watch.not_judged)
        return left if refusal is None else refusal

"""What a plan is made of: one request to send (a shot), requests that run together (a wave), all of them (a plan)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pagefence.probes.prompt import ASKING, LIST, Manner
from pagefence.probes.sentinel import Sentinel, draw
from pagefence.probes.wordlist import WORDS

PLAIN = Manner()
ASKED = Manner(wording=ASKING)
LISTED = Manner(layout=LIST)
LIST_ASKED = Manner(LIST, ASKING)


class Purpose(StrEnum):
    SEARCH = "finding the limit"
    ALIVE = "sign of life"
    CONTROL = "control"
    OVER = "border over the limit"
    WITHIN = "border within the limit"
    PLANT = "planting"
    READ_OVER = "reading over the limit"
    READ = "reading"
    SHARE = "prefix sharing"
    TIME = "timing"
    RACE = "racing"


@dataclass(frozen=True, slots=True)
class HangUp:
    """When the client of a shot goes: after so many events of its stream, at the end of it (`at_end`), or before, after
    so many times as long as a first token took in the controls (`paces`)."""

    events: int | None = None
    at_end: bool = False
    paces: float | None = None


@dataclass(frozen=True, slots=True)
class Shot:
    """One request to send: how long, whose, with which words, in which form.

    `spare`: other words for a second try. A small model slips over some words now and then; a fleet that answers from
    other pages than the prompt's loses any words. `arm`: what a probe that compares answers compares this one as.
    `extra`: more fields of the request's body. `hang_up`: its client does not wait for the end.
    """

    id: str
    probe: str
    purpose: Purpose
    sentinel: Sentinel
    nonce: str
    tokens: int
    max_tokens: int
    manner: Manner = PLAIN
    temperature: float = 0.0
    stream: bool = False
    seed: int = 0
    spare: Sentinel | None = None
    arm: str = ""
    extra: tuple[tuple[str, object], ...] = ()
    hang_up: HangUp | None = None

    @property
    def with_spare(self) -> Shot | None:
        """The same length in other words, asked greedily; None when there are none."""
        if self.spare is None:
            return None
        manner = Manner(self.manner.layout)
        return replace(self, sentinel=self.spare, nonce=self.nonce[::-1], manner=manner, temperature=0.0, spare=None)

    @property
    def tenant(self) -> str:
        return self.sentinel.tenant

    @property
    def within(self) -> bool:
        return self.purpose not in (Purpose.OVER, Purpose.READ_OVER)

    @property
    def plants(self) -> bool:
        return self.purpose in (Purpose.WITHIN, Purpose.PLANT)

    @property
    def recalls(self) -> bool:
        """Whether its answer should hold its own words, so that one without them gets a second try."""
        return self.purpose in (Purpose.CONTROL, Purpose.READ, Purpose.READ_OVER)

    @property
    def reads(self) -> bool:
        return self.purpose in (Purpose.READ, Purpose.READ_OVER)


@dataclass(frozen=True, slots=True)
class Wave:
    """Shots whose order does not matter, run together as far as `room` tokens allow (0: one at a time).

    `unproven`: only while the fleet answers over its limits and no answer has proven whose words it is made of.
    `counted`: whether the fleet's counters are read around it.
    """

    title: str
    shots: tuple[Shot, ...]
    room: int
    unproven: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """`fresh`: the seed is new, so no prompt of this plan can be in anybody's cache. `before`: what was asked to find
    the limits that this plan is made for. `words`: out of how many the sentinels are drawn."""

    waves: tuple[Wave, ...]
    fresh: bool = True
    before: tuple[Shot, ...] = ()
    words: int = len(WORDS)

    @property
    def shots(self) -> tuple[Shot, ...]:
        """All of them, those that found the limits first."""
        return (*self.before, *(shot for wave in self.waves for shot in wave.shots))

    @property
    def expected(self) -> tuple[Shot, ...]:
        """What is asked of a fleet that keeps its limits."""
        return tuple(shot for wave in self.waves if not wave.unproven for shot in wave.shots)

    @property
    def sentinels(self) -> tuple[Sentinel, ...]:
        """Each once, though several shots may ask the same prompt."""
        found: dict[tuple[str, tuple[str, ...]], Sentinel] = {}
        for shot in self.shots:
            for words in (shot.sentinel, shot.spare):
                if words is not None:
                    found.setdefault((words.owner, words.words), words)
        return tuple(found.values())

    @property
    def prompt_tokens(self) -> int:
        """The expected cost: what is over a limit is refused and costs nothing."""
        return sum(s.tokens for s in self.expected if s.within)

    def prompt_tokens_of(self, probe: str) -> int:
        """The share of one probe in `prompt_tokens`."""
        return sum(s.tokens for s in self.expected if s.within and s.probe == probe)

    @property
    def new_tokens(self) -> int:
        return sum(s.max_tokens for s in self.expected if s.within)


class Maker:
    """Hands out sentinels, nonces and ids in order."""

    def __init__(self, seed: int, words: Sequence[str] = WORDS) -> None:
        self.random = random.Random(f"plan {seed}")
        self.drawn_from = len(words)
        self.words: Iterator[tuple[str, ...]] = draw(seed, words)
        self.count = 0

    def shot(
        self,
        probe: str,
        purpose: Purpose,
        tenant: str,
        tokens: int,
        max_tokens: int,
        manner: Manner = PLAIN,
        heat: float = 0.0,
        stream: bool = False,
    ) -> Shot:
        self.count += 1
        kind = purpose.name.lower().replace("_", "-")
        name = f"{probe}-{self.count:02d}-{kind}-{tokens}{'-stream' if stream else ''}"
        return Shot(
            id=name,
            probe=probe,
            purpose=purpose,
            sentinel=Sentinel(name, tenant, next(self.words)),
            nonce=f"{self.random.getrandbits(48):012x}",
            tokens=tokens,
            max_tokens=max_tokens,
            manner=manner,
            temperature=heat,
            stream=stream,
            seed=self.random.getrandbits(31),
            spare=Sentinel(name, tenant, next(self.words)) if purpose is Purpose.READ else None,
        )

"""What will be asked, decided before the first request: the same for the same seed, facts and budget.

Order is the point. Controls first (can this model give a sentinel back at all?); then the borders that must be
refused; then the longest legal prompts, tenant A's, which are border checks and planting at once; when all of them have
finished, tenant B reads: over the limits first (the planted pages were released last), within them after that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from pagefence.fleet import Limits
from pagefence.probes.prompt import ASKING, LIST, Manner
from pagefence.probes.sentinel import Sentinel, draw

BOUNDARY = "boundary"
CANARY = "canary"
ANSWER = 32
BORDER_ANSWER = 2
_MOST_PLANTS = 6
_MOST_OVER = 16
_ROUNDS = 3
_PLAIN = Manner()
_ASKING = Manner(wording=ASKING)
_LISTING = Manner(layout=LIST)


class Purpose(StrEnum):
    CONTROL = "control"
    OVER = "border over the limit"
    WITHIN = "border within the limit"
    PLANT = "planting"
    READ_OVER = "reading over the limit"
    READ = "reading"


@dataclass(frozen=True, slots=True)
class Shot:
    """One request to send: how long, whose, with which words, in which form.

    `spare`: other words for a second try. A small model slips over some words now and then; a fleet that answers from
    other pages than the prompt's loses any words.
    """

    id: str
    probe: str
    purpose: Purpose
    sentinel: Sentinel
    nonce: str
    tokens: int
    max_tokens: int
    manner: Manner = _PLAIN
    temperature: float = 0.0
    stream: bool = False
    seed: int = 0
    spare: Sentinel | None = None

    @property
    def with_spare(self) -> Shot | None:
        """The same length in other words, asked greedily; None when there are none."""
        if self.spare is None:
            return None
        return replace(self, sentinel=self.spare, nonce=self.nonce[::-1], manner=_PLAIN, temperature=0.0, spare=None)

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
    def reads(self) -> bool:
        return self.purpose in (Purpose.READ, Purpose.READ_OVER)


@dataclass(frozen=True, slots=True)
class Wave:
    """Shots whose order does not matter, run together as far as `room` tokens allow (0: one at a time).

    `unproven`: only while the fleet answers over its limits and no answer has proven whose words it is made of.
    """

    title: str
    shots: tuple[Shot, ...]
    room: int
    unproven: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`fresh`: the seed is new, so no prompt of this plan can be in anybody's cache."""

    waves: tuple[Wave, ...]
    fresh: bool = True

    @property
    def shots(self) -> tuple[Shot, ...]:
        return tuple(shot for wave in self.waves for shot in wave.shots)

    @property
    def expected(self) -> tuple[Shot, ...]:
        """What is asked of a fleet that keeps its limits."""
        return tuple(shot for wave in self.waves if not wave.unproven for shot in wave.shots)

    @property
    def sentinels(self) -> tuple[Sentinel, ...]:
        return tuple(words for shot in self.shots for words in (shot.sentinel, shot.spare) if words is not None)

    @property
    def prompt_tokens(self) -> int:
        """The expected cost: what is over a limit is refused and costs nothing."""
        return sum(s.tokens for s in self.expected if s.within)

    @property
    def new_tokens(self) -> int:
        return sum(s.max_tokens for s in self.expected if s.within)


class _Maker:
    """Hands out sentinels, nonces and ids in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"plan {seed}")
        self.words: Iterator[tuple[str, ...]] = draw(seed)
        self.count = 0

    def shot(
        self,
        probe: str,
        purpose: Purpose,
        tenant: str,
        tokens: int,
        max_tokens: int,
        manner: Manner = _PLAIN,
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


def make_plan(limits: Limits, seed: int, probes: tuple[str, ...] = (BOUNDARY, CANARY), fresh: bool = True) -> Plan:
    """The whole run for these limits."""
    maker = _Maker(seed)
    waves: list[Wave] = []
    if CANARY in probes:
        waves.append(Wave("positive controls", _controls(maker, limits), limits.pool))
    plants: tuple[Shot, ...] = ()
    if BOUNDARY in probes:
        waves.append(Wave("borders over the limits", _over(maker, limits), limits.pool))
        plants = _within(maker, limits)
    if CANARY in probes:
        plants += _plants(maker, limits, sum(s.tokens for s in plants))
    waves.append(Wave("longest legal prompts (tenant A plants)", plants, limits.cover))
    if CANARY in probes:
        waves.append(Wave("tenant B reads over the limits", _read_over(maker, limits), 0))
        for _ in range(_ROUNDS):
            waves.append(
                Wave("it answers over its limits: plant again", _plants(maker, limits, limits.cover - 1), 0, True)
            )
            waves.append(Wave("it answers over its limits: read again", _read_again(maker, limits), 0, True))
        waves.append(Wave("tenant B reads within the limits", _read(maker, limits), limits.pool))
    return Plan(tuple(wave for wave in waves if wave.shots), fresh)


def _controls(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    tokens = max(40, min(128, limits.longest // 4))
    return tuple(
        maker.shot(CANARY, Purpose.CONTROL, "ab"[i % 2], tokens, 24, (_PLAIN, _ASKING)[i // 2], 0.0, i % 2 == 1)
        for i in range(4)
    )


def borders_over(limits: Limits) -> tuple[int, ...]:
    """Lengths that must be refused: just over every limit and at it, and far beyond. Equal ones are one."""
    edges = {limits.longest + 1, limits.context, limits.context + 1, limits.advertised, limits.advertised + 1}
    edges |= {pool + d for pool in (limits.pools[0], limits.pools[-1]) for d in (0, 1)}
    edges.add(2 * limits.advertised)
    return tuple(sorted(n for n in edges if n > limits.longest))


def _over(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    return tuple(
        maker.shot(BOUNDARY, Purpose.OVER, "b", n, BORDER_ANSWER, stream=stream)
        for n in borders_over(limits)
        for stream in (False, True)
    )


def _within(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    """The limit and one less, both forms: what is accepted costs real compute, so these four are all."""
    return tuple(
        maker.shot(
            BOUNDARY,
            Purpose.WITHIN,
            "a",
            n,
            _room(limits, n, BORDER_ANSWER),
            _LISTING if stream else _PLAIN,
            stream=stream,
        )
        for n in (limits.longest - 1, limits.longest)
        for stream, layout in ((False, _PLAIN), (True, _LISTING))
    )


def _room(limits: Limits, tokens: int, wanted: int) -> int:
    return max(1, min(wanted, limits.context - tokens))


def _plants(maker: _Maker, limits: Limits, planted: int) -> tuple[Shot, ...]:
    """Enough of the longest prompts that every page of the largest decode pool is touched, within the budget."""
    shots: list[Shot] = []
    while planted < limits.cover and len(shots) < _MOST_PLANTS:
        tokens = max(40, min(limits.longest, max(limits.cover - planted, limits.longest // 2)))
        layout = (_PLAIN, _LISTING)[maker.count % 2]
        shots.append(maker.shot(CANARY, Purpose.PLANT, "a", tokens, _room(limits, tokens, 2), layout))
        planted += tokens
    return tuple(shots)


def reading_over(limits: Limits) -> tuple[int, ...]:
    """Lengths for readers over a limit. Most of them just over the smallest: there the fewest pages are unplanted.

    And most of those just over a page border: what lies last in memory speaks loudest, and there it is short.

    A fleet may believe in any context that one of its parts advertises, so the answer has to fit into the largest.
    """
    edge = max(limits.pool, limits.longest)
    believed = limits.advertised
    pages = -(-edge // limits.page) * limits.page
    near = [limits.longest + 1, edge + 2, edge + 14, *(pages + k * limits.page + d for k in (1, 2, 3) for d in (1, 2))]
    far = [(edge + believed) // 2, believed - ANSWER] if edge < believed else []
    fitting = [n for n in (*near, *far) if n + ANSWER <= believed]
    refused = [limits.context + 1, believed + 1, believed + 33]
    return tuple(sorted({n for n in (*fitting, *refused) if n > limits.longest}))[:_MOST_OVER]


def _read_over(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    return tuple(
        maker.shot(CANARY, Purpose.READ_OVER, "b", n, ANSWER, *_manner(i), stream=i % 2 == 1)
        for i, n in enumerate(reading_over(limits))
    )


def _read_again(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    """The three lengths at which planted words surface best: the fewest slots after the planted pages."""
    edge = max(limits.pool, limits.longest)
    pages = -(-edge // limits.page) * limits.page
    lengths = sorted({limits.longest + 1, pages + 1, pages + limits.page + 1})
    return tuple(
        maker.shot(CANARY, Purpose.READ_OVER, "b", n, ANSWER, stream=i % 2 == 0) for i, n in enumerate(lengths)
    )


def _manner(i: int) -> tuple[Manner, float]:
    """Neutral and greedy mostly; one in five asks, one in five samples."""
    return (_ASKING if i % 5 == 4 else _PLAIN), (0.8 if i % 5 == 3 else 0.0)


def _read(maker: _Maker, limits: Limits) -> tuple[Shot, ...]:
    """Readers that are legal: one near the limit, then shorter and shorter ones, which buy probes for few tokens."""
    top = min(limits.longest, limits.context - ANSWER)
    wanted = [0.95] + [0.25] * 3 + [0.1] * 4 + [0.065] * 9
    lengths = [max(40, min(top, round(limits.longest * part))) for part in wanted]
    return tuple(
        maker.shot(CANARY, Purpose.READ, "b", n, 24, *_manner(i), stream=i % 2 == 0) for i, n in enumerate(lengths)
    )

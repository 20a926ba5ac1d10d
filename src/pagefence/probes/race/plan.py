"""What is sent in a race, decided before: the same for the same seed, limits and profile.

In blocks, each with its own skew (mostly prefill, mostly decode, mixed) and its own crowd, because a race needs one leg
to be busy while the other waits. Every prompt begins with a fresh nonce and has words of its own, but one kind: who
hung up may ask the very same again soon, as clients do.

The order, the prompts and who hangs up after how many events come from the seed. When a request meets which other one,
and how far it is when its client leaves before the first event, is up to the fleet's pace: a race is not replayed, it
is run again with the same odds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pagefence.fleet import Limits
from pagefence.probes.estimate import Estimate
from pagefence.probes.race.words import draw_pairwise
from pagefence.probes.sentinel import Sentinel
from pagefence.probes.shot import HangUp, Purpose, Shot

NAME = "race"
BLOCK = 40
TELLING = 12  # new tokens from which on an answer holds all of somebody's words
CONTROLS = 8
_HANG_UPS, _AGAIN, _STREAMS, _SAME_SEED = 0.3, 0.4, 0.7, 0.2
_AGAIN_AFTER = 2
_SHORTEST = 56
_LONG = 0.85  # of the longest legal prompt: lengths are estimated, and this one must be legal


@dataclass(frozen=True, slots=True)
class Profile:
    """How much a race may cost. `tokens`: prompt and new tokens of everything planned; `seconds`: of the crowd, after
    which no more is sent; `at_once`: requests in flight."""

    probes: int = 2000
    tokens: int = 400_000
    seconds: float = 900.0
    at_once: int = 16


@dataclass(frozen=True, slots=True)
class Skew:
    """A mixture of requests: the shares of balanced, prefill-heavy and decode-heavy ones."""

    name: str
    shares: tuple[float, float, float]


SKEWS = (
    Skew("mixed", (0.8, 0.1, 0.1)),
    Skew("prefill-heavy", (0.35, 0.55, 0.1)),
    Skew("decode-heavy", (0.25, 0.05, 0.7)),
)


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that are sent in this order, so many of them in flight."""

    skew: Skew
    at_once: int
    shots: tuple[Shot, ...]


@dataclass(frozen=True, slots=True)
class RacePlan:
    """`controls` are asked alone, before; the same ones under other nonces afterwards (`after`). `long` and
    `long_after`: a prompt for which most of the pool must be there."""

    controls: tuple[Shot, ...]
    blocks: tuple[Block, ...]
    after: tuple[Shot, ...]
    long: Shot
    long_after: Shot
    profile: Profile

    @property
    def shots(self) -> tuple[Shot, ...]:
        return tuple(shot for block in self.blocks for shot in block.shots)

    @property
    def everything(self) -> tuple[Shot, ...]:
        return (*self.controls, self.long, *self.shots, *self.after, self.long_after)

    @property
    def estimate(self) -> Estimate:
        """What it costs at most: who hangs up lets the fleet compute less."""
        prompts, new = self.tokens
        return Estimate(len(self.everything), prompts, new, prompts)

    @property
    def cost(self) -> str:
        """What it costs at most, in a sentence."""
        prompts, new = self.tokens
        return (
            f"race: {len(self.everything):,} requests, up to {self.profile.at_once} at once, at most {prompts:,} "
            f"prompt tokens and {new:,} new ones, {self.profile.seconds:g} s for the crowd"
        )

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt tokens and new tokens, if nobody hung up."""
        return sum(s.tokens for s in self.everything), sum(s.max_tokens for s in self.everything)


def plan(limits: Limits, seed: int, profile: Profile) -> RacePlan:
    """The whole race."""
    made = _Race(limits, seed)
    controls = tuple(made.shot("ab"[i % 2], _SHORTEST, 2 * TELLING, stream=i % 4 < 2) for i in range(CONTROLS))
    size = max(_SHORTEST, min(round(_LONG * limits.longest), profile.tokens // 20))
    long = made.shot("a", size, limits.room(size, TELLING))
    left = profile.tokens - 2 * sum(s.tokens + s.max_tokens for s in (*controls, long))
    blocks = tuple(_blocks(made, profile, left))
    return RacePlan(controls, blocks, tuple(made.anew(s) for s in controls), long, made.anew(long), profile)


def _blocks(made: _Race, profile: Profile, left: int) -> Iterator[Block]:
    wanted = profile.probes
    while wanted > 0 and left > 0:
        skew = made.rng.choice(SKEWS)
        at_once = max(2, round(profile.at_once * made.rng.choice((0.25, 0.5, 1.0, 1.0))))
        shots: list[Shot] = []
        for shot in made.crowd(skew, min(BLOCK, wanted)):
            left -= shot.tokens + shot.max_tokens
            if left < 0:
                break
            shots.append(shot)
        wanted -= len(shots)
        if shots:
            yield Block(skew, at_once, tuple(shots))


class _Race:
    """Hands out requests in order."""

    def __init__(self, limits: Limits, seed: int) -> None:
        self.limits = limits
        self.rng = random.Random(f"race {seed}")
        self.words = draw_pairwise(seed)
        self.count = 0
        self.last_seed = 0

    def shot(self, tenant: str, tokens: int, new: int, stream: bool = False, leaves: HangUp | None = None) -> Shot:
        self.count += 1
        name = f"{NAME}-{self.count:05d}"
        tokens = max(24, min(tokens, self.limits.longest - 2))
        if self.rng.random() >= _SAME_SEED:  # the one field of a greedy request that two clients may choose alike
            self.last_seed = self.rng.getrandbits(31)
        return Shot(
            id=name,
            probe=NAME,
            purpose=Purpose.RACE,
            sentinel=Sentinel(name, tenant, next(self.words)),
            nonce=f"{self.rng.getrandbits(48):012x}",
            tokens=tokens,
            max_tokens=self.limits.room(tokens, new),
            stream=stream,
            seed=self.last_seed,
            hang_up=leaves,
        )

    def anew(self, shot: Shot) -> Shot:
        """The same request with other words and another nonce."""
        return self.shot(shot.tenant, shot.tokens, shot.max_tokens, shot.stream)

    def crowd(self, skew: Skew, many: int) -> Iterator[Shot]:
        """`many` requests; who hung up asks again two places later, to the end."""
        due: dict[int, Shot] = {}
        for place in range(many):
            if place in due:
                yield due[place]
                continue
            shot = self._drawn(skew)
            if shot.hang_up is not None and self.rng.random() < _AGAIN:
                due[place + _AGAIN_AFTER] = replace(shot, id=f"{shot.id}-again", hang_up=None)
            yield shot

    def _drawn(self, skew: Skew) -> Shot:
        rng = self.rng
        kind = rng.choices(("balanced", "prefill", "decode"), skew.shares)[0]
        tenant, stream = rng.choice("ab"), rng.random() < _STREAMS
        if kind == "prefill":
            tokens, new = rng.randint(128, 384), 1
        elif kind == "decode":
            tokens, new = rng.randint(_SHORTEST, 64), rng.randint(32, 64)
        else:
            tokens, new = rng.randint(_SHORTEST, 96), rng.randint(TELLING, 24)
        return self.shot(tenant, tokens, new, stream, self._leaves(stream, new))

    def _leaves(self, stream: bool, new: int) -> HangUp | None:
        """At any moment: before a byte, in the middle, when the end has just been told."""
        rng = self.rng
        if rng.random() >= _HANG_UPS:
            return None
        if not stream or new == 1:
            return HangUp(paces=rng.uniform(0.05, 3.0))
        when = rng.choice(("before", "middle", "middle", "end"))
        if when == "before":
            return HangUp(paces=rng.uniform(0.05, 1.5))
        return HangUp(at_end=True) if when == "end" else HangUp(events=rng.randint(1, new - 1))

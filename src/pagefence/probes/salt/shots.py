"""Groups of shots about one prompt: its owner sends it twice, then the other tenant does, then the owner sends a twin.

A prompt is several cache pages long, for only full pages are shared. Who owns which group is drawn, so that neither
tenant always comes first. A twin is as long, in the same words, and differs in its nonce alone: every page of it after
the first holds the same tokens as the prompt's, and still none of them may be found, for keys form a chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from pagefence.fleet import Limits
from pagefence.probes.fresh import CACHE_TOLERANCE
from pagefence.probes.salt.ks import ALPHA, samples_needed
from pagefence.probes.salt.sharing import Sharing
from pagefence.probes.shot import Maker, Purpose, Shot, Wave

NAME = "salt"
_PAGES = 4
_ANSWER = 16
_GROUPS, _GROUPS_ALONE = 2, 6
# What is seen with the planned number of samples: hits that are faster than this share of misses, or, where not every
# replica holds the cache, this share of replicas.
DISTANCE, POWER = 0.42, 0.95


class Arm(StrEnum):
    """What an answer is compared as. The last four are those of the measurement of time."""

    FIRST = "first"
    AGAIN = "again"
    OTHER = "other-key"
    TWIN = "twin"
    PRIME = "prime"
    HIT = "timed-hit"
    CROSS = "timed-other"
    FRESH = "timed-fresh"


_FOLLOWING = (
    (Arm.AGAIN, "the same prompt, the same key"),
    (Arm.OTHER, "the same prompt, the other key"),
    (Arm.TWIN, "the same key, another prompt"),
)


def length(limits: Limits) -> int | None:
    """Tokens of a prompt: four pages and a bit. None where not even two pages and an answer fit."""
    page = max(limits.page, CACHE_TOLERANCE)
    most = min(limits.longest, limits.context - _ANSWER, limits.pool // 2)
    wanted = min(_PAGES * page + 8, most)
    return wanted if wanted > 2 * page else None


def waves(maker: Maker, limits: Limits, sharing: Sharing, alone: bool) -> list[Wave]:
    """Two groups beside other probes, more when this one runs alone."""
    tokens = length(limits)
    if tokens is None:
        return []
    salts = {tenant: f"pagefence-{maker.random.getrandbits(64):016x}" for tenant in "ab"}
    count = max(1, min(_GROUPS_ALONE if alone else _GROUPS, limits.pool // 2 // tokens))
    owners = ["ab"[i % 2] for i in range(count)]
    maker.random.shuffle(owners)
    firsts = [_first(maker, owner, tokens, sharing, salts, i % 2 == 1) for i, owner in enumerate(owners)]
    found = [Wave("two tenants, each a new prompt", tuple(firsts), limits.pool)]
    for arm, title in _FOLLOWING:
        found.append(Wave(title, tuple(_like(maker, first, arm, salts) for first in firsts), limits.pool))
    return found + (list(_timed(maker, firsts[0], limits, salts)) if sharing.timing else [])


def _first(maker: Maker, tenant: str, tokens: int, sharing: Sharing, salts: dict[str, str], stream: bool) -> Shot:
    shot = maker.shot(NAME, Purpose.SHARE, tenant, tokens, _ANSWER, stream=stream)
    extra = ((sharing.field, salts[tenant]),) if sharing.field is not None else ()
    return replace(shot, arm=Arm.FIRST, extra=extra)


def _like(maker: Maker, first: Shot, arm: Arm, salts: dict[str, str], nonce: str | None = None) -> Shot:
    """Another shot about the same prompt. Its words have the same owner: giving them back is no leak."""
    maker.count += 1
    tenant = {"a": "b", "b": "a"}[first.tenant] if arm in (Arm.OTHER, Arm.CROSS) else first.tenant
    return replace(
        first,
        id=f"{NAME}-{maker.count:02d}-{arm}-{first.tokens}",
        sentinel=replace(first.sentinel, tenant=tenant),
        nonce=nonce or (_twin(first.nonce) if arm is Arm.TWIN else first.nonce),
        stream=first.stream != (arm is Arm.AGAIN),
        arm=arm,
        extra=tuple((name, salts[tenant]) for name, _ in first.extra),
    )


def _twin(nonce: str) -> str:
    """A nonce of as many tokens: other digits, the same letters."""
    other = nonce.translate(str.maketrans("0123456789", "1234567890"))
    return other if other != nonce else nonce[::-1]


def _timed(maker: Maker, first: Shot, limits: Limits, salts: dict[str, str]) -> Iterator[Wave]:
    """In rounds that the pool holds: prompts are sent once, then asked again in a shuffled order, one at a time."""
    left = samples_needed(DISTANCE, ALPHA, POWER)
    at_once = max(1, limits.pool // (5 * first.tokens))
    while left > 0:
        count = min(left, at_once)
        left -= count
        nonces = [f"{maker.random.getrandbits(48):012x}" for _ in range(2 * count)]
        quick = replace(first, max_tokens=1, stream=False)
        primed = [_timer(maker, quick, Arm.PRIME, nonce, salts) for nonce in nonces[:count]]
        timed = [_timer(maker, shot, arm, shot.nonce, salts) for shot in primed for arm in (Arm.HIT, Arm.CROSS)]
        timed += [_timer(maker, quick, Arm.FRESH, nonce, salts) for nonce in nonces[count:]]
        maker.random.shuffle(timed)
        yield Wave("prompts to be timed", tuple(primed), limits.pool // 2, counted=False)
        yield Wave("time to the first token", tuple(timed), 0, counted=False)


def _timer(maker: Maker, like: Shot, arm: Arm, nonce: str, salts: dict[str, str]) -> Shot:
    return replace(_like(maker, like, arm, salts, nonce), stream=True, max_tokens=2)

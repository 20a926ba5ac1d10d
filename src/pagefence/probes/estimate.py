"""What a plan costs, said before it is carried out, and about how long it takes at the pace of the first answers."""

from __future__ import annotations

from dataclasses import dataclass

from pagefence.fleet import Fleet, Request
from pagefence.probes.shot import Plan

_WORDS, _NEW = 200, 8


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a request that needs no compute, of a prompt token and of a new one, as one client sees them."""

    request_s: float
    prompt_token_s: float
    new_token_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a fleet that keeps its limits: what is over one is refused and costs nothing. `most_prompt_tokens`: when
    everything is answered, also what must be refused."""

    requests: int
    prompt_tokens: int
    new_tokens: int
    most_prompt_tokens: int
    seconds: float | None = None


def estimate(plan: Plan, pace: Pace | None = None) -> Estimate:
    """Requests are taken one after the other, so the time is an upper one where the fleet takes several at once."""
    seconds = None
    if pace is not None:
        seconds = len(plan.expected) * pace.request_s
        seconds += plan.prompt_tokens * pace.prompt_token_s + plan.new_tokens * pace.new_token_s
    most = sum(shot.tokens for shot in plan.shots)
    return Estimate(len(plan.expected), plan.prompt_tokens, plan.new_tokens, most, seconds)


def together(one: Estimate, other: Estimate) -> Estimate:
    """Both, one after the other; without a time."""
    return Estimate(
        one.requests + other.requests,
        one.prompt_tokens + other.prompt_tokens,
        one.new_tokens + other.new_tokens,
        one.most_prompt_tokens + other.most_prompt_tokens,
    )


async def measure(fleet: Fleet) -> Pace | None:
    """The pace of two answers: a word, and a prompt of 200. None when one of them did not come as it should."""
    short = await fleet.complete(Request("Hello", 1), "a", 30.0)
    longer = await fleet.complete(Request(" ".join(["and"] * _WORDS), _NEW, stream=True), "a", 60.0)
    if not short.answered or not longer.answered or longer.ttft_s is None:
        return None
    tokens = longer.prompt_tokens or _WORDS
    new = max(1, (longer.completion_tokens or _NEW) - 1)
    compute = max(0.0, longer.ttft_s - short.total_s)
    return Pace(short.total_s, compute / tokens, max(0.0, longer.total_s - longer.ttft_s) / new)


def in_words(cost: Estimate) -> str:
    """One line for a person."""
    took = "" if cost.seconds is None else f", about {_duration(cost.seconds)} at the pace of the first answers"
    return (
        f"{cost.requests:,} requests, about {cost.prompt_tokens:,} prompt tokens and {cost.new_tokens:,} new ones{took}"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

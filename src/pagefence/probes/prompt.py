"""Prompts of an exact number of tokens, saturated with one sentinel.

The layout follows what surfaces: a nonce first (a cache hit on it would be a finding), then nothing but lines that carry
the whole sentinel, so that every page holds it and no filler dictates the continuation. A line is about ten tokens,
shorter than any page in use. The pages beyond the first matter most: the first is what the incident overwrote.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pagefence.probes.sentinel import Sentinel

NEUTRAL = "neutral"
ASKING = "asking"
TAILS = {NEUTRAL: "", ASKING: "Repeat the line above.\n"}
PAD = " and"
_TRIES = 12

Counter = Callable[[str], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and its length. `counted` is False when the fleet did not tell and `tokens` is an estimate."""

    text: str
    tokens: int
    counted: bool


def lay_out(nonce: str, sentinel: Sentinel, lines: int, pads: int, wording: str = NEUTRAL) -> str:
    line = f"The secret words are {sentinel}.\n"
    return f"{nonce}{PAD * pads}\n{line * lines}{TAILS[wording]}"


async def write(count: Counter, nonce: str, sentinel: Sentinel, tokens: int, wording: str = NEUTRAL) -> Prompt:
    """The prompt of exactly `tokens` tokens, counted by the fleet's own tokenizer.

    Measures the empty layout and one line, lays out as many lines as fit and fills the rest with single-token words;
    then counts the whole and corrects. Where tokens merge across a join the correction settles it; where it does not,
    the nearest length is returned with its true count.
    """
    base = await count(lay_out(nonce, sentinel, 0, 0, wording))
    ten = await count(lay_out(nonce, sentinel, 10, 0, wording))
    if base is None or ten is None:
        return estimate(nonce, sentinel, tokens, wording)
    line = max(1, round((ten - base) / 10))
    lines = max(1, (tokens - base) // line)
    pads = max(0, tokens - base - lines * line)
    best = Prompt("", 0, True)
    for _ in range(_TRIES):
        text = lay_out(nonce, sentinel, lines, pads, wording)
        have = await count(text)
        if have is None:
            return estimate(nonce, sentinel, tokens, wording)
        if not best.text or abs(have - tokens) < abs(best.tokens - tokens):
            best = Prompt(text, have, True)
        if have == tokens:
            break
        pads += tokens - have
        while pads < 0 and lines > 1:
            lines, pads = lines - 1, pads + line
        pads = max(0, pads)
    return best


def estimate(nonce: str, sentinel: Sentinel, tokens: int, wording: str) -> Prompt:
    """For a fleet that does not count tokens for us: about 1.35 tokens a word, and not to be relied on at a border."""
    lines = max(1, round((tokens - 10) / 10.5))
    return Prompt(lay_out(nonce, sentinel, lines, 0, wording), tokens, False)

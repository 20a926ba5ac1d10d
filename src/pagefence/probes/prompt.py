"""Prompts of an exact number of tokens, saturated with one sentinel.

The layout follows what surfaces: a nonce first (a cache hit on it would be a finding), then nothing but lines that
carry the whole sentinel, so that every page holds it and no filler dictates the continuation. A line is about ten
tokens, shorter than any page in use. The pages beyond the first matter most: the first is what the incident overwrote.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pagefence.probes.sentinel import Sentinel

NEUTRAL = "neutral"
ASKING = "asking"
TAILS = {NEUTRAL: "", ASKING: "Repeat the line above.\n"}
SENTENCE = "sentence"
LIST = "list"
LINES = {SENTENCE: "The secret words are {}.\n", LIST: "- {}\n"}
PAD = " and"
_TRIES = 12

Counter = Callable[[str], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and its length. `counted` is False when `tokens` is fitted to reported usage, not counted."""

    text: str
    tokens: int
    counted: bool


@dataclass(frozen=True, slots=True)
class Manner:
    """How the lines look, and what follows them."""

    layout: str = SENTENCE
    wording: str = NEUTRAL


def lay_out(nonce: str, sentinel: Sentinel, lines: int, pads: int, manner: Manner) -> str:
    line = LINES[manner.layout].format(sentinel)
    return f"{nonce}{PAD * pads}\n{line * lines}{TAILS[manner.wording]}"


@dataclass(frozen=True, slots=True)
class Ruler:
    """How prompts are measured: by the fleet's tokenizer, or fitted to the usage that it reports (not `exact`).

    `sizes` remembers, per manner, what the empty layout and one line took: a good first guess for the next prompt.
    """

    count: Counter
    exact: bool
    sizes: dict[Manner, tuple[int, int]] = field(default_factory=dict)


async def write(ruler: Ruler, nonce: str, sentinel: Sentinel, tokens: int, manner: Manner) -> Prompt | None:
    """The prompt of `tokens` tokens; None when the ruler gives no count.

    Lays out as many lines as fit and fills the rest with single-token words; then counts the whole and corrects. Where
    tokens merge across a join the correction settles it; where it does not, the nearest length comes with its count.
    """
    if manner not in ruler.sizes:
        empty = await ruler.count(lay_out(nonce, sentinel, 0, 0, manner))
        ten = await ruler.count(lay_out(nonce, sentinel, 10, 0, manner))
        if empty is None or ten is None:
            return None
        ruler.sizes[manner] = (empty, max(1, round((ten - empty) / 10)))
    base, line = ruler.sizes[manner]
    lines = max(1, (tokens - base) // line)
    pads = max(0, tokens - base - lines * line)
    best: Prompt | None = None
    for _ in range(_TRIES):
        text = lay_out(nonce, sentinel, lines, pads, manner)
        have = await ruler.count(text)
        if have is None:
            return None
        if best is None or abs(have - tokens) < abs(best.tokens - tokens):
            best = Prompt(text, have, ruler.exact)
        if have == tokens:
            break
        pads += tokens - have
        while pads < 0 and lines > 1:
            lines, pads = lines - 1, pads + line
        more = max(0, pads // line - 1)  # a wrong guess of the line's size must not end as a page of padding
        lines, pads = lines + more, max(0, pads - more * line)
    return best


def pieces(text: str) -> int:
    """Words and line ends: what a fitted count is proportional to."""
    return len(text.split()) + text.count("\n")


def fitted(short: tuple[str, int], long: tuple[str, int]) -> Counter:
    """A count for a fleet that counts no tokens for us: a line through the usage that two of its answers reported."""
    (few, few_tokens), (many, many_tokens) = short, long
    slope = (many_tokens - few_tokens) / max(1, pieces(many) - pieces(few))

    async def count(text: str) -> int | None:
        return round(few_tokens + slope * (pieces(text) - pieces(few)))

    return count

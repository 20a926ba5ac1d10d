"""What an answer's end says against what it held, and its counts against ours. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pagefence.edge.watching.chunks import Usage
from pagefence.edge.watching.expected import Expected
from pagefence.edge.watching.finding import Doubt, Kind
from pagefence.edge.watching.order import Order

_KNOWN = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})


def prompt_tokens(usage: Usage, expected: Expected) -> Iterator[Doubt]:
    """The prompt that was answered has as many tokens as the one that was sent (I4)."""
    told = usage.prompt_tokens
    if told is None:
        return
    least, most = expected.least_tokens, expected.most_tokens
    facts: dict[str, int | float] = {"told": told, "at_least": least}
    if most is not None:
        facts["at_most"] = most
    if told < least or (most is not None and told > most):
        exact = expected.prompt_tokens is not None
        what = (
            "the prompt's tokens are not those that were counted" if exact else "the prompt's tokens are out of bounds"
        )
        yield Doubt(Kind.PROMPT_TOKENS, what, facts=facts)


def sane(usage: Usage, expected: Expected) -> Iterator[Doubt]:
    """Counts are counts, add up, and keep to what was asked for (I6)."""
    if not usage.sane:
        yield Doubt(Kind.USAGE, "the counts of usage do not fit each other")
    asked, made = expected.asked_new_tokens, usage.completion_tokens
    if asked is not None and made is not None and made > asked * (expected.choices or 1):
        yield Doubt(Kind.USAGE, "more tokens than were asked for", facts={"told": made, "asked": asked})


def foreign_cache(usage: Usage, expected: Expected) -> Iterator[Doubt]:
    """No more from a cache than this tenant can have put there (I7)."""
    cached, most = usage.cached_tokens, expected.cached_at_most
    if cached and most is not None and cached > most:
        what = "more of the prompt came from a cache than this tenant had ever sent"
        yield Doubt(Kind.FOREIGN_CACHE, what, expected.history_complete, {"cached": cached, "at_most": most})


def finishes(order: Order, usage: Usage | None, expected: Expected, stream: bool, failed: bool) -> Iterator[Doubt]:
    """Every choice has one end, and the end fits what came before it (I5)."""
    if failed:
        return
    made = usage.completion_tokens if usage is not None else None
    wanted = range(expected.choices) if expected.choices is not None else sorted(order.begun)
    missing = [index for index in wanted if index not in order.finishes]
    if missing:
        yield Doubt(Kind.NO_END, "a choice has no finish reason", facts={"choices": len(missing)})
    if stream and not order.done:
        yield Doubt(Kind.NO_END, "the stream ended without its last event")
    reasons = set(order.finishes.values())
    if reasons - _KNOWN:
        yield Doubt(Kind.NO_END, "a finish reason that is none of OpenAI's", sure=False)
    silent = [i for i, reason in order.finishes.items() if reason in ("stop", "length") and i not in order.spoke]
    if silent and not made:
        sure = made == 0 or any(order.finishes[i] == "length" for i in silent)
        yield Doubt(Kind.NO_CONTENT, "an ordinary end, and nothing before it", sure, {"choices": len(silent)})
    if order.spoke and made == 0:
        yield Doubt(Kind.USAGE, "text that is made of no tokens")
    yield from _cut_short(order.finishes, made, usage, expected)


def _cut_short(
    reasons: Mapping[int, str], made: int | None, usage: Usage | None, expected: Expected
) -> Iterator[Doubt]:
    """`length` of every choice, and fewer tokens than were asked for: the engine had less room than was reserved."""
    asked = expected.asked_new_tokens
    if asked is None or made is None or not reasons or set(reasons.values()) != {"length"}:
        return
    if made < asked * len(reasons):
        facts = {"told": made, "asked": asked * len(reasons)}
        yield Doubt(Kind.CUT_SHORT, "`length` before the tokens that were asked for", facts=facts)

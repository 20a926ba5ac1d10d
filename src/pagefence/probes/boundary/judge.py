"""The borders of the live limits: what fits is answered in full, what does not gets the original error, once, at once.

Within a limit: HTTP 200, the prompt tokens that we counted, at least one new token. Over it: as `classify` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.fleet import Limits
from pagefence.probes.boundary.classify import Finding, finding, form, truncated, unanswered
from pagefence.probes.boundary.shots import NAME
from pagefence.probes.details import details
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.fresh import cache_hits
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Purpose


def judge(seen: Seen) -> ProbeResult:
    """One row per border and form; a finding where the answer was not the one that the rules ask for."""
    mine, limits = seen.of(NAME), seen.limits
    checks = [Check("limits", "by the fleet's answers", _reached(mine, seen))]
    evidence: list[Evidence] = []
    refused = 0
    alive = _alive(seen)
    # A sign of life that came is none of the borders; one that did not come is a legal prompt without an answer.
    borders = [o for o in mine if o.shot.purpose is not Purpose.ALIVE or not o.answer.answered]
    for outcome in sorted(borders, key=lambda o: (o.shot.tokens, o.shot.stream)):
        where = f"{outcome.prompt.tokens:,} tokens, {'stream' if outcome.shot.stream else 'plain'}"
        fits = (
            outcome.prompt.tokens <= limits.longest if outcome.shot.purpose is Purpose.SEARCH else outcome.shot.within
        )
        found = _within(outcome) if fits else finding(outcome, limits, alive)
        if found is None:
            refused += not fits
            checks.append(Check("border", where, _fine(outcome, fits)))
            continue
        kind, what, rule, guard = found
        checks.append(Check("border", where, what, kind))
        evidence.append(
            Evidence(
                kind,
                NAME,
                "border",
                where,
                what,
                rule,
                guard,
                _remedy(kind, guard),
                details(outcome, limits) | {"form": str(form(outcome))},
            )
        )
    evidence += cache_hits(NAME, mine, limits) if seen.plan.fresh else []
    evidence += _left_out(borders, limits) if seen.complete(NAME) else []
    return ProbeResult(NAME, tuple(checks), tuple(evidence), refused=refused, finished=seen.complete(NAME))


def _alive(seen: Seen) -> bool:
    """Whether the fleet gave both signs of life, before and after what is over its limits."""
    signs = [o.answer.answered for o in seen.of(NAME) if o.shot.purpose is Purpose.ALIVE]
    return len(signs) >= 2 and all(signs)


def _reached(mine: Sequence[Outcome], seen: Seen) -> str:
    """Advertised, accepted, answered: three figures that need not be one."""
    if seen.found is not None:
        return seen.found
    accepted = [o for o in mine if o.answer.status == 200 and o.answer.error is None]
    answered = [o for o in accepted if o.answer.answered and (o.answer.completion_tokens or o.answer.text)]
    most = [f"{max((o.prompt.tokens for o in some), default=0):,}" for some in (accepted, answered)]
    limits = seen.limits
    figures = f"advertised {limits.advertised:,}, longest by its figures {limits.longest:,}"
    return f"{figures}; accepted {most[0]}, answered {most[1]}"


def _left_out(borders: Sequence[Outcome], limits: Limits) -> list[Evidence]:
    """A border with a side that nobody asked is no border; the budget leaves out what costs a whole prompt."""
    inside = any(o.prompt.tokens == limits.longest and o.answer.status is not None for o in borders)
    outside = any(not o.shot.within for o in borders)
    if inside and outside:
        return []
    if any(o.shot.purpose is Purpose.WITHIN for o in borders) and outside:
        return []  # it was asked, and what came of it is a finding of its own
    side = "over" if not outside else "at"
    what = (
        f"no prompt {side} the limit of {limits.longest:,} tokens was asked: the budget of prompt tokens is too small"
    )
    remedy = f"--budget {4 * limits.longest:,} asks it in both forms.".replace(",", "")
    return [Evidence(Kind.INCONCLUSIVE, NAME, "border", "", what, remedy=remedy)]


def _fine(outcome: Outcome, fits: bool) -> str:
    if fits:
        return "accepted: HTTP 200, as many prompt tokens as sent"
    return f"refused: HTTP {outcome.answer.status} before any body byte"


def _within(outcome: Outcome) -> Finding | None:
    answer = outcome.answer
    common = unanswered(outcome)
    if common is not None:
        return common
    if not answer.answered:
        said = answer.error.message if answer.error else "no message"
        if not outcome.prompt.counted:
            return Kind.INCONCLUSIVE, f"HTTP {answer.status} at a length that was estimated: {said[:160]}", None, None
        return Kind.FAIL, f"within the reported limit but HTTP {answer.status}: {said[:160]}", "I8", None
    if answer.prompt_tokens is None:
        return Kind.INCONCLUSIVE, "the answer tells no prompt tokens", "I4", None
    if outcome.prompt.counted and answer.prompt_tokens != outcome.prompt.tokens:
        if answer.prompt_tokens < outcome.prompt.tokens:
            return truncated(outcome)
        what = f"sent {outcome.prompt.tokens:,} prompt tokens, the answer was made from {answer.prompt_tokens:,}"
        return Kind.CORRUPT, what, "I4", None
    if not answer.completion_tokens and not answer.text:
        return Kind.FAIL, "answered HTTP 200 without a single token", "I5", None
    if not outcome.prompt.counted:
        return Kind.INCONCLUSIVE, "the fleet does not count tokens for us, so the border is not exact", None, None
    return None


def _remedy(kind: Kind, guard: str | None) -> str:
    if guard is not None:
        return "The guard held; remove the fault behind it. Do not deploy."
    if kind is Kind.INCONCLUSIVE:
        return "Find out why no usable answer came, then ask again."
    return "Refuse at the edge what no worker can hold, before anything is reserved or sent."

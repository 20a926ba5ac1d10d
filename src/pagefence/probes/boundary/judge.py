"""The borders of the live limits: what fits is answered in full, what does not gets the original error, once, at once.

Within a limit: HTTP 200, the prompt tokens that we counted, at least one new token. Over it: the 4xx about the length,
before any body byte, streaming or not (I3). An over-length prompt that is answered was answered from something else.
"""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.boundary.shots import NAME
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen

Finding = tuple[Kind, str, str | None, str | None]  # kind, what, rule, guard


def judge(seen: Seen) -> ProbeResult:
    """One row per border and form; a finding where the answer was not the one that the rules ask for."""
    mine, limits = seen.of(NAME), seen.limits
    checks: list[Check] = []
    evidence: list[Evidence] = []
    refused = 0
    for outcome in sorted(mine, key=lambda o: (o.shot.tokens, o.shot.stream)):
        where = f"{outcome.prompt.tokens:,} tokens, {'stream' if outcome.shot.stream else 'plain'}"
        finding = _within(outcome) if outcome.shot.within else _over(outcome, limits)
        if finding is None:
            refused += not outcome.shot.within
            checks.append(Check("border", where, _fine(outcome)))
            continue
        kind, what, rule, guard = finding
        checks.append(Check("border", where, what, kind))
        evidence.append(
            Evidence(kind, NAME, "border", where, what, rule, guard, _remedy(kind, guard), details(outcome, limits))
        )
    if not mine:
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "border", "", "no border could be asked"))
    return ProbeResult(NAME, tuple(checks), tuple(evidence), refused=refused, finished=seen.complete(NAME))


def details(outcome: Outcome, limits: Limits) -> dict[str, object]:
    """The facts of one answer that a report gives for it."""
    answer = outcome.answer
    return {
        "request": outcome.shot.id,
        "prompt_tokens_sent": outcome.prompt.tokens,
        "prompt_tokens_reported": answer.prompt_tokens,
        "status": answer.status,
        "stream": outcome.shot.stream,
        "limit": limits.longest,
        "smallest_pool": limits.pool,
        "error": answer.error.message if answer.error else None,
        "seconds": round(answer.total_s, 3),
    }


def _fine(outcome: Outcome) -> str:
    if outcome.shot.within:
        return "accepted: HTTP 200, as many prompt tokens as sent"
    return f"refused: HTTP {outcome.answer.status} before any body byte"


def unanswered(outcome: Outcome) -> Finding | None:
    """What is the same on both sides of a limit: a guard that stepped in, silence, saturation, no permission."""
    answer = outcome.answer
    if answer.contained and answer.error is not None:
        error = answer.error
        what = f"contained: guard {error.guard} refused (HTTP {answer.status}, {error.code}): {error.message}"
        return Kind.FAIL, what, error.rule, error.guard
    if answer.status is None or answer.problem is not None:
        return Kind.INCONCLUSIVE, f"no answer: {answer.problem}", "I3", None
    if answer.status in (401, 403, 404, 429, 503):
        said = answer.error.message if answer.error else "no message"
        return Kind.INCONCLUSIVE, f"could not ask: HTTP {answer.status} ({said[:160]})", None, None
    return None


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
        what = f"sent {outcome.prompt.tokens:,} prompt tokens, the answer was made from {answer.prompt_tokens:,}"
        return Kind.CORRUPT, what, "I4", None
    if not answer.completion_tokens and not answer.text:
        return Kind.FAIL, "answered HTTP 200 without a single token", "I5", None
    if not outcome.prompt.counted:
        return Kind.INCONCLUSIVE, "the fleet does not count tokens for us, so the border is not exact", None, None
    return None


def _over(outcome: Outcome, limits: Limits) -> Finding | None:
    answer = outcome.answer
    if answer.refused_as_too_long:
        if not outcome.prompt.counted:
            return Kind.INCONCLUSIVE, "the fleet does not count tokens for us, so the border is not exact", None, None
        return None
    common = unanswered(outcome)
    if common is not None:
        return common
    if answer.status == 200 and answer.error is not None:
        what = "the error came inside a stream that had begun with HTTP 200"
        return Kind.FAIL, f"{what}: {answer.error.message[:160]}", "I3", None
    if answer.status == 200 and not outcome.prompt.counted and (answer.prompt_tokens or 0) <= limits.longest:
        return Kind.INCONCLUSIVE, "the length was estimated, and the prompt was no longer than the limit", None, None
    if answer.status == 200:
        impossible = outcome.prompt.tokens > min(limits.pool, limits.context)
        why = (
            f"no node with a pool of {limits.pool:,} can hold it: the answer was made from something else"
            if outcome.prompt.tokens > limits.pool
            else f"it is over the limit of {limits.longest:,}"
        )
        kind = Kind.CORRUPT if impossible else Kind.FAIL
        return kind, f"{outcome.prompt.tokens:,} tokens were answered with HTTP 200, though {why}", "I3", None
    said = answer.error.message if answer.error else "no message"
    what = f"refused with HTTP {answer.status} instead of the original error about the length: {said[:160]}"
    return Kind.FAIL, what, "I3", None


def _remedy(kind: Kind, guard: str | None) -> str:
    if guard is not None:
        return "The guard held; remove the fault behind it. Do not deploy."
    if kind is Kind.INCONCLUSIVE:
        return "Find out why no usable answer came, then ask again."
    return "Refuse at the edge what no worker can hold, before anything is reserved or sent."

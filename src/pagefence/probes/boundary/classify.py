"""What came back for a prompt over the limit: one form of many, each with what it means.

A right refusal is the original error, a 4xx about the length before any body byte, with nothing generated (I3).

Silence. A hang up to the deadline, or a connection that is closed, is FAIL where the same tenant was answered before
and after it: then the fleet was there, the network carried answers, and only the length was different, so what is
missing is a bounded refusal. Without both signs of life it may as well have been an outage: INCONCLUSIVE.
"""

from __future__ import annotations

from enum import StrEnum

from pagefence.fleet import Limits
from pagefence.probes.boundary.told import told_length
from pagefence.probes.evidence import Kind
from pagefence.probes.run import Outcome

Finding = tuple[Kind, str, str | None, str | None]  # kind, what, rule, guard
_SATURATED, _BARRED = (429, 503), (401, 403, 404)
# A fitted length is off by a few per cent at most; one that is reported a quarter shorter is another prompt.
_SURELY_SHORTER = 0.75
_LATE_S = 2.0


class Form(StrEnum):
    """The forms of an answer to a prompt that is too long."""

    REFUSED = "refused"
    REFUSED_LATE = "refused after tokens were generated"
    IN_STREAM = "refused inside a stream that had begun"
    BROKEN_OFF = "an answer that ended in an error"
    TRUNCATED = "truncated silently"
    IN_FULL = "answered in full"
    CONTAINED = "contained by a guard"
    SILENT = "no answer until the deadline"
    CLOSED = "connection closed"
    SATURATED = "rate limited or overloaded"
    BARRED = "not permitted"
    OTHER_ERROR = "another error"
    NOT_ASKED = "not asked"


def form(outcome: Outcome) -> Form:
    """Which one it is. Says nothing about whether that is right."""
    answer = outcome.answer
    if answer.status is None or (answer.problem is not None and answer.error is None and not answer.text):
        return _without_answer(outcome)
    if answer.contained:
        return Form.CONTAINED
    if answer.status == 200:
        return _with_200(outcome)
    if answer.refused_as_too_long:
        return Form.REFUSED_LATE if answer.completion_tokens else Form.REFUSED
    if answer.status in _SATURATED:
        return Form.SATURATED
    return Form.BARRED if answer.status in _BARRED else Form.OTHER_ERROR


def _without_answer(outcome: Outcome) -> Form:
    if not outcome.answer.total_s and (outcome.answer.problem or "").startswith("not asked"):
        return Form.NOT_ASKED
    return Form.SILENT if outcome.answer.timed_out else Form.CLOSED


def _with_200(outcome: Outcome) -> Form:
    answer, sent = outcome.answer, outcome.prompt
    if answer.error is not None:
        return Form.IN_STREAM if answer.refused_in_stream else Form.BROKEN_OFF
    shorter = sent.tokens if sent.counted else sent.tokens * _SURELY_SHORTER
    if answer.prompt_tokens is not None and answer.prompt_tokens < shorter:
        return Form.TRUNCATED
    return Form.IN_FULL


def finding(outcome: Outcome, limits: Limits, alive: bool) -> Finding | None:
    """What the answer to a prompt over the limit means; None for the refusal that it should be.

    `alive`: the same tenant was answered before and after.
    """
    answer = outcome.answer
    said = answer.error.message[:160] if answer.error else (answer.problem or "no message")
    match form(outcome):
        case Form.REFUSED:
            return _at_which_length(outcome, limits)
        case Form.REFUSED_LATE:
            what = f"refused for its length, but the error reports {answer.completion_tokens} generated tokens: {said}"
            return Kind.FAIL, what, "I3", None
        case Form.IN_STREAM:
            worked = f", after {answer.completion_tokens} generated tokens" if answer.completion_tokens else ""
            what = f"the error came inside a stream that had begun with HTTP 200{worked}: {said}"
            return Kind.FAIL, what, "I3", None
        case Form.BROKEN_OFF:
            came = f"{len(answer.text)} characters of an answer came" if answer.text else "a stream had begun"
            return Kind.FAIL, f"{came} with HTTP 200 before the error{_late(outcome)}: {said}", "I3", None
        case Form.TRUNCATED:
            return truncated(outcome)
        case Form.IN_FULL:
            return _answered(outcome, limits)
        case Form.SILENT | Form.CLOSED as silence:
            return _silence(silence, said, alive)
        case Form.OTHER_ERROR:
            what = f"refused with HTTP {answer.status}{_late(outcome)} instead of the original error about the length"
            return Kind.FAIL, f"{what}: {said}", "I3", None
    return unanswered(outcome)


def _late(outcome: Outcome) -> str:
    """A decode that waits for pages which never come says so after its own time-out; a refusal takes no time."""
    seconds = outcome.answer.total_s
    return f" after {seconds:.0f} s" if seconds >= _LATE_S else ""


def truncated(outcome: Outcome) -> Finding:
    """Fewer prompt tokens answered than sent, and no word about it: on either side of a limit it is the same."""
    about = "" if outcome.prompt.counted else "about "
    what = f"truncated silently: sent {about}{outcome.prompt.tokens:,} prompt tokens, the answer was made from "
    what += f"{outcome.answer.prompt_tokens:,}, with HTTP 200 and no error"
    return Kind.CORRUPT, what, "I4", None


def unanswered(outcome: Outcome) -> Finding | None:
    """What is the same on both sides of a limit: a guard that stepped in, silence, saturation, no permission."""
    answer = outcome.answer
    if answer.contained and answer.error is not None:
        error = answer.error
        what = f"contained: guard {error.guard} refused (HTTP {answer.status}, {error.code}): {error.message}"
        return Kind.FAIL, what, error.rule, error.guard
    if answer.status is None or answer.problem is not None:
        return Kind.INCONCLUSIVE, f"no answer: {answer.problem}", "I3", None
    said = answer.error.message[:160] if answer.error else "no message"
    if answer.status in _SATURATED:
        why = "rate limited" if answer.status == 429 else "overloaded or not ready"
        return Kind.INCONCLUSIVE, f"could not ask: {why}, HTTP {answer.status} ({said})", None, None
    if answer.status in _BARRED:
        return Kind.INCONCLUSIVE, f"could not ask: HTTP {answer.status} ({said})", None, None
    return None


def _at_which_length(outcome: Outcome, limits: Limits) -> Finding | None:
    """A refusal is right; where nobody counted the prompt, it has to have been over the limit all the same."""
    told = told_length(outcome.answer.error)
    if outcome.prompt.counted or (told is not None and told > limits.longest):
        return None
    return Kind.INCONCLUSIVE, "the fleet does not count tokens for us, so the border is not exact", None, None


def _answered(outcome: Outcome, limits: Limits) -> Finding:
    answer, sent = outcome.answer, outcome.prompt
    if not sent.counted and (answer.prompt_tokens or 0) <= limits.longest:
        what = "the length was estimated, and the prompt was no longer than the limit"
        return Kind.INCONCLUSIVE, what, None, None
    what = f"{sent.tokens:,} tokens were answered with HTTP 200"
    what += "" if answer.prompt_tokens is not None else " and no usage"
    if limits.asked:
        return (
            Kind.FAIL,
            f"{what}, though fewer were refused: over its limit this fleet does not decide alike",
            "I3",
            None,
        )
    if sent.tokens > limits.pool:
        what += f", though no node with a pool of {limits.pool:,} can hold it: the answer was made from something else"
        return Kind.CORRUPT, what, "I3", None
    kind = Kind.CORRUPT if sent.tokens > limits.context else Kind.FAIL
    return kind, f"{what}, though it is over the limit of {limits.longest:,}", "I3", None


def _silence(silence: Form, said: str, alive: bool) -> Finding:
    how = "hung until the deadline" if silence is Form.SILENT else "ended the connection without one"
    if alive:
        what = f"no bounded refusal: the fleet {how} ({said}), while short prompts before and after were answered"
        return Kind.FAIL, what, "I3", None
    what = f"no answer: {said}; no short prompt was answered both before and after, so the fleet may be down"
    return Kind.INCONCLUSIVE, what, "I3", None

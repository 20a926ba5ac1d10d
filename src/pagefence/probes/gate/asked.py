"""What the active checks asked and what came back, and what one such answer means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagefence.fleet import Answer
from pagefence.probes.evidence import Kind

# What a client must never set: each names a peer, a room, another request, or the key of a cache.
FIELDS = (
    "bootstrap_host", "bootstrap_port", "bootstrap_room", "kv_transfer_params", "disaggregated_params", "rid",
    "cache_salt", "extra_key", "data_parallel_rank",
)  # fmt: skip

Judgement = tuple[Kind | None, str]


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """The answer to a request in which a client set `field`."""

    field: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class EdgeAnswer:
    """The answer to a prompt of `tokens` tokens beside the edge limit. `counted` is False for an estimated length."""

    tokens: int
    over: bool
    counted: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class ActiveResults:
    """All that was asked. `obstacle` says why nothing or not all could be."""

    fields: tuple[FieldAnswer, ...] = ()
    edge: tuple[EdgeAnswer, ...] = ()
    obstacle: str | None = None


def judge_field(asked: FieldAnswer) -> Judgement:
    """Refused by a 4xx that names the field is refused. A field that is dropped in silence cannot be told from one
    that is believed."""
    answer, name = asked.answer, asked.field
    doubt = _not_asked(answer)
    if doubt is not None:
        return Kind.INCONCLUSIVE, f"{name}: {doubt}"
    said = answer.error.message if answer.error is not None else "no message"
    if answer.status is not None and 400 <= answer.status < 500 and not answer.begun:
        named = answer.error is not None and (answer.error.param == name or _names(said, name))
        if named:
            return None, f"{name}: refused with HTTP {answer.status}, by name"
        return Kind.INCONCLUSIVE, f"{name}: HTTP {answer.status}, which does not name it ({said[:120]})"
    if answer.status == 200 and answer.error is None:
        return Kind.FAIL, f"{name}: set by a client, it was answered with HTTP 200 instead of a refusal"
    return Kind.FAIL, f"{name}: set by a client, it got HTTP {answer.status} ({said[:120]}) instead of a refusal"


def _names(text: str, field: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(field)}(?!\w)", text) is not None


def judge_edge(asked: EdgeAnswer, limit: int) -> Judgement:
    """Over the limit the original error, at once and with nothing generated; within it an answer, as the control."""
    answer = asked.answer
    form = "stream" if answer.stream else "plain"
    where = f"{asked.tokens:,} tokens ({form})"
    doubt = _not_asked(answer)
    generated = bool(answer.answered or answer.text or answer.completion_tokens)
    if doubt is not None and not (asked.over and generated):  # what broke off after some tokens had been generated
        return Kind.INCONCLUSIVE, f"{where}: {doubt}"
    said = answer.error.message if answer.error is not None else "no message"
    if not asked.over:
        if not answer.answered:
            return Kind.INCONCLUSIVE, f"control: {where} are within the limit, but HTTP {answer.status} ({said[:120]})"
        told = answer.prompt_tokens
        if told is not None and told < asked.tokens:
            what = f"it was answered as one of {told:,}, so what was sent as over the limit may not have been"
            return Kind.INCONCLUSIVE, f"control: {where}: {what}"
        return None, f"{where}: answered, as they are within the limit"
    if generated:
        if not asked.counted and (answer.prompt_tokens or 0) <= limit:
            return Kind.INCONCLUSIVE, f"{where}: the length was an estimate, and the prompt was not over the limit"
        return Kind.FAIL, f"{where}: over the declared edge limit of {limit:,}, but something was generated"
    if answer.refused_as_too_long:
        if not asked.counted:
            return Kind.INCONCLUSIVE, f"{where}: refused, but the fleet does not count tokens for us: not exact"
        return None, f"{where}: refused with HTTP {answer.status}, nothing generated"
    what = f"over the declared edge limit of {limit:,}, it got HTTP {answer.status} ({said[:120]})"
    return Kind.FAIL, f"{where}: {what} instead of the original error about the length"


def _not_asked(answer: Answer) -> str | None:
    """What keeps an answer from meaning anything: silence, saturation, no permission."""
    if answer.status is None or (answer.problem is not None and answer.status == 200):
        return f"no answer: {answer.problem}"
    if answer.status in (401, 403, 404, 429, 503):
        return f"could not ask: HTTP {answer.status} ({answer.error.message[:120] if answer.error else 'no message'})"
    return None


def edge_judged(active: ActiveResults, limit: int) -> tuple[Judgement, ...]:
    return tuple(judge_edge(asked, limit) for asked in active.edge)


def edge_shown(active: ActiveResults | None, limit: int) -> bool:
    """Whether the edge limit was seen to be kept: both forms refused over it, and an answer within."""
    if active is None or active.obstacle is not None:
        return False
    over = {asked.answer.stream for asked in active.edge if asked.over}
    within = any(not asked.over for asked in active.edge)
    return over == {True, False} and within and all(kind is None for kind, _ in edge_judged(active, limit))

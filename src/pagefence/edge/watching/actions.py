"""What is done about a finding, by kind. Decided here; carried out by the proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from pagefence.edge.refusal import Refusal
from pagefence.edge.watching.finding import Finding, Kind

SCHEMA_VERSION = 1


class Action(StrEnum):
    """
    log         a line
    metric      counted, by kind and rule
    alert       a webhook
    quarantine  a buffered answer is kept back: the client gets an error instead
    cut         a stream ends here, with an error event; a buffered answer is kept back
    """

    LOG = "log"
    METRIC = "metric"
    ALERT = "alert"
    QUARANTINE = "quarantine"
    CUT = "cut"


_TOLD = frozenset({Action.LOG, Action.METRIC})
_KEPT_BACK = frozenset({*_TOLD, Action.ALERT, Action.QUARANTINE})
_ALL = frozenset(Action)
_CERTAIN = (Kind.SENTINEL, Kind.MIXED_STREAM, Kind.SHARED_ID)
# Text of another tenant may be public text that nobody named as such: no stream is cut for it unless it is asked for.
_LIKELY = (Kind.PROMPT_TOKENS, Kind.TOO_FAST, Kind.FOREIGN_CACHE, Kind.FOREIGN_TEXT)
USUAL: Mapping[Kind, frozenset[Action]] = {
    **dict.fromkeys(Kind, _TOLD),
    **dict.fromkeys(_LIKELY, _KEPT_BACK),
    **dict.fromkeys(_CERTAIN, _ALL),
}


@dataclass(frozen=True, slots=True)
class Actions:
    """By kind of finding. What is not sure is logged and counted, and no more, unless `doubts_too`."""

    by_kind: Mapping[Kind, frozenset[Action]] = field(default_factory=lambda: USUAL)
    doubts_too: bool = False

    def of(self, finding: Finding) -> frozenset[Action]:
        chosen = self.by_kind.get(finding.kind, _TOLD)
        return chosen if finding.doubt.sure or self.doubts_too else chosen & _TOLD


@dataclass(frozen=True, slots=True)
class Orders:
    """What the proxy is to do now.

    lines    fields of log lines
    counted  findings to be counted
    alert    the body of a webhook, or None
    instead  what the client gets instead of this answer, or of the rest of its stream; None: the answer may go on
    """

    lines: tuple[Mapping[str, object], ...] = ()
    counted: tuple[Finding, ...] = ()
    alert: bytes | None = None
    instead: Refusal | None = None


NOTHING = Orders()
WITHHELD = Refusal(
    502,
    "answer_withheld",
    "The answer was withheld: it did not pass the checks of this service. Nothing is wrong with the request; its id "
    "helps the operator to find out more.",
)


def orders(findings: Sequence[Finding], actions: Actions, buffered: bool, at: float) -> Orders:
    """What follows from findings. `buffered`: no byte of the answer went out yet; `at`: Unix seconds."""
    if not findings:
        return NOTHING
    chosen = [(finding, actions.of(finding)) for finding in findings]
    alerting = [finding for finding, of in chosen if Action.ALERT in of]
    stopping = {Action.QUARANTINE, Action.CUT} if buffered else {Action.CUT}
    stopped = any(stopping & of for _, of in chosen)
    return Orders(
        lines=tuple({"actions": sorted(of), **finding.as_json()} for finding, of in chosen if Action.LOG in of),
        counted=tuple(finding for finding, of in chosen if Action.METRIC in of),
        alert=alert_body(alerting, at) if alerting else None,
        instead=WITHHELD if stopped else None,
    )


def alert_body(findings: Sequence[Finding], at: float) -> bytes:
    """What a webhook receives."""
    told = [finding.as_json() for finding in findings]
    return msgspec.json.encode(
        {"schema_version": SCHEMA_VERSION, "source": "pagefence edge", "at": at, "findings": told}
    )

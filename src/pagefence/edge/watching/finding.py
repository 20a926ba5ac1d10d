"""What watching finds: figures, keyed hashes, ids and tags. No word of a prompt or an answer is in any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What can be wrong with an answer; what each means stands in docs/concepts/edge-scan.md."""

    PROMPT_TOKENS = "prompt-tokens"
    USAGE = "usage"
    NO_CONTENT = "no-content"
    CUT_SHORT = "cut-short"
    NO_END = "no-end"
    ERROR_IN_STREAM = "error-in-stream"
    TOO_FAST = "too-fast"
    MIXED_STREAM = "mixed-stream"
    AFTER_END = "after-end"
    SHARED_ID = "shared-id"
    FOREIGN_CACHE = "foreign-cache"
    SENTINEL = "sentinel"
    FOREIGN_TEXT = "foreign-text"
    MALFORMED = "malformed"


RULES: Mapping[Kind, str] = {
    Kind.PROMPT_TOKENS: "I4",
    Kind.USAGE: "I6",
    Kind.NO_CONTENT: "I5",
    Kind.CUT_SHORT: "I5",
    Kind.NO_END: "I5",
    Kind.ERROR_IN_STREAM: "I3",
    Kind.TOO_FAST: "I4",
    Kind.MIXED_STREAM: "I10",
    Kind.AFTER_END: "I5",
    Kind.SHARED_ID: "I10",
    Kind.FOREIGN_CACHE: "I7",
    Kind.SENTINEL: "I1",
    Kind.FOREIGN_TEXT: "I1",
    Kind.MALFORMED: "I5",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """A finding before it is known whose answer it is about.

    what    a sentence that is the same for every answer; figures stand in `facts`
    sure    False: something legal could explain it
    owner   the tag of the tenant whose text it is
    hashes  keyed names of k-grams, equal for equal text while the process lives
    """

    kind: Kind
    what: str
    sure: bool = True
    facts: Mapping[str, int | float] = field(default_factory=dict)
    owner: str | None = None
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A doubt about the answer of one request of one tenant, given by its tag."""

    request_id: str
    tenant_tag: str
    doubt: Doubt

    @property
    def kind(self) -> Kind:
        return self.doubt.kind

    @property
    def rule(self) -> str:
        return RULES[self.doubt.kind]

    def as_json(self) -> dict[str, object]:
        """For a log line or an alert."""
        doubt = self.doubt
        return {
            "kind": doubt.kind.value,
            "rule": self.rule,
            "sure": doubt.sure,
            "what": doubt.what,
            "request_id": self.request_id,
            "tenant_tag": self.tenant_tag,
            "owner_tag": doubt.owner,
            "hashes": list(doubt.hashes),
            "facts": dict(doubt.facts),
        }

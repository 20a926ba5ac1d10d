"""The JSON report. What is in it is a contract: a change that a reader can notice raises `SCHEMA_VERSION`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any

import msgspec

from pagefence import __version__
from pagefence.fleet import FleetFacts, Keys
from pagefence.probes import Evidence, Examination, ProbeResult
from pagefence.verdict.decide import Verdict
from pagefence.verdict.power import Claim

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """How to see a finding again. `answer` is the file with the request body that `read` sends."""

    read: str
    plant: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a report is made of. `line` is the command that was given, `again` one that repeats what was sent."""

    command: str
    examination: Examination
    verdict: Verdict
    results: tuple[ProbeResult, ...]
    seconds: float
    keys: Keys
    interrupted: bool = False
    embedded: bool = False
    line: str = ""
    again: str | None = None
    repeats: Mapping[str, Repeat] = field(default_factory=dict)

    def redacted(self) -> Run:
        """The same without keys, for who does not take them out of a finished document."""
        word = self.keys.redact
        return replace(
            self,
            examination=replace(self.examination, facts=_without_keys(self.examination.facts, word)),
            verdict=_without_keys(self.verdict, word),
            results=_without_keys(self.results, word),
            line=word(self.line),
        )

    def repeat_of(self, evidence: Evidence) -> Repeat | None:
        return self.repeats.get(str(evidence.details.get("request")))


def _without_keys(value: Any, word: Callable[[str], str]) -> Any:
    """A copy of records, tuples and mappings in which every text went through `word`. An enumeration is no text."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) else word(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _without_keys(getattr(value, f.name), word) for f in fields(value) if f.init})
    if isinstance(value, tuple | list):
        return type(value)(_without_keys(inner, word) for inner in value)
    if isinstance(value, Mapping):
        return {_without_keys(name, word): _without_keys(inner, word) for name, inner in value.items()}
    return value


def as_json(run: Run) -> bytes:
    """The whole report, keys redacted."""
    verdict, log = run.verdict, run.examination.log
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "tool": "pagefence",
        "version": __version__,
        "command": run.command,
        "verdict": verdict.name,
        "verdicts": list(verdict.occurred),
        "sentence": verdict.sentence,
        "exit_code": verdict.exit_code,
        "interrupted": run.interrupted,
        "n": verdict.probes,
        "upper_bound_95": verdict.bound,
        "controls": {"held": verdict.controls[0], "asked": verdict.controls[1]},
        "seed": run.examination.config.seed,
        "repeat": run.again,
        "cost": {
            "requests": log.requests,
            "prompt_tokens": log.prompt_tokens,
            "new_tokens": log.new_tokens,
            "seconds": round(run.seconds, 2),
        },
        "fleet": _fleet(run.examination.facts),
        "probes": [_probe(r, run.verdict) for r in run.results],
        "evidence": [_evidence(e, run.repeat_of(e)) for r in run.results for e in r.evidence],
    }
    return encoded(document, run.keys)


def encoded(document: object, keys: Keys) -> bytes:
    """JSON for a file, keys redacted: before they are quoted, so that one with a quotation mark is found as well."""
    plain = _redacted(msgspec.to_builtins(document), keys)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def _redacted(value: object, keys: Keys) -> object:
    if isinstance(value, str):
        # A file name that is no text comes as half a surrogate pair, which no UTF-8 can hold.
        return keys.redact(value).encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_redacted(str(name), keys): _redacted(inner, keys) for name, inner in value.items()}
    if isinstance(value, list | tuple):  # msgspec leaves the tuples of our records as they are
        return [_redacted(inner, keys) for inner in value]
    return value


def _fleet(facts: FleetFacts | None) -> object:
    if facts is None:
        return None
    return asdict(facts)


def _probe(result: ProbeResult, verdict: Verdict) -> dict[str, object]:
    claim = next((c for c in verdict.claims if c.probe == result.name), None)
    return {
        "name": result.name,
        "finished": result.finished,
        "kinds": sorted({str(e.kind) for e in result.evidence}),
        "shown": result.shown,
        "refused": result.refused,
        "controls": {"held": result.controls[0], "asked": result.controls[1]},
        "coincidence": result.coincidence,
        "power": None if claim is None else _power(claim),
        "claim": result.claim,
        "plot": None if result.plot is None else result.plot.as_details(),
        "checks": [
            {"id": c.id, "where": c.where, "text": c.text, "kind": None if c.kind is None else str(c.kind)}
            | ({"undecided": True} if c.undecided else {})
            for c in result.checks
        ],
    }


def _power(claim: Claim) -> dict[str, object]:
    return {
        "seeks": str(claim.seeks),
        "surfacing_95": list(claim.surfacing),
        "upper_bound_95": claim.upper_bound,
        "leak_rate_bound_95": claim.leak_bound,
        "leak_rate": claim.leak_rate,
        "found_with_probability": claim.found,
    }


def _evidence(evidence: Evidence, repeat: Repeat | None) -> dict[str, object]:
    return {
        "kind": str(evidence.kind),
        "probe": evidence.probe,
        "check": evidence.check,
        "where": evidence.where,
        "what": evidence.what,
        "rule": evidence.rule,
        "guard": evidence.guard,
        "remedy": evidence.remedy,
        "details": dict(evidence.details),
        "repeat": None if repeat is None else {"plant": repeat.plant, "read": repeat.read},
    }

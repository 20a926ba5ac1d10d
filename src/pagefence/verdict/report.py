"""The JSON report. What is in it is a contract: a change that a reader can notice raises `SCHEMA_VERSION`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import msgspec

from pagefence import __version__
from pagefence.fleet import FleetFacts, Keys
from pagefence.probes import Evidence, Examination, ProbeResult
from pagefence.probes.estimate import estimate
from pagefence.probes.shot import Plan
from pagefence.verdict.decide import Verdict
from pagefence.verdict.power import Claim
from pagefence.verdict.redaction import mapped

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """How to see a finding again. Shell lines, and the folder with the bodies that they send."""

    read: str
    plant: str | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a report is made of. `line` is the command that was given, `again` one that repeats what was sent.

    masked    whether the words of answers are masked in `results`, so in every report of them
    at        when it ended, Unix seconds
    """

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
    masked: bool = False
    at: float | None = None

    def redacted(self) -> Run:
        """The same without keys, for who does not take them out of a finished document."""
        word = self.keys.redact
        return replace(
            self,
            examination=replace(self.examination, facts=mapped(self.examination.facts, word)),
            verdict=mapped(self.verdict, word),
            results=mapped(self.results, word),
            line=word(self.line),
        )

    @property
    def replay(self) -> str | None:
        """The command that sends what is behind the findings again; None where nothing is saved or nobody is there."""
        folder = next((repeat.folder for repeat in self.repeats.values() if repeat.folder), None)
        return None if folder is None or self.embedded else shlex.join(["pagefence", "replay", folder])

    def repeat_of(self, evidence: Evidence) -> Repeat | None:
        return self.repeats.get(str(evidence.details.get("request")))


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
        "redacted": run.masked,
        "at": run.at,
        "n": verdict.probes,
        "upper_bound_95": verdict.bound,
        "controls": {"held": verdict.controls[0], "asked": verdict.controls[1]},
        "seed": run.examination.config.seed,
        "repeat": run.again,
        "replay": run.replay,
        "cost": {
            "requests": log.requests,
            "prompt_tokens": log.prompt_tokens,
            "new_tokens": log.new_tokens,
            "seconds": round(run.seconds, 2),
        },
        "plan": _plan(run.examination.plan),
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


def _plan(plan: Plan | None) -> object:
    """What was to be sent, also by a dry run; None when it did not come to a plan."""
    if plan is None:
        return None
    cost = estimate(plan)
    return {
        "requests": cost.requests,
        "prompt_tokens": cost.prompt_tokens,
        "new_tokens": cost.new_tokens,
        "most_prompt_tokens": cost.most_prompt_tokens,
        "waves": [
            {
                "title": wave.title,
                "requests": len(wave.shots),
                "lengths": sorted({shot.tokens for shot in wave.shots}),
                "only_if_answered_over_limit": wave.unproven,
            }
            for wave in plan.waves
        ],
    }


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

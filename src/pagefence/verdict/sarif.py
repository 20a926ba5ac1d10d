"""The report as SARIF 2.1.0 (OASIS): a result for each finding, at the node where it was made.

A node is no file, so a result has a logical location. A run without results is clean only when `executionSuccessful`
says so: whatever kept it from an answer is a notification of the invocation, as the standard wants it.
"""

from __future__ import annotations

import hashlib

from pagefence import __version__
from pagefence.probes import Evidence, Kind
from pagefence.protocol.invariants import RULES
from pagefence.verdict.report import Run, encoded

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FLEET_FILE = "fleet.toml"


def as_sarif(run: Run) -> bytes:
    """The whole report, keys redacted."""
    findings = [e for result in run.results for e in result.evidence]
    rules: dict[str, Evidence] = {}
    for finding in findings:
        rules.setdefault(_id(finding), finding)
    numbers = {name: number for number, name in enumerate(rules)}
    driver = {
        "name": "pagefence",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(name, first) for name, first in rules.items()],
    }
    document = {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [_invocation(run)],
                "results": [_result(e, numbers[_id(e)]) for e in findings],
                "columnKind": "unicodeCodePoints",
                "properties": {"verdict": run.verdict.name, "sentence": run.verdict.sentence},
            }
        ],
    }
    return encoded(document, run.keys)


def _id(evidence: Evidence) -> str:
    return f"{evidence.probe}/{evidence.check}"


def _level(kind: Kind) -> str:
    return "warning" if kind is Kind.INCONCLUSIVE else "error"


def _rule(name: str, first: Evidence) -> dict[str, object]:
    """A check, with the rule of the design that it keeps and what to do when it is broken."""
    kept = RULES.get(first.rule or "")
    said = f"{kept.id} {kept.name}: {kept.statement}" if kept is not None else f"The check {name} holds."
    words = name.replace("/", "-").split("-")
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in words),
        "shortDescription": {"text": kept.name.capitalize() if kept is not None else name},
        "fullDescription": {"text": said},
        "help": {"text": f"{said}\nTo do: {first.remedy}" if first.remedy else said},
        "defaultConfiguration": {"level": _level(first.kind)},
        "properties": {"tags": ["security", *([kept.id] if kept is not None else [])]},
    }


def _result(evidence: Evidence, rule: int) -> dict[str, object]:
    what = evidence.what if not evidence.remedy else f"{evidence.what}\nTo do: {evidence.remedy}"
    result: dict[str, object] = {
        "ruleId": _id(evidence),
        "ruleIndex": rule,
        "kind": "fail",
        "level": _level(evidence.kind),
        "message": {"text": what},
        "partialFingerprints": {"pagefence/v1": _fingerprint(evidence)},
        "properties": {"kind": str(evidence.kind), "rule": evidence.rule, "guard": evidence.guard},
    }
    # GitHub's code scanning refuses a report when one result has no place in a file (github/codeql-action#1738). A node
    # is none, so findings lie in the file that says which nodes there are, where the repository keeps one.
    place: dict[str, object] = {"physicalLocation": {"artifactLocation": {"uri": FLEET_FILE}}}
    if evidence.where:
        node = {"fullyQualifiedName": evidence.where, "name": evidence.where.split(" ")[-1], "kind": "resource"}
        place["logicalLocations"] = [node]
    return {**result, "locations": [place]}


def _fingerprint(evidence: Evidence) -> str:
    """The same finding in the next run has the same: its words may hold other figures by then."""
    parts = "\0".join((evidence.probe, evidence.check, evidence.where, str(evidence.kind)))
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:32]


def _invocation(run: Run) -> dict[str, object]:
    verdict = run.verdict
    # INCONCLUSIVE: it ran, but what it was asked to find out it did not find out.
    sound = not run.interrupted and verdict.name != Kind.INCONCLUSIVE
    said = f"interrupted; until then {verdict.name}: {verdict.sentence}" if run.interrupted else verdict.sentence
    notes = [] if sound else [{"level": "error", "message": {"text": said}}]
    return {
        "executionSuccessful": sound,
        "exitCode": verdict.exit_code,
        "exitCodeDescription": "interrupted" if run.interrupted else str(verdict.name if notes else verdict.headline),
        "toolExecutionNotifications": notes,
        **({"commandLine": run.line} if run.line else {}),
    }

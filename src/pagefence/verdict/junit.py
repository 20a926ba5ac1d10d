"""The report as JUnit XML, the shape that Jenkins and its kin read: one test case for each check of each node.

LEAK, CORRUPT and FAIL are failures; INCONCLUSIVE is an error, because nothing was found out. The last suite holds the
verdict itself, so a run that checked nothing, or was interrupted, is never a green one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from pagefence.mistakes import EXIT_INTERRUPTED
from pagefence.probes import Evidence, Kind, ProbeResult
from pagefence.verdict.decide import CLEAN
from pagefence.verdict.report import Run

# What no XML 1.0 document may hold, escaped or not; a lone half of a surrogate pair cannot be written at all.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    kind: str | None
    said: str
    body: str = ""
    undecided: bool = False


def as_junit(run: Run) -> bytes:
    """The whole report, keys redacted. Valid against the schema of the Jenkins xUnit plugin (`junit-10.xsd`)."""
    suites = [(result.name, list(_cases(result))) for result in run.results]
    suites.append(("verdict", [_verdict(run)]))
    root = Xml.Element("testsuites", _counts([case for _, cases in suites for case in cases], "pagefence", run))
    for name, cases in suites:
        suite = Xml.SubElement(root, "testsuite", _counts(cases, f"pagefence.{name}", run))
        for case in cases:
            where = {"classname": f"pagefence.{name}", "name": _clean(run, case.name), "time": "0"}
            element = Xml.SubElement(suite, "testcase", where)
            if case.kind is not None:
                what = "error" if case.kind == Kind.INCONCLUSIVE else "failure"
                bad = Xml.SubElement(element, what, {"type": case.kind, "message": _clean(run, case.said)})
                bad.text = _clean(run, case.body or case.said)
            elif case.undecided:
                Xml.SubElement(element, "skipped", {"message": _clean(run, case.said)})
            else:
                Xml.SubElement(element, "system-out").text = _clean(run, case.said)
    Xml.indent(root)
    document: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _cases(result: ProbeResult) -> Iterator[_Case]:
    findings: dict[tuple[str, str, str], list[Evidence]] = {}
    for evidence in result.evidence:
        findings.setdefault((evidence.check, evidence.where, str(evidence.kind)), []).append(evidence)
    for check in result.checks:
        kind = None if check.kind is None else str(check.kind)
        # Of several rows of one check at one place that went wrong alike, the first has the words of all.
        body = "\n\n".join(map(_body, findings.pop((check.id, check.where, kind or ""), ())))
        yield _Case(_name(check.id, check.where), kind, check.text, body, check.undecided)
    for evidence in (e for left in findings.values() for e in left):
        yield _Case(_name(evidence.check, evidence.where), str(evidence.kind), evidence.what, _body(evidence))
    if not result.finished:
        yield _Case("finished", Kind.INCONCLUSIVE, f"{result.name} did not finish")


def _verdict(run: Run) -> _Case:
    kind, said = run.verdict.name, run.verdict.sentence
    if run.interrupted:
        # 130 is not the code of a verdict: what was seen until then is said, whatever it was.
        said = f"interrupted (exit {EXIT_INTERRUPTED}); until then {kind}: {said}"
        kind = Kind.INCONCLUSIVE if kind == CLEAN else kind
    return _Case("verdict", None if kind == CLEAN else kind, said)


def _name(check: str, where: str) -> str:
    return f"{check} {where}".strip()


def _body(evidence: Evidence) -> str:
    lines = [evidence.what]
    lines += [f"rule: {evidence.rule}"] if evidence.rule else []
    lines += [f"guard: {evidence.guard}"] if evidence.guard else []
    lines += [f"to do: {evidence.remedy}"] if evidence.remedy else []
    return "\n".join(lines)


def _counts(cases: list[_Case], name: str, run: Run) -> dict[str, str]:
    errors = sum(case.kind == Kind.INCONCLUSIVE for case in cases)
    failures = sum(case.kind is not None for case in cases) - errors
    skipped = sum(case.undecided and case.kind is None for case in cases)
    counted = {"tests": len(cases), "failures": failures, "errors": errors}
    # The schema knows it for a suite, not for all of them.
    counted |= {"skipped": skipped} if skipped and name != "pagefence" else {}
    return {"name": name, **{key: str(value) for key, value in counted.items()}, "time": f"{run.seconds:.3f}"}


def _clean(run: Run, text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", run.keys.redact(text))

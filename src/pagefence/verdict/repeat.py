"""Findings that can be seen again: request bodies as files, and curl lines that send them. No key is in either."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pagefence.files import write_atomically
from pagefence.fleet import Limits
from pagefence.probes import Evidence, Examination, Kind, ProbeResult
from pagefence.probes.replay.manifest import FILE, VERSION, Found, Manifest, Sent
from pagefence.probes.run import Outcome
from pagefence.probes.shot import Purpose
from pagefence.verdict.report import Repeat

_KINDS = (Kind.LEAK, Kind.CORRUPT, Kind.FAIL)
_MOST = 20


def save(examination: Examination, results: tuple[ProbeResult, ...], beside: Path | None) -> dict[str, Repeat]:
    """Write the bodies of each finding's request and of the planting one, beside the JSON report or in a folder."""
    outcomes = {o.shot.id: o for o in examination.outcomes}
    wanted: dict[str, str | None] = {}
    for evidence in (e for r in results for e in r.evidence if e.kind in _KINDS):
        request = str(evidence.details.get("request", ""))
        if request in outcomes and len(wanted) < _MOST:
            planted = evidence.details.get("planted_in")
            wanted[request] = str(planted) if planted in outcomes else wanted.get(request)
    if not wanted or examination.facts is None:
        return {}
    limits = examination.limits
    folder = Path(tempfile.mkdtemp(prefix="pagefence-evidence-")) if beside is None else _beside(beside)
    url = examination.facts.url
    if limits is not None:
        write_atomically(folder / FILE, msgspec.json.encode(_manifest(examination, limits, results, wanted, folder)))
    return {
        request: Repeat(
            read=_curl(url, outcomes[request], folder),
            folder=str(folder),
            plant=None if planter is None else _curl(url, outcomes[planter], folder),
        )
        for request, planter in wanted.items()
    }


def _manifest(
    examination: Examination,
    limits: Limits,
    results: tuple[ProbeResult, ...],
    wanted: Mapping[str, str | None],
    folder: Path,
) -> Manifest:
    """What `pagefence replay` needs besides the bodies: the findings, and what their judges need to conclude."""
    outcomes = {o.shot.id: o for o in examination.outcomes}
    support = [o for o in outcomes.values() if _supports(o)]
    named = {*wanted, *(planter for planter in wanted.values() if planter is not None)}
    for outcome in support:
        _body(outcome, folder)
    findings = [
        Found(str(e.kind), e.probe, e.check, e.what, request, _planter(e, outcomes))
        for result in results
        for e in result.evidence
        if e.kind in _KINDS and (request := str(e.details.get("request", ""))) in wanted
    ]
    sent = [*support, *(outcomes[name] for name in named)]
    requests = {o.shot.id: Sent(o.shot, o.prompt.tokens, o.prompt.counted, f"{o.shot.id}.json") for o in sent}
    url, seed = examination.facts.url if examination.facts is not None else "", examination.config.seed
    return Manifest(VERSION, url, seed, limits, requests, [o.shot.id for o in support], findings)


def _supports(outcome: Outcome) -> bool:
    """Positive controls that held, and signs of life."""
    shot = outcome.shot
    return shot.purpose is Purpose.ALIVE or (shot.purpose is Purpose.CONTROL and outcome.recalled)


def _planter(evidence: Evidence, outcomes: Mapping[str, Outcome]) -> str | None:
    planted = evidence.details.get("planted_in")
    return str(planted) if planted in outcomes else None


def _beside(report: Path) -> Path:
    folder = report.with_name(report.name + ".evidence")
    folder.mkdir(exist_ok=True)
    return folder.resolve()


def _curl(url: str, outcome: Outcome, folder: Path) -> str:
    file = _body(outcome, folder)
    key = f"PAGEFENCE_KEY_{outcome.shot.tenant.upper()}"
    return (
        f"curl -sN {shlex.quote(url.rstrip('/') + '/v1/completions')} -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer ${key}" -d @{shlex.quote(str(file))}'
    )


def _body(outcome: Outcome, folder: Path) -> Path:
    file = folder / f"{outcome.shot.id}.json"
    write_atomically(file, msgspec.json.encode(outcome.body))
    return file

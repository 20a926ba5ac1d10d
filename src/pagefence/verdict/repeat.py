"""Findings that can be seen again: request bodies as files, and curl lines that send them. No key is in either."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import msgspec

from pagefence.files import write_atomically
from pagefence.probes import Examination, Kind, ProbeResult
from pagefence.probes.run import Outcome
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
    folder = Path(tempfile.mkdtemp(prefix="pagefence-evidence-")) if beside is None else _beside(beside)
    url = examination.facts.url
    return {
        request: Repeat(
            read=_curl(url, outcomes[request], folder),
            plant=None if planter is None else _curl(url, outcomes[planter], folder),
        )
        for request, planter in wanted.items()
    }


def _beside(report: Path) -> Path:
    folder = report.with_name(report.name + ".evidence")
    folder.mkdir(exist_ok=True)
    return folder.resolve()


def _curl(url: str, outcome: Outcome, folder: Path) -> str:
    file = folder / f"{outcome.shot.id}.json"
    write_atomically(file, msgspec.json.encode(outcome.body))
    key = f"PAGEFENCE_KEY_{outcome.shot.tenant.upper()}"
    return (
        f"curl -sN {shlex.quote(url.rstrip('/') + '/v1/completions')} -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer ${key}" -d @{shlex.quote(str(file))}'
    )

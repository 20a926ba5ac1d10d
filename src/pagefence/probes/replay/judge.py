"""Does a finding show again? The judges of the probes that made it say so, about what came back this time.

A finding that does not show is not gone: it takes an answer that could have shown it. A reader whose own prompt came
from a cache, or who got no answer, showed nothing either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pagefence.fleet import FleetFacts
from pagefence.fleet.facts import unknown
from pagefence.probes.boundary.judge import judge as judge_borders
from pagefence.probes.boundary.shots import NAME as BOUNDARY
from pagefence.probes.canary.judge import judge as judge_words
from pagefence.probes.canary.judge import took
from pagefence.probes.canary.shots import NAME as CANARY
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.fresh import CACHE_TOLERANCE
from pagefence.probes.replay.manifest import Found, Manifest
from pagefence.probes.run import RECALL_NEEDED, Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Plan, Purpose, Wave

NAME = "replay"
JUDGES: Mapping[str, Callable[[Seen], ProbeResult]] = {BOUNDARY: judge_borders, CANARY: judge_words}


def plan_of(manifest: Manifest) -> Plan:
    """The requests as a plan. They were asked before, so a cache may hold them."""
    shots = {sent.shot.id: sent.shot for sent in manifest.order}
    return Plan((Wave("replay", tuple(shots.values()), 0),), fresh=False)


def judge(manifest: Manifest, outcomes: Sequence[Outcome]) -> ProbeResult:
    """A row for each finding that was to be seen again."""
    facts = FleetFacts(manifest.url, None, unknown("", "was not asked"), ())
    seen = Seen(plan_of(manifest), outcomes, manifest.limits, facts)
    judged = {name: judges(seen) for name, judges in JUDGES.items() if seen.of(name)}
    now = [e for result in judged.values() for e in result.evidence if e.kind is not Kind.INCONCLUSIVE]
    last = {outcome.shot.id: outcome for outcome in outcomes}
    checks: list[Check] = []
    evidence: list[Evidence] = []
    for finding in manifest.findings:
        found = _again(finding, now, last)
        kind, text = (found.kind, f"shows again: {found.what}") if found is not None else (None, "does not show again")
        if found is not None and found.kind is Kind.INCONCLUSIVE:
            text = found.what
        checks.append(Check(finding.check, f"{finding.kind} {finding.request}", text, kind))
        evidence += [found] if found is not None and found not in evidence else []
    evidence += _uncontrolled(manifest, outcomes)
    words = judged.get(CANARY, ProbeResult(CANARY))
    return ProbeResult(
        NAME,
        tuple(checks),
        tuple(evidence),
        shown=words.shown,
        refused=sum(o.answer.refused_as_too_long for o in outcomes),
        controls=words.controls,
        coincidence=words.coincidence,
        finished=set(last) == {sent.shot.id for sent in manifest.order},
    )


def _again(finding: Found, now: Sequence[Evidence], last: Mapping[str, Outcome]) -> Evidence | None:
    """What is wrong with this request now: the same if it is there, else the gravest; None when it is as it should."""
    mine = [e for e in now if finding.request == e.details.get("request") or _among(finding.request, e)]
    same = [e for e in mine if (str(e.kind), e.check) == (finding.kind, finding.check)]
    if same or mine:
        return (same or sorted(mine, key=lambda e: list(Kind).index(e.kind)))[0]
    if finding.probe not in JUDGES:
        return _doubt(
            finding, f"findings of {finding.probe} are not replayed: run it again with the seed of the report"
        )
    outcome, planter = last.get(finding.request), last.get(finding.planted_in or "")
    if outcome is None:
        return _doubt(finding, "it was not sent")
    if finding.planted_in is not None and (planter is None or not took(planter)):
        return _doubt(finding, f"what had planted the words ({finding.planted_in}) was not planted again")
    answer = outcome.answer
    if not answer.answered and not (answer.refused_as_too_long and not outcome.shot.within):
        said = answer.error.message[:160] if answer.error else (answer.problem or "no message")
        return _doubt(finding, f"no answer that could show it: HTTP {answer.status}, {said}")
    if (answer.cached_tokens or 0) > CACHE_TOLERANCE:
        what = f"{answer.cached_tokens:,} tokens of its prompt came from the cache, so it was not computed anew"
        return _doubt(finding, what)
    return None


def _uncontrolled(manifest: Manifest, outcomes: Sequence[Outcome]) -> list[Evidence]:
    """A fleet that no longer gives its own words back does not show anybody else's either."""
    if not any(finding.probe == CANARY for finding in manifest.findings):
        return []
    controls = [o.recalled for o in outcomes if o.shot.purpose is Purpose.CONTROL]
    if controls and sum(controls) >= RECALL_NEEDED * len(controls):
        return []
    what = f"positive control {sum(controls)}/{len(controls)}: words that do not show again prove nothing"
    return [Evidence(Kind.INCONCLUSIVE, NAME, "control", "", what, remedy="Run the canary again.")]


def _among(request: str, evidence: Evidence) -> bool:
    several = evidence.details.get("requests")
    return isinstance(several, list) and request in several


def _doubt(finding: Found, why: str) -> Evidence:
    what = f"{finding.request}: {why}"
    remedy = "Restart the fleet, or run the probe again with a new seed."
    return Evidence(Kind.INCONCLUSIVE, NAME, finding.check, finding.request, what, remedy=remedy)

"""From evidence to one verdict. There is no bare "pass": CLEAN carries its number, and silence is INCONCLUSIVE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagefence.mistakes import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED
from pagefence.probes.evidence import Evidence, Kind, ProbeResult
from pagefence.verdict.power import LEAK_RATE, Claim, claims

CLEAN = "CLEAN"
EXIT_CLEAN, EXIT_VIOLATION = 0, 1
_VIOLATIONS = (Kind.LEAK, Kind.CORRUPT, Kind.FAIL)
_SOUGHT = {Kind.LEAK: "leak", Kind.CORRUPT: "corrupt answer", Kind.FAIL: "broken rule", Kind.INCONCLUSIVE: "doubt"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The name that decides, every name that occurred in order of precedence, and the sentence that says why.

    `probes` (answers that could have shown a leak), `bound` and `controls` are those of the weakest of the `claims`:
    5,000 probes of one kind say nothing about another kind that had 4.
    """

    name: str
    occurred: tuple[str, ...]
    sentence: str
    exit_code: int
    probes: int = 0
    bound: float | None = None
    controls: tuple[int, int] = (0, 0)
    claims: tuple[Claim, ...] = ()

    @property
    def headline(self) -> str:
        """LEAK and CORRUPT are two questions with two answers, so they are said together."""
        loud = [k for k in self.occurred if k in (Kind.LEAK, Kind.CORRUPT)]
        return " and ".join(loud) or self.name

    @property
    def besides(self) -> tuple[str, ...]:
        return tuple(k for k in self.occurred if k not in self.headline.split(" and "))


def decide(results: Sequence[ProbeResult], interrupted: bool = False, leak_rate: float = LEAK_RATE) -> Verdict:
    """LEAK before CORRUPT before FAIL before INCONCLUSIVE before CLEAN. Interrupted, the exit code says only that.

    Each probe has a bound of its own. `leak_rate` is what the claims tell the power for; the verdict does not depend on
    it, or who asks for less would get a better one.
    """
    evidence = [e for r in results for e in r.evidence]
    claimed = claims(results, leak_rate)
    doubts = [*_doubts(results), *_vacuous(claimed)]
    kinds = {e.kind for e in evidence} | ({Kind.INCONCLUSIVE} if doubts else set())
    occurred = tuple(k for k in Kind if k in kinds)
    if occurred:
        name, sentence = str(occurred[0]), _why(occurred[0], evidence, doubts)
        code = EXIT_VIOLATION if occurred[0] in _VIOLATIONS else EXIT_INCONCLUSIVE
    else:
        name, sentence, code = CLEAN, _clean(results, claimed), EXIT_CLEAN
    verdict = Verdict(name, occurred or (CLEAN,), sentence, EXIT_INTERRUPTED if interrupted else code, claims=claimed)
    if not claimed:
        return replace(verdict, controls=(sum(r.controls[0] for r in results), sum(r.controls[1] for r in results)))
    weakest = claimed[0]
    bound = None if Kind.LEAK in occurred else weakest.upper_bound
    return replace(verdict, probes=weakest.n, bound=bound, controls=weakest.controls)


def _doubts(results: Sequence[ProbeResult]) -> list[str]:
    """What keeps a run without findings from being clean."""
    doubts = [f"{r.name} did not finish" for r in results if not r.finished]
    if not results:
        doubts.append("no probe ran")
    for result in results:
        looked = result.checks or result.evidence
        if not looked and result.finished:
            doubts.append(f"{result.name} checked nothing")
        if result.name == "canary" and result.finished and not result.shown and not result.evidence:
            doubts.append("no answer could have shown anything")
    # A row that is not as it should be has its finding, here or with another probe; without any, one was lost.
    odd = [(r.name, c) for r in results for c in r.checks if c.kind is not None]
    if odd and not any(r.evidence for r in results):
        name, check = odd[0]
        doubts.append(f"{name}: {check.id} {check.where} is {check.kind}, and no finding says so")
    return doubts


def _vacuous(claimed: Sequence[Claim]) -> list[str]:
    """Silence that leaves every rate possible, and why."""
    return [
        f"{c.probe}: no {_SOUGHT[c.seeks]} in {c.n:,} probes means nothing: with a positive control of "
        f"{c.controls[0]}/{c.controls[1]}, one may show with a chance as low as {c.surfacing[0]:.2g}, "
        "so even a rate of 1 is not excluded"
        for c in claimed
        if c.leak_bound == 1
    ]


def _clean(results: Sequence[ProbeResult], claimed: Sequence[Claim]) -> str:
    if claimed:
        weakest = claimed[0]
        alike = [c.probe for c in claimed if c.seeks is weakest.seeks]
        several = len(alike) > 1
        return (
            f"no {_SOUGHT[weakest.seeks]} in {weakest.n:,} probes{f' of {weakest.probe}' if several else ''}; "
            f"95 % upper bound on the rate p <= {weakest.upper_bound:.3g}; "
            f"positive control {weakest.controls[0]}/{weakest.controls[1]}"
            + (f" (the weakest of {' and '.join(alike)})" if several else "")
        )
    claims = [r.claim for r in results if r.claim is not None]
    if claims:
        return "; ".join(claims)
    held = sum(not c.undecided for r in results for c in r.checks)
    names = " and ".join(r.name for r in results)
    return f"{held}/{held} checks of {names} hold; no prompt was sent that could have shown a leak (n = 0)"


def _why(kind: Kind, evidence: Sequence[Evidence], doubts: Sequence[str]) -> str:
    mine = [e for e in evidence if e.kind is kind]
    if kind is Kind.LEAK:
        return mine[0].what + _more(mine)
    if kind is Kind.CORRUPT:
        return "answers were made from something else than their prompts: " + mine[0].what + _more(mine)
    if kind is Kind.FAIL:
        guarded = [e for e in mine if e.guard]
        first = guarded[0] if guarded else mine[0]
        rule = f" (rule {first.rule})" if first.rule else ""
        return first.what + rule + _more(mine)
    return (mine[0].what + _more(mine)) if mine else "; ".join(doubts)


def _more(found: Sequence[Evidence]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""

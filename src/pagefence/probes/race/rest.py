"""Whether at rest requests hold more than before the crowd: what hang-ups lose, long before a pool runs short of it.

A figure that grew says something only while nobody is answered: every figure of every node has to stand still for half
of the readings, because who is answered makes tokens. What moves may be a stranger's, and is no finding.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.probes.evidence import Check, Evidence, Kind
from pagefence.probes.race.drive import RaceLog
from pagefence.probes.race.plan import NAME
from pagefence.probes.race.readings import Growth, Reading, growths, least, waited_out

_CHECK = "held"
_REMEDY = "Compare what is leased before and after hang-ups; an abort path keeps some."


def leftovers(log: RaceLog) -> tuple[Check, list[Evidence]]:
    """The row about what is held, and the finding if it is more than before."""
    before, after = least(log.held_before), log.held_after
    if not log.held_before or (before and not after):
        return _row("not read: the race did not come so far", undecided=True), []
    told = [url for url in before if after[-1].held[url].amount is not None]
    if not told:
        return _row("not read: no node tells it", undecided=True), []
    grown = sorted(growths(log.held_before, after[-1]), key=lambda g: g.now.late_s)
    if not grown:
        held = [after[-1].held[url] for url in told]
        now = ", ".join(f"{_plain(h.amount or 0)} {h.unit}" for h in held)
        silent = len(after[-1].held) - len(told)
        return _row(f"no more than before: {now}" + (f" ({silent} nodes do not tell it)" if silent else "")), []
    what, waited = _said(grown[0]), after[-1].at - after[0].at
    if not waited_out(after):
        return _row(f"{what}, but the race was interrupted", undecided=True), []
    if not _still(after):
        return _row(f"{what}, but figures still move: others use the fleet, or it still lets go", undecided=True), []
    finding = _finding(log, grown, waited)
    return _row(f"{what}, {waited:.0f} s later still", finding.kind), [finding]


def _finding(log: RaceLog, grown: Sequence[Growth], waited: float) -> Evidence:
    left = sum(e.outcome.answer.hung_up for e in log.crowd)
    more = f" (and {len(grown) - 1} more nodes)" if len(grown) > 1 else ""
    what = (
        f"after {left} hang-ups, {waited:.0f} s at rest and nobody answered meanwhile, {_said(grown[0])}{more}: "
        "it does not come back"
    )
    held = {g.url: {"before": g.before, "after": g.now.amount, "unit": g.now.unit} for g in grown}
    told: dict[str, object] = {"held": held, "hang_ups": left, "seconds": round(waited, 1)}
    late_s = grown[0].now.late_s
    if waited < late_s:
        what += f", unless a timer of the engine gives it back, which may take {late_s:.0f} s"
        remedy = "Read the figure again then, or set the timer shorter and race again."
        return Evidence(Kind.INCONCLUSIVE, NAME, _CHECK, grown[0].url, what, "I6", None, remedy, told)
    return Evidence(Kind.FAIL, NAME, _CHECK, grown[0].url, what, "I6", None, _REMEDY, told)


def _still(after: Sequence[Reading]) -> bool:
    """Whether nothing moved in the second half of the readings, on any node."""
    last = [{url: (h.amount, h.work) for url, h in r.held.items()} for r in after[len(after) // 2 :]]
    return all(figures == last[0] for figures in last)


def _said(growth: Growth) -> str:
    before, now, unit = _plain(growth.before), _plain(growth.now.amount or 0), growth.now.unit
    return f"{growth.url} holds {now} {unit} for requests, {before} before the crowd"


def _plain(amount: float) -> str:
    return f"{amount:,.2f}".rstrip("0").rstrip(".")


def _row(text: str, kind: Kind | None = None, undecided: bool = False) -> Check:
    return Check(_CHECK, "by requests, at rest", text, kind, undecided)

"""What requests hold at rest after a race: told as a finding, as a doubt, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pagefence.fleet import Limits
from pagefence.fleet.engines.adapter import Holding
from pagefence.probes import Kind, ProbeResult
from pagefence.probes.race import readings
from pagefence.probes.race.drive import RaceLog
from pagefence.probes.race.plan import Profile, plan
from pagefence.probes.race.readings import Reading
from pagefence.probes.race.rest import leftovers
from tests.probes.racing import Racing
from tests.probes.test_race_toys import raced
from tests.probes.toy import Toy

PLAN = plan(Limits(506, 640, 512, 640, 512, (640,)), 5, Profile(probes=4, tokens=60_000))
SMALL = Profile(probes=40, tokens=60_000, seconds=60, at_once=8)


def log(before: Sequence[Holding], after: Sequence[Holding], seconds: float = 10.0) -> RaceLog:
    """One node, read evenly over so many seconds."""
    step = seconds / max(1, len(after) - 1)
    told = [Reading(i * step, {"http://node": held}) for i, held in enumerate(after)]
    return RaceLog(PLAN, held_before=[Reading(0, {"http://node": h}) for h in before], held_after=told, complete=True)


def kinds(race: RaceLog) -> tuple[list[Kind], bool]:
    row, evidence = leftovers(race)
    found = [e.kind for e in evidence]
    assert row.kind is (found[0] if found else None)
    return found, row.undecided


def pages(amount: float | None, work: float | None = 7, late_s: float = 0.0) -> Holding:
    return Holding(amount, "pages", work, late_s)


def test_more_than_before_that_stands_still_is_a_violation() -> None:
    row, (finding,) = leftovers(log([pages(2)], [pages(5)] * 5))
    assert (finding.kind, finding.rule, finding.where) == (Kind.FAIL, "I6", "http://node")
    assert finding.remedy
    assert "holds 5 pages for requests, 2 before the crowd" in finding.what
    assert row.kind is Kind.FAIL
    assert kinds(log([pages(2)], [pages(6), *[pages(5, None)] * 4])) == ([Kind.FAIL], False), "the rest came back"


def test_as_much_as_before_or_less_is_as_it_should_be() -> None:
    for after in (pages(2), pages(0)):
        assert kinds(log([pages(4), pages(2)], [after])) == ([], False)
    assert kinds(log([pages(0.1 + 0.2)], [pages(0.3)])) == ([], False)
    assert kinds(log([pages(0.3)], [pages(0.1 + 0.2)])) == ([], False)


@pytest.mark.parametrize(
    "after",
    [
        [pages(5, work) for work in range(5)],  # a stranger is being answered
        [pages(amount) for amount in (3, 4, 5, 6, 7)],  # a stranger's answer grows
        [pages(amount) for amount in (9, 8, 7, 6, 5)],  # it still lets go
        [pages(5), pages(5), pages(5), pages(None, None), pages(5)],  # it was silent in between
        [pages(5)],
    ],
)
def test_what_moves_is_no_finding_and_nothing_shown(after: list[Holding]) -> None:
    assert kinds(log([pages(2)], after)) == ([], True)


def test_a_stranger_on_one_node_leaves_the_others_open() -> None:
    race = log([pages(2)], [pages(5)] * 5)
    for i, reading in enumerate(race.held_after):
        race.held_after[i] = Reading(reading.at, {**reading.held, "http://other": pages(None, i)})
    assert kinds(race) == ([], True)


def test_it_is_not_decided_before_the_fleet_had_time_to_let_go() -> None:
    assert kinds(log([pages(2)], [pages(5)] * 5, seconds=9.0)) == ([], True)


def test_what_a_timer_may_give_back_is_a_doubt() -> None:
    _, (doubt,) = leftovers(log([pages(2)], [pages(5, late_s=300.0)] * 5))
    assert doubt.kind is Kind.INCONCLUSIVE
    assert "300 s" in doubt.what


def test_a_figure_that_is_missing_is_said_to_be_missing() -> None:
    for before, after in (([], []), ([pages(None)], []), ([pages(2)], []), ([pages(2)], [pages(None)])):
        row, evidence = leftovers(log(before, after))
        assert (row.undecided, evidence) == (True, [])
        assert row.text.startswith("not read: ")


def at_rest(world: Racing, monkeypatch: pytest.MonkeyPatch) -> tuple[ProbeResult, str]:
    monkeypatch.setattr(readings, "LET_GO_S", 0.2)
    monkeypatch.setattr(readings, "_PAUSE_S", 0.05)
    (result,) = raced(world, SMALL).results()
    return result, next(check.text for check in result.checks if check.id == "held")


def test_pages_that_hang_ups_lose_show_in_a_pool_too_large_to_run_short(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Racing("loses-pages", Toy(decode_pool=64_000), tells=True)
    result, _ = at_rest(world, monkeypatch)
    assert [(e.kind, e.check, e.rule) for e in result.evidence] == [(Kind.FAIL, "held", "I6")]
    assert "/decode holds" in result.evidence[0].what


def test_a_fleet_that_gives_everything_back_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    result, text = at_rest(Racing(tells=True), monkeypatch)
    assert (result.evidence, text) == ((), "no more than before: 0 pages, 0 pages")


def test_one_that_tells_nothing_is_asked_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    result, text = at_rest(Racing("loses-pages", Toy(decode_pool=64_000)), monkeypatch)
    assert (result.evidence, text) == ((), "not read: no node tells it")


def test_what_others_hold_meanwhile_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Racing("loses-pages", Toy(decode_pool=64_000), tells=True, strangers=True)
    result, text = at_rest(world, monkeypatch)
    assert result.evidence == ()
    assert "others use the fleet" in text

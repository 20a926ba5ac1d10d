"""What times show: which are CORRUPT, which only a doubt, and when there is nothing to conclude."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from pagefence.probes.evidence import ProbeResult
from pagefence.probes.latency.calibration import Calibration, Level
from pagefence.probes.latency.findings import judged
from pagefence.probes.latency.floor import Physics
from pagefence.probes.latency.points import Point
from pagefence.probes.latency.signs import change_point
from pagefence.probes.latency.tally import Floors, Tally

PACE = 1e-4  # seconds that an honest fleet takes for a token, twice its physical floor
PHYSICS = Physics(work_flop=1.0, peak=2 / PACE)
LENGTHS = (64, 128, 256, 512, 1024, 2048)
UNKNOWN = "nobody told"


def honest(rounds: int = 8, seed: int = 1, base_s: float = 0.004) -> list[Point]:
    draw = random.Random(seed)
    return [Point(n, base_s + n * PACE * draw.uniform(1.0, 1.2), "t") for _ in range(rounds) for n in LENGTHS]


def judge(
    points: Iterable[Point],
    physics: Physics | str = PHYSICS,
    calibration: Calibration | None = None,
    asked: bool = True,
    longest: int = 2048,
) -> ProbeResult:
    tally = Tally(Floors(physics, calibration, (longest,) if longest else (), longest))
    for point in points:
        tally.add(point)
    return judged(tally, asked)


def kinds(result: ProbeResult) -> list[tuple[str, str]]:
    return [(str(e.kind), e.check) for e in result.evidence]


def calibrated() -> Calibration:
    levels = [
        Level(longest_tokens=n, answers=8, fastest_s=0.004 + n * PACE, p5_s=n * PACE, p50_s=n * PACE) for n in LENGTHS
    ]
    return Calibration(model="m", engine="e", version="1", hardware={}, taken="", levels=levels)


def test_honest_times_are_clean_and_say_how_much_they_could_have_shown() -> None:
    result = judge(honest())
    assert result.evidence == ()
    assert result.claim is not None
    assert "upper bound" in result.claim


def test_one_answer_under_the_physical_floor_is_corrupt() -> None:
    result = judge([*honest(), Point(2048, 0.05)])
    assert kinds(result) == [("CORRUPT", "floor")]
    assert result.evidence[0].rule == "I4"
    assert result.evidence[0].details["floor_s"] == pytest.approx(0.1024)
    assert result.claim is None


def test_a_fast_answer_whose_prompt_was_cached_is_no_finding() -> None:
    assert judge([*honest(), Point(48, 0.007, cached_tokens=2000)]).evidence == ()


def test_what_a_partly_cached_prompt_shows_is_a_doubt() -> None:
    assert kinds(judge([*honest(), Point(1024, 0.01, cached_tokens=1024)])) == [("INCONCLUSIVE", "floor")]


def test_without_cached_tokens_a_cache_may_explain_any_speed() -> None:
    assert kinds(judge([*honest(), Point(2048, 0.05, cached_tokens=None)])) == [("INCONCLUSIVE", "cached-tokens")]


def test_figures_under_which_most_legal_answers_are_too_fast_are_wrong_themselves() -> None:
    result = judge(honest(), Physics(work_flop=1000.0, peak=2 / PACE))
    assert kinds(result) == [("INCONCLUSIVE", "figures")]


@pytest.mark.parametrize(
    ("fast", "expected"),
    [
        ([Point(2048, 0.09)], [("INCONCLUSIVE", "practical-floor")]),
        ([Point(2048, 0.09), Point(2048, 0.095)], [("CORRUPT", "practical-floor")]),
        ([Point(2048, 0.045)], [("CORRUPT", "practical-floor")]),
        ([Point(100_000, 0.045)], [("CORRUPT", "practical-floor")]),
        ([Point(2048, 0.11)], []),
    ],
)
def test_the_practical_floor_needs_a_second_answer_or_a_large_factor(
    fast: list[Point], expected: list[tuple[str, str]]
) -> None:
    assert kinds(judge([*honest(), *fast], UNKNOWN, calibrated(), longest=0)) == expected


def test_time_that_does_not_grow_with_length_shows_nothing() -> None:
    draw = random.Random(3)
    flat = [Point(n, 0.3 + draw.random() / 10) for _ in range(8) for n in LENGTHS]
    assert ("INCONCLUSIVE", "control") in kinds(judge(flat))


def test_no_floor_is_inconclusive_when_asked_and_a_row_that_hangs_nothing_in_verify() -> None:
    assert ("INCONCLUSIVE", "floor") in kinds(judge(honest(), UNKNOWN))
    beside = judge(honest(), UNKNOWN, asked=False)
    assert beside.evidence == ()
    assert any(c.undecided and "not decidable" in c.text for c in beside.checks)
    assert all(c.kind is None for c in beside.checks)


def test_a_floor_below_every_answer_could_not_have_shown_anything() -> None:
    slow = [Point(p.uncached_tokens, p.ttft_s + 1.0) for p in honest()]
    assert ("INCONCLUSIVE", "floor") in kinds(judge(slow))


def test_silence_is_inconclusive() -> None:
    assert ("INCONCLUSIVE", "floor") in kinds(judge([]))


def test_a_length_past_which_answers_come_faster_is_a_doubt_by_itself() -> None:
    short = [Point(4000, 0.03 + i / 1000) for i in range(8)]
    result = judge([*honest(), *short], UNKNOWN, calibrated())
    assert ("INCONCLUSIVE", "change-point") not in kinds(result)  # the floor has said it
    assert kinds(result) == [("CORRUPT", "practical-floor")]
    alone = [e for e in judge([*honest(), *short], UNKNOWN).evidence if e.check == "change-point"]
    assert len(alone) == 1
    assert "past 2,048 tokens" in alone[0].what
    assert not any(e.check == "change-point" for e in judge(honest(), UNKNOWN).evidence)


def test_chance_alone_seldom_makes_a_change_point() -> None:
    """Times that know nothing of length: false alarms stay under the stated 1 % (2 of 500, measured once)."""
    alarms = 0
    for seed in range(1000, 1040):
        draw = random.Random(seed)
        some = {bucket: [draw.lognormvariate(0, 1.0) for _ in range(8)] for bucket in range(4)}
        alarms += change_point(some) is not None
    assert alarms <= 1


def test_a_fallen_p5_is_a_row_and_never_a_verdict() -> None:
    """A floor that is too low for it (a quarter of what is usual) and a day on which everything took half as long."""
    day, draw = 86_400.0, random.Random(5)
    usual = [Point(1024, PACE * 1024 * draw.uniform(2, 2.4), at=day * i) for i in range(1, 10) for _ in range(30)]
    fallen = [Point(1024, PACE * 1024 * draw.uniform(0.7, 0.8), at=day * 10) for _ in range(30)]
    result = judge([*honest(), *usual, *fallen])
    assert [c.undecided for c in result.checks if c.id == "trend"] == [True]
    assert result.evidence == ()


def test_memory_does_not_grow_with_the_number_of_answers() -> None:
    tally = Tally(Floors(PHYSICS, None, (2048,), 2048))
    for i in range(5_000):
        tally.add(Point(100 + i % 900, 1e-6 * (1 + i % 7), at=1e9 + i * 86_400.0))
    assert tally.counts["physical"] == 5_000
    assert len(tally.under_physical) == 100
    assert len(tally.sample) == 1000
    assert len(tally.by_window) == 400
    assert all(len(some) <= 200 for some in tally.some.values())


def test_the_plot_holds_the_floor_and_every_kept_finding() -> None:
    odd = Point(2048, 0.05, "t", name="odd")
    plot = judge([*honest(), odd], calibration=calibrated()).plot
    assert plot is not None
    assert odd in plot.points
    assert dict(plot.physical)[2048] == pytest.approx(0.1024)
    assert dict(plot.practical)[2048] == pytest.approx((0.004 + 2048 * PACE) / 2)

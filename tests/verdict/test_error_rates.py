"""The error rates that docs/concepts/verdicts.md states, held against thousands of simulated fleets.

The decision is the real one, and so is the canary's judge wherever answers are simulated. A count is called too large
when the stated rate would give it, or more, with a chance below 1 in 10,000; all seeds are fixed.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pagefence.probes.canary.judge import SLIPS_IN_DOUBT
from pagefence.probes.shot import Purpose
from pagefence.verdict import decide
from pagefence.verdict.intervals import incomplete_beta
from pagefence.verdict.statistics import chance_found, upper_bound
from tests.verdict.fleets import Fleet, Probe, asked, counted, greedy_readers, verdict_of

DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "verdicts.md"
UNLIKELY = 1e-4


def chance_of(count: int, n: int, rate: float) -> float:
    """The chance of `count` or more of `n`."""
    return 1.0 if count == 0 else incomplete_beta(rate, count, n - count + 1)


def at_most(count: int, n: int, rate: float) -> bool:
    """Whether `count` of `n` goes with a rate of at most `rate`."""
    return chance_of(count, n, rate) > UNLIKELY


def about(count: int, n: int, rate: float) -> bool:
    return at_most(count, n, rate) and at_most(n - count, n, 1 - rate)


def false_alarms(slip: float) -> tuple[float, float]:
    """How often an honest fleet is called CORRUPT and INCONCLUSIVE, from the canary's rules alone."""
    controls, readers, greedy = asked()[Purpose.CONTROL], asked()[Purpose.READ], greedy_readers()
    # Two controls in each manner; one manner in which both held is enough, and the others are left out.
    usable = 1 - (1 - (1 - slip) ** 2) ** (controls // 2)
    none_lost = (1 - slip**2) ** readers
    no_doubt = (1 - slip**2) ** (readers - greedy) * sum(
        math.comb(greedy, k) * (slip * (1 - slip)) ** k * (1 - slip) ** (greedy - k) for k in range(SLIPS_IN_DOUBT)
    )
    return usable * (1 - none_lost), (1 - usable) + usable * (none_lost - no_doubt)


FLEETS = [2_000, pytest.param(50_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("fleets", FLEETS)
@pytest.mark.parametrize("slip", [0.0, 0.02, 0.1])
def test_an_honest_fleet_is_blamed_as_rarely_as_its_slips_say(slip: float, fleets: int) -> None:
    chance = random.Random(f"honest {slip}")
    names = Counter(verdict_of(Fleet(slip), chance).name for _ in range(fleets))
    corrupt, inconclusive = false_alarms(slip)
    assert names["LEAK"] == names["FAIL"] == 0
    assert about(names["CORRUPT"], fleets, corrupt)
    assert about(names["INCONCLUSIVE"], fleets, inconclusive)


@pytest.mark.parametrize("fleets", FLEETS)
@pytest.mark.parametrize(("leak", "surfacing"), [(0.1, 1.0), (0.1, 0.9), (0.25, 0.9)])
def test_a_leak_is_missed_no_more_often_than_the_stated_power_allows(
    leak: float, surfacing: float, fleets: int
) -> None:
    chance = random.Random(f"leak {leak} {surfacing}")
    verdicts = [verdict_of(Fleet(0.0, leak, surfacing), chance) for _ in range(fleets)]
    missed = sum(v.name not in ("LEAK", "CORRUPT") for v in verdicts)
    readers = asked()[Purpose.READ]
    assert at_most(missed, fleets, 1 - chance_found(leak * surfacing, readers))
    clean = decide([counted(Probe("canary", readers, readers + asked()[Purpose.CONTROL], 1.0), chance)], leak_rate=leak)
    assert at_most(missed, fleets, 1 - clean.claims[0].found)


# Sizes as they are met: the default canary, a race, a salt probe of few pairs; what surfaces well and badly.
MIXES = [
    (Probe("canary", 17, 21, 0.95),),
    (Probe("canary", 17, 21, 0.7), Probe("race", 2_000, 30, 0.5)),
    (Probe("canary", 20, 8, 0.9), Probe("race", 300, 300, 0.3), Probe("salt", 8, 8, 0.99), Probe("other", 40, 12, 0.8)),
]


def wrong(probes: tuple[Probe, ...], fleets: int, chance: random.Random) -> tuple[int, int]:
    """How many fleets were called clean with a bound, of what shows and of what hits, below the truth of any probe."""
    shown = hit = 0
    for _ in range(fleets):
        verdict = decide([counted(probe, chance) for probe in probes])
        if verdict.name != "CLEAN":
            continue
        truth = {probe.name: probe for probe in probes}
        assert verdict.bound == verdict.claims[0].upper_bound
        shown += any((c.upper_bound or 0) < truth[c.probe].leak * truth[c.probe].surfacing for c in verdict.claims)
        hit += any((c.leak_bound or 0) < truth[c.probe].leak for c in verdict.claims)
    return shown, hit


def just_over(probe: Probe, factor: float = 1.0) -> Probe:
    """The leak that is missed most often among those that the bound excludes."""
    return replace(probe, leak=min(1.0, factor * 1.0001 * upper_bound(probe.n) / probe.surfacing))


@pytest.mark.parametrize("fleets", [1_000, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("probes", MIXES, ids=len)
def test_the_bounds_of_a_clean_run_are_all_true_in_95_of_100(probes: tuple[Probe, ...], fleets: int) -> None:
    chance = random.Random(f"bounds {len(probes)}")
    for worst in range(len(probes)):
        leaking = tuple(just_over(p) if i == worst else p for i, p in enumerate(probes))
        assert all(at_most(count, fleets, 0.05) for count in wrong(leaking, fleets, chance))


@pytest.mark.parametrize("fleets", [1_000, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_more_probes_that_are_wrong_at_once_make_a_wrong_clean_run_rarer(factor: float, fleets: int) -> None:
    chance = random.Random(f"family {factor}")
    probes = tuple(just_over(p, factor) for p in MIXES[2])
    shown, hit = wrong(probes, fleets, chance)
    assert at_most(shown, fleets, 0.05**2)
    assert at_most(hit, fleets, 0.05)


def test_one_bound_from_the_sum_of_all_probes_would_be_wrong_more_often_than_it_says() -> None:
    """Why each probe has its own: a canary that leaks at a fifth, beside 2,000 races that do not."""
    chance = random.Random("sum")
    probes = (Probe("canary", 7, 30, 1.0, leak=0.2), Probe("race", 2_000, 2_000, 1.0))
    clean = [v for v in (decide([counted(p, chance) for p in probes]) for _ in range(1_000)) if v.name == "CLEAN"]
    assert not at_most(len(clean), 1_000, 0.05)
    assert all(v.bound == upper_bound(7) and v.bound > 0.2 > upper_bound(2_007) for v in clean)


@pytest.mark.parametrize("surfacing", [0.5, 0.8, 0.95])
def test_the_power_that_a_run_states_is_too_high_in_at_most_25_of_1000(surfacing: float) -> None:
    chance, fleets = random.Random(f"power {surfacing}"), 1_000
    probe = Probe("canary", 17, 21, surfacing)
    claims = [decide([counted(probe, chance)], leak_rate=0.1).claims[0] for _ in range(fleets)]
    assert at_most(sum(c.found > chance_found(0.1 * surfacing, probe.n) for c in claims), fleets, 0.025)


def test_the_table_of_false_alarms_in_the_documents_follows_from_the_canary() -> None:
    text = DOCS.read_text(encoding="utf-8")
    stated = re.search(r"(\d+) controls and (\d+) legal readers", text)
    assert stated is not None
    assert (int(stated[1]), int(stated[2])) == (asked()[Purpose.CONTROL], asked()[Purpose.READ])
    rows = re.findall(r"^\| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", text, re.MULTILINE)
    assert len(rows) >= 5
    for slip, corrupt, inconclusive in rows:
        for said, computed in zip((corrupt, inconclusive), false_alarms(float(slip) / 100), strict=True):
            digits = len(said.partition(".")[2])
            assert said == f"{100 * computed:.{digits}f}"

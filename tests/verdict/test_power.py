"""What a probe's silence is worth: n, its controls, two bounds and the chance to have found a stated rate."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pagefence.fleet import Keys
from pagefence.mistakes import Usage
from pagefence.options import build
from pagefence.probes import Check, Config, Evidence, Examination, Kind, ProbeResult
from pagefence.verdict import decide
from pagefence.verdict.power import LEAK_RATE, claim, claims, leak_bound
from pagefence.verdict.report import Run, as_json
from pagefence.verdict.statistics import upper_bound
from pagefence.verdict.sureness import claims_table
from pagefence.verdict.terminal import show

KEPT = (Check("readers", "within", "fine"),)
counts = st.integers(1, 500)


def probe(n: int, held: int, asked: int, name: str = "canary", *kinds: Kind, seeks: Kind = Kind.LEAK) -> ProbeResult:
    found = tuple(Evidence(kind, name, "c", "w", f"saw {kind}") for kind in kinds)
    return ProbeResult(name, KEPT, found, shown=n, controls=(held, asked), seeks=seeks)


@settings(deadline=None)
@given(counts, counts)
def test_a_hit_may_be_more_frequent_than_what_shows(n: int, asked: int) -> None:
    said = claim(probe(n, asked, asked))
    assert said.upper_bound == upper_bound(n)
    assert said.upper_bound is not None and said.leak_bound is not None
    assert said.upper_bound < said.leak_bound <= 1


@settings(deadline=None)
@given(counts, counts)
def test_more_probes_and_more_controls_only_strengthen_a_claim(n: int, asked: int) -> None:
    said, probes, controls = (claim(probe(a, b, b)) for a, b in ((n, asked), (n + 1, asked), (n, asked + 1)))
    for stronger in (probes, controls):
        assert (stronger.leak_bound or 0) <= (said.leak_bound or 0)
        assert stronger.found >= said.found


@settings(deadline=None)
@given(counts, st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_a_control_that_failed_weakens_a_claim(n: int, control: tuple[int, int]) -> None:
    held, asked = control
    less, more = claim(probe(n, held, asked)), claim(probe(n, held + 1, asked))
    assert less.found < more.found or less.found == more.found == 1
    assert (less.leak_bound or 0) >= (more.leak_bound or 0)


def test_the_figures_of_a_default_run() -> None:
    said = claim(probe(17, 21, 21), 0.1)
    assert said.surfacing == pytest.approx((0.8389, 1.0), abs=1e-4)
    assert (said.upper_bound, said.leak_bound) == pytest.approx((0.1616, 0.2325), abs=1e-4)
    assert said.found == pytest.approx(1 - (1 - 0.08389) ** 17, abs=1e-4)


def test_the_default_leak_rate_is_one_that_the_default_plan_can_find() -> None:
    assert LEAK_RATE == 0.1
    assert claim(probe(17, 21, 21)).found > 0.75
    assert claim(probe(17, 21, 21), 0.01).found < 0.15


@pytest.mark.parametrize(("n", "control"), [(1, (1, 1)), (3, (6, 6)), (30, (0, 0)), (30, (0, 4)), (5_000, (1, 40))])
def test_silence_that_excludes_no_rate_is_inconclusive_and_says_why(n: int, control: tuple[int, int]) -> None:
    verdict = decide([probe(n, *control)])
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert f"positive control of {control[0]}/{control[1]}" in verdict.sentence
    assert "even a rate of 1 is not excluded" in verdict.sentence


def test_a_bound_below_one_needs_what_shows_to_be_rarer_than_hits_surface() -> None:
    assert leak_bound(10, upper_bound(10, 0.975)) == 1
    assert leak_bound(10, upper_bound(10, 0.975) + 1e-6) < 1
    assert leak_bound(10, 0.0) == 1


def test_thousands_of_probes_of_one_kind_say_nothing_about_another() -> None:
    verdict = decide([probe(5_000, 5_000, 5_000, "race"), probe(17, 21, 21)])
    assert (verdict.name, verdict.probes, verdict.controls) == ("CLEAN", 17, (21, 21))
    assert verdict.bound == upper_bound(17)
    assert verdict.sentence == (
        "no leak in 17 probes of canary; 95 % upper bound on the rate p <= 0.162; positive control 21/21 "
        "(the weakest of canary and race)"
    )


def test_the_controls_of_one_probe_do_not_vouch_for_another() -> None:
    verdict = decide([probe(5_000, 5_000, 5_000, "race"), probe(17, 0, 4)])
    assert verdict.name == "INCONCLUSIVE"
    assert "canary" in verdict.sentence and "race" not in verdict.sentence


@given(st.permutations([probe(20, 20, 20, "a"), probe(20, 19, 20, "b"), probe(900, 4, 4, "c")]))
def test_the_order_of_the_probes_does_not_matter(results: list[ProbeResult]) -> None:
    assert decide(results) == decide(list(reversed(results)))


def test_what_is_sought_is_named_and_a_leak_is_said_before_it() -> None:
    salt = probe(8, 8, 8, "salt", seeks=Kind.FAIL)
    assert decide([salt]).sentence.startswith("no broken rule in 8 probes;")
    assert decide([salt, probe(17, 21, 21)]).sentence.startswith("no leak in 17 probes;")


def test_what_was_found_has_no_bound() -> None:
    assert claim(probe(8, 8, 8, "salt", Kind.FAIL, seeks=Kind.FAIL)).upper_bound is None
    assert claim(probe(8, 8, 8, "canary", Kind.FAIL)).upper_bound is not None
    assert decide([probe(17, 21, 21, "canary", Kind.LEAK), probe(900, 900, 900, "race")]).bound is None


def test_the_verdict_does_not_depend_on_the_stated_rate() -> None:
    results = [probe(17, 21, 21)]
    assert {decide(results, leak_rate=rate).name for rate in (1e-9, 0.1, 1.0)} == {"CLEAN"}


def test_a_probe_that_counts_nothing_claims_nothing() -> None:
    assert claims([ProbeResult("gate", KEPT)]) == ()
    assert decide([ProbeResult("gate", KEPT)]).bound is None


def a_run() -> Run:
    results = (ProbeResult("gate", KEPT), probe(17, 21, 21))
    return Run("verify", Examination(Config()), decide(results, leak_rate=0.25), results, 1.0, Keys())


def test_the_json_report_has_the_power_of_each_probe() -> None:
    gate, canary = json.loads(as_json(a_run()))["probes"]
    assert gate["power"] is None
    assert canary["power"] == {
        "seeks": "LEAK",
        "surfacing_95": pytest.approx([0.8389, 1.0], abs=1e-4),
        "upper_bound_95": pytest.approx(0.1616, abs=1e-4),
        "leak_rate_bound_95": pytest.approx(0.2325, abs=1e-4),
        "leak_rate": 0.25,
        "found_with_probability": pytest.approx(0.9817, abs=1e-4),
    }


def test_the_terminal_says_what_would_have_been_found() -> None:
    out = io.StringIO()
    show(a_run(), Console(file=out, width=140))
    row = next(line for line in out.getvalue().splitlines() if "21/21" in line and "canary" in line)
    for part in ("17", "0.83 to 1.00", "0.162", "0.233", "a rate of 0.25 with probability 0.98"):
        assert part in row


def test_nothing_is_rounded_to_certainty() -> None:
    out = io.StringIO()
    Console(file=out, width=140).print(claims_table(claims([probe(5_000, 4_990, 5_000, "race")])))
    assert "0.99 to 1.00" in out.getvalue()
    assert "a rate of 0.1 with probability > 0.99" in out.getvalue()


def test_the_stated_rate_comes_from_the_command_line_and_is_part_of_what_repeats_the_run() -> None:
    options = build("canary", ("canary",), {"leak_rate": 0.01}, {})
    assert options.leak_rate == 0.01
    assert "--leak-rate 0.01" in options.line
    assert build("canary", ("canary",), {}, {}).leak_rate == LEAK_RATE


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_rate_that_is_no_share_is_a_usage_error(rate: float) -> None:
    with pytest.raises(Usage, match="leak-rate"):
        build("canary", ("canary",), {"leak_rate": rate}, {})

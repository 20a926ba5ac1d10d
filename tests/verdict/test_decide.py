"""Precedence, exit codes, and that nothing without a number is ever clean."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagefence.probes import Check, Evidence, Kind, ProbeResult
from pagefence.verdict import decide

ORDER = list(Kind)
KEPT = (Check("pool", "node", "fine"),)


def finding(kind: Kind) -> Evidence:
    return Evidence(kind, "canary", "c", "w", f"saw {kind}", "I1")


def canary(*kinds: Kind, shown: int = 10) -> ProbeResult:
    return ProbeResult("canary", KEPT, tuple(finding(k) for k in kinds), shown=shown, controls=(shown, shown))


@given(st.lists(st.sampled_from(ORDER), min_size=1, max_size=6))
def test_the_gravest_finding_names_the_verdict_and_all_are_kept(kinds: list[Kind]) -> None:
    verdict = decide([canary(*kinds)])
    assert verdict.name == min(kinds, key=ORDER.index)
    assert set(verdict.occurred) == set(kinds)
    assert verdict.exit_code == (3 if verdict.name == "INCONCLUSIVE" else 1)
    assert f"saw {verdict.name}" in verdict.sentence


def test_clean_has_its_number_and_its_controls() -> None:
    verdict = decide([canary(shown=18)])
    assert (verdict.name, verdict.exit_code) == ("CLEAN", 0)
    assert verdict.sentence == ("no leak in 18 probes; 95 % upper bound on the rate p <= 0.153; positive control 18/18")


def test_leak_and_corrupt_are_said_together() -> None:
    verdict = decide([canary(Kind.LEAK, Kind.CORRUPT, Kind.FAIL)])
    assert verdict.headline == "LEAK and CORRUPT"
    assert verdict.besides == ("FAIL",)


def test_no_probe_is_inconclusive() -> None:
    assert decide([]).exit_code == 3


def test_a_canary_that_could_show_nothing_is_inconclusive() -> None:
    assert decide([canary(shown=0)]).name == "INCONCLUSIVE"


def test_a_probe_that_checked_nothing_is_inconclusive() -> None:
    assert decide([ProbeResult("gate")]).name == "INCONCLUSIVE"


def test_an_unfinished_probe_is_inconclusive_but_keeps_what_it_saw() -> None:
    assert decide([ProbeResult("boundary", KEPT, finished=False)]).name == "INCONCLUSIVE"
    assert decide([ProbeResult("canary", KEPT, (finding(Kind.LEAK),), finished=False)]).name == "LEAK"


def test_the_gate_alone_says_that_it_shows_nothing_about_leaks() -> None:
    verdict = decide([ProbeResult("gate", KEPT)])
    assert verdict.exit_code == 0
    assert "1/1 checks" in verdict.sentence
    assert "n = 0" in verdict.sentence


def test_interruption_is_its_own_exit_code() -> None:
    assert decide([canary(Kind.LEAK)], interrupted=True).exit_code == 130


def test_a_row_that_says_what_no_finding_says_is_never_clean() -> None:
    odd = ProbeResult("boundary", checks=(Check("border", "500 tokens", "answered", Kind.CORRUPT),))
    verdict = decide([odd])
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert "boundary" in verdict.sentence

"""What a run costs is said first; a dear one is not sent unless somebody said yes, and a dry one sends nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.cli import app
from pagefence.consent import affordable
from pagefence.fleet import Limits
from pagefence.mistakes import Usage
from pagefence.probes.estimate import Estimate, Pace, estimate
from pagefence.probes.plan import make_plan
from pagefence.run import run
from tests.probes.toy import KEYS, Toy, running

Captured = pytest.CaptureFixture[str]
MILLION = 1_048_576
EMBEDDED = Limits(2047, 2560, 2048, 2560, 2048, (2560,))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", KEYS[0])
    monkeypatch.setenv("PAGEFENCE_KEY_B", KEYS[1])
    monkeypatch.setenv("COLUMNS", "160")


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans(), st.booleans())
def test_only_what_is_dear_and_nobody_agreed_to_is_refused(cost: int, above: int, yes: bool, asked: bool) -> None:
    dear = Estimate(3, cost, 0, cost)
    if cost > above and not yes and not asked:
        with pytest.raises(Usage, match="Nothing was sent"):
            affordable(dear, above, yes, asked)
    else:
        affordable(dear, above, yes, asked)
    affordable(dear, None, yes, asked)


def test_a_dear_run_without_a_terminal_sends_nothing_and_names_the_flags(capsys: Captured) -> None:
    with running(Toy()) as toy:
        assert run(app, ["canary", toy.url, "--ask-above", "1000"]) == 2
        assert toy.calls == []
    said = capsys.readouterr().err
    assert all(flag in said for flag in ("--yes", "--ask-above", "--dry-run"))


@pytest.mark.parametrize("flags", [["--yes", "--ask-above", "1000"], ["--ask-above", "1000000"], []])
def test_a_run_that_is_cheap_or_agreed_to_is_sent(flags: list[str]) -> None:
    with running(Toy()) as toy:
        assert run(app, ["canary", toy.url, "--seed", "9", *flags]) == 0
        assert toy.calls


def test_a_dry_run_reads_figures_sends_no_prompt_and_is_never_clean(tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "r.json"
    with running(Toy()) as toy:
        assert run(app, ["verify", toy.url, "--dry-run", "--json", str(report)]) == 3
        assert toy.calls == []
    document = json.loads(report.read_text())
    assert (document["verdict"], document["n"]) == ("INCONCLUSIVE", 0)
    assert document["plan"]["prompt_tokens"] > 0
    assert "positive controls" in capsys.readouterr().err


def test_a_context_of_a_million_tokens_is_planned_without_a_fleet(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    figures = [f"pool={MILLION}", f"context={MILLION}", "page_size=64"]
    flags = [word for figure in figures for word in ("--declare", figure)]
    assert run(app, ["verify", "--dry-run", *flags, "--json", str(report)]) == 3
    document = json.loads(report.read_text())
    lengths = {n for wave in document["plan"]["waves"] for n in wave["lengths"]}
    assert {MILLION - 1, MILLION, MILLION + 1, 2 * MILLION} <= lengths
    assert document["plan"]["prompt_tokens"] > MILLION
    assert [e["kind"] for e in document["evidence"]] == ["INCONCLUSIVE"] * len(document["probes"])


def test_the_embedded_fleet_is_planned_without_being_started(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert run(app, ["canary", "--dry-run", "--json", str(report)]) == 3
    assert json.loads(report.read_text())["plan"]["requests"] > 10


def test_what_cannot_be_planned_is_said(capsys: Captured) -> None:
    assert run(app, ["verify", "--dry-run", "--declare", "context=4096"]) == 3
    assert "no plan to show" in capsys.readouterr().out
    assert run(app, ["verify", "--dry-run", "--fault", "stub-transfer"]) == 2


def test_the_time_follows_the_pace_and_what_must_be_refused_costs_a_request_only() -> None:
    plan = make_plan(EMBEDDED, 1)
    free = estimate(plan, Pace(0.0, 0.0, 0.0))
    slow = estimate(plan, Pace(0.5, 0.001, 0.02))
    assert free.seconds == 0
    expected = 0.5 * free.requests + 0.001 * free.prompt_tokens + 0.02 * free.new_tokens
    assert slow.seconds == pytest.approx(expected)
    assert free.most_prompt_tokens > free.prompt_tokens
    assert estimate(plan).seconds is None

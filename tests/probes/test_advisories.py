"""The bundled list is sound, dated, and can be shown."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from pagefence.cli import app
from pagefence.probes.gate.advisories import OLD_AFTER_DAYS, Advisory, bundled, parse
from pagefence.protocol.invariants import RULES
from pagefence.run import run

Captured = pytest.CaptureFixture[str]


def test_every_entry_says_what_whom_and_where() -> None:
    entries = bundled().entries
    assert len({entry.id for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.rule in RULES
        assert entry.reference.startswith("https://")
        assert entry.engine == entry.engine.lower()


@pytest.mark.parametrize("entry", bundled().entries, ids=lambda entry: entry.id)
def test_the_release_that_brought_the_fix_is_not_affected_and_the_one_before_is(entry: Advisory) -> None:
    if entry.fixed is not None:
        assert entry.affects(entry.fixed) is False
        assert entry.affects(f"{entry.fixed}rc1") is None
    last = entry.affected.split(",")[-1].lstrip("<=")
    major, minor, patch = Version(last).release
    before = last if "<=" in entry.affected.split(",")[-1] else f"{major}.{minor - (patch == 0)}.{max(0, patch - 1)}"
    assert entry.affects(before) is True


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("0.5.22", True),
        ("0.5.22.post1", None),
        ("0.5.23rc0", None),
        ("0.5.23.dev14+g1d8", None),
        ("0.6.0.dev2", None),
        ("0.5.23", False),
        ("0.5.23.post1", False),
        ("0.5.24.dev3", False),
    ],
)
def test_what_comes_after_the_last_affected_release_may_lack_a_fix_that_nobody_names(
    version: str, affected: bool | None
) -> None:
    entry = next(entry for entry in bundled().of("sglang") if entry.affected == "<=0.5.22" and entry.fixed is None)
    assert entry.affects(version) is affected


@given(st.text(max_size=20))
def test_any_text_can_be_a_version(version: str) -> None:
    for entry in bundled().entries:
        assert entry.affects(version) in (True, False, None)


def test_a_list_older_than_half_a_year_says_so() -> None:
    listed = bundled()
    assert "too old" not in listed.age(listed.updated + timedelta(OLD_AFTER_DAYS))
    assert "too old" in listed.age(listed.updated + timedelta(OLD_AFTER_DAYS + 1))


@pytest.mark.parametrize(
    "text",
    ["", "updated = 3", 'updated = 2026-01-01\n[[advisory]]\nid = "x"', "advisory = []"],
)
def test_a_list_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse(text)


def test_the_list_is_shown_with_its_age(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(app, ["advisories", "--engine", "sglang"]) == 0
    out = capsys.readouterr().out
    assert "CVE-2026-112266" in out
    assert "GHSA-rm76-4mrf-v9r8" not in out
    assert "days old" in out


def test_the_list_goes_to_json(capsys: Captured, tmp_path: Path) -> None:
    assert run(app, ["advisories", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert date.fromisoformat(document["updated"]) == bundled().updated
    assert run(app, ["advisories", "--json", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_bytes()) == document


def test_an_engine_that_is_not_listed_is_a_mistake(capsys: Captured) -> None:
    assert run(app, ["advisories", "--engine", "nonsense"]) == 2
    assert "sglang, vllm" in capsys.readouterr().err

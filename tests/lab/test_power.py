"""A measurement of hours: whatever tears its file, finished runs are kept, and what is missing is run."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.cli import app
from pagefence.fleet import Fleet, Keys, Target
from pagefence.fleet.embedded import Running
from pagefence.lab import faults, power
from pagefence.lab.power import Plan, measure, races
from pagefence.lab.power_log import CLEAN, RACE, USUAL, VERIFY, Line, PowerLog
from pagefence.lab.power_report import page, shown_interval
from pagefence.lab.usual_script import NEW_TOKENS, ROUNDS, run_script
from pagefence.mistakes import Usage
from pagefence.run import run
from tests.probes.toy import KEYS, Toy, running

LINES = [
    Line(CLEAN, VERIFY, 1, "CLEAN", requests=37, prompt_tokens=14_000, new_tokens=500, seconds=60.0),
    Line("stub-transfer", VERIFY, 1, "LEAK", {"canary": ("LEAK", "CORRUPT"), "gate": ("FAIL",)}, seconds=80.0),
    Line("stub-transfer", VERIFY, 2, "FAIL", {"gate": ("FAIL",)}, ("canary: \u00fcber \u2028",), seconds=81.0),
    Line("stub-transfer", USUAL, 1, "UUID not seen", seconds=20.0),
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_torn_anywhere_keeps_every_whole_line_and_takes_more(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "power.jsonl"
        log = PowerLog.at(path)
        for line in LINES[:3]:
            log.put(line)
        raw = path.read_bytes()
        cut = data.draw(st.integers(0, len(raw)))
        rubbish = data.draw(st.sampled_from([b"", b"\0" * 5, b'{"fault": "x', b"\xff\xfe"]))
        path.write_bytes(raw[:cut] + rubbish)
        kept = raw[:cut].count(b"\n")
        torn = PowerLog.at(path)
        assert list(torn.runs.values()) == LINES[:kept]
        torn.put(LINES[3])
        assert list(PowerLog.at(path).runs.values()) == [*LINES[:kept], LINES[3]]


def test_what_is_done_is_not_run_again_and_what_could_not_be_run_is(tmp_path: Path) -> None:
    log = PowerLog.at(tmp_path / "power.jsonl")
    plan = Plan([faults.find("stub-transfer")], seeds=3, clean=2, profiles=(VERIFY,))
    assert sum(len(keys) for _, keys in plan.todo(log)) == 5
    for line in LINES[:2]:
        log.put(line)
    log.put(Line("stub-transfer", VERIFY, 3, "", error="it did not start"))
    left = {(None if f is None else f.name): keys for f, keys in plan.todo(PowerLog.at(log.path))}
    assert left == {None: [(VERIFY, 2)], "stub-transfer": [(VERIFY, 2), (VERIFY, 3)]}


def test_races_are_run_for_faults_that_race_and_faults_that_cannot_show_are_not_run() -> None:
    plan = Plan(list(faults.FAULTS.values()), seeds=1, clean=1)
    work = {f.name: {p for p, _ in keys} for f, keys in plan.todo(PowerLog(Path("none"), {})) if f is not None}
    assert work["stub-transfer"] == {VERIFY, USUAL}
    assert work["double-free"] == {RACE, USUAL}
    assert work["stream-swap"] == {RACE}, "no client of the usual script hangs up"
    assert "sentinel-slot" not in work
    assert {name for name, f in faults.FAULTS.items() if f.needs_hang_ups} <= {
        n for n, ps in work.items() if RACE in ps
    }
    assert not races(faults.find("stub-transfer"))


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Toy fleets in place of embedded ones; the list tells which were started."""
    import contextlib
    from collections.abc import Iterator

    from pagefence.fleet.embedded import Recipe
    from pagefence.lab.power import Tell

    started: list[str] = []

    @contextlib.contextmanager
    def embedded(recipe: Recipe, tell: Tell) -> Iterator[Running]:
        started.append(recipe.fault or CLEAN)
        toy = Toy("stub", 512, 256, 1024) if recipe.fault else Toy()
        with running(toy):
            yield Running(Target(toy.url), Keys(*KEYS), 0, True, 0.1)

    monkeypatch.setattr(power, "embedded", embedded)
    return started


def test_one_fleet_serves_all_runs_of_a_fault_and_each_run_is_kept_at_once(tmp_path: Path, toys: list[str]) -> None:
    log = PowerLog.at(tmp_path / "power.jsonl")
    sizes: list[int] = []

    def tell(what: str) -> None:
        sizes.append(len(PowerLog.at(log.path).runs))

    plan = Plan([faults.find("stub-transfer")], seeds=2, clean=1, profiles=(USUAL,))
    measure(plan, log, tell)
    assert toys == [CLEAN, "stub-transfer"]
    assert sorted(set(sizes)) == [0, 1, 2]
    assert {r.verdict for r in log.runs.values()} == {"UUID not seen"}
    assert all(r.shown > 0 and r.prompt_tokens > 0 for r in log.of(CLEAN, USUAL))
    measure(plan, log, tell)
    assert len(toys) == 2, "nothing was left to run"


def test_a_run_of_verify_is_kept_with_what_each_probe_found(tmp_path: Path, toys: list[str]) -> None:
    log = PowerLog.at(tmp_path / "power.jsonl")
    measure(Plan([faults.find("stub-transfer")], seeds=1, clean=0, profiles=(VERIFY,)), log, lambda _: None)
    (run,) = log.of("stub-transfer", VERIFY)
    assert (run.verdict, run.early, run.fleet) == ("LEAK", False, 1)
    assert run.found["canary"][0] == "LEAK"
    assert run.prompt_tokens > 0
    assert run.controls[0] > 0


def test_a_fault_that_spoils_its_fleet_gets_a_fresh_one_for_each_run(tmp_path: Path, toys: list[str]) -> None:
    measure(Plan([faults.find("double-free")], 2, 0, (USUAL,)), PowerLog.at(tmp_path / "power.jsonl"), lambda _: None)
    assert toys == ["double-free", "double-free"]


def test_a_run_may_stop_at_its_first_violation(tmp_path: Path, toys: list[str]) -> None:
    log = PowerLog.at(tmp_path / "power.jsonl")
    plan = Plan([faults.find("stub-transfer")], 1, 0, (VERIFY,), stop_early=True)
    measure(plan, log, lambda _: None)
    (run,) = log.of("stub-transfer", VERIFY)
    assert run.early
    assert any(probe != "gate" for probe in run.found)


def test_the_usual_script_finds_nothing_of_the_incident_and_costs_what_it_says() -> None:
    toy = Toy("stub", 512, 256, 1024)

    async def ask() -> None:
        async with Fleet(Target(toy.url), Keys(*KEYS), 10.0) as fleet:
            said = await run_script(fleet, 512, 1, lambda _: None)
        assert (said.found, said.requests) == (0, 2 * ROUNDS)
        assert said.answered >= ROUNDS
        assert said.new_tokens <= NEW_TOKENS * said.requests

    with running(toy):
        asyncio.run(ask())


def test_the_page_tells_what_was_found_beside_the_usual_script_and_what_cannot_show(tmp_path: Path) -> None:
    log = PowerLog.at(tmp_path / "power.jsonl")
    for line in LINES:
        log.put(line)
    text = page(log, faults.FAULTS)
    row = next(line for line in text.splitlines() if line.startswith("| stub-transfer"))
    assert "| 1 of 2 |" in row
    assert "| 2 of 2 |" in row, "the gate"
    assert "canary LEAK 1, canary CORRUPT 1" in row
    assert "| 0 of 1 |" in row
    assert "| page-leak | not run |" in text
    assert "**sentinel-slot**: its decode step has no padding rows" in text
    assert "| verify | 1 | 0 | 0.000 to 0.975 | 0 |" in text


def test_intervals_are_rounded_outwards() -> None:
    assert shown_interval(20, 20) == "0.831 to 1.000"
    assert shown_interval(0, 20) == "0.000 to 0.169"


@pytest.mark.parametrize(
    "held", [b"notes of mine\nand the last line", b"\n" + b"[" * 100_000 + b"\n", b"\x89PNG\r\n\x1a\n"]
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "power.jsonl"
    path.write_bytes(held)
    with pytest.raises(Usage, match="holds no runs"):
        PowerLog.at(path)
    assert path.read_bytes() == held


def test_a_report_does_not_go_over_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "power.jsonl"
    PowerLog.at(path).put(LINES[0])
    (tmp_path / "link").symlink_to(path)
    before = path.read_bytes()
    for report in (path, tmp_path / "link"):
        assert run(app, ["lab", "power", "--state", str(path), "--report", str(report)]) == 2
    assert path.read_bytes() == before


def test_two_measurements_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "power.jsonl"
    with PowerLog.at(path).alone():
        with pytest.raises(Usage, match="another measurement"), PowerLog.at(path).alone():
            pass
        assert run(app, ["lab", "power", "--state", str(path), "--seeds", "0", "--clean", "0"]) == 2
    assert run(app, ["lab", "power", "--state", str(path), "--seeds", "0", "--clean", "0"]) == 0

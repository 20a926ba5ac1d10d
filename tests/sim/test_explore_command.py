"""`pagefence explore`: exit codes, reports, replays, and one clear line for each mistake."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import psutil
import pytest

from pagefence.cli import app
from pagefence.lab import faults
from pagefence.run import run
from pagefence.sim.worlds import WORLDS, Scenery

from .small import ALONE, ONE_CRASH

Captured = pytest.CaptureFixture[str]
FAULT = ("--fault", "free-while-writing", "--guards", "off")


@pytest.fixture(autouse=True)
def small_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the product's, of which only one stays: they take longer."""
    worlds = cast("dict[str, Scenery]", WORLDS)
    losses = replace(worlds["losses"], long=True)
    for name in list(worlds):
        monkeypatch.delitem(worlds, name)
    late = Scenery(faults.find("free-while-writing").bounds, "for a test", long=True)
    for scenery in (Scenery(ONE_CRASH, "for a test"), Scenery(ALONE, "for a test"), losses, late):
        monkeypatch.setitem(worlds, scenery.bounds.name, scenery)
    monkeypatch.setenv("COLUMNS", "160")


def explored(*arguments: str) -> int:
    return run(app, ["explore", *arguments, "--cores", "1"])


def as_json(capsys: Captured, *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = explored(*arguments, "--json", "-")
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert said["schema_version"] == 1
    assert said["exit_code"] == code
    return code, said, captured.err


# --- exit codes and reports ---------------------------------------------------------------------------------------


def test_a_world_that_holds_is_0_with_its_figures(capsys: Captured) -> None:
    code, said, human = as_json(capsys, "--world", "one crash")
    (world,) = said["worlds"]
    assert code == 0
    assert (world["verdict"], world["complete"], world["violation"], world["missing"]) == ("HOLDS", True, None, [])
    assert world["states"] > 200
    assert "a worker crashed" in world["sometimes"]
    assert "HOLDS" in human
    assert f"{world['states']:,}" in human
    assert "eventually" in human


def test_a_violation_is_1_with_its_trace_and_the_command_that_repeats_it(capsys: Captured) -> None:
    code, said, human = as_json(capsys, *FAULT)
    violation = said["worlds"][-1]["violation"]
    assert code == 1
    assert violation["rule"] == "I2"
    assert len(violation["moves"]) == len(violation["path"].split("."))
    assert f"pagefence explore --fault free-while-writing --guards off --path {violation['path']}" in human
    assert "VIOLATION" in human


def test_a_search_that_was_cut_short_is_3(capsys: Captured) -> None:
    code, said, human = as_json(capsys, "--world", "one crash", "--states", "50")
    assert code == 3
    assert said["worlds"][0]["verdict"] == "INCOMPLETE"
    assert "INCONCLUSIVE" in human
    assert "not finished" in human


def test_only_a_search_to_the_end_says_that_everything_comes_to_rest(capsys: Captured) -> None:
    said, cut_short = (
        as_json(capsys, "--world", "one crash", *limit)[1]["worlds"][0] for limit in ((), ("--states", "50"))
    )
    assert said["rests"] is True
    assert cut_short["rests"] is False


def test_a_complete_search_that_has_not_been_where_bugs_live_is_3(capsys: Captured) -> None:
    code, said, human = as_json(capsys, "--world", "alone")
    assert code == 3
    assert said["worlds"][0]["verdict"] == "UNREACHED"
    assert said["worlds"][0]["missing"] == ["a page was reused by another tenant", "two chunks were in flight"]
    assert "a page was reused by another tenant" in human


def test_only_the_rules_that_are_named_stop_a_search(capsys: Captured) -> None:
    code, said, _ = as_json(capsys, *FAULT, "--rules", "I9, I10", "--states", "200")
    assert code == 3
    assert said["worlds"][0]["violation"] is None
    assert (said["fault"], said["guards"]) == ("free-while-writing", "off")


def test_without_names_every_short_world_is_searched(capsys: Captured) -> None:
    assert explored("--states", "30") == 3
    out = capsys.readouterr().out
    assert "one crash" in out
    assert "alone" in out
    assert "losses" not in out


def test_the_worlds_can_be_listed(capsys: Captured) -> None:
    assert explored("--worlds") == 0
    out = capsys.readouterr().out
    assert "one crash" in out
    assert "losses" in out


def test_depth_first_and_raw_find_the_fault_as_well(capsys: Captured) -> None:
    assert explored(*FAULT, "--depth-first") == 1
    assert explored(*FAULT, "--raw") == 1


# --- traces -------------------------------------------------------------------------------------------------------


def test_a_path_replays_and_a_picture_is_drawn(capsys: Captured, tmp_path: Path) -> None:
    _, said, _ = as_json(capsys, *FAULT)
    violation, picture = said["worlds"][-1]["violation"], tmp_path / "trace.svg"
    code, again, human = as_json(capsys, *FAULT, "--path", violation["path"], "--svg", str(picture))
    assert code == 1
    assert (again["rule"], again["moves"]) == (violation["rule"], violation["moves"])
    assert violation["message"].split(": ", 1)[1][:40] in human
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_command_that_is_printed_replays_to_the_same_rule(capsys: Captured) -> None:
    watched = (*FAULT, "--rules", "I1", "--world", "late writes")
    _, said, human = as_json(capsys, *watched)
    violation = said["worlds"][-1]["violation"]
    assert violation["rule"] == "I1"
    printed = re.search(r"pagefence explore .* --path [0-9.]+", human)
    assert printed is not None
    code, again, _ = as_json(capsys, *shlex.split(printed.group())[2:])
    assert code == 1
    assert (again["rule"], again["moves"]) == ("I1", violation["moves"])


def test_a_path_that_breaks_nothing_is_0(capsys: Captured) -> None:
    code, said, _ = as_json(capsys, "--world", "one crash", "--path", "0.0.0")
    assert (code, said["rule"], len(said["moves"])) == (0, None, 3)


def test_a_search_draws_what_it_found(capsys: Captured, tmp_path: Path) -> None:
    assert explored(*FAULT, "--svg", str(tmp_path / "trace.svg")) == 1
    assert (tmp_path / "trace.svg").read_text().startswith("<svg")


# --- random -------------------------------------------------------------------------------------------------------


def test_a_random_history_repeats_with_its_seed(capsys: Captured) -> None:
    asked = ("--random", "--seed", "7", "--runs", "3", "--events", "60")
    code, first, human = as_json(capsys, *asked)
    assert code == 0
    assert "HOLDS" in human
    again = as_json(capsys, *asked)[1]
    assert first["runs"] == 3
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert as_json(capsys, "--random", "--seed", "8", *asked[3:])[1]["history"] != first["history"]


def test_a_random_violation_is_1_small_and_repeats(capsys: Captured) -> None:
    fault = ("--random", *FAULT, "--events", "200")
    code, said, human = as_json(capsys, *fault, "--seed", "50", "--runs", "10")
    bad = said["violation"]
    assert code == 1
    assert bad["rule"] == "I2"
    assert len(bad["moves"]) <= 40
    assert f"--seed {bad['seed']} --runs 1" in human
    again = as_json(capsys, *fault, "--seed", str(bad["seed"]), "--runs", "1")[1]["violation"]
    assert again == bad


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--world", "nowhere"], "one crash"),
        (["--world", "alone", "--rules", "I1,I99"], "I99"),
        (["--fault", "no-such-fault"], "stub-transfer"),
        (["--fault", "stub-transfer", "--guards", "bogus"], "handoff-check"),
        (["--guards", "off"], "--fault"),
        (["--path", "0.1"], "--world or --fault"),
        (["--world", "alone", "--path", "1.x"], "numbers and dots"),
        (["--world", "alone", "--path", "0.99"], "place 2"),
        (["--random", "--fault", "no-such-fault"], "stub-transfer"),
        (["--resume", "here.search"], "--world"),
        (["--world", "alone", "--resume", "/no/such/folder/x"], "cannot write"),
        (["--world", "alone", "--states", "0"], "--states"),
        (["--world", "alone", "--path", "0", "--json", "/no/such/folder/x"], "cannot write"),
        (["--world", "alone", "--path", "0", "--svg", "/no/such/folder/x"], "cannot write"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_mistake_gets_one_clear_line_and_exit_2(arguments: list[str], said: str, capsys: Captured) -> None:
    assert explored(*arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("pagefence: ")
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_no_checkpoint_is_a_mistake(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "x.search").write_text("{}")
    assert explored("--world", "alone", "--resume", str(tmp_path / "x.search")) == 2
    assert "no checkpoint" in capsys.readouterr().err


# --- interrupted --------------------------------------------------------------------------------------------------


def test_a_search_goes_on_where_it_was_left(capsys: Captured, tmp_path: Path) -> None:
    whole = as_json(capsys, "--world", "one crash")[1]["worlds"][0]
    kept = ("--world", "one crash", "--resume", str(tmp_path / "kept.search"))
    assert as_json(capsys, *kept, "--states", "100")[0] == 3
    code, said, _ = as_json(capsys, *kept)
    assert code == 0
    for figure in ("states", "raw_states_seen", "moves", "sometimes", "verdict"):
        assert said["worlds"][0][figure] == whole[figure], figure
    assert explored("--world", "alone", "--resume", str(tmp_path / "kept.search")) == 2
    assert "another search" in capsys.readouterr().err


@contextmanager
def searching(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A search of its own process, and the two processes of its crew, which have begun."""
    child = subprocess.Popen(
        [sys.executable, "-m", "pagefence", "explore", *arguments, "--cores", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while len(crew := psutil.Process(child.pid).children()) < 2:
            assert child.poll() is None
            time.sleep(0.02)
        yield child, crew
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_a_crew_that_lost_a_process_is_3_with_one_clear_line() -> None:
    with searching("--world", "two-by-two") as (child, crew):
        crew[1].kill()
        _, err = child.communicate(timeout=30)
        _, alive = psutil.wait_procs(crew, timeout=5)
    assert child.returncode == 3
    assert "pagefence: a process that searched was ended from outside" in err
    assert "Traceback" not in err
    assert alive == []


@pytest.mark.slow
def test_a_search_that_is_terminated_leaves_no_process_behind() -> None:
    with searching("--world", "two-by-two") as (child, crew):
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=30)
        _, alive = psutil.wait_procs(crew, timeout=5)
    assert child.returncode == 130
    assert "Traceback" not in err
    assert alive == []


def test_ctrl_c_saves_and_a_second_run_goes_on(capsys: Captured, tmp_path: Path) -> None:
    kept = tmp_path / "kept.search"
    arguments = ["--world", "losses", "--resume", str(kept)]
    with searching(*arguments) as (child, _):
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    saved, more = (as_json(capsys, *arguments, "--states", limit)[1]["worlds"][0] for limit in ("1", "4000"))
    assert more["states"] >= 4000 > saved["states"]
    assert more["seconds"] > saved["seconds"]

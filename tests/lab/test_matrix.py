"""The matrix: cells are kept, nothing that was not run counts as caught, and it comes in three shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from pagefence import cli
from pagefence.lab import matrix_views
from pagefence.lab.fault import Fault
from pagefence.lab.faults import FAULTS
from pagefence.lab.matrix import (
    COLUMNS,
    CONTROL,
    GUARDED,
    PROBED,
    BadResults,
    Cell,
    Mark,
    Results,
    _probed,
    _Verified,
)
from pagefence.probes import PROBES
from pagefence.run import run

NAMES = [CONTROL, "stub-transfer"]


@pytest.fixture
def kept(tmp_path: Path) -> Results:
    results = Results.at(tmp_path / "matrix.json")
    results.put(CONTROL, "explorer", Cell(Mark.SILENT, "12 states"))
    results.put("stub-transfer", "explorer", Cell(Mark.CAUGHT, "I4 after 13 moves"))
    return results


def test_a_cell_is_there_in_the_next_run(kept: Results) -> None:
    again = Results.at(kept.path)
    assert again.get("stub-transfer", "explorer") == Cell(Mark.CAUGHT, "I4 after 13 moves")
    assert again.get("stub-transfer", "simulation").mark is Mark.NOT_RUN


def test_two_runs_at_once_keep_each_others_cells(kept: Results) -> None:
    other = Results.at(kept.path)
    kept.put("stub-transfer", "gate", Cell(Mark.CAUGHT))
    other.put("stub-transfer", "canary", Cell(Mark.CAUGHT))
    assert Results.at(kept.path).get("stub-transfer", "gate").mark is Mark.CAUGHT


def test_what_nothing_caught_is_named_and_what_was_not_run_is_not_caught(kept: Results) -> None:
    assert kept.uncaught(["stub-transfer", "page-leak"]) == ["page-leak"]
    kept.put("page-leak", "explorer", Cell(Mark.OTHER, "I5"))
    kept.put("page-leak", "no guard", Cell(Mark.HOLDS))
    assert kept.uncaught(["page-leak"]) == ["page-leak"]


def test_a_detector_that_is_raised_without_a_fault_is_named(kept: Results) -> None:
    assert kept.loud() == []
    kept.put(CONTROL, "canary", Cell(Mark.OTHER, "LEAK"))
    assert kept.loud() == ["canary"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"faults": {"x": {"gate": {"mark": "fine"}}}}', "\x00"])
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(text)
    with pytest.raises(BadResults):
        Results.at(path)


# --- a run of the probes ------------------------------------------------------------------------------------------

CLEAN = "no leak in 9 probes"
NO_FAULT = Fault(CONTROL, "", "", "", ())


@dataclass(frozen=True)
class Told:
    """A run of `pagefence verify` that is over."""

    said: dict[str, Any]

    def report(self) -> dict[str, Any]:
        return self.said


def a_probe(name: str, **changes: Any) -> dict[str, Any]:
    shown = 9 if name == "canary" else 0
    return {"name": name, "finished": True, "shown": shown, "checks": [{"id": "as it should be"}]} | changes


def a_report(*evidence: tuple[str, str, str], **changes: Any) -> dict[str, Any]:
    """A run of all probes, with findings (probe, kind, what), as far as the matrix reads it."""
    found = [{"probe": probe, "kind": kind, "check": "border", "what": what} for probe, kind, what in evidence]
    probes = [a_probe(name) for name in PROBES]
    return {"interrupted": False, "sentence": CLEAN, "probes": probes, "evidence": found} | changes


def cell(report: dict[str, Any], column: str, fault: Fault = NO_FAULT) -> Cell:
    return _probed(fault, cast(_Verified, Told(report)), column)


@pytest.mark.parametrize("column", PROBED)
def test_a_sound_run_that_found_nothing_is_silent(column: str) -> None:
    assert cell(a_report(), column) == Cell(Mark.SILENT)


@pytest.mark.parametrize("fault", [NO_FAULT, FAULTS["stub-transfer"]], ids=lambda fault: fault.name)
@pytest.mark.parametrize("column", PROBED)
def test_a_run_that_did_not_finish_or_had_no_answer_is_void_and_never_silent(column: str, fault: Fault) -> None:
    probe = PROBED[column][0]
    unsound: tuple[dict[str, Any], ...] = (
        {"interrupted": True},
        {"probes": []},
        {"probes": [a_probe(probe, finished=False)]},
        {"probes": [a_probe(probe, checks=[])]},
    )
    for changes in unsound:
        assert cell(a_report(sentence="why", **changes), column, fault) == Cell(Mark.VOID, "why")
    doubtful = a_report((probe, "INCONCLUSIVE", "positive control 0/8"), sentence="of another probe")
    assert cell(doubtful, column, fault) == Cell(Mark.VOID, "positive control 0/8")


@pytest.mark.parametrize("column", ["canary", "own recall"])
def test_a_canary_whose_answers_could_show_nothing_is_void(column: str) -> None:
    assert cell(a_report(probes=[a_probe("canary", shown=0)]), column).mark is Mark.VOID


def test_what_a_doubtful_run_found_is_caught_all_the_same() -> None:
    report = a_report(("canary", "INCONCLUSIVE", "3 slips"), ("canary", "LEAK", "foreign words"), interrupted=True)
    assert cell(report, "canary") == Cell(Mark.CAUGHT, "LEAK: border")
    assert cell(report, "own recall").mark is Mark.VOID


def test_a_doubt_of_one_probe_leaves_what_another_says() -> None:
    report = a_report(("gate", "INCONCLUSIVE", "the pool is unknown"))
    assert {c for c in PROBED if cell(report, c).mark is Mark.VOID} == {"gate"}
    assert {c for c in PROBED if cell(report, c).mark is Mark.SILENT} == set(PROBED) - {"gate"}


# --- shapes -------------------------------------------------------------------------------------------------------


def test_every_cell_is_in_the_picture_and_every_row_on_the_page(kept: Results) -> None:
    root = ElementTree.fromstring(matrix_views.svg(kept, NAMES))
    assert len(root.findall(".//{*}g")) == len(NAMES) * len(COLUMNS)
    page = matrix_views.markdown(kept, NAMES)
    assert "| stub-transfer | X |" in page
    assert "- explorer: caught (I4 after 13 moves)" in page


@pytest.mark.slow
def test_one_fault_from_the_command_line(kept: Results, capsys: pytest.CaptureFixture[str]) -> None:
    for column in GUARDED:  # known already, so not run again
        kept.put(CONTROL, column, Cell(Mark.HOLDS))
    flags = ["--fault", "pool-below-context", "--results", str(kept.path), "--cores", "1", "--json"]
    assert run(cli.app, ["lab", "matrix", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema_version"] == 1
    assert said["faults"]["pool-below-context"]["explorer"]["mark"] == "caught"
    assert said["faults"]["pool-below-context"]["readiness alone"]["mark"] == "holds"


def test_a_page_that_has_no_place_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(cli.app, ["lab", "traces", str(tmp_path / "file")]) == 2
    assert f"pagefence: cannot write {tmp_path / 'file'}: " in capsys.readouterr().err


def test_the_list_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.app, ["lab", "list", "--json"]) == 0
    assert {"name", "mechanism", "reference", "rules"} <= set(json.loads(capsys.readouterr().out)[0])

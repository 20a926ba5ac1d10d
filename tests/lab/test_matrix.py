"""The matrix: cells are kept, nothing that was not run counts as caught, and it comes in three shapes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pagefence import cli
from pagefence.lab import matrix_views
from pagefence.lab.matrix import COLUMNS, CONTROL, GUARDED, BadResults, Cell, Mark, Results
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
    assert again.get("stub-transfer", "salt probe").mark is Mark.NOT_BUILT


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


def test_every_cell_is_in_the_picture_and_every_row_on_the_page(kept: Results) -> None:
    root = ElementTree.fromstring(matrix_views.svg(kept, NAMES))
    assert len(root.findall(".//{*}g")) == len(NAMES) * len(COLUMNS)
    page = matrix_views.markdown(kept, NAMES)
    assert "| stub-transfer | X |" in page
    assert "- explorer: caught (I4 after 13 moves)" in page


def test_one_fault_from_the_command_line(kept: Results, capsys: pytest.CaptureFixture[str]) -> None:
    for column in GUARDED:  # known already, so not run again
        kept.put(CONTROL, column, Cell(Mark.HOLDS))
    flags = ["--fault", "pool-below-context", "--results", str(kept.path), "--cores", "1", "--json"]
    assert run(cli.app, ["lab", "matrix", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema_version"] == 1
    assert said["faults"]["pool-below-context"]["explorer"]["mark"] == "caught"
    assert said["faults"]["pool-below-context"]["readiness alone"]["mark"] == "holds"


def test_the_list_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.app, ["lab", "list", "--json"]) == 0
    assert {"name", "mechanism", "reference", "rules"} <= set(json.loads(capsys.readouterr().out)[0])

"""`pagefence replay`: a finding shows where the fault is, not where it is mended, and nothing is believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagefence.cli import app
from pagefence.fleet import Answer, Limits
from pagefence.fleet.answer import ErrorBody
from pagefence.probes.prompt import Prompt
from pagefence.probes.replay.judge import judge
from pagefence.probes.replay.manifest import FILE, Found, Manifest, Sent
from pagefence.probes.run import Outcome
from pagefence.probes.shot import Maker, Purpose
from pagefence.run import run
from pagefence.verdict import decide
from tests.probes.toy import KEYS, Toy, running

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", KEYS[0])
    monkeypatch.setenv("PAGEFENCE_KEY_B", KEYS[1])
    monkeypatch.setenv("COLUMNS", "160")


def world(bug: str) -> Toy:
    return Toy(bug, context=512, prefill_pool=256, decode_pool=1024)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run against a fleet that leaks; the fleet is gone."""
    file = tmp_path_factory.mktemp("run") / "report.json"
    with pytest.MonkeyPatch.context() as patch, running(world("stub")) as toy:
        patch.setenv("PAGEFENCE_KEY_A", KEYS[0])
        patch.setenv("PAGEFENCE_KEY_B", KEYS[1])
        assert run(app, ["canary", toy.url, "--yes", "--seed", "5", "--json", str(file)]) == 1
    return file


def replayed(report: Path, toy: Toy, tmp_path: Path, *flags: str) -> tuple[int, dict[str, object]]:
    out = tmp_path / "again.json"
    code = run(app, ["replay", str(report), toy.url, "--yes", "--json", str(out), *flags])
    document: dict[str, object] = json.loads(out.read_text())
    return code, document


def test_a_leak_shows_again_where_the_fault_still_is(report: Path, tmp_path: Path, capsys: Captured) -> None:
    with running(world("stub")) as toy:
        code, document = replayed(report, toy, tmp_path)
    assert (code, document["verdict"], document["command"]) == (1, "LEAK", "replay")
    assert "shows again" in capsys.readouterr().out


def test_it_does_not_where_the_fleet_refuses_now(report: Path, tmp_path: Path) -> None:
    with running(world("")) as toy:
        code, document = replayed(report, toy, tmp_path)
    assert (code, document["verdict"]) == (0, "CLEAN")


@pytest.mark.parametrize("bug", ["hangs", "bad-error"])
def test_silence_and_strange_errors_are_no_proof_that_it_is_gone(bug: str, report: Path, tmp_path: Path) -> None:
    with running(world(bug)) as toy:
        code, document = replayed(report, toy, tmp_path, "--timeout", "0.3")
    assert code in (1, 3)
    assert document["verdict"] != "CLEAN"


def test_a_guard_that_steps_in_now_is_a_finding_of_its_own(report: Path, tmp_path: Path) -> None:
    with running(world("guarded")) as toy:
        code, document = replayed(report, toy, tmp_path)
    assert (code, document["verdict"]) == (1, "FAIL")


def test_a_fleet_that_forgets_its_controls_proves_nothing(report: Path, tmp_path: Path) -> None:
    with running(world("forgets")) as toy:
        code, document = replayed(report, toy, tmp_path)
    assert (code, document["n"]) == (3, 0)


def test_keys_go_to_no_address_that_only_a_file_names(report: Path, tmp_path: Path, capsys: Captured) -> None:
    """The evidence may be anybody's: without a URL, a terminal or --yes nothing is sent."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    with running(world("stub")) as trap:
        text = (report.with_name(report.name + ".evidence") / FILE).read_text()
        document = json.loads(text) | {"url": trap.url}
        for file in report.with_name(report.name + ".evidence").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / FILE).write_text(json.dumps(document))
        assert run(app, ["replay", str(folder)]) == 2
        assert trap.calls == []
        assert trap.url in capsys.readouterr().err
        assert run(app, ["replay", str(folder), "--yes"]) == 1
        assert trap.calls


def test_it_sends_what_was_sent_and_only_that(report: Path, tmp_path: Path) -> None:
    manifest = json.loads((report.with_name(report.name + ".evidence") / FILE).read_text())
    with running(world("stub")) as toy:
        code, document = replayed(report, toy, tmp_path)
        sent = sorted(toy.calls)
    assert code == 1
    assert set(sent) <= {request["tokens"] for request in manifest["requests"].values()}
    cost = document["cost"]
    assert isinstance(cost, dict)
    assert cost["requests"] == len(sent)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no list of findings"),
        ('{"version": 1}', "no list of findings"),
        (None, "holds no findings"),
    ],
)
def test_evidence_that_is_none_is_one_clear_line(text: str | None, said: str, tmp_path: Path, capsys: Captured) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    assert run(app, ["replay", str(tmp_path), "http://127.0.0.1:9", "--yes"]) == 2
    assert said in capsys.readouterr().err


def test_a_body_outside_the_folder_is_not_read(report: Path, tmp_path: Path, capsys: Captured) -> None:
    document = json.loads((report.with_name(report.name + ".evidence") / FILE).read_text())
    for request in document["requests"].values():
        request["body"] = "../" + request["body"]
    (tmp_path / FILE).write_text(json.dumps(document))
    assert run(app, ["replay", str(tmp_path), "http://127.0.0.1:9", "--yes"]) == 2
    assert "outside" in capsys.readouterr().err


def test_no_key_and_no_answer_lies_beside_the_report(report: Path) -> None:
    for file in report.with_name(report.name + ".evidence").iterdir():
        assert not any(key in file.read_text() for key in KEYS)


def test_a_reader_after_a_planter_that_got_no_answer_shows_nothing() -> None:
    maker = Maker(3)
    plant, read = maker.shot("canary", Purpose.PLANT, "a", 200, 2), maker.shot("canary", Purpose.READ, "b", 200, 24)
    control = maker.shot("canary", Purpose.CONTROL, "a", 96, 24)
    sent = {s.id: Sent(s, s.tokens, True, f"{s.id}.json") for s in (plant, read, control)}
    found = [Found("LEAK", "canary", "foreign-words", "words", read.id, plant.id)]
    limits = Limits(longest=500, pool=640, context=512, cover=640, advertised=512, pools=(640,), page=16)
    manifest = Manifest(1, "http://x", 3, limits, sent, [control.id], found)

    def verdict(planted: Answer) -> str:
        answers = {s.id: Answer(200, f"{s.sentinel} {s.sentinel}", "length", s.tokens, 24) for s in (read, control)}
        answers[plant.id] = planted
        ran = [Outcome(s, Prompt(s.id, s.tokens, True), answers[s.id], {}) for s in (control, plant, read)]
        return decide([judge(manifest, ran)]).sentence

    assert "planted" in verdict(Answer(503, error=ErrorBody("busy")))
    assert "planted" not in verdict(Answer(200, "yes", "length", 200, 2))


def without_words(found: dict[str, Any], body: dict[str, Any]) -> None:
    for sent in found["requests"].values():
        sent["shot"]["sentinel"]["words"] = []


def other_words(found: dict[str, Any], body: dict[str, Any]) -> None:
    body["prompt"] = "the " * len(body["prompt"].split())


def fewer_tokens(found: dict[str, Any], body: dict[str, Any]) -> None:
    for sent in found["requests"].values():
        sent["tokens"] = 1


def negative(found: dict[str, Any], body: dict[str, Any]) -> None:
    for sent in found["requests"].values():
        sent["tokens"] = -5


def dear(found: dict[str, Any], body: dict[str, Any]) -> None:
    body["max_tokens"] = 10**9


def hot(found: dict[str, Any], body: dict[str, Any]) -> None:
    body["temperature"] = int("9" * 309)


@pytest.mark.parametrize("edit", [without_words, other_words, fewer_tokens, negative, dear, hot])
def test_a_list_and_bodies_that_do_not_fit_are_refused_before_anything_is_sent(
    edit: Callable[[dict[str, Any], dict[str, Any]], None], report: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / "edited"
    shutil.copytree(report.with_name(report.name + ".evidence"), folder)
    found = json.loads((folder / FILE).read_text())
    body = folder / found["requests"][found["findings"][0]["request"]]["body"]
    said = json.loads(body.read_text())
    edit(found, said)
    (folder / FILE).write_text(json.dumps(found))
    body.write_text(json.dumps(said))
    with running(world("stub")) as toy:
        assert run(app, ["replay", str(folder), toy.url, "--yes"]) == 2
        assert not toy.calls
    assert "cannot read the request" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["list", "body"])
def test_a_pipe_in_the_folder_is_not_waited_for(which: str, report: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "piped"
    shutil.copytree(report.with_name(report.name + ".evidence"), folder)
    found = json.loads((folder / FILE).read_text())
    pipe = folder / (FILE if which == "list" else found["requests"][found["findings"][0]["request"]]["body"])
    pipe.unlink()
    os.mkfifo(pipe)
    assert run(app, ["replay", str(folder), "http://127.0.0.1:9", "--yes"]) == 2
    assert "it is no file" in capsys.readouterr().err

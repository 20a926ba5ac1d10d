"""What a fleet answered is other people's text until shown otherwise: no report of a live fleet holds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.cli import app
from pagefence.fleet import Keys
from pagefence.probes import Evidence, Kind, ProbeResult
from pagefence.run import run
from pagefence.verdict.redaction import MASK, Redaction
from tests.probes.toy import KEYS, Toy, running

PLANTED = frozenset({"amber", "river"})


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", KEYS[0])
    monkeypatch.setenv("PAGEFENCE_KEY_B", KEYS[1])
    monkeypatch.setenv("COLUMNS", "160")


@given(st.text(max_size=60))
def test_of_an_answer_only_planted_words_and_marks_of_punctuation_stay(text: str) -> None:
    shown = Redaction(Keys(), PLANTED).answer(text).replace(MASK, " ")
    assert {word for word in shown.lower().split() if any(c.isalnum() for c in word)} <= {
        left for left in shown.lower().split() if all(part in PLANTED for part in _words(left))
    }


def _words(text: str) -> list[str]:
    return [part for part in "".join(c if c.isalnum() else " " for c in text).split() if part]


def test_planted_words_stay_with_their_marks_and_the_rest_is_masked() -> None:
    shown = Redaction(Keys(), PLANTED).answer("so «Amber» «river», call Jane at 555-1234\n- amber")
    assert shown == f"{MASK} «Amber» «river», {MASK} {MASK} {MASK} {MASK}-{MASK}\n- amber"


def test_details_that_hold_answers_are_masked_and_others_are_not() -> None:
    found = Evidence(Kind.LEAK, "canary", "foreign-words", "w", "what", details={"answer": "my diary", "limit": 5})
    (result,) = Redaction(Keys(), PLANTED).results((ProbeResult("canary", evidence=(found,)),))
    assert result.evidence[0].details == {"answer": f"{MASK} {MASK}", "limit": 5}
    assert result.evidence[0].kind is Kind.LEAK


def test_a_key_that_a_fleet_repeats_is_gone_whatever_is_shown() -> None:
    found = Evidence(Kind.FAIL, "gate", "x", "key-of-a", "said key-of-a", details={"answer": "key-of-a"})
    (result,) = Redaction(Keys("key-of-a"), None).results((ProbeResult("gate", evidence=(found,)),))
    assert "key-of-a" not in str(result)


@pytest.mark.parametrize("bug", ["stub", "forgets-long"])
@pytest.mark.parametrize("unredacted", [False, True])
def test_no_report_of_a_live_fleet_holds_its_answers_unless_asked(
    bug: str, unredacted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy answers with "the the the": no word of ours, so somebody else's."""
    toy = Toy(bug, context=512, prefill_pool=256, decode_pool=1024) if bug == "stub" else Toy(bug)
    files = {name: tmp_path / f"r.{name}" for name in ("json", "junit", "sarif", "html")}
    flags = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    with running(toy):
        run(app, ["verify", toy.url, "--seed", "5", "--yes", *flags, *(["--unredacted"] if unredacted else [])])
    document = json.loads(files["json"].read_text())
    answers = [str(e["details"].get("answer", "")) for e in document["evidence"]]
    everything = capsys.readouterr().out + "".join(file.read_text() for file in files.values())
    assert document["redacted"] is not unredacted
    if bug != "stub":
        assert any(answers)
        assert ("the the the" in everything) is unredacted
        assert any(MASK in answer for answer in answers) is not unredacted
    assert not any(key in everything for key in KEYS)

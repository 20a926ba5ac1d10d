"""An edge is told which words are planted before the fleet gets them, in a file that two writers cannot spoil."""

from __future__ import annotations

import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefence.edge.watching.sentinels import Reading, Sentinels
from pagefence.files import CannotWrite
from pagefence.mistakes import Usage
from pagefence.probes import PROBES, Config, Kind, asking
from pagefence.probes import sentinel_file as module
from pagefence.probes.race.plan import NAME as RACE
from pagefence.probes.race.plan import Profile
from pagefence.probes.sentinel import Sentinel, look
from pagefence.probes.sentinel_file import MOST, SentinelFile, read_sentinels
from pagefence.probes.wordlist import WORDS
from pagefence.verdict import decide
from tests.probes.test_against_toys import examined
from tests.probes.toy import Toy


def sentinel(number: int, tenant: str = "a") -> Sentinel:
    """No two numbers have the same words in the same order."""
    return Sentinel(f"{number}", tenant, tuple(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3, 4)))


def kept(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    return [(s.tenant, s.words) for s in read_sentinels(path)]


# --- before anything is planted


@dataclass
class Witness(Toy):
    """Looks into the file whenever a prompt arrives. `untold`: prompts whose words did not stand there."""

    path: Path = Path()
    told: int = 0
    first: float = 0.0  # when the first of them came
    untold: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bodies = _Seen(self)


class _Seen(list[dict[str, Any]]):
    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self.witness = witness

    def append(self, body: dict[str, Any]) -> None:
        super().append(body)
        prompt, witness = body["prompt"], self.witness
        if prompt == "Hello":  # holds no words
            return
        known = read_sentinels(witness.path) if witness.path.exists() else ()
        if any(look(prompt, sentinel).whole for sentinel in known):
            witness.told += 1
            witness.first = witness.first or time.time()
        else:
            witness.untold.append(prompt)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SEEN_S", 0.0)


def test_an_edge_has_the_time_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SEEN_S", 0.4)
    path = tmp_path / "live.json"
    examined(witness := Witness(path=path), Config(("boundary",), 7, sentinels=SentinelFile(path)))
    assert witness.first >= path.stat().st_mtime + 0.4


@pytest.mark.parametrize("probes", [("canary",), PROBES], ids=["canary", "all"])
def test_every_word_is_in_the_file_before_the_fleet_gets_it(tmp_path: Path, probes: tuple[str, ...]) -> None:
    path = tmp_path / "live.json"
    examination = examined(witness := Witness(path=path), Config(probes, 7, sentinels=SentinelFile(path)))
    assert decide(examination.results()).name == "CLEAN"
    assert witness.untold == []
    assert witness.told > 20
    assert {tenant for tenant, _ in kept(path)} == {"canary-a", "canary-b"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_so_are_the_words_of_prompts_that_look_for_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    witness = Witness(bare=True, path=path)
    examination = examined(witness, Config(("boundary",), 7, sentinels=SentinelFile(path)))
    assert examination.found is not None
    assert examination.found.search.questions > 1
    assert witness.untold == []
    assert witness.told > examination.found.search.questions


@pytest.mark.parametrize("bare", [False, True])
def test_what_cannot_be_told_is_not_planted(tmp_path: Path, bare: bool) -> None:
    path = tmp_path / "gone" / "live.json"
    examination = examined(toy := Toy(bare=bare), Config(("canary",), 7, sentinels=SentinelFile(path)))
    assert {body["prompt"] for body in toy.bodies} == {"Hello"}
    (doubt,) = examination.results()[0].evidence
    assert doubt.kind is Kind.INCONCLUSIVE
    assert f"could not be told of the words: cannot write {path}" in doubt.what


def test_the_words_of_a_race_are_not_in_it(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    config = Config(("canary", RACE), 7, race=Profile(probes=4, tokens=20_000), sentinels=SentinelFile(path))
    examination = examined(Toy(), config)
    assert examination.race is not None
    assert examination.plan is not None
    assert len(kept(path)) == len({(s.tenant, s.words) for s in examination.plan.sentinels})


def test_a_dry_run_plants_nothing_and_writes_nothing(tmp_path: Path) -> None:
    examined(Toy(), Config(("canary",), 7, dry_run=True, sentinels=SentinelFile(tmp_path / "live.json")))
    assert list(tmp_path.iterdir()) == []


def test_what_the_canary_finds_the_edge_finds_by_the_file(tmp_path: Path) -> None:
    """And what is no finding for the one is none for the other."""
    path = tmp_path / "live.json"
    config = Config(("canary",), 3, sentinels=SentinelFile(path, ("acme", "globex")))
    examination = examined(Toy("stub", context=512, prefill_pool=256, decode_pool=1024), config)
    live = Sentinels(read_sentinels(path))
    leaks = {e.where for r in examination.results() for e in r.evidence if e.kind is Kind.LEAK}
    assert leaks
    for outcome in examination.outcomes:
        allowed = live.of_prompt([outcome.prompt.text.encode()], "globex" if outcome.shot.tenant == "b" else "acme")
        foreign = False
        for answer in outcome.answers:
            reading = Reading(live)
            reading.feed(answer.text.encode(), ends=True)
            foreign |= any(number not in allowed for number, _ in reading.found())
        assert foreign == (outcome.shot.id in leaks), outcome.shot.id


# --- what is kept


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=16), min_size=1, max_size=6))
def test_the_newest_stay_each_once_and_those_of_one_run_always(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int]]
) -> None:
    path, most = tmp_path_factory.mktemp("kept") / "live.json", 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", most)
        expected: list[int] = []
        for run in runs:
            SentinelFile(path).add(sentinel(number) for number in run)
            new = list(dict.fromkeys(run))
            expected = [number for number in expected if number not in new] + new
            expected = expected[-max(most, len(new)) :]
            assert kept(path) == [("canary-a", sentinel(number).words) for number in expected]


def test_a_watch_can_go_on_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    for run in range(8):
        SentinelFile(path).add(sentinel(100 * run + number) for number in range(100))
    assert [words for _, words in kept(path)] == [sentinel(number).words for number in range(800 - MOST, 800)]
    assert path.stat().st_size < 30_000


def test_two_tenants_may_have_the_same_words_and_each_goes_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    SentinelFile(path, ("acme", "globex")).add([sentinel(1), sentinel(1, "b")])
    assert kept(path) == [("acme", sentinel(1).words), ("globex", sentinel(1).words)]


def test_writers_beside_each_other_take_out_nothing(tmp_path: Path) -> None:
    path = tmp_path / "live.json"

    def write(writer: int) -> None:
        for number in range(10):
            SentinelFile(path).add([sentinel(10 * writer + number)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert {words for _, words in kept(path)} == {sentinel(number).words for number in range(60)}


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "live.json"
    SentinelFile(path).add([sentinel(1)])

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space left"):
        SentinelFile(path).add([sentinel(2)])
    assert kept(path) == [("canary-a", sentinel(1).words)]
    assert list(tmp_path.iterdir()) == [path]


# --- what is refused


@pytest.mark.parametrize("held", [b"", b'[router]\nurl = "http://r:1"\n', b'{"targets": []}', b'{"sentinels": [[]]}'])
def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "fleet.toml"
    path.write_bytes(held)
    with pytest.raises(Usage, match=r"fleet\.toml holds no sentinels"):
        SentinelFile(path).check()
    with pytest.raises(Usage, match=r"fleet\.toml holds no sentinels"):
        SentinelFile(path).add([sentinel(1)])
    assert path.read_bytes() == held


def test_a_place_that_can_hold_no_file_is_told_beforehand(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(Usage, match="is no file"):
            SentinelFile(path).check()
    with pytest.raises(CannotWrite, match="No such file"):
        SentinelFile(tmp_path / "gone" / "live.json").check()
    SentinelFile(tmp_path / "live.json").check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["a", "b", "c"], ["a", "B", "c", "d"], ["a", "b", "c", "d4"], ["a", "b", "c", "d\n"], ["a", "", "b", "c"]],
)
def test_words_that_no_scan_would_find_are_refused(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "live.json"
    path.write_text(json.dumps({"sentinels": [{"tenant": "a", "words": words}]}))
    with pytest.raises(Usage, match="four or more words of the letters a to z"):
        read_sentinels(path)


def test_all_words_that_probes_draw_from_pass() -> None:
    """A calibrated run draws from fewer of the same words."""
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.parametrize(
    ("tenants", "said"), [(("x", "x"), "both tenants"), (("", "x"), "no name"), (("x", "a b"), "no name"),
                          (("\udcff", "x"), "no name")],
)  # fmt: skip
def test_tenants_that_cannot_be_told_apart_are_refused(tenants: tuple[str, str], said: str) -> None:
    with pytest.raises(Usage, match=said):
        SentinelFile(Path("live.json"), tenants)

"""What was approved stays, or is approved again; the file is never written over unread, and never by halves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagefence.files import CannotWrite
from pagefence.fleet import Fleet, FleetFacts, Keys, Target
from pagefence.fleet.facts import DECODE, PREFILL
from pagefence.probes import Config, Examination, Kind, ProbeResult, examine
from pagefence.probes.gate import Policy, gate
from pagefence.probes.gate.lock import read_lock, write_lock
from tests.probes.gate_facts import figure, pair, sglang, silent, with_flag
from tests.probes.toy import KEYS, Toy, running


def compared(path: Path, facts: FleetFacts) -> ProbeResult:
    return gate(facts, declared_pd=True, policy=Policy(lock=path), lock=read_lock(path))


def drifted(result: ProbeResult) -> dict[Kind, list[str]]:
    found: dict[Kind, list[str]] = {}
    for evidence in result.evidence:
        if evidence.check == "drift":
            found.setdefault(evidence.kind, []).append(evidence.what)
    return found


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "approved.json"
    write_lock(path, pair())
    return path


def test_a_fleet_as_it_was_approved_has_not_drifted(lock: Path) -> None:
    assert json.loads(lock.read_bytes())["schema_version"] == 1
    assert drifted(compared(lock, pair())) == {}


GROWN = (figure(4096), figure(5120))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (pair(sglang(PREFILL, ranks=GROWN)), "pool of rank 1 was 2,560, is 5,120"),
        (pair(sglang(PREFILL, ranks=(figure(2560),))), "number of ranks was 2, is 1"),
        (pair(sglang(PREFILL, version="0.5.24")), "version was 0.5.23, is 0.5.24"),
        (pair(sglang(PREFILL, model="other")), "model was m, is other"),
        (pair(sglang(PREFILL, settings={"kv_cache_dtype": "auto", "tp_size": "2"})), "setting tp_size was 1, is 2"),
        (
            pair(sglang(PREFILL, settings={"kv_cache_dtype": "auto", "tp_size": "1", "dtype": "auto"})),
            "setting dtype was not told, is auto",
        ),
        (pair(with_flag(sglang(PREFILL), "kv_transfer", "nixl")), "flag kv_transfer was mooncake, is nixl"),
        (replace(pair(), nodes=(*pair().nodes, sglang(DECODE, url="http://d2:1"))), "http://d2:1 is new"),
        (replace(pair(), nodes=pair().nodes[:1]), "decode http://decode:9000 was approved, and is not there"),
    ],
)
def test_every_change_is_a_change_of_isolation_with_old_and_new(lock: Path, facts: FleetFacts, said: str) -> None:
    found = drifted(compared(lock, facts))
    assert any(f"a change of isolation: {said}" in what or said in what for what in found[Kind.FAIL])


def test_what_is_not_told_any_more_cannot_be_compared(lock: Path) -> None:
    found = drifted(compared(lock, pair(sglang(PREFILL, page_size=silent()))))
    assert list(found) == [Kind.INCONCLUSIVE]
    assert "page_size was 64, and is not told any more" in found[Kind.INCONCLUSIVE][0]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 2, "nodes": {}}', '{"nodes": "x"}', "\xff\x00"],
)
def test_a_file_that_is_no_lock_file_is_inconclusive(tmp_path: Path, content: str) -> None:
    path = tmp_path / "approved.json"
    path.write_bytes(content.encode("latin-1"))
    assert list(drifted(compared(path, pair()))) == [Kind.INCONCLUSIVE]


def test_no_file_and_a_folder_are_inconclusive(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        assert list(drifted(compared(path, pair()))) == [Kind.INCONCLUSIVE]


def test_a_lock_file_that_nobody_read_is_inconclusive() -> None:
    assert list(drifted(gate(pair(), policy=Policy(lock=Path("x"))))) == [Kind.INCONCLUSIVE]


def gated(toy: Toy, policy: Policy, change: Callable[[], None] = lambda: None) -> ProbeResult:
    """The gate over HTTP, with a policy."""

    async def ask() -> Examination:
        examination = Examination(Config(("gate",), policy=policy))
        async with Fleet(Target(toy.url), Keys(*KEYS), 5.0) as fleet:
            await examine(fleet, examination, lambda what, done, total: None, lambda line: None)
        return examination

    change()
    return asyncio.run(ask()).results()[0]


def test_approved_compared_changed_approved_again(tmp_path: Path) -> None:
    path = tmp_path / "approved.json"
    with running(Toy()) as toy:
        assert list(drifted(gated(toy, Policy(lock=path)))) == [Kind.INCONCLUSIVE]
        assert not path.exists()
        first = gated(toy, Policy(lock=path, approve=True))
        assert first.evidence == ()
        assert any("approved and written" in c.text for c in first.checks)
        assert gated(toy, Policy(lock=path)).evidence == ()
        toy.info["dtype"] = "bfloat16"
        changed = gated(toy, Policy(lock=path))
        assert {(e.check, e.kind) for e in changed.evidence} == {("drift", Kind.FAIL)}
        assert gated(toy, Policy(lock=path, approve=True)).evidence == ()
        assert gated(toy, Policy(lock=path)).evidence == ()
    assert list(tmp_path.iterdir()) == [path]


def test_a_fleet_that_fails_is_not_approved(tmp_path: Path) -> None:
    path = tmp_path / "approved.json"
    with running(Toy(context=512, prefill_pool=256)) as toy:
        result = gated(toy, Policy(lock=path, approve=True))
    assert any("nothing was written" in e.what for e in result.evidence)
    assert not path.exists()


def test_a_file_that_cannot_be_read_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "approved.json"
    path.write_text("not ours")
    with running(Toy()) as toy:
        result = gated(toy, Policy(lock=path, approve=True))
    assert list(drifted(result)) == [Kind.INCONCLUSIVE]
    assert path.read_text() == "not ours"


def test_a_place_where_nothing_can_be_written_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    with running(Toy()) as toy, pytest.raises(CannotWrite):
        gated(toy, Policy(lock=tmp_path / "no" / "such" / "folder.json", approve=True))

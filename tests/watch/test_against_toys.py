"""A watch against real HTTP servers: sound ones, ones that break while they are watched, and ones that say nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pagefence.fleet import Keys, Target
from pagefence.probes import ProbeResult
from pagefence.probes.sentinel_file import SentinelFile, read_sentinels
from pagefence.verdict.redaction import MASK
from pagefence.watch.config import Module, Settings, Watched, allowance
from pagefence.watch.lines import lines
from pagefence.watch.metered import Metered
from pagefence.watch.meters import watch_text
from pagefence.watch.one_run import counted, run_once
from pagefence.watch.records import Phase, Ran
from pagefence.watch.state import State
from pagefence.watch.watcher import Watcher
from tests.probes.toy import KEYS, Toy, running
from tests.watch.meters import values

VERIFY = Module("verify", ("gate", "boundary", "canary"), 900.0, 0.0, tokens=9000, deadline_s=60.0)


CANARY = Module("verify", ("canary",), 900.0, 0.0, tokens=9000, deadline_s=60.0)


def watching(url: str, module: Module = VERIFY, timeout_s: float = 10.0) -> Watched:
    return Watched("toy", Target(url), (module,), allowance((module,), None, None, None), Keys(*KEYS), timeout_s)


def asked(toy: Toy, module: Module = VERIFY, timeout_s: float = 10.0) -> Ran:
    with running(toy):
        return asyncio.run(run_once(watching(toy.url, module, timeout_s), module, 7))


def test_each_run_writes_down_its_words_and_one_that_cannot_plants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefence.probes.asking.SEEN_S", 0.0)
    file = SentinelFile(tmp_path / "live.json")
    with running(Toy()) as toy:
        target = replace(watching(toy.url, CANARY), sentinels=file)
        runs = [asyncio.run(run_once(target, CANARY, seed)) for seed in (1, 2)]
        assert [ran.verdict for ran in runs] == ["CLEAN", "CLEAN"]
        live = read_sentinels(file.path)
        assert len({s.words for s in live}) == len(live) > 60
        file.path.write_bytes(b"something else")
        lost = asyncio.run(run_once(target, CANARY, 3))
    assert (lost.verdict, lost.phase, lost.requests) == ("INCONCLUSIVE", Phase.FINISHED, 0)
    assert "could not be told of the words" in lost.sentence
    assert file.path.read_bytes() == b"something else"


def test_a_bug_that_is_switched_on_shows_within_one_cycle_and_what_leaked_is_not_kept(tmp_path: Path) -> None:
    toy = Toy(context=512, prefill_pool=640, decode_pool=1024)
    said: list[str] = []

    async def story() -> None:
        now = 1000.0
        settings = Settings((watching(toy.url, CANARY),), tmp_path / "watch.db")
        say = lines([Keys(*KEYS)], lambda: now, True, said.append)
        watcher = Watcher(settings, State(settings.state, now), run_once, lambda: now, say)

        async def cycle() -> Mapping[str, float]:
            nonlocal now
            now += 1000
            watcher.tick()
            await asyncio.gather(*(flight.task for flight in watcher.flights()))
            return values(watch_text(watcher), "pagefence_watch_verdict", "verdict")

        assert (await cycle())["CLEAN"] == 1
        (sound,) = watcher.state.history(9)
        assert (sound.phase, sound.model) == (Phase.FINISHED, "toy")
        assert sound.charged >= sound.prompt_tokens + sound.new_tokens > 2000
        assert watcher.state.evidence("toy")["canary"][0].n >= 15
        toy.bug, toy.prefill_pool, toy.aside = "stub", 256, "merger"
        assert await cycle() == {"LEAK": 1, "CORRUPT": 0, "FAIL": 0, "INCONCLUSIVE": 0, "CLEAN": 0}
        found = values(watch_text(watcher), "pagefence_watch_findings", "kind")
        assert found["LEAK"] > 0
        assert found["CORRUPT"] > 0
        assert [record.verdict for record in watcher.state.history(9)] == ["LEAK", "CLEAN"]
        sound_report, leak_report = (watcher.state.report(run) or b"" for run in (1, 2))
        assert msgspec.json.decode(sound_report)["verdict"] == "CLEAN"
        assert msgspec.json.decode(leak_report)["redacted"] is True
        assert MASK.encode() in leak_report
        assert b"merger" not in leak_report  # whose text it is nobody knows; words that we planted stay
        assert not any(key.encode() in sound_report + leak_report for key in KEYS)

    with running(toy):
        asyncio.run(story())
    ended = [msgspec.json.decode(line) for line in said if '"ended"' in line]
    assert [line["verdict"] for line in ended] == ["CLEAN", "LEAK"]
    assert not any(key in line for line in said for key in KEYS)


def test_only_own_words_are_counted_as_evidence() -> None:
    """A fleet without a cache never hits one, and that is no fault that creeps up."""
    results = (ProbeResult("canary", controls=(19, 20)), ProbeResult("salt", controls=(0, 20)), ProbeResult("gate"))
    assert counted(results) == {"canary": (20, 1)}


def test_a_fleet_that_hangs_is_inconclusive_at_the_deadline_and_the_run_has_a_record() -> None:
    module = Module("verify", ("boundary",), 900.0, tokens=60_000, deadline_s=0.7)
    started = time.monotonic()
    ran = asked(Toy("hangs"), module, timeout_s=30.0)
    assert time.monotonic() - started < 20
    assert (ran.verdict, ran.phase) == ("INCONCLUSIVE", Phase.FINISHED)
    assert ran.sentence.startswith("no end within 0.7 s")
    assert "the deadline of 0.7 s came before the end" in ran.log


def test_a_leak_that_was_found_before_a_stop_is_told() -> None:
    toy = Toy("stub", context=512, prefill_pool=256, decode_pool=1024)

    async def story() -> Ran:
        task = asyncio.create_task(run_once(watching(toy.url), VERIFY, 7))
        while not any(200 < length <= toy.longest for length in toy.calls):
            await asyncio.sleep(0.01)  # until the longest legal prompts: all over the limits have been answered
        task.cancel()
        return await task

    with running(toy):
        ran = asyncio.run(story())
    assert ran.phase is Phase.INTERRUPTED
    assert ran.verdict in ("LEAK", "CORRUPT")


def test_a_fleet_that_is_down_is_inconclusive() -> None:
    ran = asyncio.run(run_once(watching("http://127.0.0.1:9", timeout_s=1.0), VERIFY, 7))
    assert ran.verdict == "INCONCLUSIVE"
    assert ran.charged < 100  # nobody knows whether it got there


@pytest.mark.parametrize(("most", "counts"), [(1, True), (1500, True), (500, False)])
def test_a_run_never_costs_more_than_its_tokens(most: int, counts: bool) -> None:
    toy = Toy(count_tokens=counts)
    with running(toy):
        module = replace(CANARY, tokens=most)
        ran = asyncio.run(run_once(watching(toy.url, module), module, 7))
    assert ran.verdict == "INCONCLUSIVE"
    computed = [length for length in toy.calls if length <= toy.longest]
    assert sum(computed) <= most
    assert ran.charged <= most
    assert "not sent" in ran.log


def test_what_is_refused_costs_nothing_and_a_request_without_an_answer_costs_its_most() -> None:
    from pagefence.fleet import Request

    async def cost(toy: Toy, words: int, timeout_s: float = 10.0) -> int:
        async with (fleet := Metered(Target(toy.url), Keys(*KEYS), timeout_s, 10_000)):
            await fleet.tokenize("a " * words)
            await fleet.complete(Request("a " * words, 8), "a")
            return fleet.charged

    for bug, words, timeout_s, expected in (("", 100, 10.0, 108), ("", 600, 10.0, 0), ("hangs", 600, 0.2, 608)):
        toy = Toy(bug)
        with running(toy):
            assert asyncio.run(cost(toy, words, timeout_s)) == expected

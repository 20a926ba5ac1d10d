"""When runs begin, who waits, and what is remembered. Time is a number that the tests set."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagefence.watch.config import Module
from pagefence.watch.records import Phase, Ran, Record
from pagefence.watch.schedule import backoff_s, next_due, sane
from pagefence.watch.watcher import BACKOFF, BUDGET, Wait
from tests.watch.scene import CHEAP, CLEAN, DEAR, Scene, watched

RICH = 1_000_000


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "watch.db", (watched(tokens=RICH, burst=RICH),))


def test_each_module_runs_once_in_its_period(scene: Scene) -> None:
    async def story() -> None:
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, 1000 + 3600)
        assert scene.runs_of("gate") == pytest.approx(61, abs=1)
        assert scene.runs_of("verify") == 5

    asyncio.run(story())


def test_jitter_moves_a_start_by_no_more_than_its_part() -> None:
    dues = [next_due(0.0, 100.0, 0.2, draw / 10) or 0.0 for draw in range(11)]
    assert (min(dues), max(dues)) == (80.0, 120.0)
    assert next_due(0.0, None, 0.2, 0.5) is None


def test_no_seed_is_used_twice_by_any_run_or_restart(scene: Scene) -> None:
    async def story() -> None:
        for _ in range(3):
            watcher = scene.opened()
            await scene.until(watcher, scene.now + 2000)
            watcher.state.close()
        seeds = [seed for _, _, seed in scene.asked]
        assert len(set(seeds)) == len(seeds) > 90

    asyncio.run(story())


def test_a_target_has_one_run_at_a_time_and_others_are_not_held_up(scene: Scene) -> None:
    async def story() -> None:
        scene.targets = (watched("eu"), watched("us"))
        scene.gate = asyncio.Event()
        watcher = scene.opened()
        await scene.look(watcher)
        assert [(name, module) for name, module, _ in scene.asked] == [("eu", "gate"), ("us", "gate")]
        await scene.until(watcher, 1000 + 600)
        assert len(scene.asked) == 2
        assert watcher.standings["eu"].waiting["verify"].why == "busy"

    asyncio.run(story())


def test_a_run_that_does_not_fit_waits_says_so_and_runs_when_tokens_are_back(scene: Scene) -> None:
    async def story() -> None:
        scene.targets = (watched(tokens=1000, burst=1000),)  # one run an hour, and its period is a quarter
        scene.answers = [CLEAN, replace(CLEAN, charged=1000)]
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, 1000 + 1000)
        assert scene.runs_of("verify") == 1
        (said,) = scene.events("waits")
        assert (said["module"], said["why"]) == ("verify", BUDGET)
        assert watcher.standings["eu"].waiting["verify"].why == BUDGET
        assert scene.runs_of("gate") > 10  # what sends no prompt goes on
        await scene.until(watcher, 1000 + 3700)
        assert scene.runs_of("verify") == 2

    asyncio.run(story())


def test_cheap_runs_do_not_starve_a_dear_one(scene: Scene) -> None:
    """Whoever waits longest for tokens gets them first."""

    async def story() -> None:
        small = Module("small", ("canary",), 60.0, 0.0, tokens=400)
        large = Module("large", ("canary",), 3600.0, 0.0, tokens=1000)
        scene.targets = (watched(modules=(small, large), tokens=3000, burst=1000),)
        scene.answers.extend([replace(CLEAN, charged=400)] * 20)
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, 1000 + 3500)
        assert scene.runs_of("large") == 1

    asyncio.run(story())


def test_a_target_without_room_is_left_alone_longer_each_time(scene: Scene) -> None:
    async def story() -> None:
        scene.answers.extend([CLEAN] + [replace(CLEAN, saturated=3)] * 10)
        modules = (replace(DEAR, every_s=100.0),)
        scene.targets = (watched(modules=modules, tokens=RICH, burst=RICH),)
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, 1000 + 100)
        assert watcher.standings["eu"].saturated == 1
        runs = []
        for _ in range(4):
            before = len(scene.asked)
            while len(scene.asked) == before:
                await scene.until(watcher, scene.now + 10)
            runs.append(scene.now)
        gaps = [b - a for a, b in zip([1100.0, *runs], runs, strict=False)]
        assert gaps == sorted(gaps)
        assert gaps[-1] >= 4 * 100
        assert any(fields["why"] == BACKOFF for fields in scene.events("waits"))

    asyncio.run(story())


def test_backoff_has_an_end_and_a_run_with_room_ends_it() -> None:
    assert [backoff_s(n, 10.0) for n in range(6)] == [0, 10, 20, 40, 80, 80]


def test_two_who_ask_at_once_share_one_run(scene: Scene) -> None:
    async def story() -> None:
        scene.gate = asyncio.Event()
        watcher = scene.opened()
        target = scene.targets[0]
        both = [asyncio.create_task(watcher.probe(target, DEAR)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.gate.set()
        first, second = await asyncio.gather(*both)
        assert isinstance(first, Record)
        assert first == second
        assert scene.runs_of("verify") == 1
        assert [r.id for r in watcher.state.history(9)] == [first.id]

    asyncio.run(story())


def test_who_leaves_while_a_run_is_shared_takes_it_from_nobody(scene: Scene) -> None:
    async def story() -> None:
        scene.gate = asyncio.Event()
        watcher = scene.opened()
        leaves, stays = (asyncio.create_task(watcher.probe(scene.targets[0], DEAR)) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaves.cancel()
        scene.gate.set()
        record = await stays
        assert isinstance(record, Record)
        assert record.phase is Phase.FINISHED

    asyncio.run(story())


def test_who_asks_for_another_module_gets_it_after_the_run_in_progress(scene: Scene) -> None:
    async def story() -> None:
        scene.gate = asyncio.Event()
        watcher = scene.opened()
        dear = asyncio.create_task(watcher.probe(scene.targets[0], DEAR))
        await asyncio.sleep(0)
        cheap = asyncio.create_task(watcher.probe(scene.targets[0], CHEAP))
        await asyncio.sleep(0)
        assert len(scene.asked) == 1
        scene.gate.set()
        found = await asyncio.gather(dear, cheap)
        assert [r.module for r in found if isinstance(r, Record)] == ["verify", "gate"]

    asyncio.run(story())


def test_those_who_ask_and_the_schedule_take_turns(scene: Scene) -> None:
    """A module that is always due, or somebody who asks without end, leaves room for the other."""

    async def story() -> None:
        always = replace(CHEAP, every_s=1.0)
        scene.targets = (watched(modules=(always, DEAR), tokens=RICH, burst=RICH),)
        watcher = scene.opened()
        await scene.look(watcher)
        scene.asked.clear()

        async def asks() -> None:
            for _ in range(5):
                assert isinstance(await watcher.probe(scene.targets[0], DEAR), Record)

        async def passes() -> None:
            while not asking.done():
                scene.now += 2
                watcher.tick()
                await asyncio.sleep(0)

        asking = asyncio.create_task(asks())
        await passes()
        order = "".join(module[0] for _, module, _ in scene.asked)
        assert "vv" not in order
        assert "ggg" not in order.rstrip("g")

    asyncio.run(story())


def test_a_second_run_that_is_asked_for_comes_after_what_is_due(scene: Scene) -> None:
    async def story() -> None:
        watcher = scene.opened()
        for _ in range(2):
            assert isinstance(await watcher.probe(scene.targets[0], DEAR), Record)
        assert [module for _, module, _ in scene.asked] == ["verify", "gate", "verify"]

    asyncio.run(story())


def test_asking_does_not_get_past_the_budget(scene: Scene) -> None:
    async def story() -> None:
        scene.targets = (watched(tokens=1000, burst=1000),)
        scene.answers = [replace(CLEAN, charged=1000)] * 9
        watcher = scene.opened()
        assert isinstance(await watcher.probe(scene.targets[0], DEAR), Record)
        wait = await watcher.probe(scene.targets[0], DEAR)
        assert isinstance(wait, Wait)
        assert wait.why == BUDGET
        assert wait.seconds == pytest.approx(3600)
        assert scene.runs_of("verify") == 1

    asyncio.run(story())


def test_an_error_of_ours_is_a_failed_run_and_never_clean(scene: Scene) -> None:
    async def story() -> None:
        scene.answers = [CLEAN, ValueError("bug, with the key ka in it")]
        watcher = scene.opened()
        await scene.look(watcher)
        (record,) = watcher.state.history(9, module="verify")
        assert (record.phase, record.verdict) == (Phase.FAILED, "INCONCLUSIVE")
        assert "ValueError" in record.sentence
        assert "$PAGEFENCE_KEY_A" in record.sentence
        assert record.charged == DEAR.tokens  # nobody knows what it spent
        await scene.until(watcher, 1000 + 2000)
        assert watcher.state.history(1, module="verify")[0].verdict == "CLEAN"

    asyncio.run(story())


def test_rates_that_creep_up_raise_an_alarm_that_stays(scene: Scene) -> None:
    async def story() -> None:
        lossy = replace(CLEAN, counts={"canary": (20, 6)})
        scene.targets = (watched(modules=(DEAR,), tokens=RICH, burst=RICH),)
        scene.answers.extend([replace(CLEAN, counts={"canary": (20, 1)})] * 5 + [lossy] * 4)
        scene.answers.extend([replace(CLEAN, counts={"canary": (20, 0)})] * 40)
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, 1000 + 900 * 4.5)
        assert not scene.events("alarm")
        await scene.until(watcher, 1000 + 900 * 8.5)
        (alarm,) = scene.events("alarm")
        assert alarm["probe"] == "canary"
        watcher.state.close()
        again = scene.opened()
        await scene.until(again, scene.now + 900 * 30)
        process, since = again.state.evidence("eu")["canary"]
        assert process.n == sum(record.requests > 0 for record in again.state.history(99)) * 20
        assert since is not None
        assert len(scene.events("alarm")) == 1
        again.state.forget_evidence("eu")
        assert again.state.evidence("eu") == {}

    asyncio.run(story())


def test_stopping_lets_a_run_bring_back_what_it_found(scene: Scene) -> None:
    async def story() -> None:
        scene.gate = asyncio.Event()
        watcher = scene.opened()
        watcher.tick()
        await asyncio.sleep(0)
        await watcher.stop(0.0)
        (record,) = watcher.state.history(9)
        assert (record.phase, record.verdict) == (Phase.INTERRUPTED, "INCONCLUSIVE")
        watcher.tick()
        assert not list(watcher.flights())
        assert await watcher.probe(scene.targets[0], CHEAP) is None

    asyncio.run(story())


def test_a_disk_that_fails_begins_nothing_and_loses_no_leak(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        scene.answers = [CLEAN, Ran("LEAK", ("LEAK",), "words of A in B's answer", charged=5)]
        watcher = scene.opened()

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(watcher.state, "end", full)
        await scene.look(watcher)
        assert watcher.trouble == "the state cannot be written: database or disk is full"
        assert any(fields.get("verdict") == "LEAK" for fields in scene.events("ended"))
        monkeypatch.setattr(watcher.state, "begin", full)
        asked = len(scene.asked)
        await scene.until(watcher, 1000 + 2000)
        assert len(scene.asked) == asked
        monkeypatch.undo()
        await scene.until(watcher, scene.now + 100)
        assert len(scene.asked) > asked
        assert watcher.trouble is None

    asyncio.run(story())


def test_after_a_long_absence_a_module_is_due_once_and_a_changed_period_holds(scene: Scene) -> None:
    async def story() -> None:
        watcher = scene.opened()
        await scene.look(watcher)
        watcher.state.close()
        scene.now += 100_000
        again = scene.opened()
        before = scene.runs_of("verify")
        await scene.look(again)
        assert scene.runs_of("verify") == before + 1

    asyncio.run(story())
    assert sane(9_000_000.0, 1000.0, 900.0, 0.1) == pytest.approx(1990.0)  # the clock was set back
    assert sane(None, 1000.0, 900.0, 0.1) == 1000.0
    assert sane(1500.0, 1000.0, None, 0.1) is None


def test_the_nap_ends_when_something_is_due(scene: Scene) -> None:
    async def story() -> None:
        watcher = scene.opened()
        await scene.look(watcher)
        assert watcher.nap_s() == 5.0
        scene.now = 1000 + 58
        assert watcher.nap_s() == pytest.approx(2.0)

    asyncio.run(story())


def test_a_clock_that_is_set_back_under_a_watch_does_not_silence_it(scene: Scene) -> None:
    async def story() -> None:
        watcher = scene.opened()
        await scene.until(watcher, 200_000)
        scene.now -= 86_400
        before = scene.runs_of("gate")
        await scene.until(watcher, scene.now + 600)
        assert scene.runs_of("gate") >= before + 9

    asyncio.run(story())


@pytest.mark.parametrize("odd", [{"prompt_tokens": 2**70}, {"sentence": "\ud800"}], ids=["number", "letter"])
def test_what_no_column_can_hold_is_told_and_the_watch_goes_on(scene: Scene, odd: dict[str, Any]) -> None:
    async def story() -> None:
        watcher = scene.opened()
        scene.answers = [replace(CLEAN, verdict="LEAK", **odd)]
        await scene.look(watcher)
        assert any(fields.get("verdict") == "LEAK" for fields in scene.events("ended"))
        await scene.until(watcher, scene.now + 600)
        assert watcher.state.history(1)[0].verdict == "CLEAN"

    asyncio.run(story())

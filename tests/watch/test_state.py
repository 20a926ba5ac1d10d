"""The file of a watch: what a crash leaves is found, nothing is counted twice, and no second watch writes to it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from pagefence.mistakes import Usage
from pagefence.watch.budget import Bucket, full
from pagefence.watch.records import Phase
from pagefence.watch.schedule import Slot
from pagefence.watch.schema import VERSION, migrate
from pagefence.watch.state import State
from tests.watch.scene import CHEAP, CLEAN, DEAR, Scene, watched


def crashed(scene: Scene) -> None:
    """A watch that ran for an hour and was killed while its next run held tokens."""

    async def story() -> None:
        watcher = scene.opened()
        await scene.look(watcher)
        await scene.until(watcher, scene.now + 3600)
        scene.gate = asyncio.Event()
        scene.now += 900
        watcher.tick()
        await asyncio.sleep(0)
        (flight,) = watcher.flights()
        flight.task.cancel()
        watcher.state._db.close()
        watcher.state._lock.close()
        scene.gate = None

    asyncio.run(story())


def test_a_run_that_a_crash_cut_off_is_recorded_once_and_charged_in_full(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "watch.db", (watched(modules=(DEAR,), tokens=10_000, burst=3000),))
    crashed(scene)
    state = State(scene.path, scene.now)
    done = state.totals()
    (cut,) = state.interrupted
    assert (cut.phase, cut.verdict, cut.charged) == (Phase.INTERRUPTED, "INCONCLUSIVE", DEAR.tokens)
    assert state.history(1)[0] == cut
    known = state.known("eu")
    assert known is not None
    assert known[0].held == 0
    assert known[0].level <= 3000 - DEAR.tokens  # the held tokens are gone, not given back
    state.close()
    again = State(scene.path, scene.now + 60)
    assert again.interrupted == ()
    assert again.totals() == done
    again.close()


def test_history_schedule_and_evidence_go_on_after_a_crash(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "watch.db", (watched(modules=(CHEAP, DEAR), tokens=100_000, burst=3000),))
    heard = replace(CLEAN, counts={"canary": (10, 0)})
    scene.answers = [CLEAN, heard, *[CLEAN] * 15, heard]  # the gate's first answer and the canary's
    crashed(scene)
    asked = len(scene.asked)

    async def story() -> None:
        watcher = scene.opened()
        assert len(watcher.state.history(999)) == asked
        assert watcher.state.evidence("eu")["canary"][0].n in (10, 20)
        due = watcher.standings["eu"].slots["verify"].due
        assert due is not None
        assert due <= scene.now + 900
        await scene.until(watcher, scene.now + 1800)
        assert scene.runs_of("verify") >= 6
        total = sum(runs for *_, runs in watcher.state.totals())
        assert total == len(scene.asked) == len(watcher.state.history(999))

    asyncio.run(story())


def begun(state: State, reserved: int = 10) -> int:
    state.place("eu", full(watched().allowance, 0.0), {"verify": Slot(0.0, 0.0)})
    return state.begin("eu", "verify", "asked", 1.0, Bucket(5.0, 1.0, reserved), reserved, 2.0)[0]


def test_a_run_ends_once(tmp_path: Path) -> None:
    state = State(tmp_path / "watch.db", 0.0)
    run = begun(state)
    assert state.end(run, CLEAN, 3.0, Bucket(9.0, 3.0), (0, 0.0), {}, 10) is not None
    assert state.end(run, CLEAN, 4.0, Bucket(9.0, 4.0), (0, 0.0), {}, 10) is None
    assert [runs for *_, runs in state.totals()] == [1]
    assert state.tokens("eu") == (90, 10)


def test_old_runs_are_forgotten_but_stay_counted_and_the_reports_of_kept_ones_are_whole(tmp_path: Path) -> None:
    state = State(tmp_path / "watch.db", 0.0)
    for i in range(30):
        ran = replace(CLEAN, report=b'{"run": %d}' % i)
        state.end(begun(state), ran, 3.0, Bucket(9.0, 3.0), (0, 0.0), {}, keep=4)
    kept = state.history(99)
    assert [record.id for record in kept] == [30, 29, 28, 27]
    assert [runs for *_, runs in state.totals()] == [30]
    assert state.report(30) == b'{"run": 29}'
    assert state.report(1) is None


def test_a_violation_found_before_a_stop_is_the_last_word(tmp_path: Path) -> None:
    """A leak is a leak, however the run ended; a run that was stopped and found nothing says nothing."""
    state = State(tmp_path / "watch.db", 0.0)
    for verdict, phase in (("CLEAN", Phase.FINISHED), ("LEAK", Phase.INTERRUPTED), ("INCONCLUSIVE", Phase.INTERRUPTED)):
        ran = replace(CLEAN, verdict=verdict, phase=phase)
        state.end(begun(state), ran, 3.0, Bucket(9.0, 3.0), (0, 0.0), {}, 9)
    last = state.last("eu", "verify")
    assert last is not None
    assert last.verdict == "LEAK"


def test_a_step_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "watch.db", 0.0)
    run = begun(state)
    with pytest.raises(sqlite3.Error):
        state.end(run, CLEAN, 3.0, Bucket(9.0, 3.0), (0, "no number"), {}, 10)  # type: ignore[arg-type]
    record = state.record(run)
    assert record is not None
    assert record.phase is Phase.RUNNING
    assert state.totals() == ()


def test_one_file_has_one_watch(tmp_path: Path) -> None:
    state = State(tmp_path / "watch.db", 0.0)
    with pytest.raises(Usage, match="another watch"):
        State(tmp_path / "watch.db", 0.0)
    state.close()
    State(tmp_path / "watch.db", 0.0).close()


def test_a_file_of_a_newer_version_or_of_something_else_is_left_alone(tmp_path: Path) -> None:
    State(tmp_path / "newer.db", 0.0).close()
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    with pytest.raises(Usage, match=f"newer PageFence \\(schema {VERSION + 1}"):
        State(tmp_path / "newer.db", 0.0)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE cookies (name)")
    other.close()
    with pytest.raises(Usage, match="something else"):
        State(tmp_path / "other.db", 0.0)
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    with pytest.raises(Usage, match="cannot keep the state"):
        State(tmp_path / "text.db", 0.0)
    with pytest.raises(Usage, match="cannot keep the state"):
        State(tmp_path / "no-such-folder" / "watch.db", 0.0)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    State(tmp_path / "watch.db", 0.0).close()
    assert (tmp_path / "watch.db").stat().st_mode & 0o077 == 0


def test_the_same_seed_asks_the_same_questions(tmp_path: Path) -> None:
    seeds = []
    for name in ("one.db", "two.db"):
        scene = Scene(tmp_path / name, change=lambda settings: replace(settings, seed=7))

        async def story(scene: Scene = scene) -> None:
            await scene.look(scene.opened())

        asyncio.run(story())
        seeds.append(scene.asked)
    assert seeds[0] == seeds[1]


def test_a_kill_between_the_tables_and_the_seed_does_not_end_the_watch_for_good(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "watch.db")) as connection:
        migrate(connection, 7)
        assert connection.execute("SELECT seed FROM base").fetchall() == [(7,)]
        connection.execute("DELETE FROM base")
        connection.commit()
    scene = Scene(tmp_path / "watch.db")
    asyncio.run(scene.until(scene.opened(), 1100))
    assert scene.asked


def test_a_damaged_file_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "watch.db")
    watcher = scene.opened()
    asyncio.run(scene.until(watcher, 9000))
    watcher.state.close()
    whole = scene.path.read_bytes()
    hidden = 0
    for start in range(4096, len(whole), 4096):
        scene.path.write_bytes(whole[:start] + b"\xa5" * 512 + whole[start + 512 :])
        for beside in ("-wal", "-shm"):
            scene.path.with_name(scene.path.name + beside).unlink(missing_ok=True)
        with pytest.raises(Usage, match="cannot keep the state"):
            scene.opened().state.close()
        hidden += 1
    assert hidden > 3


def test_a_seed_that_no_file_can_hold_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot keep the state"):
        State(tmp_path / "watch.db", 1000.0, 2**70)


def test_evidence_that_another_version_wrote_begins_anew_and_loses_no_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "watch.db", (watched(modules=(CHEAP,)),))
    scene.answers = [replace(CLEAN, counts={"canary": (10, 0)})] * 2

    async def story() -> None:
        watcher = scene.opened()
        await scene.until(watcher, scene.now + 1)
        with sqlite3.connect(scene.path) as db:
            db.execute("UPDATE evidence SET process = ?", ('{"log_staked": "[1, 2, 3]", "null_rate": 0.1}',))
        assert watcher.state.evidence("eu") == {}
        await scene.until(watcher, scene.now + 61)
        assert [record.verdict for record in watcher.state.history(9)] == ["CLEAN", "CLEAN"]
        assert watcher.state.evidence("eu")["canary"][0].n == 10

    asyncio.run(story())

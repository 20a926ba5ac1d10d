"""Recordings are private, complete before anything is carried out, and never overwritten."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from pagefence.engine.recorder import Recorder, prepare
from pagefence.protocol.messages import Room, Timer, WorkerRef
from pagefence.protocol.recording import Closing, Ended, Raised, RouterBegan, Stepped, read
from pagefence.protocol.router import Machine, RouterConfig, RouterState

STATE = RouterState(WorkerRef("router", 0xAB), RouterConfig(24))
LATE = Timer(Room(1, 0, "n"), "deadline")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_and_its_files_are_the_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "record"
    prepare(folder)
    Recorder(folder, STATE).end()
    assert (mode(folder), mode(folder / "router.ab.trace")) == (0o700, 0o600)
    with pytest.raises(ValueError, match="empty folder"):
        prepare(folder)
    with pytest.raises(FileExistsError):
        Recorder(folder, STATE)


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    prepare(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_step_is_on_file_before_its_effects_are_known(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, STATE)
    step = recorder.around(Machine().step)
    after, effects = step(STATE, LATE)
    assert (after, len(effects)) == (STATE, 1)
    recorder.closing()
    recorder.end()
    step(STATE, LATE)
    records = read((tmp_path / "router.ab.trace").read_bytes()).records
    assert [type(record) for record in records] == [RouterBegan, Stepped, Closing, Ended]


def test_a_step_that_raises_is_recorded_and_raises(tmp_path: Path) -> None:
    def broken(state: RouterState, message: Any) -> Any:
        raise AssertionError("no")

    with pytest.raises(AssertionError):
        Recorder(tmp_path, STATE).around(broken)(STATE, LATE)
    last = read((tmp_path / "router.ab.trace").read_bytes()).records[-1]
    assert last == Raised(LATE, "AssertionError('no')")


def test_only_a_beginning_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not begin"):
        Recorder(tmp_path, RouterState(STATE.me, STATE.config, counter=3))

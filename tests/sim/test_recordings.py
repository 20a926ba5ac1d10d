"""What is no recording of one whole fleet is an error, never fine; a torn last record is the mark of a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pagefence.protocol import recording
from pagefence.protocol.messages import Timer, WorkerRef
from pagefence.protocol.recording import BadRecording, Closing, Ended, RouterBegan, Stepped
from pagefence.protocol.router import RouterConfig
from pagefence.sim.correspondence import BadRecordings, check_recordings, describe
from tests.protocol.stage import ROUTER
from tests.sim.recorded import D, P, RecordedStage, write
from tests.sim.test_correspondence import NOBODY, answered


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole and legal run, at rest; decode was killed afterwards."""
    stage, _ = answered()
    stage.stop().tapes[D].pop()
    assert stage.check(tmp_path).legal
    return tmp_path


def test_a_torn_last_record_is_a_crash(folder: Path) -> None:
    path = folder / "d.1.trace"
    whole = path.read_bytes()
    steps = check_recordings(folder).steps["d#1"]
    # One step more, whose effects nobody saw: torn anywhere, it was not taken.
    tail = recording.frame(steps + 1, Stepped(Timer(NOBODY, "drain"), ()))
    for cut in range(len(tail)):
        path.write_bytes(whole + tail[:cut])
        seen = check_recordings(folder)
        assert seen.legal, describe(seen)
        assert (seen.crashes, seen.steps["d#1"]) == (1, steps)
    path.write_bytes(whole + tail)
    assert not check_recordings(folder).legal


def test_what_others_saw_cannot_be_torn_off(folder: Path) -> None:
    path = folder / "d.1.trace"
    path.write_bytes(path.read_bytes()[:-3])
    seen = check_recordings(folder)
    assert seen.illegal is not None
    assert "never sent" in seen.illegal.found


def test_a_damaged_byte_is_noticed_wherever_it_lies(folder: Path) -> None:
    path = folder / "p.1.trace"
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(BadRecordings, match=r"p\.1\.trace: "):
            check_recordings(folder)


def _records(folder: Path) -> list[bytes]:
    records = recording.read((folder / "p.1.trace").read_bytes()).records
    return [recording.frame(i, record) for i, record in enumerate(records)]


DAMAGE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a record is missing": lambda frames: frames[:2] + frames[3:],
    "a record came twice": lambda frames: [*frames[:3], *frames[2:]],
    "garbage in the middle": lambda frames: [*frames[:2], b"\xff" * 40, *frames[2:]],
    "more after the end": lambda frames: [*frames, b"\0"],
    "no configuration": lambda frames: [],
    "torn in the configuration": lambda frames: [frames[0][:-1]],
    "two configurations": lambda frames: [*frames[:1], recording.frame(1, recording.read(frames[0]).records[0])],
    "a step first": lambda frames: [recording.frame(0, Stepped(Timer(NOBODY, "drain"), ()))],
    "an unknown record": lambda frames: [b"\0\0\0\1" + frames[0][4:]],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused(folder: Path, name: str) -> None:
    (folder / "p.1.trace").write_bytes(b"".join(DAMAGE[name](_records(folder))))
    with pytest.raises(BadRecordings, match=r"p\.1\.trace"):
        check_recordings(folder)


def test_a_folder_that_is_not_one_fleet(folder: Path) -> None:
    stray = folder / "notes.txt"
    stray.write_text("not ours")
    with pytest.raises(BadRecordings, match=r"notes\.txt"):
        check_recordings(folder)
    stray.unlink()
    config = RouterConfig(24)
    other = write(folder, WorkerRef("router", 8), [RouterBegan(recording.FORMAT, WorkerRef("router", 8), config)])
    with pytest.raises(BadRecordings, match="2 routers"):
        check_recordings(folder)
    (folder / recording.file_name(ROUTER)).unlink()
    with pytest.raises(BadRecordings, match="of another fleet"):
        check_recordings(folder)
    other.unlink()
    with pytest.raises(BadRecordings, match="0 routers"):
        check_recordings(folder)


@pytest.mark.parametrize(("ref", "role"), [(P, "prefill"), (D, "decode")])
def test_a_missing_worker(folder: Path, ref: WorkerRef, role: str) -> None:
    (folder / recording.file_name(ref)).unlink()
    with pytest.raises(BadRecordings, match=f"no recording of a {role} worker"):
        check_recordings(folder)


def test_another_name_and_another_format(folder: Path) -> None:
    path = folder / "p.1.trace"
    renamed = path.rename(folder / "p.2.trace")
    with pytest.raises(BadRecordings, match="another name"):
        check_recordings(folder)
    renamed.unlink()
    write(folder, ROUTER, [RouterBegan(recording.FORMAT + 1, ROUTER, RouterConfig(24))])
    with pytest.raises(BadRecordings, match=f"format {recording.FORMAT}"):
        check_recordings(folder)


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadRecordings, match="0 routers"):
        check_recordings(tmp_path)
    with pytest.raises(BadRecordings, match="No such file"):
        check_recordings(tmp_path / "nowhere")


def test_no_steps_show_nothing(tmp_path: Path) -> None:
    stage = RecordedStage()
    for tape in stage.tapes.values():
        tape[1:] = [Ended()]
    with pytest.raises(BadRecordings, match="no step"):
        stage.check(tmp_path)


def test_a_worker_that_closes_like_a_router(folder: Path) -> None:
    records = list(recording.read((folder / "d.1.trace").read_bytes()).records)
    write(folder, D, [*records, Closing()])
    seen = check_recordings(folder)
    assert seen.illegal is not None
    assert seen.illegal.what == "Closing"


def test_the_states_that_a_recording_names_are_those_that_began() -> None:
    stage = RecordedStage()
    for tape in stage.tapes.values():
        first = tape[0]
        assert isinstance(first, recording.Began)
        assert recording.began(recording.first_state(first)) == first


def test_nothing_is_a_recording_too() -> None:
    assert recording.read(b"") == recording.Contents((), torn=False)
    with pytest.raises(BadRecording, match="record 0"):
        recording.read(bytes(8))

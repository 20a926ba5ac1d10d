"""A search that is stopped and gone on with, and files that are none of its checkpoints."""

from __future__ import annotations

import os
import pickle
import pickletools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagefence.sim.checkpoint import FORMAT, BadCheckpoint, Checkpoint
from pagefence.sim.explorer import Found, Progress, Result, Search, _merge, explore
from pagefence.sim.world import World

from .small import ONE_CRASH, searched

ABOUT = "a search of the tests"


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """A test run that was started in the background ignores SIGINT; here it means what it means in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "kept.search", ABOUT)


def figures(result: Result) -> tuple[Any, ...]:
    p = result.progress
    return result.complete, result.found, p.known, p.raw, p.calm, p.rest, p.sometimes, p.transitions, p.expanded


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1)])
def test_a_search_in_parts_gives_exactly_what_one_in_one_piece_gives(first: int, second: int, kept: Checkpoint) -> None:
    stopped = explore(World(ONE_CRASH), Search(cores=first, most_states=100), None, kept)
    assert not stopped.complete
    assert 100 <= len(stopped.progress.known) < 200
    assert figures(explore(World(ONE_CRASH), Search(cores=second), None, kept)) == figures(searched(ONE_CRASH.name))
    assert os.listdir(kept.path.parent) == [kept.path.name]  # noqa: PTH208


@pytest.mark.parametrize("cores", [1, 2])
def test_an_interrupted_search_loses_nothing(cores: int, kept: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a batch: what was taken and not yet merged comes back when it goes on."""
    before = signal.getsignal(signal.SIGINT)
    merged: list[None] = []

    def merge(*arguments: Any) -> Found | None:
        merged.append(None)
        if len(merged) == 100:
            signal.raise_signal(signal.SIGINT)
        return _merge(*arguments)

    monkeypatch.setattr("pagefence.sim.explorer._merge", merge)
    with pytest.raises(KeyboardInterrupt):
        explore(World(ONE_CRASH), Search(cores=cores), None, kept)
    assert signal.getsignal(signal.SIGINT) is before
    assert 100 <= len(merged) < 200
    assert figures(explore(World(ONE_CRASH), Search(cores=cores), None, kept)) == figures(searched(ONE_CRASH.name))


def test_a_second_interrupt_is_heard_at_once(kept: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr("pagefence.sim.explorer._merge", merge)
    with pytest.raises(KeyboardInterrupt):
        explore(World(ONE_CRASH), Search(cores=1), None, kept)
    assert not kept.path.exists()


def test_a_search_that_fails_in_the_middle_of_a_batch_saves_nothing(
    kept: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    explore(World(ONE_CRASH), Search(cores=1, most_states=20), None, kept)
    old = kept.path.read_bytes()

    def broken(*_: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr("pagefence.sim.crew.apply", broken)
    with pytest.raises(RuntimeError):
        explore(World(ONE_CRASH), Search(cores=1), None, kept)
    assert kept.path.read_bytes() == old


# --- files that are something else --------------------------------------------------------------------------------


def refused(kept: Checkpoint) -> str:
    with pytest.raises(BadCheckpoint) as caught:
        explore(World(ONE_CRASH), Search(cores=1), None, kept)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.fixture
def saved(kept: Checkpoint) -> bytes:
    explore(World(ONE_CRASH), Search(cores=1, most_states=20), None, kept)
    return kept.path.read_bytes()


@pytest.mark.parametrize("part", [0, 1, 2, 100, 0.5, 0.999])
def test_a_truncated_file_is_refused(part: float, saved: bytes, kept: Checkpoint) -> None:
    kept.path.write_bytes(saved[: int(part * len(saved)) if isinstance(part, float) else part])
    assert "no checkpoint" in refused(kept)


def test_the_file_of_another_search_is_refused(saved: bytes, kept: Checkpoint) -> None:
    assert "another search" in refused(Checkpoint(kept.path, "of another world"))
    assert kept.path.read_bytes() == saved


NONE_OF_OURS: tuple[object, ...] = (
    None, 5, (1, 2, 3, 4), {}, (FORMAT, ABOUT), (FORMAT, ABOUT, None, {}), (FORMAT, ABOUT, {}, {}),
    (FORMAT, ABOUT, Progress(), None), (FORMAT, ABOUT, Progress(), {b"x": None}),
)  # fmt: skip


@pytest.mark.parametrize("content", [b"hello, world\n", bytes(range(256)), *map(pickle.dumps, NONE_OF_OURS)])
def test_what_is_no_checkpoint_is_refused(content: bytes, kept: Checkpoint) -> None:
    kept.path.write_bytes(content)
    assert "no checkpoint" in refused(kept)


class Calls:
    """Pickled, it asks its reader to call something."""

    def __init__(self, what: Any, *arguments: object) -> None:
        self.what, self.arguments = what, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.what, self.arguments


def _by_name(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls `module.name(argument)`, where a name may have dots in it."""
    return (
        b"\x80\x04" + b"".join(pickle.SHORT_BINUNICODE + bytes([len(s)]) + s.encode() for s in (module, name))
        + pickle.STACK_GLOBAL + pickle.SHORT_BINUNICODE + bytes([len(argument)]) + argument.encode()
        + pickle.TUPLE1 + pickle.REDUCE + pickle.STOP
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("pagefence.sim.checkpoint", "os.system"),
        ("pagefence.sim.checkpoint", "io.FileIO"),
        ("pagefence.sim.crew", "multiprocessing.util.Popen"),
        ("pagefence.sim.crew", "Connection"),
        ("pagefence.sim.explorer", "explore"),
        ("pagefence.sim.no_such_module", "X"),
        ("antigravity", "X"),
    ],
)
def test_a_file_that_wants_something_run_is_refused_and_nothing_is_run(
    module: str, name: str, kept: Checkpoint, tmp_path: Path
) -> None:
    kept.path.write_bytes(_by_name(module, name, f"touch {tmp_path}/ran"))
    pickletools.dis(kept.path.read_bytes(), out=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    assert "no checkpoint" in refused(kept)
    assert [path.name for path in tmp_path.iterdir()] == [kept.path.name]
    assert "antigravity" not in sys.modules


def test_a_call_hidden_deep_in_a_checkpoint_is_not_made(saved: bytes, kept: Checkpoint, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    hidden = (FORMAT, ABOUT, Progress(sometimes={"x"}), {b"x": Calls(os.truncate, str(victim), 0)})
    kept.path.write_bytes(pickle.dumps(hidden))
    assert "no checkpoint" in refused(kept)
    assert victim.read_text() == "precious"


# --- a file system that refuses -----------------------------------------------------------------------------------


def test_a_folder_that_takes_no_file_is_one_clear_error_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (tmp_path / "no such folder" / "x.search", tmp_path / "file" / "x.search"):
        assert f"cannot write {where}" in refused(Checkpoint(where, ABOUT))
    assert "cannot read" in refused(Checkpoint(tmp_path, ABOUT))


KILLED_WHILE_SAVING = """
import os, pickle, signal, sys
from pathlib import Path
from pagefence.sim import checkpoint
from pagefence.sim.explorer import Search, explore
from pagefence.sim.world import World
from tests.sim.small import ONE_CRASH

def dump(value, file, protocol):
    whole = pickle.dumps(value, protocol)
    file.write(whole[: len(whole) // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

checkpoint.pickle.dump = dump
kept = checkpoint.Checkpoint(Path(sys.argv[1]), sys.argv[2])
explore(World(ONE_CRASH), Search(cores=1, most_states=100), None, kept)
"""


def test_killed_in_the_middle_of_a_save_the_old_file_is_whole(saved: bytes, kept: Checkpoint) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(kept.path), ABOUT], cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len(list(kept.path.parent.iterdir())) == 2, "it had begun to write"
    assert kept.path.read_bytes() == saved
    assert figures(explore(World(ONE_CRASH), Search(cores=1), None, kept)) == figures(searched(ONE_CRASH.name))

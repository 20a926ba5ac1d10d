"""A file lands whole or not at all, for those who may read it, and a place that takes none is known before a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagefence.files import PRIVATE, READABLE, CannotWrite, check_writable, replacing, write_atomically


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_file_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_breaks_off_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    with pytest.raises(CannotWrite, match=r"r\.json: no space"), replacing(path) as file:
        file.write(b"half")
        raise OSError("no space")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_found_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "r.json"):
        with pytest.raises(CannotWrite):
            check_writable(path)
        with pytest.raises(CannotWrite):
            write_atomically(path, b"")
    check_writable(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mode", "expected"), [(PRIVATE, 0o600), (READABLE, 0o644)])
def test_a_file_is_for_its_owner_alone_unless_it_may_be_read(
    mode: int, expected: int, tmp_path: Path, umask: None
) -> None:
    path = tmp_path / "r.json"
    write_atomically(path, b"somebody's text", mode)
    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_what_is_not_said_to_be_readable_is_private(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "r.json"
    write_atomically(path, b"somebody's text")
    assert path.stat().st_mode & 0o077 == 0


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    check_writable(path)
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(path.read_bytes)
        write_atomically(path, b"report")
        assert said.result(5) == b"report"
    assert path.is_fifo()


def test_standard_output_that_is_a_file_keeps_its_name_and_what_is_in_it(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        out.write(b"before\n")
        out.flush()
        place = Path(f"/dev/fd/{out.fileno()}")
        check_writable(place)
        write_atomically(place, b"report\n")
        assert place.is_symlink()
    assert (tmp_path / "out").read_bytes() == b"before\nreport\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

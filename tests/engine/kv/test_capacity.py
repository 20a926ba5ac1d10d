"""The pool's size: the largest that memory and the cap allow, and both numbers in every complaint."""

from __future__ import annotations

import mmap
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.kv import capacity
from pagefence.engine.kv.capacity import (
    NotEnoughMemory,
    available_bytes,
    cgroup_bytes,
    fit_pages,
    memory_share,
    own_bytes,
    size_pool,
)

from .conftest import SMALL

FAR = 1 << 62


@given(st.integers(1, FAR), st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 4096))
def test_the_pool_is_the_largest_that_fits(available: int, page_bytes: int, cap: int, page_size: int) -> None:
    if cap < page_size:
        with pytest.raises(ValueError, match=str(cap)):
            fit_pages(available, page_bytes, cap, page_size)
        return
    if available < page_bytes:
        with pytest.raises(NotEnoughMemory):
            fit_pages(available, page_bytes, cap, page_size)
        return
    fit = fit_pages(available, page_bytes, cap, page_size)
    assert fit.pages * page_bytes <= available
    assert fit.tokens <= cap
    one_more = fit.pages + 1
    assert one_more * page_bytes > available or one_more * page_size > cap
    assert fit.shrunk == ((cap // page_size) * page_bytes > available)


def test_a_pool_smaller_than_asked_says_both_numbers() -> None:
    fit = fit_pages(10_500, 1_000, 2_048, 64)
    assert fit.shrunk
    assert str(fit) == "640 tokens in 10 pages, 10,000 bytes; 2,048 tokens asked for, memory leaves 10,500 bytes"
    assert "asked for" not in str(fit_pages(FAR, 1_000, 2_048, 64))


@pytest.mark.parametrize("available", [999, 0, -5_000])
def test_not_one_page_is_an_error_with_both_numbers(available: int) -> None:
    with pytest.raises(NotEnoughMemory, match=r"1,000 bytes asked for, (999|0) available"):
        fit_pages(available, 1_000, 2_048, 64)


def test_frames_count_and_neither_the_budget_nor_what_there_is_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "available_bytes", lambda: 100 * SMALL.stride)
    layout, fit = size_pool(SMALL, cap_tokens=10**6, budget_bytes=FAR)
    assert layout == SMALL.with_pages(100)
    assert fit.shrunk
    assert size_pool(SMALL, cap_tokens=10**6, budget_bytes=100 * SMALL.stride - 1)[0].pages == 99
    assert size_pool(SMALL, cap_tokens=8, budget_bytes=FAR)[0].pages == 2
    with pytest.raises(NotEnoughMemory):
        size_pool(SMALL, cap_tokens=8, budget_bytes=-1)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_shares_together_leave_a_tenth_of_the_memory(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(capacity, "available_bytes", lambda: 1_000_000)
    assert 890_000 < workers * memory_share(workers) <= 900_000


def test_what_this_process_took_grows_by_what_it_takes() -> None:
    before = own_bytes()
    with mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:  # the heap may have it to spare
        taken.write(b"x" * (64 << 20))
        grown = own_bytes() - before
    assert (60 << 20) < grown < (120 << 20)  # others of this process take something meanwhile; counted twice is more


def test_this_machine_has_some_memory_and_no_more_than_it_has() -> None:
    assert 0 < available_bytes() <= psutil.virtual_memory().total


def write(directory: Path, **files: str) -> None:
    """Make a cgroup directory; `__` in a name stands for a dot."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text + "\n")


def member(tmp_path: Path, text: str) -> Path:
    """A file like /proc/self/cgroup."""
    path = tmp_path / "self"
    path.write_text(text)
    return path


def test_cgroup_v2_the_tightest_ancestor_binds(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root)  # the root has no limit file
    write(root / "a", memory__max="1000", memory__current="400")
    write(root / "a/b", memory__max="max", memory__current="300")
    write(root / "a/b/c", memory__max="5000", memory__current="200")
    assert cgroup_bytes(root, member(tmp_path, "0::/a/b/c\n")) == 600
    assert cgroup_bytes(root, member(tmp_path, "0::/\n")) is None


def test_cgroup_v1_and_paths_of_the_host_that_do_not_exist_in_a_container(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "memory", memory__limit_in_bytes="2000", memory__usage_in_bytes="500")
    write(root / "memory/docker/x", memory__limit_in_bytes="900", memory__usage_in_bytes="100")
    lines = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/{}\n0::/\n"
    assert cgroup_bytes(root, member(tmp_path, lines.format("x"))) == 800
    assert cgroup_bytes(root, member(tmp_path, lines.format("unseen"))) == 1500


def test_clean_file_pages_are_not_used_memory(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "a", memory__max="1000", memory__current="900", memory__stat="anon 100\ninactive_file 700")
    assert cgroup_bytes(root, member(tmp_path, "0::/a\n")) == 800


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    write(root / "a", memory__max="1000", memory__current="1200")
    assert cgroup_bytes(root, member(tmp_path, "0::/a\n")) == 0


def test_a_system_without_cgroups_sets_no_limit(tmp_path: Path) -> None:
    assert cgroup_bytes(tmp_path, tmp_path / "absent") is None


def test_the_cgroup_limit_binds_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "cgroup_bytes", lambda root, membership: 12_345)
    assert available_bytes() == 12_345
    monkeypatch.setattr(capacity, "cgroup_bytes", lambda root, membership: FAR)
    assert available_bytes() < FAR

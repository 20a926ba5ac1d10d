"""Workers take all the cores while the others are idle, and a share while they are not."""

from __future__ import annotations

from pathlib import Path

from pagefence.engine.cores import Cores


def two(folder: Path, threads: int) -> tuple[Cores, list[int], Cores, list[int]]:
    first: list[int] = []
    second: list[int] = []
    return (
        Cores(folder, 0, 2, threads, first.append),
        first,
        Cores(folder, 1, 2, threads, second.append),
        second,
    )


def test_the_only_one_with_work_takes_them_all(tmp_path: Path) -> None:
    prefill, taken, _, _ = two(tmp_path, 4)
    prefill.work()
    assert taken == [4]


def test_two_with_work_share_and_the_one_that_stays_takes_them_back(tmp_path: Path) -> None:
    prefill, taken, decode, also_taken = two(tmp_path, 4)
    prefill.work()
    decode.work()
    prefill.work()
    assert (taken, also_taken) == ([4, 2], [2])
    decode.rest()
    prefill.work()
    assert taken == [4, 2, 4]


def test_what_cannot_be_shared_evenly_goes_to_the_first_seats_so_that_no_core_idles(tmp_path: Path) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    workers = [Cores(tmp_path, seat, 4, 8, taken[seat].append) for seat in range(4)]
    for worker in (*workers[1:], *workers[1:]):
        worker.work()
    assert [each[-1] for each in taken[1:]] == [3, 3, 2]
    for worker in workers:
        worker.work()
    assert [each[-1] for each in taken] == [2, 2, 2, 2]


def test_more_at_work_than_threads_have_one_each(tmp_path: Path) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    for _ in range(2):
        for seat in range(4):
            Cores(tmp_path, seat, 4, 2, taken[seat].append).work()
    assert [each[-1] for each in taken] == [1, 1, 1, 1]


def test_nobody_is_left_without_a_thread_and_nothing_is_set_twice(tmp_path: Path) -> None:
    prefill, taken, decode, _ = two(tmp_path, 1)
    decode.work()
    prefill.work()
    prefill.work()
    assert taken == [1]


def test_a_new_incarnation_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    prefill, taken, decode, _ = two(tmp_path, 2)
    decode.work()  # and is killed
    Cores(tmp_path, 1, 2, 2, lambda threads: None)
    prefill.work()
    assert taken == [2]

"""What is large is read beside the event loop, which goes on meanwhile; and what waits for it has an end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pagefence.edge.beside import LARGE, Beside, Queue
from pagefence.edge.passing import passing
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Headers, Steps
from tests.edge.proxy_scene import answers, played, scene, soon

SLOW_S = 0.15


def of_bytes(size: int) -> bytes:
    """A body of so many bytes."""
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


def reading(by: Callable[[bytes], object], queue: Queue | None = None) -> Steps:
    """The passing steps, which first do `by` with what they read."""
    steps = passing()

    def read(raw: bytes, headers: Headers) -> dict[str, Any] | Refusal:
        by(raw)
        return steps.read(raw, headers)

    return replace(steps, read=read, beside=Beside(queue or Queue(), "read"))


@played
async def test_the_loop_goes_on_while_a_large_body_is_read() -> None:
    late = [0.0]

    async def look() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(time.perf_counter() - before)

    async with scene(answers(b"{}"), steps=reading(lambda raw: time.sleep(SLOW_S))) as on:
        looks = asyncio.create_task(look())
        assert (await on.ask(of_bytes(LARGE + 1))).status == 200
        looks.cancel()
    assert len(late) > 10
    assert max(late) < SLOW_S


@played
async def test_a_body_is_read_where_it_costs_least() -> None:
    """And cleaned there: both go to the thread together, or neither."""
    seen: list[str] = []
    async with scene(answers(b"{}"), steps=reading(lambda raw: seen.append(threading.current_thread().name))) as on:
        for size in (8, LARGE, LARGE + 1):
            assert (await on.ask(of_bytes(size))).status == 200
        assert len(on.toys[0].asked[2].body) == LARGE + 1
    main = threading.main_thread().name
    assert seen == [main, main, "pagefence-read_0"]


@played
async def test_what_is_only_to_be_tokenised_is_read_there_too() -> None:
    seen: list[str] = []

    async def tokenize(body: dict[str, Any], tag: str) -> bytes:
        return b"[]"

    steps = replace(reading(lambda raw: seen.append(threading.current_thread().name)), tokenize=tokenize)
    async with scene(answers(b"{}"), steps=steps) as on:
        assert (await on.ask(of_bytes(LARGE + 1), "/tokenize")).status == 200
    assert seen == ["pagefence-read_0"]


@played
async def test_more_than_may_wait_is_refused_before_upstream_hears_of_it() -> None:
    go = threading.Event()
    queue = Queue(1, amount=3 * LARGE)
    async with scene(answers(b"{}"), steps=reading(lambda raw: go.wait(10), queue)) as on:
        first = [asyncio.create_task(on.ask(of_bytes(LARGE + 1))) for _ in range(2)]
        await soon(lambda: on.edge.steps.beside.inside == 2)
        refused = await on.ask(of_bytes(LARGE + 1))
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "overloaded", "2")
        assert on.toys[0].asked == []
        go.set()
        assert [reply.status for reply in await asyncio.gather(*first)] == [200, 200]
        assert (await on.ask(of_bytes(LARGE + 1))).status == 200


@played
async def test_a_client_that_leaves_takes_its_body_with_it() -> None:
    go, seen = threading.Event(), list[int]()

    def slowly(raw: bytes) -> None:
        seen.append(len(raw))
        go.wait(10)

    async with scene(answers(b"{}"), steps=reading(slowly)) as on:
        first = asyncio.create_task(on.ask(of_bytes(LARGE + 1)))
        await soon(lambda: bool(seen))
        client = await on.client()
        client.ask(of_bytes(LARGE + 2))
        await soon(lambda: on.edge.steps.beside.inside == 2)
        client.leave()
        await soon(lambda: on.edge.steps.beside.inside == 1)
        go.set()
        assert (await first).status == 200
    assert seen == [LARGE + 1]


def refused(queue: Queue, *pieces: tuple[str, int]) -> list[int]:
    """What each piece of work is told that comes while all before it wait: 200 for what is taken."""

    async def play() -> list[int]:
        go, beside = threading.Event(), Beside(queue, "test")
        tasks = []
        for tag, size in pieces:
            tasks.append(asyncio.create_task(beside.run(tag, size, go.wait, 10)))
            await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*tasks)
        assert beside.inside == 0
        return [one.status if isinstance(one, Refusal) else 200 for one in found]

    return asyncio.run(play())


def test_one_tenant_cannot_take_the_place_of_the_others() -> None:
    assert refused(Queue(per_tenant=1), ("a", 1), ("a", 1), ("b", 1)) == [200, 429, 200]
    assert refused(Queue(tenant_amount=9), ("a", 5), ("a", 5), ("b", 9), ("a", 4)) == [200, 429, 200, 200]


def test_all_of_them_together_have_an_end() -> None:
    assert refused(Queue(waiting=2), ("a", 1), ("b", 1), ("c", 1)) == [200, 200, 503]
    assert refused(Queue(amount=9), ("a", 5), ("b", 5), ("c", 4)) == [200, 503, 200]


def test_threads_end_with_the_last_who_could_use_them() -> None:
    """After a reload that are the requests which began before it."""

    async def play() -> None:
        beside = Beside(Queue(), "forgotten")
        assert await beside.run("a", 1, lambda: 7) == 7

    def alive() -> bool:
        return any(each.name.startswith("pagefence-forgotten") for each in threading.enumerate())

    asyncio.run(play())
    end = time.monotonic() + 5
    while alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive()

"""Streams: each part at once, to its own client alone, and an end that tells what happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pagefence.edge.demand import Admitted
from pagefence.edge.front.front import FrontLimits
from pagefence.edge.passing import passing
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Steps, Watch
from pagefence.edge.upstream.balancer import Timeouts
from tests.edge.proxy_scene import STREAM, Asked, Behave, answers, chunk, played, says, scene, soon

EVENTS = [b'data: {"n":%d}\n\n' % number for number in range(5)]


def streams(events: Sequence[bytes], end: bytes = b"0\r\n\r\n", gap_s: float = 0.0) -> Behave:
    async def behave(asked: Asked) -> None:
        await asked.say(STREAM)
        for event in events:
            await asked.say(chunk(event))
            await asyncio.sleep(gap_s)
        await asked.say(end)

    return behave


@played
async def test_each_part_is_there_before_the_next_is_made() -> None:
    step = asyncio.Event()

    async def behave(asked: Asked) -> None:
        await asked.say(STREAM)
        for event in EVENTS:
            await asked.say(chunk(event))
            await step.wait()
            step.clear()
        await asked.say(b"0\r\n\r\n")

    async with scene(behave) as on:
        client = await on.client()
        client.ask(b'{"stream":true}')
        head = await client.until(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert b"x-request-id: edge-" in head
        for event in EVENTS:
            assert await client.until(chunk(event)) == chunk(event)
            step.set()
        assert await client.until(b"0\r\n\r\n") == b"0\r\n\r\n"


@played
async def test_two_streams_at_once_do_not_mix() -> None:
    async def behave(asked: Asked) -> None:
        await asked.say(STREAM)
        for _ in range(40):
            await asked.say(chunk(b"data: " + asked.body + b"\n\n"))
            await asyncio.sleep(0)
        await asked.say(b"0\r\n\r\n")

    async with scene(behave) as on:
        bodies = [b'{"nonce":"%032x"}' % (7**number) for number in range(12)]
        replies = await asyncio.gather(*(on.ask(body) for body in bodies))
        for body, reply in zip(bodies, replies, strict=True):
            assert reply.body == (b"data: " + body + b"\n\n") * 40


@played
async def test_a_client_that_leaves_is_noticed_upstream_at_once() -> None:
    async with scene(streams(EVENTS * 1000, gap_s=0.01)) as on:
        client = await on.client()
        client.ask()
        await client.until(EVENTS[0])
        client.leave()
        async with asyncio.timeout(1):
            await on.toys[0].asked[0].gone.wait()
        assert on.edge.balancer.upstreams[0].pool.idle == 0
        await soon(lambda: on.counted('pagefence_edge_answers_cut_total{reason="client"}') == 1)


@played
async def test_a_client_that_leaves_before_the_first_byte_is_noticed_upstream_at_once() -> None:
    async with scene(streams([])) as on:

        async def slow(asked: Asked) -> None:
            await asyncio.sleep(60)

        on.toys[0].behave = slow
        client = await on.client()
        client.ask()
        await soon(lambda: bool(on.toys[0].asked))
        client.writer.write_eof()
        async with asyncio.timeout(1):
            await on.toys[0].asked[0].gone.wait()


@played
async def test_a_client_that_does_not_read_stops_the_upstream_and_is_cut_off_in_the_end() -> None:
    sent = 0

    async def behave(asked: Asked) -> None:
        nonlocal sent
        await asked.say(STREAM)
        while True:
            await asked.say(chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
            sent += 60_000

    async with scene(behave, front=FrontLimits(write_s=0.3)) as on:
        client = await on.client()
        client.ask()
        await client.until(b"\r\n\r\n")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            await on.toys[0].asked[0].gone.wait()
        assert sent < 40_000_000, "buffers of sockets, not memory of ours"


@played
async def test_who_does_not_read_a_whole_answer_is_cut_off_too() -> None:
    """Its request has ended long since, and what waits to be read must not stay for ever."""
    async with scene(answers(b'"%b"' % (b"x" * 20_000_000)), front=FrontLimits(write_s=0.3)) as on:
        client = await on.client()
        client.ask()
        await client.until(b"\r\n\r\n")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await soon(lambda: on.front.connections == 0)


@played
async def test_the_end_of_a_broken_stream_is_not_lost_in_a_reset() -> None:
    """As it would be if the edge closed over what the client has sent meanwhile."""
    async with scene(says(STREAM + chunk(EVENTS[0]), close=True)) as on:
        client = await on.client()
        client.ask()
        await client.until(b"upstream_died")
        client.ask()
        await asyncio.sleep(0.05)
        client.send(b"more")
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert (await client.reader.read()).endswith(b"\n\n\r\n")
        client.leave()


@pytest.mark.parametrize("end", ["dies", "lies", "hangs"])
@played
async def test_a_stream_that_breaks_off_never_looks_whole(end: str) -> None:
    async def behave(asked: Asked) -> None:
        await streams(EVENTS, end=b"nonsense\r\n" if end == "lies" else b"")(asked)
        if end == "hangs":
            await asyncio.sleep(60)
        asked.writer.close()

    async with scene(behave, timeouts=Timeouts(idle_s=0.2)) as on:
        reply = await on.ask(b'{"stream":true}')
        assert reply.status == 200
        assert not reply.whole
        # What comes in one piece with nonsense is no longer believed; what went out before it is whole.
        came, _, last = reply.body.rpartition(b"data: ")
        assert b"".join(EVENTS).startswith(came.rstrip())
        assert came.count(b"data: ") >= len(EVENTS) - 1
        code = {"dies": "upstream_died", "lies": "upstream_malformed", "hangs": "upstream_timeout"}[end]
        assert json.loads(last)["error"]["code"] == code
        assert b"[DONE]" not in reply.body


@played
async def test_what_goes_wrong_before_the_first_part_is_a_plain_error() -> None:
    async with scene(says(STREAM, close=True)) as on:
        reply = await on.ask(b'{"stream":true}')
        assert (reply.status, reply.code) == (502, "upstream_died")


@played
async def test_a_stream_without_end_is_cut_when_its_time_is_over() -> None:
    async with scene(streams(EVENTS * 1000, gap_s=0.01), timeouts=Timeouts(total_s=0.3)) as on:
        reply = await on.ask()
        assert not reply.whole
        assert b"upstream_timeout" in reply.body


class Censor:
    """A watch that cuts where a word comes."""

    def __init__(self, buffered: bool, at_end: bool = False) -> None:
        self.buffered, self.at_end = buffered, at_end
        self.seen: list[str] = []

    def sent(self, at: float) -> None:
        self.seen.append("sent")

    def begins(self, status: int, stream: bool, at: float) -> None:
        self.seen.append(f"begins {status}")

    def part(self, data: bytes, at: float) -> bytes | Refusal:
        self.seen.append("part")
        return Refusal(502, "quarantined", "x") if b'"n":3' in data and not self.at_end else data

    def ends(self, whole: bool, at: float) -> bytes | Refusal:
        self.seen.append(f"ends {whole}")
        return Refusal(502, "quarantined", "x") if self.at_end else b""


def watched_by(watch: Censor) -> Steps:
    plain = passing()

    async def which(admitted: Admitted) -> Watch:
        return watch

    return replace(plain, watch=which)


@played
async def test_a_watch_can_cut_a_stream() -> None:
    watch = Censor(buffered=False)
    async with scene(streams(EVENTS, gap_s=0.02), steps=watched_by(watch)) as on:
        reply = await on.ask()
        assert not reply.whole
        assert b'"n":2' in reply.body
        assert b'"n":3' not in reply.body
        assert b"quarantined" in reply.body
        assert watch.seen[:2] == ["sent", "begins 200"]
        assert watch.seen[-1] == "ends False"


@pytest.mark.parametrize("at_end", [True, False])
@played
async def test_of_a_quarantined_answer_the_client_gets_no_byte(at_end: bool) -> None:
    for behave in (streams(EVENTS, gap_s=0.01), answers(b"".join(EVENTS))):
        watch = Censor(buffered=True, at_end=at_end)
        async with scene(behave, steps=watched_by(watch)) as on:
            reply = await on.ask()
            assert (reply.status, reply.code) == (502, "quarantined")
            assert b'"n"' not in reply.body


@played
async def test_a_watch_hears_that_its_client_left() -> None:
    watch = Censor(buffered=False)
    async with scene(streams(EVENTS[:2] * 1000, gap_s=0.01), steps=watched_by(watch)) as on:
        client = await on.client()
        client.ask()
        await client.until(EVENTS[0])
        client.leave()
        await soon(lambda: watch.seen[-1] == "ends False")

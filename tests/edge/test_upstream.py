"""Upstreams that die, hang, lie and drip; who is asked again, who is left out, which connection is used twice."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from pagefence.edge.passing import passing
from pagefence.edge.upstream.address import parse
from pagefence.edge.upstream.balancer import Timeouts
from pagefence.edge.upstream.health import Health, HealthPolicy
from pagefence.edge.upstream.link import HEAD_BYTES
from pagefence.mistakes import Usage
from tests.edge.proxy_scene import Asked, Toy, answers, echoes, hangs, played, says, scene, soon, whole

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"Content-Length: 2x\r\n\r\n{}",
        OK + b"Transfer-Encoding: gzip\r\n\r\n{}",
        OK + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"X: a\nContent-Length: 2\r\n\r\n{}",
        OK + b"Content-Length: 2\r\nX: " + b"a" * HEAD_BYTES + b"\r\n\r\n{}",
        OK + b"X: y\r\n" * 101 + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/2 200\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2;ext\r\n{}\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: trailer\r\n\r\n",
    ],
)
@played
async def test_an_answer_with_wrong_framing_is_a_502_and_its_connection_is_not_used_again(raw: bytes) -> None:
    async with scene(says(raw)) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (502, "upstream_malformed")
        assert on.edge.balancer.upstreams[0].pool.idle == 0


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"HTTP/1.1 307 T\r\nLocation: http://inside/\r\nContent-Length: 0\r\n\r\n", "upstream_redirects"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "upstream_encoded"),
        (OK + b"Content-Length: 2000\r\n\r\n" + b"x" * 2000, "upstream_too_large"),
    ],
)
@played
async def test_an_answer_that_is_none_of_this_api_is_a_502(raw: bytes, code: str) -> None:
    async with scene(says(raw), answer_bytes=1000) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (502, code)
        assert b"inside" not in reply.body


@played
async def test_interim_answers_are_skipped() -> None:
    async with scene(says(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", whole(b"{}"))) as on:
        assert (await on.ask()).body == b"{}"


@played
async def test_an_answer_in_drips_is_whole() -> None:
    async def behave(asked: Asked) -> None:
        for byte in OK + b'Transfer-Encoding: chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n':
            await asked.say(bytes([byte]))

    async with scene(behave) as on:
        assert (await on.ask()).body == b'{"a":1}'


@played
async def test_an_error_of_upstream_comes_through_as_it_is() -> None:
    raw = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with scene(says(raw)) as on:
        reply = await on.ask()
        assert (reply.status, reply.headers["retry-after"], reply.body) == (429, "7", b"{}")


@played
async def test_what_dies_within_its_answer_is_never_asked_twice() -> None:
    async with scene(says(OK + b"Content-Length: 9\r\n\r\n{", close=True), answers(b"{}")) as on:
        replies = [await on.ask() for _ in range(4)]
        died = [reply for reply in replies if reply.status == 502]
        assert {reply.code for reply in died} == {"upstream_died"}
        assert len(on.toys[0].asked) == len(died)
        assert len(on.toys[0].asked) + len(on.toys[1].asked) == 4


@played
async def test_what_dies_without_a_byte_on_a_fresh_connection_is_not_asked_twice() -> None:
    async with scene(says(close=True)) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (502, "upstream_died")
        assert len(on.toys[0].asked) == 1


@played
async def test_a_connection_that_had_died_while_it_was_idle_costs_nobody_an_answer() -> None:
    async def behave(asked: Asked) -> None:
        if on.toys[0].connections == 1 and len(on.toys[0].asked) == 2:
            asked.writer.close()  # as if it had closed just before the request came
            return
        await asked.say(whole(b"{}"))

    async with scene(behave) as on:
        assert (await on.ask()).status == 200
        assert (await on.ask()).status == 200
        assert [asked.connection for asked in on.toys[0].asked] == [1, 1, 2]


@played
async def test_after_the_first_byte_of_an_answer_nothing_is_tried_again() -> None:
    async def behave(asked: Asked) -> None:
        if len(on.toys[0].asked) == 2:
            await asked.say(b"HTTP/1.1 2")
            asked.writer.close()
            return
        await asked.say(whole(b"{}"))

    async with scene(behave) as on:
        assert (await on.ask()).status == 200
        assert (await on.ask()).status == 502
        assert [asked.connection for asked in on.toys[0].asked] == [1, 1]


@played
async def test_it_is_tried_again_once_and_no_more() -> None:
    async def behave(asked: Asked) -> None:
        if len(on.toys[0].asked) > 1:
            asked.writer.close()
            return
        await asked.say(whole(b"{}"))

    async with scene(behave) as on:
        assert (await on.ask()).status == 200
        assert (await on.ask()).status == 502
        assert len(on.toys[0].asked) == 3


@played
async def test_a_connection_is_used_again_and_only_after_a_whole_answer() -> None:
    async with scene(answers(b"{}")) as on:
        for _ in range(5):
            await on.ask()
        assert on.toys[0].connections == 1
        on.toys[0].behave = says(OK + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        await on.ask()
        await on.ask()
        assert on.toys[0].connections == 2


@played
async def test_bytes_that_nobody_asked_for_never_become_an_answer() -> None:
    async with scene(says(whole(b'{"yours":1}') + whole(b'{"planted":1}'))) as on:
        for _ in range(3):
            assert (await on.ask()).body == b'{"yours":1}'
        assert on.toys[0].connections == 3
    late = asyncio.Event()

    async def behave(asked: Asked) -> None:
        await asked.say(whole(b'{"yours":1}'))
        if asked.connection == 1:
            await asyncio.sleep(0.05)
            asked.writer.write(whole(b'{"planted":1}'))
            late.set()

    async with scene(behave) as on:
        await on.ask()
        await late.wait()
        await asyncio.sleep(0.05)
        assert (await on.ask()).body == b'{"yours":1}'
        assert on.toys[0].connections == 2


@pytest.mark.parametrize("what", ["an answer", "an end"])
@played
async def test_what_has_come_and_was_not_heard_yet_is_no_start_of_the_next_answer(what: str) -> None:
    """It lies in the kernel, and the event loop has not come to it."""
    async with scene(answers(b"{}")) as on:
        await on.ask()
        writer, pool = on.toys[0].asked[0].writer, on.edge.balancer.upstreams[0].pool
        await soon(lambda: pool.idle == 1)
        theirs = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        if what == "an answer":
            assert theirs.send(whole(b'{"planted":1}'))
        else:
            theirs.shutdown(socket.SHUT_RDWR)
        link, reused = await pool.take()
        theirs.close()
        assert not reused
        pool.give(link)


@pytest.mark.parametrize(("limits", "words"), [(Timeouts(first_byte_s=0.2), b"to begin"), (Timeouts(total_s=0.2), b"")])
@played
async def test_an_upstream_that_hangs_is_a_504_and_hears_that_nobody_waits(limits: Timeouts, words: bytes) -> None:
    async def behave(asked: Asked) -> None:
        if not words:
            await asked.say(OK + b"Content-Length: 9\r\n\r\n{")
        await asyncio.sleep(60)

    async with scene(behave, timeouts=limits) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (504, "upstream_timeout")
        assert words in reply.body
        async with asyncio.timeout(1):
            await on.toys[0].asked[0].gone.wait()


@played
async def test_who_cannot_be_reached_is_passed_over_then_left_out_then_asked_again() -> None:
    gone = Toy(answers(b"{}"))
    url = await gone.start()
    await gone.stop()
    here = Toy(answers(b"{}"))
    async with scene(urls=[url, await here.start()], health=HealthPolicy(every_s=0, failures=2, out_s=0.3)) as on:
        for _ in range(6):
            assert (await on.ask()).status == 200
        assert on.counted('pagefence_edge_upstream_failures_total{code="upstream_unreachable"') == 2
        assert on.edge.balancer.well == 1
        await gone.start(int(url.rpartition(":")[2]))
        await asyncio.sleep(0.3)
        for _ in range(4):
            await on.ask()
        assert len(gone.asked) == 2
        await gone.stop()
    await here.stop()


@played
async def test_without_anybody_well_it_is_a_503_and_not_ready() -> None:
    async with scene(urls=["http://127.0.0.1:9"], health=HealthPolicy(every_s=0, failures=1, out_s=60)) as on:
        reply = await on.ask()
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "upstream_unreachable", "1")
        ready = await on.ask(b"", "/readyz", "GET")
        assert (ready.status, ready.body) == (503, b'{"ready":false,"reasons":["no upstream is well"]}')
        assert (await on.ask(b"", "/livez", "GET")).status == 200


@played
async def test_active_questions_find_a_sick_upstream_and_a_recovered_one() -> None:
    sick = True

    async def behave(asked: Asked) -> None:
        if asked.line.startswith("GET /health") and sick:
            await asked.say(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
            return
        await asked.say(whole(b"{}"))

    policy = HealthPolicy(every_s=0.05, failures=2)
    async with scene(behave, answers(b"{}"), health=policy) as on:
        await soon(lambda: on.edge.balancer.well == 1)
        for _ in range(4):
            await on.ask()
        assert not on.toys[0].asked
        sick = False
        await soon(lambda: on.edge.balancer.well == 2)


@played
async def test_the_one_with_the_fewest_outstanding_is_asked() -> None:
    async with scene(hangs, hangs, hangs) as on:
        clients = [await on.client() for _ in range(9)]
        for client in clients:
            client.ask()
        await soon(lambda: sum(len(toy.asked) for toy in on.toys) == 9)
        assert [len(toy.asked) for toy in on.toys] == [3, 3, 3]


@played
async def test_a_full_pool_passes_on_to_the_next_and_is_no_failure() -> None:
    async with scene(hangs, answers(b"{}"), upstream_connections=1) as on:
        first = await on.client()
        first.ask()
        await soon(lambda: len(on.toys[0].asked) == 1)
        for _ in range(3):
            assert (await on.ask()).status == 200
        assert on.edge.balancer.well == 2
        on.toys[1].behave = hangs
        second = await on.client()
        second.ask()
        await soon(lambda: len(on.toys[1].asked) == 4)
        reply = await on.ask()
        assert (reply.status, reply.code) == (503, "upstream_unreachable")


@played
async def test_an_upstream_of_which_nothing_is_known_is_not_asked() -> None:
    barred = set[str]()
    steps = replace(passing(), barred=lambda: frozenset(barred))
    async with scene(answers(b"{}"), answers(b"{}"), steps=steps) as on:
        barred.add(on.edge.balancer.upstreams[0].address.url)
        for _ in range(4):
            assert (await on.ask()).status == 200
        assert not on.toys[0].asked
        barred.add(on.edge.balancer.upstreams[1].address.url)
        assert (await on.ask()).status == 503


def test_an_upstream_that_came_back_is_out_again_at_once_and_for_longer() -> None:
    health = Health(HealthPolicy(failures=2, out_s=1.0))
    assert not health.failed(0.0)
    assert health.failed(0.0)
    assert (health.well(0.9), health.well(1.0)) == (False, True)
    assert health.failed(1.0), "one failure is enough after a time out"
    assert (health.well(2.9), health.well(3.0)) == (False, True)
    health.succeeded()
    assert not health.failed(4.0)
    health.answered_question(False)
    assert not health.well(100.0)
    health.answered_question(True)
    assert health.well(100.0)


@played
async def test_tls_upstream_is_checked_and_sees_our_certificate(tmp_path: Path) -> None:
    import trustme

    ours, theirs = trustme.CA(), trustme.CA()
    certificate, client = ours.issue_cert("127.0.0.1"), ours.issue_cert("edge@example.org")
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(serving)
    ours.configure_trust(serving)
    serving.verify_mode = ssl.CERT_REQUIRED
    seen: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert"))
        while await reader.readuntil(b"{}"):
            writer.write(whole(b"{}"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    trusting, doubting = ssl.create_default_context(), ssl.create_default_context()
    ours.configure_trust(trusting)
    client.configure_cert(trusting)
    theirs.configure_trust(doubting)
    async with scene(urls=[url], ssl=trusting) as on:
        assert [(await on.ask()).status for _ in range(2)] == [200, 200]
        assert len(seen) == 1
        assert seen[0]
    async with scene(urls=[url], ssl=doubting) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (503, "upstream_unreachable")
    server.close()


def test_an_address_has_its_parts() -> None:
    address = parse("https://router.example/base/v1/")
    assert (address.host, address.port, address.tls, address.prefix) == ("router.example", 443, True, "/base")
    for wrong in ("router:8000", "ftp://a", "http://", "http://u:p@a", "http://a:0", "http://a:99999", "http://a/?b"):
        with pytest.raises(Usage):
            parse(wrong)


@played
async def test_a_prefix_stands_before_the_path() -> None:
    toy = Toy(echoes)
    async with scene(urls=[f"{await toy.start()}/fleet"]) as on:
        await on.ask()
        assert toy.asked[0].line == "POST /fleet/v1/chat/completions HTTP/1.1"
    await toy.stop()

"""The edge between a client and a fleet: what goes through, what is refused, and nobody gets another's answer."""

from __future__ import annotations

import asyncio
import gc
import json
import secrets
import sys
from dataclasses import replace

import pytest

from pagefence.edge.call import Call
from pagefence.edge.demand import Admitted
from pagefence.edge.front.front import FrontLimits
from pagefence.edge.passing import passing
from pagefence.edge.refusal import Refusal
from pagefence.edge.side import Cors
from tests.edge.proxy_scene import CHAT, Asked, answers, echoes, hangs, played, request, scene, soon, whole


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "embeddings"])
@played
async def test_an_answer_comes_back_as_upstream_gave_it(path: str) -> None:
    async with scene(answers(b'{"id":"1"}')) as on:
        reply = await on.ask(b'{"model":"m"}', f"/v1/{path}")
        assert (reply.status, reply.body) == (200, b'{"id":"1"}')
        assert on.toys[0].asked[0].line == f"POST /v1/{path} HTTP/1.1"


@played
async def test_models_are_listed() -> None:
    async with scene(answers(b'{"data":[]}')) as on:
        assert (await on.ask(b"", "/v1/models", "GET")).body == b'{"data":[]}'
        assert on.toys[0].asked[0].line == "GET /v1/models HTTP/1.1"


@played
async def test_no_header_of_a_client_goes_upstream_and_none_but_known_ones_come_back() -> None:
    async def behave(asked: Asked) -> None:
        await asked.say(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json; a=b\r\nset-cookie: c\r\nserver: s\r\n"
            b"content-length: 2\r\n\r\n{}"
        )

    async with scene(behave, authorization="Bearer ours") as on:
        reply = await on.ask(
            b'{"a":1}', authorization="Bearer theirs", x_prefiller_host_port="evil:1", x_request_id="mine", cookie="c"
        )
        sent = on.toys[0].asked[0]
        assert sent.headers.keys() == {
            "host", "content-type", "accept-encoding", "x-request-id", "authorization", "content-length",
        }  # fmt: skip
        assert sent.headers["authorization"] == "bearer ours"
        assert sent.headers["x-request-id"] == reply.headers["x-request-id"] != "mine"
        assert reply.headers.keys() == {"date", "content-type", "x-request-id", "content-length"}
        assert reply.headers["content-type"] == "application/json; a=b"


@played
async def test_every_answer_has_a_request_id_of_its_own() -> None:
    async with scene(answers(b"{}")) as on:
        paths = [CHAT, CHAT, "/nowhere", "/livez"]
        replies = [
            await on.ask(b"" if path != CHAT else b"{}", path, "POST" if path == CHAT else "GET") for path in paths
        ]
        client = await on.client()
        client.send(b"nonsense\r\n\r\n")
        replies.append(await client.reply())
        ids = {reply.headers["x-request-id"] for reply in replies}
        assert len(ids) == len(replies)


@played
async def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    async with scene(echoes) as on:
        client = await on.client()
        client.send(b"".join(request(b'{"n":%d}' % number) for number in range(5)))
        assert [json.loads((await client.reply()).body)["n"] for _ in range(5)] == [0, 1, 2, 3, 4]


@played
async def test_two_clients_at_once_get_their_own_answers() -> None:
    async def behave(asked: Asked) -> None:
        await asyncio.sleep(0.001 * (hash(asked.body) % 5))
        await asked.say(whole(asked.body))

    async with scene(behave, behave) as on:

        async def ask_often() -> int:
            client = await on.client()
            for _ in range(60):
                nonce = json.dumps({"nonce": secrets.token_hex(16)}, separators=(",", ":")).encode()
                client.ask(nonce)
                assert (await client.reply()).body == nonce
            return 60

        assert sum(await asyncio.gather(*(ask_often() for _ in range(8)))) == 480
        assert all(len(toy.asked) > 100 for toy in on.toys)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", CHAT, 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("OPTIONS", CHAT, 405, "method_not_allowed"),
        ("POST", "/v1/../v1/chat/completions", 404, "not_found"),
        ("POST", "/v1/chat/completions/", 404, "not_found"),
        ("POST", "/v1/chat%2fcompletions", 404, "not_found"),
        ("POST", "//v1/chat/completions", 404, "not_found"),
        ("POST", "/generate", 404, "not_found"),
        ("GET", "/get_server_info", 404, "not_found"),
        ("POST", "/livez", 405, "method_not_allowed"),
    ],
)
@played
async def test_other_paths_and_methods_never_reach_upstream(method: str, path: str, status: int, code: str) -> None:
    async with scene(answers(b"{}")) as on:
        reply = await on.ask(b"{}" if method == "POST" else b"", path, method)
        assert (reply.status, reply.code) == (status, code)
        assert not on.toys[0].asked


@played
async def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(body_bytes=100)) as on:
        client = await on.client()
        client.send(request(b"", content_length="101"))
        assert (await client.reply()).status == 413
        client = await on.client()
        client.send(request(b"", content_length="", transfer_encoding="chunked") + b"65\r\n" + b"x" * 101 + b"\r\n")
        reply = await client.reply()
        assert (reply.status, reply.code) == (413, "body_too_large")
        assert (await on.ask(b"{" + b" " * 98 + b"}")).status == 200
        assert len(on.toys[0].asked) == 1


@played
async def test_bodies_together_have_a_limit_and_it_is_given_back() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(bodies_bytes=1000)) as on:
        assert (await on.ask(b"{" + b" " * 1000 + b"}")).status == 503
        for _ in range(5):
            assert (await on.ask(b"{" + b" " * 900 + b"}")).status == 200


@played
async def test_headers_over_the_limit_are_refused() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(head_bytes=1024)) as on:
        assert (await on.ask(x_long="a" * 2000)).status == 431
        assert on.counted('pagefence_edge_refusals_total{code="headers_too_large"}') == 1


@played
async def test_a_client_that_drips_its_head_or_its_body_is_told_so() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(head_s=0.2, body_s=0.2)) as on:
        for raw in (b"POST /v1/chat/completions HTT", request(b"", content_length="5") + b"{"):
            client = await on.client()
            client.send(raw)
            assert (await client.reply()).status == 408
            await client.closed()
        assert not on.toys[0].asked


@played
async def test_a_body_that_goes_on_in_drips_has_an_end_too() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(body_s=0.3)) as on:
        client = await on.client()
        client.send(request(b"", content_length="1000"))
        for _ in range(30):
            client.send(b" ")
            await asyncio.sleep(0.05)
        assert (await client.reply()).status == 408


@played
async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(idle_s=0.2)) as on:
        client = await on.client()
        client.ask()
        await client.reply()
        assert await client.closed() == b""


@played
async def test_too_many_requests_are_told_to_come_back() -> None:
    async with scene(hangs, requests=2, tenant_requests=9) as on:
        waiting = [await on.client() for _ in range(2)]
        for client in waiting:
            client.ask()
        await soon(lambda: len(on.toys[0].asked) == 2)
        reply = await on.ask()
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "overloaded", "1")
        waiting[0].leave()
        await soon(lambda: on.edge.balancer.upstreams[0].pool.outstanding == 1)
        on.toys[0].behave = answers(b"{}")
        assert (await on.ask()).status == 200


@played
async def test_a_tenant_with_too_many_requests_is_told_so() -> None:
    async with scene(hangs, tenant_requests=1) as on:
        client = await on.client()
        client.ask()
        await soon(lambda: len(on.toys[0].asked) == 1)
        reply = await on.ask()
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (429, "too_many_requests", "1")


@played
async def test_connections_over_the_limit_are_told_so() -> None:
    async with scene(answers(b"{}"), front=FrontLimits(connections=1)) as on:
        first = await on.client()
        first.ask()
        await first.reply()
        second = await on.client()
        assert (await second.reply()).status == 503


@played
async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with scene(echoes) as on:
        client = await on.client()
        client.send(request(b"", content_length="7", expect="100-continue"))
        assert (await client.reply()).status == 100
        client.send(b'{"a":1}')
        assert (await client.reply()).body == b'{"a":1}'
        assert (await on.ask(expect="200-maybe")).status == 417


@played
async def test_http_1_0_gets_an_answer_and_a_closed_connection() -> None:
    async with scene(answers(b"{}")) as on:
        client = await on.client()
        client.send(b"POST /v1/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        assert (await client.reply()).headers["connection"] == "close"
        assert await client.closed() == b""


@played
async def test_a_page_of_a_browser_may_ask_only_where_it_is_allowed() -> None:
    asked = {"origin": "https://app.example", "access_control_request_headers": "authorization,x-stainless-os"}
    async with scene(answers(b"{}"), cors=Cors(("https://app.example",))) as on:
        before = await on.ask(b"", CHAT, "OPTIONS", **asked)
        assert before.status == 204
        assert before.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-stainless-os" in before.headers["access-control-allow-headers"]
        reply = await on.ask(origin="https://app.example")
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        assert (await on.ask(b"nonsense", origin="https://app.example")).headers["vary"] == "origin"
        assert "access-control-allow-origin" not in (await on.ask(origin="https://evil.example")).headers
        assert (await on.ask(b"", CHAT, "OPTIONS", origin="https://evil.example")).status == 405
    async with scene(answers(b"{}")) as on:
        assert "access-control-allow-origin" not in (await on.ask(origin="https://app.example")).headers


@played
async def test_what_it_did_can_be_read_and_names_nobody() -> None:
    async with scene(answers(b"{}"), models=("known",)) as on:
        await on.ask(b'{"model":"known"}')
        await on.ask(b'{"model":"a secret of a client"}')
        metrics = (await on.ask(b"", "/metrics", "GET")).body.decode()
        kept = 'pagefence_edge_requests_total{model_name="%s",operation="chat/completions",status="200"} 1.0'
        assert kept % "known" in metrics
        assert kept % "other" in metrics
        assert "secret" not in metrics
        assert on.counted("pagefence_edge_requests_in_flight") == 0


@played
async def test_an_error_of_ours_is_a_plain_500_that_quotes_nothing() -> None:
    async with scene(answers(b"{}")) as on:

        def broken(*given: object) -> None:
            raise RuntimeError("a prompt")

        object.__setattr__(on.edge.steps, "read", broken)
        reply = await on.ask()
        assert (reply.status, reply.code) == (500, "internal_error")
        assert b"prompt" not in reply.body


@played
async def test_memory_stays_flat_over_thousands_of_requests() -> None:
    async with scene(echoes) as on:
        client = await on.client()

        async def many(count: int) -> int:
            for number in range(count):
                client.ask(b'{"text":"%064d"}' % number)
                await client.reply()
                del on.toys[0].asked[:]
            gc.collect()
            return sys.getallocatedblocks()

        first = await many(300)
        assert await many(1000) - first < 500
        assert on.toys[0].connections == 1


@played
async def test_a_step_that_is_cancelled_leaves_no_client_without_an_answer() -> None:
    async def cancelled(call: Call) -> Admitted | Refusal:
        raise asyncio.CancelledError

    async with scene(answers(b"{}"), steps=replace(passing(), admit=cancelled)) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (503, "draining")


@played
async def test_what_an_edge_needs_is_let_go_when_its_last_request_has_ended() -> None:
    """A reload puts another edge in its place; what had begun goes on with the old one's threads and figures."""
    go, ended = asyncio.Event(), list[str]()

    async def behave(asked: Asked) -> None:
        await go.wait()
        await asked.say(whole(b"{}"))

    async with scene(behave) as on:
        client = await on.client()
        client.ask()
        await soon(lambda: len(on.toys[0].asked) == 1)
        on.edge.retire(lambda: ended.append("old"))
        assert ended == []
        go.set()
        assert (await client.reply()).status == 200
        await soon(lambda: ended == ["old"])
        on.edge.retire(lambda: ended.append("idle"))
        assert ended == ["old", "idle"]
        client.leave()

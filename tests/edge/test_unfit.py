"""Answers that are framed well and are none: half a JSON, another server's page, an error in plain words."""

from __future__ import annotations

import json

import pytest

from pagefence.edge.unfit import unfit_content, unfit_head
from pagefence.edge.wire.heads import response_head
from tests.edge.proxy_scene import CHAT, STREAM, chunk, played, says, scene, whole

ANSWER = b'{"id":"1","choices":[{"text":"a whole answer"}]}'


@pytest.mark.parametrize("size", range(len(ANSWER)))
def test_json_that_is_cut_anywhere_is_no_answer(size: int) -> None:
    head = response_head(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    refusal = unfit_content(head, ANSWER[:size])
    assert refusal is not None
    assert (refusal.status, refusal.code) == (502, "upstream_malformed")


@pytest.mark.parametrize("kind", [b"application/json", b"application/json; charset=utf-8", b"Application/JSON", b""])
@pytest.mark.parametrize("content", [ANSWER, b' {"a":"\\ud800"}\n', b"[]"])
def test_json_is_an_answer_however_its_type_is_written(kind: bytes, content: bytes) -> None:
    said = b"content-type: %b\r\n" % kind if kind else b""
    head = response_head(b"HTTP/1.1 200 OK\r\n%b\r\n" % said)
    assert unfit_head(head) is None
    assert unfit_content(head, content) is None


@pytest.mark.parametrize("kind", [b"text/html", b"text/plain", b"application/jsonp", b"multipart/mixed"])
def test_another_type_is_no_answer(kind: bytes) -> None:
    refusal = unfit_head(response_head(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n" % kind))
    assert refusal is not None
    assert refusal.code == "upstream_unfit"


@pytest.mark.parametrize("framing", ["too short a length", "the end of the connection"])
@played
async def test_half_an_answer_never_looks_whole(framing: str) -> None:
    """As when a server of HTTP/1.0 is killed: nothing in the framing says that there was more to come."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    length = b"content-length: %d\r\n" % len(ANSWER[:-9]) if framing == "too short a length" else b""
    async with scene(says(head + length + b"\r\n" + ANSWER[:-9], close=True)) as on:
        reply = await on.ask()
        assert (reply.status, reply.code) == (502, "upstream_malformed")


@pytest.mark.parametrize("status", [429, 500, 503])
@played
async def test_an_error_in_words_alone_gets_the_shape_of_this_api(status: int) -> None:
    words = b"Internal Server Error at 10.0.0.7"
    raw = b"HTTP/1.1 %d X\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%b" % (status, len(words), words)
    async with scene(says(raw)) as on:
        reply = await on.ask()
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["param"]) == (status, "upstream_error", None)
        assert "10.0.0.7" not in error["message"]
        assert ("retry-after" in reply.headers) is (status != 500)


@played
async def test_an_error_of_this_api_stays_as_upstream_gave_it() -> None:
    words = b'{"error":{"message":"no such model","type":"invalid_request_error","param":"model","code":"not_there"}}'
    raw = b"HTTP/1.1 404 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(words), words)
    async with scene(says(raw)) as on:
        reply = await on.ask()
        assert (reply.status, reply.body) == (404, words)


@played
async def test_a_stream_of_events_is_no_json_and_goes_through() -> None:
    async with scene(says(STREAM + chunk(b"data: x\n\n") + b"0\r\n\r\n")) as on:
        assert (await on.ask()).body == b"data: x\n\n"


@played
async def test_no_content_is_no_answer() -> None:
    async with scene(says(b"HTTP/1.1 204 No Content\r\n\r\n"), says(whole(ANSWER))) as on:
        assert {(await on.ask(path=CHAT)).status for _ in range(2)} == {200, 502}

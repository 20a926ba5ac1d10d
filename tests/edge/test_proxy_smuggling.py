"""Raw bytes at the socket: what could be two requests to somebody is none here, and never reaches upstream."""

from __future__ import annotations

import pytest

from tests.edge.proxy_scene import echoes, hangs, played, request, scene

POST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
INNER = b'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"in":1}'


@pytest.mark.parametrize(
    "raw",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + INNER,
        POST + b"Content-Length: 2\r\nContent-Length: 70\r\n\r\n{}" + INNER,
        POST + b"Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}" + INNER,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding\r\n : chunked\r\nContent-Length: 2\r\n\r\n{}" + INNER,
        POST + b"X: y\r\n Content-Length: 70\r\nContent-Length: 2\r\n\r\n{}" + INNER,
        POST + b"X: y\nContent-Length: 2\r\n\r\n{}" + INNER,
        POST + b"Content-Length : 2\r\n\r\n{}" + INNER,
        POST + b"Content-Length: 2\x00\r\n\r\n{}" + INNER,
        POST + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 70\r\n\r\n" + INNER,
        POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n{}\r\n0\r\n\r\n" + INNER,
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + INNER,
    ],
)
@played
async def test_what_hides_a_second_request_is_refused_whole(raw: bytes) -> None:
    async with scene(echoes) as on:
        client = await on.client()
        client.send(raw)
        reply = await client.reply()
        assert (reply.status, reply.code, reply.headers["connection"]) == (400, "malformed_request", "close")
        assert await client.closed() == b"", "nothing after it was read as a request"
        assert not on.toys[0].asked


@played
async def test_a_chunked_body_goes_upstream_with_one_length_of_ours() -> None:
    async with scene(echoes) as on:
        client = await on.client()
        client.send(POST + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\nA\r\n": 1, "b":\r\n3\r\n 2}\r\n0\r\n\r\n')
        assert (await client.reply()).body == b'{"a":1,"b":2}'
        sent = on.toys[0].asked[0].headers
        assert sent["content-length"] == "13"
        assert "transfer-encoding" not in sent


@played
async def test_bytes_in_single_pieces_are_read_as_the_same_request() -> None:
    async with scene(echoes) as on:
        client = await on.client()
        for byte in request(b'{"a":1}'):
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.reply()).body == b'{"a":1}'


@played
async def test_a_client_that_talks_on_while_it_waits_is_cut_off() -> None:
    async with scene(echoes) as on:
        on.toys[0].behave = hangs
        client = await on.client()
        client.ask()
        client.send(b"x" * 200_000)
        assert await client.closed() == b""

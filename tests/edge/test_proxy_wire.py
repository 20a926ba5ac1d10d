"""Heads and bodies of HTTP/1.1 are read strictly, in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.wire.bodies import ChunkedBody, SizedBody
from pagefence.edge.wire.heads import CHUNKED, UNTIL_CLOSE, Malformed, request_head, response_head

LINE = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


def test_a_head_is_read_with_names_in_small_letters() -> None:
    head = request_head(LINE + b"Content-Length:  3 \r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert (head.method, head.path, head.length, head.keep_alive) == ("POST", "/v1/chat/completions", 3, True)
    assert head.headers[b"x-a"] == b"1, 2"
    assert head.fields[-1] == (b"x-a", b"2")


@pytest.mark.parametrize(
    "raw",
    [
        LINE + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
        LINE + b"Content-Length: 3, 3\r\n\r\n",
        LINE + b"Content-Length: +3\r\n\r\n",
        LINE + b"Content-Length: 0x3\r\n\r\n",
        LINE + b"Content-Length: 3 3\r\n\r\n",
        LINE + b"Content-Length: \r\n\r\n",
        LINE + b"Content-Length: -1\r\n\r\n",
        LINE + "Content-Length: ٣\r\n\r\n".encode(),
        LINE + b"Content-Length: 99999999999999999999\r\n\r\n",
        LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        LINE + b"Transfer-Encoding: identity\r\n\r\n",
        LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n",
        LINE + b"Transfer-Encoding:\x0bchunked\r\n\r\n",
        LINE + b"Transfer-Encoding : chunked\r\n\r\n",
        LINE + b" Transfer-Encoding: chunked\r\n\r\n",
        LINE + b"X: a\r\n folded\r\n\r\n",
        LINE + b"X: a\r\n\tfolded\r\n\r\n",
        LINE + b"X: a\nContent-Length: 3\r\n\r\n",
        LINE + b"X: a\rContent-Length: 3\r\n\r\n",
        LINE + b"X: a\x00b\r\n\r\n",
        LINE + b"X\x00: a\r\n\r\n",
        LINE + b": a\r\n\r\n",
        LINE + b"no colon\r\n\r\n",
        LINE + b"Host: b\r\n\r\n",
        LINE + b"Content-Type: a\r\nContent-Type: b\r\n\r\n",
        LINE + b"Authorization: a\r\nAuthorization: b\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\nHost: a\n\n",
        b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"POST / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.10\r\nHost: a\r\n\r\n",
        b"POST /\r\n\r\n",
        b"POST http://a/v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"post / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE + b"A: b\r\n" * 101 + b"\r\n",
    ],
)  # fmt: skip
def test_what_two_readers_could_read_differently_is_no_head(raw: bytes) -> None:
    with pytest.raises(Malformed):
        request_head(raw)


@pytest.mark.parametrize(
    ("raw", "length", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 5, True),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n", CHUNKED, True),
        (b"HTTP/1.1 200 OK\r\n\r\n", UNTIL_CLOSE, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: Close\r\n\r\n", 5, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 5, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 0, True),
    ],
)
def test_the_framing_of_an_answer_is_read(raw: bytes, length: int, keeps: bool) -> None:
    head = response_head(raw)
    assert (head.length, head.keep_alive) == (length, keeps)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.binary(max_size=10), st.data())
def test_chunks_are_the_body_however_they_are_cut(chunks: list[bytes], after: bytes, data: st.DataObject) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    body, got, at = ChunkedBody(), b"", 0
    stream = raw + after
    while at < len(stream) and not body.done:
        size = data.draw(st.integers(1, len(stream) - at))
        got += b"".join(body.feed(stream[at : at + size]))
        at += size
    assert body.done
    assert got == b"".join(chunks)
    assert body.rest + stream[at:] == after


@pytest.mark.parametrize(
    "raw",
    [
        b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"\r\nhello",
        b"g\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"123456789\r\n",
        b"0\r\nX: trailer\r\n\r\n",
        b"0\r\n\n",
    ],
)
def test_chunks_that_parsers_disagree_about_are_refused_however_they_are_cut(raw: bytes) -> None:
    with pytest.raises(Malformed):
        ChunkedBody().feed(raw)
    body = ChunkedBody()
    with pytest.raises(Malformed):
        for at in range(len(raw)):
            body.feed(raw[at : at + 1])


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=30), st.binary(max_size=10), st.integers(1, 7))
def test_a_sized_body_ends_where_its_length_says(content: bytes, after: bytes, step: int) -> None:
    body, got, stream, at = SizedBody(len(content)), b"", content + after, 0
    while not body.done:
        got += b"".join(body.feed(stream[at : at + step]))
        at += step
    assert got == content
    assert body.rest + stream[at:] == after

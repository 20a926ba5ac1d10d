"""The edges of HTTP: sizes, encodings, paths, methods. Every error is OpenAI-shaped JSON, none is a traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .scripted import CONTEXT, KEYS, MAX_BODY, MODEL, Running, anybody

TEXT = {"model": MODEL, "prompt": "hello"}


def shaped(answer: httpx.Response, status: int, code: str) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("DELETE", "/tokenize", 405, "method_not_allowed"),
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/v1/completions/", 404, "not_found"),
        ("POST", "/%00%ff", 404, "not_found"),
    ],
)
def test_a_wrong_path_or_method(ann: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    shaped(ann.request(method, path), status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 30_000,
        b'{"model": "scripted-1", "prompt": "x", "metadata": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"9" * 10_000,
    ],
)
def test_a_body_that_is_not_json(ann: httpx.Client, fleet: Running, body: bytes) -> None:
    shaped(ann.post("/v1/completions", content=body), 400, "invalid_json")
    assert not fleet.gateway.jobs


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"5", b"true"])
def test_a_body_that_is_not_an_object(ann: httpx.Client, body: bytes) -> None:
    shaped(ann.post("/v1/chat/completions", content=body), 400, "invalid_value")


def test_a_body_over_the_limit_with_a_declared_length(ann: httpx.Client) -> None:
    shaped(ann.post("/v1/completions", content=b"x" * (MAX_BODY + 1)), 413, "request_too_large")
    at_limit = json.dumps(TEXT).encode().ljust(MAX_BODY)
    assert ann.post("/v1/completions", content=at_limit).status_code == 200


def test_a_body_over_the_limit_in_chunks(ann: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 10_000

    shaped(ann.post("/v1/completions", content=chunks()), 413, "request_too_large")


@pytest.mark.parametrize("head", ["Content-Length: 9000000000", "Transfer-Encoding: chunked"])
def test_an_endless_body_is_not_read_to_its_end(fleet: Running, head: str) -> None:
    """The answer comes while the client is still sending, and the connection ends with it."""
    with socket.create_connection(("127.0.0.1", fleet.port), 5) as sock:
        start = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEYS['ann']}\r\n{head}\r\n\r\n"
        sock.sendall(start.encode())
        block = b"x" * 50_000
        for _ in range(5):
            sock.sendall(b"%x\r\n%b\r\n" % (len(block), block))
        answer = b""
        while received := sock.recv(65536):
            answer += received
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()
    assert b"request_too_large" in answer


def head(length: int) -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {KEYS['ann']}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def test_a_declared_length_over_the_limit_is_refused_before_a_byte_of_the_body(fleet: Running) -> None:
    with socket.create_connection(("127.0.0.1", fleet.port), 2) as sock:
        sock.sendall(head(MAX_BODY + 1))
        assert sock.recv(100).startswith(b"HTTP/1.1 413")


def test_a_client_that_writes_all_before_it_reads_still_gets_its_answer(fleet: Running) -> None:
    """More than the sockets between can hold: a connection closed at once would be reset under its hands."""
    with socket.create_connection(("127.0.0.1", fleet.port), 5) as sock:
        sock.sendall(head(20_000_000) + b"x" * 20_000_000)
        assert sock.recv(100).startswith(b"HTTP/1.1 413")


def test_models_tell_the_real_limit(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.max_prompt_tokens = 1000
    try:
        card = ann.get("/v1/models").json()["data"][0]
    finally:
        fleet.gateway.max_prompt_tokens = CONTEXT - 1
    assert (card["id"], card["object"], card["owned_by"], card["max_model_len"]) == (MODEL, "model", "pagefence", 1001)
    assert ann.get(f"/v1/models/{MODEL}").json()["max_model_len"] == CONTEXT


def test_tokenize_counts_as_a_request_would(ann: httpx.Client, fleet: Running) -> None:
    messages = [{"role": "user", "content": "hé"}]
    for path, body in (("/v1/completions", {"prompt": "hé"}), ("/v1/chat/completions", {"messages": messages})):
        told = ann.post("/tokenize", json=body).json()
        ann.post(path, json={"model": MODEL, **body})
        assert tuple(told["tokens"]) == fleet.gateway.jobs[-1].token_ids
        assert (told["count"], told["max_model_len"]) == (len(told["tokens"]), CONTEXT)
    shaped(ann.post("/tokenize", json={}), 400, "invalid_value")
    shaped(ann.post("/tokenize", json={"prompt": "x", "messages": messages}), 400, "invalid_value")
    shaped(ann.post("/tokenize", json={"prompt": "x", "rid": 1}), 400, "forbidden_parameter")
    shaped(ann.post("/tokenize", json={"prompt": "x", "model": "y"}), 404, "model_not_found")


def test_metrics_name_no_tenant_no_prompt_and_no_path_that_a_client_made_up(ann: httpx.Client, fleet: Running) -> None:
    ann.post("/v1/completions", json={**TEXT, "prompt": "my-secret-prompt", "user": "my-user"})
    ann.get("/made-up-path")
    text = anybody.get(f"{fleet.url}/metrics").text
    assert 'pagefence_api_requests_total{endpoint="/v1/completions",model_name="scripted-1",status="200"}' in text
    assert "pagefence_router_requests_total 3.0" in text
    for word in ("ann", "my-secret-prompt", "my-user", "made-up-path", "key-of", "_created"):
        assert word not in text


FIELDS = (
    "model prompt messages stream stop temperature max_tokens logit_bias stream_options seed n tools rid x "
    "echo logprobs top_logprobs best_of"
)
keys = st.sampled_from([*FIELDS.split(), "role", "content", "type", "text"])
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
    | st.sampled_from([MODEL, "user", "text", "<|im_end|>", "\x00"])
)  # fmt: skip
values = st.recursive(scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(keys, x, max_size=4), max_leaves=8)
bodies = st.dictionaries(keys, values, max_size=6).map(lambda body: {"model": MODEL, **body})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["/v1/completions", "/v1/chat/completions", "/tokenize"]), bodies)
def test_no_body_makes_the_server_fail(ann: httpx.Client, path: str, body: dict[str, Any]) -> None:
    fuzzed(ann.post(path, content=json.dumps(body).encode()))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["/v1/completions", "/v1/chat/completions"]), st.data())
def test_no_almost_good_body_makes_the_server_fail(ann: httpx.Client, path: str, data: st.DataObject) -> None:
    good: dict[str, Any] = {"model": MODEL, "stream": data.draw(st.booleans())}
    good |= {"prompt": "x"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    good[data.draw(keys)] = data.draw(values)
    fuzzed(ann.post(path, content=json.dumps(good).encode()))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_no_bytes_make_the_server_fail(ann: httpx.Client, body: bytes) -> None:
    fuzzed(ann.post("/v1/completions", content=body))


def fuzzed(answer: httpx.Response) -> None:
    assert answer.status_code in {200, 400, 404}
    assert "Traceback" not in answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

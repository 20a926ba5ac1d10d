"""What a client gets: whole or streamed, good or bad, once, and nothing before the hand-off is committed (I3, I5)."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from pagefence.engine.api.ports import CallEvent
from pagefence.protocol import errors
from pagefence.protocol.effects import End

from .scripted import MODEL, Pause, Running, Script, begin, emit, end, refuse, says

TEXT: dict[str, Any] = {"model": MODEL, "prompt": "hello"}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
BOTH = pytest.mark.parametrize("body", [TEXT, CHAT], ids=["text", "chat"])


def path_of(body: dict[str, Any]) -> str:
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def post(client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    return client.post(path_of(body), json=body)


def events(answer: httpx.Response) -> list[Any]:
    lines = [line for line in answer.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def text_of(chunks: list[Any]) -> str:
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk["choices"]]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)


def plays(*steps: CallEvent | Pause | Exception) -> Script:
    return lambda job: steps


def released_once(fleet: Running) -> None:
    """The last thing a handler does may come just after its last byte."""
    for call in fleet.gateway.calls:
        assert call.cancelled.wait(2)
    assert [call.cancels for call in fleet.gateway.calls] == [1] * len(fleet.gateway.calls)


def test_a_completion(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = says("Grüße", "length")
    answer = post(ann, TEXT).json()
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)
    assert abs(answer["created"] - time.time()) < 60
    assert answer["choices"] == [{"index": 0, "text": "Grüße", "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    released_once(fleet)


def test_a_chat(ann: httpx.Client, fleet: Running) -> None:
    answer = post(ann, CHAT).json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    message = {"role": "assistant", "content": "fine", "refusal": None}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]


@BOTH
def test_a_stream_has_an_event_for_each_token_and_then_its_usage(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    answer = post(ann, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last, usage, done = events(answer)
    assert [text_of([chunk]) for chunk in chunks if text_of([chunk])] == list("fine")
    assert last["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"], done) == ([], 4, "[DONE]")
    assert len({chunk["id"] for chunk in (*chunks, last, usage)}) == 1
    if body is CHAT:
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    released_once(fleet)


@BOTH
@pytest.mark.parametrize("stop", [None, "b"])
def test_usage_tells_the_cached_tokens_however_the_answer_is_sent_and_ended(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], stop: str | None
) -> None:
    fleet.gateway.script = lambda job: [begin(4), emit("a"), emit("b"), end(job, 2)]
    body = body if stop is None else {**body, "stop": stop}
    whole = post(ann, body).json()["usage"]
    streamed = events(post(ann, {**body, "stream": True, "stream_options": {"include_usage": True}}))[-2]["usage"]
    assert whole["prompt_tokens_details"] == streamed["prompt_tokens_details"] == {"cached_tokens": 4}


def test_usage_is_streamed_only_when_asked_for(ann: httpx.Client, fleet: Running) -> None:
    assert all("usage" not in chunk for chunk in events(post(ann, {**TEXT, "stream": True}))[:-1])


@BOTH
def test_headers_wait_for_begin_and_tokens_do_not_wait_for_the_end(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    before, after = threading.Event(), threading.Event()
    fleet.gateway.script = lambda job: [before, begin(), emit("a"), after, emit("b"), end(job, 2)]
    got_headers = threading.Event()
    seen: list[str] = []

    def read() -> None:
        with ann.stream("POST", path_of(body), json={**body, "stream": True}) as answer:
            got_headers.set()
            seen.extend(answer.iter_lines())  # one by one, as they come

    reader = threading.Thread(target=read)
    reader.start()
    assert not got_headers.wait(0.3), "headers went out before the hand-off was committed"
    before.set()
    assert got_headers.wait(2)
    deadline = time.monotonic() + 2
    while not any('"a"' in line for line in seen):
        assert time.monotonic() < deadline, "the first token was held until a later one"
        time.sleep(0.01)
    after.set()
    reader.join(5)
    assert "data: [DONE]" in seen


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_before_begin_is_the_whole_response(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], stream: bool
) -> None:
    fleet.gateway.script = plays(refuse(errors.overloaded("too many requests")))
    answer = post(ann, {**body, "stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json() == {
        "error": {
            "message": "too many requests",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    released_once(fleet)


@pytest.mark.parametrize("stream", [False, True])
def test_the_over_length_error_is_the_conventional_one(ann: httpx.Client, fleet: Running, stream: bool) -> None:
    for body, param in (({**TEXT, "prompt": "x" * 5000}, "prompt"), ({**TEXT, "prompt": [7] * 5000}, "prompt")):
        answer = post(ann, {**body, "stream": stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert "maximum context length is 2048 tokens" in error["message"]
        assert "5000 tokens" in error["message"]


def test_a_contained_fault_names_its_rule_and_guard(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = plays(refuse(errors.contained("handoff_mismatch", "1 of 8 pages", "I4", "handoff-check")))
    for stream in (False, True):
        answer = post(ann, {**TEXT, "stream": stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["rule"], error["guard"]) == (500, "I4", "handoff-check")


@BOTH
def test_a_failure_after_begin_ends_a_stream_with_an_error_and_no_done(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    fleet.gateway.script = plays(begin(), emit("a"), refuse(errors.internal("the worker died")))
    got = events(post(ann, {**body, "stream": True}))
    assert got[-1]["error"]["message"] == "the worker died"
    assert text_of(got[:-1]) == "a"
    whole = post(ann, body)
    assert (whole.status_code, whole.json()["error"]["code"]) == (500, "internal_error")
    released_once(fleet)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [begin()],
        [begin(), emit("a")],
        [emit("a"), End(1, "stop", 5, 1)],
        [End(1, "stop", 5, 0)],
        [RuntimeError("my-secret-prompt")],
        [begin(), emit("a"), RuntimeError("my-secret-prompt")],
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_router_that_breaks_its_word_gives_one_plain_error(
    ann: httpx.Client,
    fleet: Running,
    steps: Sequence[CallEvent | Exception],
    stream: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No text before the commit, no answer without an outcome, no words of an exception to anybody."""
    fleet.gateway.script = plays(*steps)
    with caplog.at_level(logging.INFO):
        answer = post(ann, {**TEXT, "stream": stream})
    if stream and begin() in steps:
        error = events(answer)[-1]["error"]
    else:
        assert answer.status_code == 500
        error = answer.json()["error"]
    assert error["code"] == "internal_error"
    assert "secret" not in answer.text + caplog.text
    released_once(fleet)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_and_lets_go_of_the_call(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], stream: bool
) -> None:
    never = threading.Event()
    fleet.gateway.script = lambda job: [begin(), emit("one t"), emit("wo th"), emit("ree"), never]
    answer = post(ann, {**body, "stop": ["two", "zzz"], "stream": stream, **({} if not stream else USAGE)})
    if stream:
        got = events(answer)
        assert (text_of(got), got[-3]["choices"][0]["finish_reason"]) == ("one ", "stop")
        usage = got[-2]["usage"]
    else:
        choice = answer.json()["choices"][0]
        text = choice["text"] if body is TEXT else choice["message"]["content"]
        assert (text, choice["finish_reason"]) == ("one ", "stop")
        usage = answer.json()["usage"]
    assert usage["completion_tokens"] == len("one two")
    assert usage["prompt_tokens"] == len(fleet.gateway.jobs[0].token_ids)
    released_once(fleet)


USAGE = {"stream_options": {"include_usage": True}}


def test_text_that_only_looked_like_a_stop_is_not_lost(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = says("one tw")
    assert post(ann, {**TEXT, "stop": "two"}).json()["choices"][0]["text"] == "one tw"
    assert text_of(events(post(ann, {**TEXT, "stop": "two", "stream": True}))) == "one tw"


def test_a_character_is_never_sent_in_parts(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = says("é€😀")
    chunks = events(post(ann, {**TEXT, "stream": True}))
    assert [text_of([chunk]) for chunk in chunks if text_of([chunk])] == ["é", "€", "😀"]
    fleet.gateway.script = lambda job: [begin(), emit("é".encode()[:1]), end(job, 1, "length")]
    assert post(ann, TEXT).json()["choices"][0]["text"] == "\ufffd"


def test_ids_of_answers_are_not_repeated(ann: httpx.Client, fleet: Running) -> None:
    assert len({post(ann, TEXT).json()["id"] for _ in range(20)}) == 20

"""Log-probabilities: one entry for each generated token, in OpenAI's two shapes, whole and streamed alike."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from pagefence.protocol.effects import Emit
from pagefence.protocol.messages import Logprob

from .scripted import Running, begin, emit, end, likely, says
from .test_answers import CHAT, TEXT, events, post


def text_scores(ann: httpx.Client, **more: Any) -> dict[str, Any]:
    scores: dict[str, Any] = post(ann, {**TEXT, **more}).json()["choices"][0]["logprobs"]
    return scores


def chat_scores(ann: httpx.Client, **more: Any) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = post(ann, {**CHAT, "logprobs": True, **more}).json()["choices"][0]["logprobs"][
        "content"
    ]
    return content


@pytest.mark.parametrize("top", [0, 1, 5])
def test_a_completion_has_parallel_lists_with_the_token_itself_among_the_likeliest(
    ann: httpx.Client, fleet: Running, top: int
) -> None:
    fleet.gateway.script = says("ab")
    scores = text_scores(ann, logprobs=top)
    assert fleet.gateway.jobs[0].sampling.logprobs == top
    assert scores["tokens"] == ["a", "b"]
    assert scores["text_offset"] == [0, 1]
    assert scores["token_logprobs"] == [likely(97, 0).value, likely(98, 0).value]
    assert [len(best) for best in scores["top_logprobs"]] == [max(top, 1)] * 2
    assert all(best[token] == own for best, token, own in zip(scores["top_logprobs"], scores["tokens"],
               scores["token_logprobs"], strict=True))  # fmt: skip


def test_a_token_that_is_not_among_the_likeliest_is_added_to_them(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = lambda job: [begin(), emit("a", 0), end(job, 1)]
    assert text_scores(ann, logprobs=3)["top_logprobs"] == [{"a": likely(97, 0).value}]


def test_of_two_tokens_that_read_the_same_the_likelier_stays_and_the_likeliest_comes_first(
    ann: httpx.Client, fleet: Running
) -> None:
    twins = Logprob(-3.0, ((98, -1.0), (98, -2.0), (97, -3.0)))
    fleet.gateway.script = lambda job: [begin(), Emit(1, (97,), (twins,)), end(job, 1)]
    (best,) = text_scores(ann, logprobs=3)["top_logprobs"]
    assert list(best.items()) == [("b", -1.0), ("a", -3.0)]


@pytest.mark.parametrize("top", [None, 0, 20])
def test_a_chat_has_an_object_for_each_token(ann: httpx.Client, fleet: Running, top: int | None) -> None:
    fleet.gateway.script = says("ab")
    first, second = chat_scores(ann, top_logprobs=top)
    assert (first["token"], first["bytes"], first["logprob"]) == ("a", [97], likely(97, 0).value)
    assert (second["token"], len(second["top_logprobs"])) == ("b", top or 0)
    if top:
        assert second["top_logprobs"][1] == {"token": "c", "bytes": [99], "logprob": likely(98, 2).top[1][1]}


def test_what_was_not_asked_for_is_null(ann: httpx.Client, fleet: Running) -> None:
    for body in (TEXT, CHAT, {**CHAT, "logprobs": False}):
        assert post(ann, body).json()["choices"][0]["logprobs"] is None
    assert {job.sampling.logprobs for job in fleet.gateway.jobs} == {None}


def test_a_token_that_is_no_text_by_itself_is_written_in_numbers(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = says("é!")
    assert text_scores(ann, logprobs=0)["tokens"] == [r"bytes:\xc3", r"bytes:\xa9", "!"]
    assert text_scores(ann, logprobs=0)["text_offset"] == [0, 0, 1]
    assert [token["bytes"] for token in chat_scores(ann)] == [[0xC3], [0xA9], [33]]


def test_a_control_token_is_told_by_its_name(ann: httpx.Client, fleet: Running) -> None:
    ids = (97, 257)
    event = Emit(1, ids, tuple(likely(token, 0) for token in ids))
    fleet.gateway.script = lambda job: [begin(), event, end(job, 2)]
    assert text_scores(ann, logprobs=0)["tokens"] == ["a", "<257>"]
    assert chat_scores(ann)[1]["bytes"] == list(b"<257>")


@pytest.mark.parametrize("stop", [None, "cd", "zz", "e"])
def test_a_stream_tells_the_same_tokens_as_the_whole_answer_each_of_them_once(
    ann: httpx.Client, fleet: Running, stop: str | None
) -> None:
    fleet.gateway.script = says("abcdé")
    whole = text_scores(ann, logprobs=2, stop=stop)
    chunks = events(post(ann, {**TEXT, "logprobs": 2, "stop": stop, "stream": True}))[:-1]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert {name: [value for part in parts for value in part[name]] for name in whole} == whole
    streamed = events(post(ann, {**CHAT, "logprobs": True, "top_logprobs": 2, "stop": stop, "stream": True}))[:-1]
    found = [token for chunk in streamed if (scores := chunk["choices"][0]["logprobs"]) for token in scores["content"]]
    assert found == chat_scores(ann, top_logprobs=2, stop=stop)


def test_every_token_that_usage_counts_is_there_those_of_a_cut_stop_string_too(
    ann: httpx.Client, fleet: Running
) -> None:
    fleet.gateway.script = says("abcd")
    answer = post(ann, {**TEXT, "logprobs": 0, "stop": "bc"}).json()
    assert answer["choices"][0]["text"] == "a"
    assert answer["choices"][0]["logprobs"]["tokens"] == ["a", "b", "c"]
    assert answer["usage"]["completion_tokens"] == 3


def test_an_engine_that_leaves_out_what_was_asked_for_gives_an_error_and_no_answer(
    ann: httpx.Client, fleet: Running
) -> None:
    fleet.gateway.script = lambda job: [begin(), emit("ab"), end(job, 2)]
    assert post(ann, {**TEXT, "logprobs": 0}).status_code == 500

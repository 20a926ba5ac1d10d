"""What is refused before anything is submitted, and under which name (I3, I7, I9)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .scripted import Running, anybody

TEXT: dict[str, Any] = {"model": "scripted-1", "prompt": "hello"}
CHAT: dict[str, Any] = {"model": "scripted-1", "messages": [{"role": "user", "content": "hello"}]}
NEVER = ["bootstrap_host", "bootstrap_port", "bootstrap_room", "rid", "request_id", "cache_salt", "extra_key",
         "kv_transfer_params", "disaggregated_params", "data_parallel_rank"]  # fmt: skip


def post(client: httpx.Client, body: dict[str, Any], **more: Any) -> tuple[httpx.Response, dict[str, Any]]:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    answer = client.post(path, json=body, **more)
    return answer, answer.json().get("error", {})


def refused(fleet: Running, answer: httpx.Response, code: str, param: str | None, status: int = 400) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert not fleet.gateway.jobs, "a refused request was submitted"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NEVER)
def test_a_field_that_only_the_server_sets(ann: httpx.Client, fleet: Running, name: str, stream: bool) -> None:
    for body in (TEXT, CHAT):
        refused(fleet, post(ann, {**body, name: None, "stream": stream})[0], "forbidden_parameter", name)


@pytest.mark.parametrize(
    "body",
    [
        {**TEXT, "metadata": {"a": [[{"RID": 1}]]}},
        {**TEXT, "extra": {"deep": [1, {"deeper": {"RID": 1}}]}},
        {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "RID": 0}]}]},
    ],
)
def test_such_a_field_at_any_depth_and_in_any_spelling(ann: httpx.Client, fleet: Running, body: dict[str, Any]) -> None:
    refused(fleet, post(ann, body)[0], "forbidden_parameter", "RID")
    refused(fleet, post(ann, {**TEXT, "Kv-Transfer-Params": {}})[0], "forbidden_parameter", "Kv-Transfer-Params")


@pytest.mark.parametrize("header", ["x-prefiller-host-port", "X-Override-Model", "x-override-"])
def test_a_header_that_only_the_server_sets(ann: httpx.Client, fleet: Running, header: str) -> None:
    answer, _ = post(ann, TEXT, headers={header: "x"})
    refused(fleet, answer, "forbidden_parameter", header.lower())


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"colour": 1}, "unknown_parameter", "colour"),
        ({"stream": True, "stream_options": {"x": 1}}, "unknown_parameter", "stream_options.x"),
        ({"n": 0}, "invalid_value", "n"),
        ({"n": 9}, "invalid_value", "n"),
        ({"n": True}, "invalid_value", "n"),
        ({"presence_penalty": 0.5}, "unsupported_parameter", "presence_penalty"),
        ({"frequency_penalty": -1}, "unsupported_parameter", "frequency_penalty"),
        ({"top_k": 5}, "unsupported_parameter", "top_k"),
        ({"ignore_eos": True}, "unsupported_parameter", "ignore_eos"),
        ({"temperature": 2.1}, "invalid_value", "temperature"),
        ({"temperature": -0.1}, "invalid_value", "temperature"),
        ({"temperature": True}, "invalid_value", "temperature"),
        ({"temperature": "1"}, "invalid_value", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_p": 1.01}, "invalid_value", "top_p"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": True}, "invalid_value", "max_tokens"),
        ({"max_tokens": 1.5}, "invalid_value", "max_tokens"),
        ({"max_tokens": 10**20}, "invalid_value", "max_tokens"),
        ({"seed": 2**63}, "invalid_value", "seed"),
        ({"seed": 1.0}, "invalid_value", "seed"),
        ({"stop": ""}, "invalid_value", "stop"),
        ({"stop": ["a", ""]}, "invalid_value", "stop[1]"),
        ({"stop": list("abcde")}, "invalid_value", "stop"),
        ({"stop": "x" * 1001}, "invalid_value", "stop"),
        ({"stop": 5}, "invalid_value", "stop"),
        ({"logit_bias": {"300": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {" 1": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"1\n": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"²": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias[...]"),
        ({"stream": 1}, "invalid_value", "stream"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "unsupported_parameter",
            "stream_options.include_obfuscation",
        ),
    ],
)
def test_a_parameter_that_cannot_be_honoured(
    ann: httpx.Client, fleet: Running, more: dict[str, Any], code: str, param: str
) -> None:
    for body in (TEXT, CHAT):
        refused(fleet, post(ann, {**body, **more})[0], code, param)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": "scripted-1"}, "missing_required_parameter", "prompt"),
        ({**TEXT, "prompt": None}, "missing_required_parameter", "prompt"),
        ({**TEXT, "prompt": ""}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": []}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": [""]}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": ["a", "b"]}, "unsupported_parameter", "prompt"),
        ({**TEXT, "prompt": ["a", 5]}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": [[1, 2]]}, "invalid_value", "prompt[0]"),
        ({**TEXT, "prompt": [1, True]}, "invalid_value", "prompt[1]"),
        ({**TEXT, "prompt": [1, 300]}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": [-1]}, "invalid_value", "prompt"),
        ({**TEXT, "prompt": 5}, "invalid_value", "prompt"),
        ({**TEXT, "echo": 1}, "invalid_value", "echo"),
        ({**TEXT, "echo": True, "logprobs": 0}, "unsupported_parameter", "echo"),
        ({**TEXT, "best_of": 2}, "unsupported_parameter", "best_of"),
        ({**TEXT, "best_of": 1, "n": 2}, "unsupported_parameter", "best_of"),
        ({**TEXT, "best_of": 3, "n": 2}, "unsupported_parameter", "best_of"),
        ({**TEXT, "suffix": "x"}, "unsupported_parameter", "suffix"),
        ({**TEXT, "logprobs": -1}, "invalid_value", "logprobs"),
        ({**TEXT, "logprobs": 6}, "invalid_value", "logprobs"),
        ({**TEXT, "logprobs": True}, "invalid_value", "logprobs"),
        ({**TEXT, "top_logprobs": 1}, "unknown_parameter", "top_logprobs"),
        ({**TEXT, "max_completion_tokens": 5}, "unknown_parameter", "max_completion_tokens"),
    ],
)
def test_a_completion_that_cannot_be_served(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], code: str, param: str
) -> None:
    refused(fleet, ann.post("/v1/completions", json=body), code, param)


def _message(**fields: Any) -> dict[str, Any]:
    return {**CHAT, "messages": [{"role": "user", "content": "x", **fields}]}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": "scripted-1"}, "missing_required_parameter", "messages"),
        ({**CHAT, "messages": []}, "invalid_value", "messages"),
        ({**CHAT, "messages": "x"}, "invalid_value", "messages"),
        ({**CHAT, "messages": ["x"]}, "invalid_value", "messages[0]"),
        ({**CHAT, "messages": [{"role": "user"}]}, "invalid_value", "messages[0]"),
        (_message(role="tool"), "invalid_value", "messages[0].role"),
        (_message(content=None), "invalid_value", "messages[0].content"),
        (_message(name="ann"), "unsupported_parameter", "messages[0].name"),
        (_message(tool_calls=[{}]), "unsupported_parameter", "messages[0].tool_calls"),
        (_message(colour=1), "unknown_parameter", "messages[0].colour"),
        (_message(role="assistant"), "invalid_value", "messages"),
        (_message(content=[{"type": "text"}]), "missing_required_parameter", "messages[0].content[0].text"),
        (_message(content=[{"type": "text", "text": "a", "x": 1}]), "unknown_parameter", "messages[0].content[0].x"),
        (
            _message(content=[{"type": "image_url", "image_url": {"url": "data:"}}]),
            "unsupported_parameter",
            "messages[0].content[0].type",
        ),
        ({**CHAT, "tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
        ({**CHAT, "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
        ({**CHAT, "logprobs": 1}, "invalid_value", "logprobs"),
        ({**CHAT, "top_logprobs": 1}, "invalid_value", "top_logprobs"),
        ({**CHAT, "logprobs": False, "top_logprobs": 1}, "invalid_value", "top_logprobs"),
        ({**CHAT, "logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({**CHAT, "echo": True}, "unknown_parameter", "echo"),
        ({**CHAT, "best_of": 1}, "unknown_parameter", "best_of"),
        ({**CHAT, "response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({**CHAT, "max_tokens": 4, "max_completion_tokens": 5}, "invalid_value", "max_tokens"),
        ({**CHAT, "prompt": "x"}, "unknown_parameter", "prompt"),
    ],
)
def test_a_chat_that_cannot_be_served(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], code: str, param: str
) -> None:
    refused(fleet, ann.post("/v1/chat/completions", json=body), code, param)


def test_another_model_is_not_found(ann: httpx.Client, fleet: Running) -> None:
    refused(fleet, post(ann, {**TEXT, "model": "gpt-9"})[0], "model_not_found", "model", 404)
    refused(fleet, post(ann, {"prompt": "x"})[0], "missing_required_parameter", "model")
    refused(fleet, post(ann, {**TEXT, "model": 5})[0], "invalid_value", "model")
    assert ann.get("/v1/models/gpt-9").status_code == 404


def test_a_fleet_that_is_not_ready_says_why(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.why_not = ("prefill-0: pool of 1024 tokens is too small", "and more")
    answer, error = post(ann, TEXT)
    refused(fleet, answer, "not_ready", None, 503)
    assert answer.headers["retry-after"].isdecimal()
    assert "pool of 1024" in error["message"]
    ready = anybody.get(f"{fleet.url}/readyz")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "reasons": list(fleet.gateway.why_not)})
    assert anybody.get(f"{fleet.url}/livez").status_code == 200
    assert anybody.get(f"{fleet.url}/server_info").status_code == 200
    assert ann.get("/v1/models").status_code == 200


def test_neutral_values_ask_for_nothing(ann: httpx.Client, fleet: Running) -> None:
    neutral = {
        "n": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "user": "u",
        "top_k": -1,
        "metadata": {"a": "b"},
    }
    neutral |= dict.fromkeys(["stop", "seed", "logit_bias", "stream", "stream_options", "max_tokens", "top_p"])
    assert post(ann, {**TEXT, **neutral, "best_of": 1, "echo": False, "suffix": None, "logprobs": None})[0].is_success
    chat = {
        "tools": None,
        "tool_choice": "auto",
        "logprobs": False,
        "top_logprobs": 0,
        "response_format": {"type": "text"},
        "store": None,
    }
    copied: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "tool_calls": None,
        "annotations": [],
    }
    answer, error = post(ann, {**CHAT, **neutral, **chat, "messages": [*CHAT["messages"], copied]})
    assert answer.is_success, error

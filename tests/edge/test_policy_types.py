"""Types of fields, what admission is told of them, and parts that are not text."""

from __future__ import annotations

from typing import Any

import pytest

from pagefence.edge.call import Operation
from pagefence.edge.policy import Clean, clean
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.mistakes import Usage
from tests.edge.test_policy import CHAT, STRIP, chat, refused, taken

# --- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "body", "param"),
    [
        (Operation.CHAT, {}, "messages"),
        (Operation.CHAT, {"messages": "hi"}, "messages"),
        (Operation.CHAT, {"messages": []}, "messages"),
        (Operation.CHAT, {"messages": ["hi"]}, "messages[0]"),
        (Operation.CHAT, {"messages": [{"content": "hi"}]}, "messages[0].role"),
        (Operation.CHAT, {"messages": [{"role": "user", "content": {"text": "hi"}}]}, "messages[0].content"),
        (Operation.CHAT, {**CHAT, "model": 7}, "model"),
        (Operation.CHAT, {**CHAT, "model": "m" * 300}, "model"),
        (Operation.CHAT, {**CHAT, "stream": "true"}, "stream"),
        (Operation.CHAT, {**CHAT, "stream": 1}, "stream"),
        (Operation.CHAT, {**CHAT, "n": 0}, "n"),
        (Operation.CHAT, {**CHAT, "n": 129}, "n"),
        (Operation.CHAT, {**CHAT, "n": True}, "n"),
        (Operation.CHAT, {**CHAT, "max_tokens": -1}, "max_tokens"),
        (Operation.CHAT, {**CHAT, "max_tokens": 1.5}, "max_tokens"),
        (Operation.CHAT, {**CHAT, "max_tokens": "10"}, "max_tokens"),
        (Operation.CHAT, {**CHAT, "max_tokens": 2**31}, "max_tokens"),
        (Operation.CHAT, {**CHAT, "max_completion_tokens": 0}, "max_completion_tokens"),
        (Operation.CHAT, {**CHAT, "max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        (Operation.CHAT, {**CHAT, "logit_bias": {"1 ": 1}}, "logit_bias"),
        (Operation.CHAT, {**CHAT, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        (Operation.CHAT, {**CHAT, "chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
        (Operation.CHAT, {**CHAT, "chat_template_kwargs": {"file_id": "x"}}, "chat_template_kwargs.file_id"),
        (Operation.CHAT, {**CHAT, "chat_template_kwargs": {"a": "x" * 65}}, "chat_template_kwargs[...]"),
        (Operation.COMPLETION, {}, "prompt"),
        (Operation.COMPLETION, {"prompt": ""}, "prompt"),
        (Operation.COMPLETION, {"prompt": []}, "prompt"),
        (Operation.COMPLETION, {"prompt": ["a", ""]}, "prompt"),
        (Operation.COMPLETION, {"prompt": ["a", 1]}, "prompt"),
        (Operation.COMPLETION, {"prompt": [1, [2]]}, "prompt"),
        (Operation.COMPLETION, {"prompt": [-1]}, "prompt[0]"),
        (Operation.COMPLETION, {"prompt": [2**31]}, "prompt[0]"),
        (Operation.COMPLETION, {"prompt": [True]}, "prompt[0]"),
        (Operation.COMPLETION, {"prompt": "a", "best_of": 1000}, "best_of"),
        (Operation.RESPONSE, {"input": [{"type": "item_reference", "id": "r"}]}, "input[0].type"),
        (Operation.RESPONSE, {"input": "hi", "max_output_tokens": 0}, "max_output_tokens"),
        (Operation.RESPONSE, {"input": "hi", "tools": [{"type": "mcp", "name": "x"}]}, "tools[0].type"),
        (Operation.EMBEDDING, {"input": None}, "input"),
        (Operation.EMBEDDING, {"input": {"a": 1}}, "input"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_where_it_stands(
    operation: Operation, body: dict[str, Any], param: str
) -> None:
    refusal = refused(clean(operation, body, Policy()))
    assert (refusal.status, refusal.param) == (400, param)


def test_switches_of_a_template_pass_without_the_arguments_of_the_engine() -> None:
    switches = {"enable_thinking": False, "effort": "low"}
    outcome = taken(chat(STRIP, chat_template_kwargs={**switches, "tokenize": False, "rid": "x", "priority": 1}))
    assert outcome.body["chat_template_kwargs"] == switches
    assert outcome.taken_out


def test_a_message_about_a_type_quotes_no_value() -> None:
    for fields in ({"tools": [{"type": "secret words"}]}, {"seed": "secret words"}, {"stop": {"secret words": 1}}):
        assert "secret" not in refused(chat(**fields)).message


@pytest.mark.parametrize(
    ("operation", "body", "asked"),
    [
        (Operation.CHAT, {**CHAT, "max_tokens": 5, "n": 3, "stream": True, "model": "m"}, ("m", True, 5, 3, 1)),
        (Operation.CHAT, {**CHAT, "max_completion_tokens": 6}, (None, False, 6, 1, 1)),
        (Operation.COMPLETION, {"prompt": ["a", "b"], "n": 2, "best_of": 4}, (None, False, None, 4, 2)),
        (Operation.COMPLETION, {"prompt": [1, 2, 3]}, (None, False, None, 1, 1)),
        (Operation.COMPLETION, {"prompt": [[1], [2]]}, (None, False, None, 1, 2)),
        (Operation.RESPONSE, {"input": "a", "max_output_tokens": 9, "stream": True}, (None, True, 9, 1, 1)),
        (Operation.EMBEDDING, {"input": ["a", "b", "c"]}, (None, False, None, 1, 3)),
    ],
)
def test_what_admission_needs_is_told(operation: Operation, body: dict[str, Any], asked: tuple[Any, ...]) -> None:
    said = taken(clean(operation, body, Policy())).asked
    assert (said.model, said.stream, said.new_tokens, said.choices, said.prompts) == asked


# --- media --------------------------------------------------------------------------------------------------------


def picture(address: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}]}


DATA = "data:image/png;base64,iVBORw0KGgo="


def test_other_than_text_needs_the_operators_word() -> None:
    assert 'media = "data"' in refused(chat(**picture(DATA))).message
    assert isinstance(chat(Policy(media="data"), **picture(DATA)), Clean)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://images.example/x",
        "https://images.example.evil/x",
        "https://images.example@evil/x",
        "https://evil\\@images.example/x",
        "https://images.example:8443/x",
        "https://ｉmages.example/x",
        "//images.example/x",
        "file:///etc/passwd",
        "",
    ],
)
def test_an_engine_is_sent_nowhere_but_to_hosts_that_the_operator_names(address: str) -> None:
    policy = Policy(media="data", media_hosts=frozenset({"images.example"}))
    assert isinstance(chat(policy, **picture("https://images.example/x.png")), Clean)
    assert refused(chat(policy, **picture(address))).code == "unsupported_content"


def test_not_even_any_address_is_a_file_of_the_servers() -> None:
    assert isinstance(chat(Policy(media="any"), **picture("http://anywhere:80/x")), Clean)
    assert isinstance(chat(Policy(media="any"), **picture("file:///etc/passwd")), Refusal)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "t", "image_url": "http://x"},
        {"type": "text", "text": "t", "file_url": "http://x"},
        {"type": "image_url", "text": "t"},
        {"type": "image_embeds", "text": "t"},
        {"text": "t"},
    ],
)
def test_a_part_is_what_it_says_it_is(part: dict[str, Any]) -> None:
    for field in ("content", "output"):
        items = [{"type": "function_call_output", "call_id": "c", field: [part]}]
        assert isinstance(clean(Operation.RESPONSE, {"input": items}, Policy(media="any")), Refusal)
    assert isinstance(chat(Policy(media="any"), messages=[{"role": "user", "content": [part]}]), Refusal)


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [{"forbidden": "pass"}, {"unknown": "ask"}, {"media": "all"}])
def test_a_setting_is_one_of_its_values(setting: dict[str, Any]) -> None:
    with pytest.raises(Usage, match="is one of"):
        Policy(**setting)


def test_hosts_without_media_mean_nothing() -> None:
    with pytest.raises(Usage, match="media_hosts"):
        Policy(media_hosts=frozenset({"a"}))

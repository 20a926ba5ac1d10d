"""What a client must never set, what needs the operator's word, and what is the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from pagefence.edge.call import Operation
from pagefence.edge.fields import GUARDED_NAMES, NEVER_NAMES
from pagefence.edge.policy import Clean, clean
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.mistakes import Usage
from tests.edge.hostile import LOOKALIKES

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
STRIP = Policy(forbidden="strip", unknown="strip")


def chat(policy: Policy = Policy(), **fields: Any) -> Clean | Refusal:  # noqa: B008 - frozen
    return clean(Operation.CHAT, {**CHAT, **fields}, policy)


def taken(outcome: Clean | Refusal) -> Clean:
    assert isinstance(outcome, Clean), outcome
    return outcome


def refused(outcome: Clean | Refusal) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


# --- never --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(NEVER_NAMES))
def test_no_setting_lets_such_a_field_through(name: str) -> None:
    for policy in (Policy(), Policy(unknown="pass"), Policy(unknown="strip")):
        refusal = refused(chat(policy, **{name: 1}))
        assert (refusal.code, refusal.param) == ("forbidden_parameter", name)
    assert taken(chat(STRIP, **{name: 1})).body == CHAT
    with pytest.raises(Usage, match=name):
        Policy(allow=frozenset({name}))


SPELLINGS = [
    "KV_TRANSFER_PARAMS",
    "kv-transfer-params",
    "kvTransferParams",
    "Kv.Transfer.Params",
    "kv_transfer_params ",
    "\tkv_transfer_params",
    "kv_transfer_params\u0000",
    "kv\u200b_transfer_params",
    "\ufeffkv_transfer_params",
    "ｋｖ＿ｔｒａｎｓｆｅｒ＿ｐａｒａｍｓ",
    "kv_transfer_p" + LOOKALIKES["a"] + "rams",
    "kv_tränsfer_params",
    "lmcache.tag.user",
    "LMCache.skip_save",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_hides_nothing(name: str) -> None:
    for policy in (Policy(), Policy(unknown="pass")):
        assert refused(chat(policy, **{name: 1})).code == "forbidden_parameter"
    assert taken(chat(Policy(forbidden="strip", unknown="pass"), **{name: 1})).body == CHAT


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"messages": [{"role": "user", "content": "hi", "cache_salt": "x"}]}, "messages[0].cache_salt"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "", "uuid": "x"}]}]},
            "[0].content[0].uuid",
        ),
        ({**CHAT, "stream_options": {"include_usage": True, "rid": "x"}}, "stream_options.rid"),
        ({**CHAT, "response_format": {"type": "json_schema", "json_schema": {"rid": 1}}}, "json_schema.rid"),
        ({**CHAT, "tools": [{"type": "function", "function": {"name": "f"}, "server_url": "http://in"}]}, "server_url"),
    ],
)
def test_depth_hides_nothing(body: dict[str, Any], where: str) -> None:
    refusal = refused(clean(Operation.CHAT, body, Policy(unknown="pass")))
    assert refusal.code == "forbidden_parameter"
    assert (refusal.param or "").endswith(where)
    assert where.rpartition(".")[2] not in repr(taken(clean(Operation.CHAT, body, STRIP)).body)


def test_a_bag_that_passes_is_searched_to_its_end() -> None:
    policy = Policy(unknown="pass", allow=frozenset({"nvext"}))
    assert taken(chat(policy, nvext={"greed_sampling": True})).body["nvext"] == {"greed_sampling": True}
    inside = {"a": [[{"b": {"Backend-Instance-Id": 7}}]]}
    assert refused(chat(policy, nvext=inside)).param == "nvext.a[0][0].b.Backend-Instance-Id"
    lenient = Policy(forbidden="strip", allow=frozenset({"nvext"}))
    assert taken(chat(lenient, nvext=inside)).body["nvext"] == {"a": [[{"b": {}}]]}
    assert refused(chat(policy, nvext={"agent_hints": {"priority": 9}})).param == "nvext.agent_hints"


# --- the operator's word ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GUARDED_NAMES))
def test_a_guarded_field_needs_the_operators_word(name: str) -> None:
    assert f'allow_fields = ["{name}"]' in refused(chat(Policy(unknown="pass"), **{name: 7})).message
    assert taken(chat(Policy(allow=frozenset({name})), **{name: 7})).body[name] == 7
    assert taken(chat(Policy(), **{name: None})).body == CHAT


@pytest.mark.parametrize(
    "harmless", [{"store": False}, {"priority": 0}, {"service_tier": "auto"}, {"return_hidden_states": False}]
)
def test_a_guarded_field_that_asks_for_nothing_is_left_out(harmless: dict[str, Any]) -> None:
    outcome = taken(chat(**harmless))
    assert outcome.body == CHAT
    assert outcome.taken_out


def test_true_is_not_one_and_false_is_not_nothing() -> None:
    assert isinstance(chat(priority=False), Refusal)
    assert isinstance(chat(store=0), Refusal)


# --- unknown ------------------------------------------------------------------------------------------------------


def test_an_unknown_field_is_refused_by_name_with_the_setting_that_would_allow_it() -> None:
    refusal = refused(chat(frobnicate=1))
    assert (refusal.status, refusal.code, refusal.param) == (400, "unknown_parameter", "frobnicate")
    assert 'allow_fields = ["frobnicate"]' in refusal.message
    assert "unknown_fields" in refusal.message


def test_unknown_fields_are_taken_out_or_passed_by_setting() -> None:
    fields: dict[str, Any] = {"frobnicate": {"a": 1}, "messages": [{"role": "user", "content": "hi", "mood": "good"}]}
    assert taken(chat(Policy(unknown="strip"), **fields)).body == CHAT
    assert taken(chat(Policy(unknown="pass"), **fields)).body == fields
    assert taken(chat(Policy(allow=frozenset({"frobnicate", "mood"})), **fields)).body == fields


def test_unknown_fields_that_are_null_ask_for_nothing() -> None:
    assert taken(chat(frobnicate=None)).body == CHAT


@pytest.mark.parametrize("name", ["Messages", "MAX_TOKENS", "maxTokens", "max-tokens", "top_p "])
def test_a_field_spelled_almost_as_a_known_one_never_passes(name: str) -> None:
    for policy in (Policy(), Policy(unknown="pass")):
        assert "could be read as" in refused(chat(policy, **{name: 1})).message


def test_a_refusal_says_no_more_of_a_name_than_fits_a_line() -> None:
    assert len(refused(chat(Policy(), **{"x" * 10_000: 1})).message) < 500


# --- the user's own -----------------------------------------------------------------------------------------------

SCHEMA = {"properties": {name: {"type": "string"} for name in (*NEVER_NAMES, *SPELLINGS, "tokenize")}, "rid": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
        {"functions": [{"name": "f", "parameters": SCHEMA}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"metadata": {"rid": "mine", "cache_salt": "mine", "шаг": "1"}},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": SCHEMA}}]}]},
    ],
)
def test_what_is_the_users_own_passes_whatever_names_it_holds(fields: dict[str, Any]) -> None:
    for policy in (Policy(), STRIP, Policy(unknown="pass")):
        outcome = taken(chat(policy, **fields))
        assert outcome.body == {**CHAT, **fields}
        assert not outcome.taken_out

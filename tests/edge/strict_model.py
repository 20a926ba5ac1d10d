"""What may reach upstream, written down a second time and by hand: not one line is taken from the product's tables."""

from __future__ import annotations

import json
from typing import Any

from pagefence.edge.call import Operation

USER = "the user's own"
Tree = dict[str, Any]


def plain(names: str) -> Tree:
    """Fields that hold no object."""
    return dict.fromkeys(names.split())


_TEXT_PART: Tree = plain("type text refusal annotations logprobs")
_MEDIA: Tree = plain("file_data file_url filename detail") | {
    "image_url": plain("url detail"),
    "video_url": plain("url detail"),
    "audio_url": plain("url detail"),
    "input_audio": plain("data format"),
    "file": plain("file_data filename"),
}
_PART = _TEXT_PART | _MEDIA
_FUNCTION: Tree = {"name": None, "description": None, "strict": None, "parameters": USER}
_CUSTOM: Tree = {"name": None, "description": None, "format": USER}
_CALL: Tree = {"name": None, "arguments": USER}
_NAMED: Tree = {"name": None}
_CHOICE: Tree = {"type": None, "function": _NAMED, "custom": _NAMED, "name": None}
_MESSAGE: Tree = plain("role name tool_call_id refusal reasoning reasoning_content annotations audio") | {
    "content": _PART,
    "function_call": _CALL,
    "tool_calls": {
        "id": None,
        "type": None,
        "index": None,
        "function": _CALL,
        "custom": {"name": None, "input": None},
    },
}
_ITEM: Tree = plain("type role id status call_id name arguments input encrypted_content") | {
    "content": _PART,
    "output": _PART,
    "summary": _PART,
}
_SAMPLED: Tree = plain(
    "model user safety_identifier stream temperature top_p top_k min_p seed stop stop_token_ids presence_penalty"
    " frequency_penalty repetition_penalty top_logprobs prompt_cache_key ignore_eos include_stop_str_in_output"
    " skip_special_tokens"
) | {
    "metadata": USER,
    "logit_bias": USER,
    "stream_options": plain("include_usage include_obfuscation continuous_usage_stats"),
}
_GENERATED: Tree = (
    _SAMPLED
    | plain(
        "max_tokens max_completion_tokens n min_tokens length_penalty bad_words allowed_token_ids"
        " spaces_between_special_tokens no_stop_trim add_special_tokens echo return_token_ids"
        " return_tokens_as_token_ids regex ebnf thinking_token_budget"
    )
    | {
        "response_format": {
            "type": None,
            "json_schema": {"name": None, "description": None, "strict": None, "schema": USER},
            "schema": USER,
            "regex": None,
            "ebnf": None,
        },
        "structured_outputs": {"json": USER} | plain("json_object regex choice grammar whitespace_pattern"),
    }
)
_SWITCHES = "switches of a template"
ALLOWED: dict[Operation, Tree] = {
    Operation.CHAT: _GENERATED
    | plain(
        "logprobs parallel_tool_calls reasoning_effort verbosity add_generation_prompt continue_final_message"
        " include_reasoning separate_reasoning stream_reasoning"
    )
    | {
        "messages": _MESSAGE,
        "tools": {"type": None, "function": _FUNCTION, "custom": _CUSTOM},
        "functions": _FUNCTION,
        "tool_choice": _CHOICE,
        "function_call": _NAMED,
        "chat_template_kwargs": _SWITCHES,
    },
    Operation.COMPLETION: _GENERATED | plain("prompt suffix logprobs best_of"),
    Operation.RESPONSE: _SAMPLED
    | plain("instructions max_output_tokens max_tool_calls include parallel_tool_calls store")
    | {
        "input": _ITEM,
        "reasoning": plain("effort summary generate_summary"),
        "text": {
            "verbosity": None,
            "format": {"type": None, "name": None, "description": None, "strict": None, "schema": USER},
        },
        "tools": _FUNCTION | {"type": None, "format": USER},
        "tool_choice": _CHOICE,
        "chat_template_kwargs": _SWITCHES,
    },
    Operation.EMBEDDING: plain("model user safety_identifier input encoding_format dimensions add_special_tokens")
    | {"metadata": USER},
}

# Enough of each family that a name slipping through in any spelling would show.
_HOSTILE = plain(
    "bootstraphost bootstrapport bootstraproom rid cachesalt extrakey kvtransferparams disaggregatedparams requestid"
    " dataparallelrank sessionid sessionparams previousresponseid inputids prompttokenids customlogitprocessor uuid"
    " chattemplate migrationrequest idslot routeddprank serverurl promptembeds fileid conversationid"
)


def violations(value: Any, allowed: Any, *, unknown_may_pass: bool, where: str = "") -> list[str]:
    """Every name in `value` that may not go upstream."""
    if allowed is USER:
        return []
    if isinstance(value, list):
        inner = ((item, f"{where}[]") for item in value)
        return [v for item, at in inner for v in violations(item, allowed, unknown_may_pass=unknown_may_pass, where=at)]
    if not isinstance(value, dict):
        return []
    if allowed is _SWITCHES:
        return [
            f"{where}.{name}" for name, item in value.items() if isinstance(item, dict | list) or hostile_name(name)
        ]
    found: list[str] = []
    for name, item in value.items():
        at = f"{where}.{name}"
        if isinstance(allowed, dict) and name in allowed:
            found += violations(item, allowed[name], unknown_may_pass=unknown_may_pass, where=at)
        elif not unknown_may_pass or hostile_name(name):
            found.append(at)
        else:
            found += violations(item, {}, unknown_may_pass=True, where=at)
    return found


def hostile_name(name: str) -> bool:
    plain = "".join(char for char in name.casefold() if "a" <= char <= "z" or "0" <= char <= "9")
    return not name.isascii() or plain in _HOSTILE or plain.startswith("lmcache")


def within(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole`, or that with fields left out: nothing was added and nothing changed."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and within(item, whole[name]) for name, item in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(within, part, whole))
    return type(part) is type(whole) and part == whole


def only_once(raw: bytes) -> Any:
    """The value, by a reader that raises ValueError where a name comes twice."""

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name comes twice")
        return dict(pairs)

    return json.loads(raw.decode("utf-8"), object_pairs_hook=whole)

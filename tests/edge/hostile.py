"""Bodies that no honest client sends: made from honest ones, with names, spellings, types and bytes gone wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from pagefence.edge.call import Operation
from pagefence.edge.fields import GUARDED_NAMES, NEVER_NAMES

Pairs = list[tuple[str, Any]]
"""An object, so that a name can come twice."""

FORBIDDEN = [*sorted(NEVER_NAMES), "lmcache.tag.user", "lmcache.skip_save"]
NEEDS_A_WORD = sorted(GUARDED_NAMES)
UNKNOWN = ["frobnicate", "x_trace", "logit", "messages2", "", " ", "\u0000", "__proto__", "constructor"]
LOOKALIKES = {"a": "а", "c": "с", "e": "е", "i": "і", "o": "о", "p": "р", "s": "ѕ", "x": "х", "y": "у"}
TEXTS = ["", "hi", "a:b", '{"rid": 1}', "\u0000", "🙂 é 中", "x" * 200, '"}', "bootstrap_room", "../../etc/passwd"]
NUMBERS: list[Any] = [0, 1, -1, 2**31, 2**63, 2**64, 10**40, 0.5, 1e308, -0.0, 5e-324]
RAW_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "1.", ".5", "+1", "0x10", "9" * 5000, "1e-999"]


def honest(random: Random, operation: Operation) -> dict[str, Any]:
    """A request that any client could send, and that must pass."""
    body: dict[str, Any] = {"model": "m"}
    if operation is Operation.CHAT:
        body["messages"] = [_message(random) for _ in range(random.randint(1, 3))]
        optional: list[tuple[str, Any]] = [
            ("tools", [{"type": "function", "function": {"name": "f", "parameters": schema(random)}}]),
            ("tool_choice", "auto"),
            ("logprobs", True),
            ("response_format", {"type": "json_schema", "json_schema": {"name": "s", "schema": schema(random)}}),
            ("chat_template_kwargs", {"enable_thinking": False}),
        ]
    elif operation is Operation.COMPLETION:
        body["prompt"] = random.choice(["hi", ["a", "b"], [1, 2, 3], [[1], [2, 3]]])
        optional = [("echo", False), ("best_of", 2), ("suffix", "end"), ("logprobs", 3)]
    elif operation is Operation.RESPONSE:
        body["input"] = random.choice(
            ["hi", [{"role": "user", "content": "hi"}, {"type": "function_call", "name": "f", "arguments": "{}"}]]
        )
        optional = [
            ("instructions", "be brief"),
            ("max_output_tokens", 5),
            ("tools", [{"type": "function", "name": "f", "parameters": schema(random)}]),
            ("text", {"format": {"type": "json_schema", "name": "s", "schema": schema(random)}}),
        ]
    else:
        body["input"] = random.choice(["hi", ["a", "b"], [1, 2, 3]])
        return body | dict(random.sample([("dimensions", 8), ("encoding_format", "float"), ("user", "u")], 2))
    optional += [
        ("stream", True),
        ("temperature", 0),
        ("top_p", 0.5),
        ("seed", -3),
        ("stop", ["a", "b"]),
        ("user", "u"),
    ]
    optional += [("logit_bias", {"5": -100}), ("metadata", {"rid": "mine", "cache_salt": "mine"})]
    if operation is not Operation.RESPONSE:
        optional += [("max_tokens", 5), ("n", 2), ("stream_options", {"include_usage": True})]
    return body | dict(random.sample(optional, random.randint(0, 4)))


def schema(random: Random) -> dict[str, Any]:
    """A user's own data: names in it mean nothing to an engine, and must arrive as they are."""
    name = random.choice([*FORBIDDEN, "city", "Дом", "tokenize"])
    return {"type": "object", "properties": {name: {"type": "string", "enum": ["a", 1, None]}}, "required": [name]}


def hostile(random: Random, operation: Operation) -> bytes:
    """An honest request, damaged up to three times, and written down in some way."""
    tree = _pairs(honest(random, operation))
    for _ in range(random.randint(0, 3)):
        random.choice(_DAMAGES)(random, tree)
    raw = _write(random, tree).encode("utf-8", "surrogatepass")
    return random.choice(_BYTES)(random, raw) if random.random() < 0.15 else raw


def spelled(random: Random, name: str) -> str:
    """One of the ways in which a name is written to be missed by one reader and not by another."""
    ways: list[Callable[[str], str]] = [
        str,
        str.upper,
        str.title,
        lambda n: n.replace("_", "-"),
        lambda n: n.replace("_", ""),
        lambda n: n + " ",
        lambda n: "\ufeff" + n,
        lambda n: n.replace("_", "\u200b_"),
        lambda n: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in n),
        lambda n: "".join(LOOKALIKES.get(c, c) for c in n),
        lambda n: n + "\u0000",
        lambda n: "".join(part.title() for part in n.split("_")),
    ]
    return random.choice(ways)(name)


# --- damages ------------------------------------------------------------------------------------------------------


def _foreign_name(random: Random, tree: Pairs) -> None:
    name = random.choice(random.choice([FORBIDDEN, FORBIDDEN, NEEDS_A_WORD, UNKNOWN]))
    _somewhere(random, tree).append((spelled(random, name), _value(random)))


def _bag(random: Random, tree: Pairs) -> None:
    """A forbidden name inside of something that nobody knows."""
    inner: Any = [(spelled(random, random.choice(FORBIDDEN)), _value(random))]
    for _ in range(random.randint(0, 3)):
        inner = [inner] if random.random() < 0.3 else [(random.choice(["nvext", "extra", "deep"]), inner)]
    _somewhere(random, tree).append((random.choice(["extra", "nvext", "frobnicate", "vllm_xargs"]), inner))


def _twice(random: Random, tree: Pairs) -> None:
    place = _somewhere(random, tree)
    if place:
        name, value = random.choice(place)
        place.insert(random.randint(0, len(place)), (name, random.choice([value, _value(random)])))


def _other_type(random: Random, tree: Pairs) -> None:
    place = _somewhere(random, tree)
    if place:
        index = random.randrange(len(place))
        place[index] = (place[index][0], _value(random))


def _misspelt(random: Random, tree: Pairs) -> None:
    if tree:
        index = random.randrange(len(tree))
        tree[index] = (spelled(random, tree[index][0]), tree[index][1])


def _part(random: Random, tree: Pairs) -> None:
    address = random.choice(
        ["http://169.254.169.254/", "file:///etc/passwd", "data:image/png;base64,AA", "https://h/x"]
    )
    part = random.choice(
        [
            [("type", "image_url"), ("image_url", [("url", address)])],
            [("type", "text"), ("text", "t"), ("image_url", [("url", address)])],
            [("type", "text"), ("text", "t"), ("uuid", "another's")],
            [("type", "input_image"), ("image_url", address)],
            [("type", "image_embeds"), ("image_embeds", "AA")],
        ]
    )
    tree.append(("messages", [[("role", "user"), ("content", [part])]]))


_DAMAGES: list[Callable[[Random, Pairs], None]] = [
    _foreign_name, _foreign_name, _foreign_name, _bag, _twice, _other_type, _misspelt, _part,
]  # fmt: skip

_BYTES: list[Callable[[Random, bytes], bytes]] = [
    lambda r, raw: b"\xef\xbb\xbf" + raw,
    lambda r, raw: raw.decode("utf-8", "replace").encode("utf-16"),
    lambda r, raw: raw[: r.randint(0, len(raw))],
    lambda r, raw: raw + r.choice([b" ", b"\x00", b"{}", b"//", raw]),
    lambda r, raw: raw[: (i := r.randint(0, len(raw)))] + bytes([r.randint(0, 255)]) + raw[i + 1 :],
    lambda r, raw: b"[" + raw + b"]",
]


# --- trees and texts ----------------------------------------------------------------------------------------------


def _message(random: Random) -> dict[str, Any]:
    return random.choice(
        [
            {"role": "user", "content": random.choice(TEXTS)},
            {"role": "system", "content": [{"type": "text", "text": random.choice(TEXTS)}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"rid": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "42"},
        ]
    )


def _value(random: Random) -> Any:
    """Any value; one time in ten one that no JSON may hold, or that is too deep."""
    if random.random() < 0.1:
        return random.choice([_Raw(random.choice(RAW_NUMBERS)), _nest(random.choice([3, 70, 3000])), "\ud800"])
    return random.choice(
        [
            random.choice(TEXTS),
            random.choice(NUMBERS),
            random.choice([None, True, False]),
            [random.choice(NUMBERS), random.choice(TEXTS)],
            [(random.choice(FORBIDDEN), 1)],
        ]
    )


class _Raw(str):
    """Written as it is, without quotes."""


def _nest(depth: int) -> _Raw:
    return _Raw("[" * depth + "]" * depth)


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _pairs(item)) for name, item in value.items()]
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _is_object(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, tuple) for item in value)


def _somewhere(random: Random, tree: Pairs) -> Pairs:
    """The request itself, or an object in it."""
    place = tree
    while random.random() < 0.5:
        inner = [item for _, value in place for item in (value if isinstance(value, list) else ()) if _is_object(item)]
        inner += [value for _, value in place if _is_object(value)]
        if not inner:
            break
        place = random.choice(inner)
    return place


def _write(random: Random, value: Any) -> str:
    blank = random.choice(["", "", " ", "\n\t"])
    if isinstance(value, _Raw):
        return str(value)
    if _is_object(value):
        return "{" + ",".join(f"{_string(random, n)}{blank}:{blank}{_write(random, v)}" for n, v in value) + blank + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(random, item) for item in value) + "]"
    return _string(random, value) if isinstance(value, str) else json.dumps(value)


def _string(random: Random, text: str) -> str:
    """As it is, escaped where it must be, or escaped all through: `\\u0072id` is `rid`."""
    way = random.random()
    if way < 0.1:
        return '"' + "".join(f"\\u{unit:04x}" for unit in _units(text)) + '"'
    return json.dumps(text, ensure_ascii=way < 0.6)


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]

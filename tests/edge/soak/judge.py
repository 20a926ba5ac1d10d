"""What a reply may be, whatever upstream did. Pure."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.edge.soak.asker import Reply
from tests.edge.soak.words import NONCE, STRAY, Wish

Kind = Literal["whole", "broken", "half", "refused", "left", "cut", "gone", "raced", "wrong", "hang"]
"""broken: cut off, and seen to be. half: framed well, and without the event that ends a stream, so it looks like half.
left: the client did. cut: the edge gave a client up that did not read. gone: a kept connection was closed meanwhile.
raced: an answer that nobody asked for, sent a moment before this was asked: nothing in HTTP/1.1 tells them apart."""

RACE_S = 0.25
"""What is planted on an idle connection earlier than this before the client asked has to be noticed."""

REFUSALS: dict[int, frozenset[str]] = {
    400: frozenset({"context_length_exceeded", "forbidden_parameter", "invalid_json"}),
    401: frozenset({"invalid_api_key"}),
    408: frozenset({"request_timeout"}),
    429: frozenset({"too_many_requests"}),
    500: frozenset({"upstream_error"}),
    502: frozenset(f"upstream_{what}" for what in ("died", "malformed", "redirects", "encoded", "unfit")),
    503: frozenset({"overloaded", "upstream_unreachable", "capacity_unknown"}),
    504: frozenset({"upstream_timeout"}),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """How one request ended. `manner`: of its client. `status`: of the reply, 0 where there was none."""

    manner: str
    kind: Kind
    why: str = ""
    status: int = 0
    tenant: str = ""
    salt: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A request: what it asked for, how, by whom, when (CLOCK_MONOTONIC, ns). `status`: the only one that is right."""

    wish: Wish
    kind: str
    stream: bool
    manner: str
    tenant: str
    status: int | None = None
    code: str | None = None
    asked_ns: int = field(default_factory=time.monotonic_ns)


def judge(expected: Expected, reply: Reply) -> Seen:
    """Anything but what could come of an honest edge before a dishonest upstream is `wrong`."""
    everything = (reply.raw_head + reply.body).decode("utf-8", "replace")

    def seen(kind: Kind, why: str = "", salt: str = "") -> Seen:
        name = reply.headers.get("x-request-id", "")
        return Seen(expected.manner, kind, why, reply.status, expected.tenant, salt, name)

    foreign = set(NONCE.findall(everything)) - {expected.wish.nonce}
    if foreign:
        return seen("wrong", f"words of another: asked {expected.wish.nonce}, got {sorted(foreign)}")
    stray = STRAY.search(everything)
    if stray is not None:
        early_s = (expected.asked_ns - int(stray[1])) / 1e9
        return seen("wrong" if early_s > RACE_S else "raced", f"an answer of nobody, {early_s:+.3f} s before")
    if reply.status == 0:
        return seen("wrong", "half a head")
    if not reply.headers.get("x-request-id", "").startswith("edge-"):
        return seen("wrong", "no request id of the edge")
    if expected.status not in (None, reply.status):
        return seen("wrong", f"{reply.status} instead of {expected.status}: {reply.body[:200]!r}")
    if reply.status != 200:
        why = _refusal(expected, reply)
        return seen("wrong", why) if why else seen("refused", _code(reply))
    return seen(*_answer(expected, reply))


def _code(reply: Reply) -> str:
    return str(json.loads(reply.body)["error"]["code"])


def _refusal(expected: Expected, reply: Reply) -> str:
    """What is wrong with a refusal."""
    if not reply.whole and not reply.until_close:
        return "half a refusal"
    try:
        error = json.loads(reply.body)["error"]
        code, words, kind = error["code"], error["message"], error["type"]
    except (ValueError, KeyError, TypeError):
        return f"no error of OpenAI's shape: {reply.status} {reply.body[:200]!r}"
    if "param" not in error or not isinstance(words, str) or not isinstance(kind, str):
        return f"no error of OpenAI's shape: {error}"
    if code not in REFUSALS.get(reply.status, ()):
        return f"{reply.status} with {code}"
    return f"{code} instead of {expected.code}" if expected.code not in (None, code) else ""


def _answer(expected: Expected, reply: Reply) -> tuple[Kind, str, str]:
    framed = reply.whole or reply.until_close
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        if not framed:
            return "wrong", "half an answer that is no stream", ""
        try:
            text, salt = _text(expected.kind, json.loads(reply.body))
        except (ValueError, KeyError, IndexError, TypeError):
            return "wrong", f"a 200 that is no answer: {reply.body[:200]!r}", ""
        return ("whole", "", salt) if text == expected.wish.answer else ("wrong", "a whole answer lacks words", "")
    told = _told(expected.kind, reply.body)
    # `a stream without end` says its first event again and again.
    if not expected.wish.answer.startswith(told.text) and told.text.replace(expected.wish.part(0), ""):
        return "wrong", "words that are not in their order", ""
    if told.error:
        return ("wrong", "an error, and then a good end", "") if reply.whole else ("broken", told.error, told.salt)
    if told.ended and told.text != expected.wish.answer:
        return "wrong", "a stream that ends well and lacks words", ""
    if not framed:
        return "cut", "without an event that says so", told.salt
    return ("whole" if told.ended and not told.torn else "half"), "", told.salt


def _text(kind: str, answer: dict[str, Any]) -> tuple[str, str]:
    """Its words, and the salt that upstream got."""
    if kind == "response":
        return answer["output"][0]["content"][0]["text"], answer["metadata"]["salt"]
    choice = answer["choices"][0]
    return (choice["message"]["content"] if kind == "chat" else choice["text"]), answer["system_fingerprint"]


@dataclass(slots=True)
class _Told:
    """What a stream said. `ended`: with the event that ends it. `torn`: some event was cut. `error`: its code."""

    text: str = ""
    salt: str = ""
    ended: bool = False
    torn: bool = False
    error: str = ""


def _told(kind: str, body: bytes) -> _Told:
    told = _Told()
    *events, rest = body.decode("utf-8", "replace").split("\n\n")
    told.torn = bool(rest)
    for event in events:
        data = event.rpartition("data: ")[2].strip()
        if data == "[DONE]":
            told.ended = True
        elif data:
            try:
                _hear(told, kind, json.loads(data))
            except (ValueError, KeyError, IndexError, TypeError):
                told.torn = True
    return told


def _hear(told: _Told, kind: str, event: dict[str, Any]) -> None:
    if event.get("error"):
        told.error = event["error"]["code"]
    elif kind == "response":
        told.text += event["delta"] if event["type"] == "response.output_text.delta" else ""
        if event["type"] == "response.completed":
            told.ended, told.salt = True, event["response"]["metadata"]["salt"]
    else:
        told.salt = event["system_fingerprint"]
        for choice in event["choices"]:
            told.text += (choice["delta"].get("content") or "") if kind == "chat" else choice["text"]

"""Clients of a real fleet: they read to the end, stop reading for a while, or leave; each knows the right answer."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.tokenizer import Tokenizer
from tests.alone import GREEDY, Ask, Expected, answer_alone
from tests.e2e.fleets import MODEL, Fleet
from tests.e2e.reference import text_of

Manner = Literal["whole", "stream", "stalls", "leaves before", "leaves within"]
Kind = Literal["same", "tie", "left", "error", "wrong", "hang"]

# A client that stalls lets the kernel hold little for it, so that what it does not read stays with the server.
_SMALL = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)]


@dataclass(frozen=True, slots=True)
class Right:
    """An ask, its answer alone, and that answer as text. `sure`: the text before the first tie."""

    ask: Ask
    expected: Expected
    text: str
    sure: str
    reason: str

    @classmethod
    def of(cls, model: Decoder, tokenizer: Tokenizer, ask: Ask) -> Right:
        """Computed alone, here."""
        expected = answer_alone(model, ask)
        ids, ties = expected.ids, expected.ties
        reason = "stop" if ids[-1] in model.config.eos_ids else "length"
        sure = tokenizer.decode(ids[: min(ties, default=len(ids))]).rstrip("\ufffd")
        return cls(ask, expected, tokenizer.decode(ids), sure, reason)

    def judge_text(self, text: str, whole: bool) -> Kind:
        """As `Expected.judge`, where only the text is known."""
        if text == self.text or (not whole and self.text.startswith(text)):
            return "same"
        return "tie" if self.expected.ties and text.startswith(self.sure) else "wrong"

    def body(self, **more: Any) -> dict[str, Any]:
        """The request."""
        sampling = self.ask.sampling
        drawn: dict[str, Any] = {"temperature": sampling.temperature}
        if sampling != GREEDY:
            drawn |= {"top_p": sampling.top_p, "seed": sampling.seed}
        prompt = list(self.ask.prompt)
        return {"model": MODEL, "prompt": prompt, "max_tokens": self.ask.new_tokens, **drawn, **more}


@dataclass(frozen=True, slots=True)
class Result:
    """How one request ended for its client. `why`: an error's code, or what was wrong."""

    manner: Manner
    kind: Kind
    why: str = ""
    tokens: int = 0
    cached: int = 0


def prose(tokenizer: Tokenizer, tokens: int, seed: int) -> list[int]:
    """Exactly so many tokens of text."""
    return tokenizer.encode(text_of(tokens, seed))[:tokens]


def ask_fleet(fleet: Fleet, key: str, right: Right, manner: Manner, rng: random.Random, limit_s: float) -> Result:
    """Ask once and judge what came; no request may take longer than `limit_s`."""
    patience = rng.uniform(0.0, 1.0) if manner == "leaves before" else limit_s
    # Without TLS: reading the certificates for it would cost more than all the rest.
    transport = httpx.HTTPTransport(verify=False, socket_options=_SMALL if manner == "stalls" else None)
    headers, timeout = {"Authorization": f"Bearer {key}"}, httpx.Timeout(limit_s, read=patience)
    try:
        with httpx.Client(base_url=fleet.router, headers=headers, timeout=timeout, transport=transport) as client:
            if manner == "whole":
                return _whole(client, right)
            return _stream(client, right, manner, rng, time.monotonic() + limit_s)
    except httpx.ReadTimeout:
        return Result(manner, "left" if manner == "leaves before" else "hang", f"no byte in {limit_s:.0f} s")
    except httpx.TransportError as error:
        return Result(manner, "wrong", f"the connection broke: {error!r}")


def _whole(client: httpx.Client, right: Right) -> Result:
    answer = client.post("/v1/completions", json=right.body(return_token_ids=True))
    if answer.status_code != 200:
        return _error("whole", answer.json())
    choice, usage = answer.json()["choices"][0], answer.json()["usage"]
    ids, cached = choice["token_ids"], usage["prompt_tokens_details"]["cached_tokens"]
    verdict = right.expected.judge(ids)
    if verdict == "same" and (choice["text"], choice["finish_reason"]) != (right.text, right.reason):
        verdict = "wrong"
    if usage["completion_tokens"] != len(ids) or usage["prompt_tokens"] != len(right.ask.prompt):
        verdict = "wrong"
    return Result("whole", verdict, f"{ids} for {right.expected}" if verdict == "wrong" else "", len(ids), cached)


def _stream(client: httpx.Client, right: Right, manner: Manner, rng: random.Random, deadline: float) -> Result:
    more = {"logprobs": 5} if manner == "stalls" else {}
    body = right.body(stream=True, stream_options={"include_usage": True}, **more)
    pause_at = rng.randint(1, max(1, right.ask.new_tokens // 2))
    text, reason = "", ""
    usage: dict[str, Any] = {}
    with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            return _error(manner, json.loads(response.read()))
        if manner == "leaves before":
            return Result(manner, "left")
        for number, event in enumerate(_events(response)):
            if time.monotonic() > deadline:
                return Result(manner, "hang", "a stream without an end")
            if "error" in event:
                return _broken_off(manner, right, text, event)
            for choice in event["choices"]:
                text += choice["text"]
                reason = choice["finish_reason"] or reason
            usage = event.get("usage") or usage
            if number == pause_at and manner == "leaves within":
                return Result(manner, *_part(right, text))
            if number == pause_at and manner == "stalls":
                time.sleep(rng.uniform(1.0, 5.0))
    if not usage:
        return Result(manner, "wrong", f"a stream ended without an outcome after {text!r}")
    verdict = right.judge_text(text, whole=True)
    if verdict == "same" and (reason, usage["completion_tokens"]) != (right.reason, len(right.expected.ids)):
        verdict = "wrong"
    why = f"{text!r}, {reason}, {usage} for {right.text!r}" if verdict == "wrong" else ""
    return Result(manner, verdict, why, usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _part(right: Right, text: str) -> tuple[Kind, str]:
    """Of a client that leaves, or whose worker died: what it got must be the beginning of its own answer."""
    if right.judge_text(text, whole=False) == "wrong":
        return "wrong", f"{text!r} is no beginning of {right.text!r}"
    return "left", ""


def _broken_off(manner: Manner, right: Right, text: str, body: dict[str, Any]) -> Result:
    kind, why = _part(right, text)
    return Result(manner, kind, why) if kind == "wrong" else _error(manner, body)


def _error(manner: Manner, body: dict[str, Any]) -> Result:
    """An error is clean when it says what it is, and nothing that a guard had to contain."""
    error = body["error"]
    return Result(manner, "wrong" if error["type"] == "isolation_error" else "error", error["code"])

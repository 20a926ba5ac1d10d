"""A small honest upstream as a process of its own: OpenAI's shapes, streams and whole, the request's words come back.

`python -m tests.edge.honest PORT`; with `--lies SHARE --seed N --log FILE` it is honest only most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pagefence.process import die_with_parent
from tests.edge.soak.lies import LIES, Wire
from tests.edge.soak.words import Wish, vector_of

_CREATED = 1_700_000_000
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(slots=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def wish(self) -> Wish:
        return Wish.read(_text(self.body))

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True


@dataclass(slots=True)
class Answer:
    """`events`: of a stream, one after the other; else `content` is all of it."""

    status: int = 200
    content: bytes = b""
    events: list[bytes] = field(default_factory=list)
    pause_s: float = 0.0
    headers: str = ""

    def pieces(self) -> Iterator[bytes]:
        """As they go out."""
        line = f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nserver: honest\r\n{self.headers}"
        if not self.events:
            length = f"content-type: application/json\r\ncontent-length: {len(self.content)}\r\n\r\n"
            yield (line + length).encode() + self.content
            return
        yield (line + "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n").encode()
        for event in self.events:
            yield b"%x\r\n%b\r\n" % (len(event), event)
        yield b"0\r\n\r\n"


def answer(asked: Asked) -> Answer:
    """What is right."""
    if asked.path == "/v1/models":
        listed = {"id": "toy", "object": "model", "created": _CREATED, "owned_by": "tests", "max_model_len": 100_000}
        return Answer(content=_json({"object": "list", "data": [listed]}))
    if asked.path == "/v1/embeddings":
        return Answer(content=_json(_embeddings(asked.body)))
    make = {
        "/v1/chat/completions": _chat,
        "/v1/completions": _completion,
        "/v1/responses": _response,
    }.get(asked.path)
    if make is None:
        return _error(404, "not_found_error", "not_found", "Not Found")
    for status, kind, code in ((429, "rate_limit_error", "rate_limit_exceeded"), (500, "server_error", "broken")):
        if f"please fail {status}" in _text(asked.body):
            return _error(status, kind, code, "as you wish", "retry-after: 0\r\n" if status == 429 else "")
    return make(asked)


def _error(status: int, kind: str, code: str, message: str, headers: str = "") -> Answer:
    said = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Answer(status, _json(said), headers=headers)


def _text(body: dict[str, Any]) -> str:
    """All that a request says."""
    said = body.get("messages") or body.get("input") or body.get("prompt") or ""
    return said if isinstance(said, str) else json.dumps(said)


def _chat(asked: Asked) -> Answer:
    wish, common = asked.wish, _common(asked, "chat.completion")
    if not asked.stream:
        message = {"role": "assistant", "content": wish.answer}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return Answer(content=_json({**common, "choices": [choice], "usage": _usage(wish)}))
    common["object"] = "chat.completion.chunk"

    def chunk(delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**common, "choices": [choice]})

    events = [chunk({"role": "assistant", "content": ""}, None)]
    events += [chunk({"content": wish.part(number)}, None) for number in range(wish.parts)]
    events.append(chunk({}, "stop"))
    return _stream(events, common, asked)


def _completion(asked: Asked) -> Answer:
    wish, common = asked.wish, _common(asked, "text_completion")

    def choice(text: str, finish: str | None) -> list[dict[str, Any]]:
        return [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]

    if not asked.stream:
        return Answer(content=_json({**common, "choices": choice(wish.answer, "stop"), "usage": _usage(wish)}))
    events = [_event({**common, "choices": choice(wish.part(number), None)}) for number in range(wish.parts)]
    events.append(_event({**common, "choices": choice("", "stop")}))
    return _stream(events, common, asked)


def _stream(events: list[bytes], common: dict[str, Any], asked: Asked) -> Answer:
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        events.append(_event({**common, "choices": [], "usage": _usage(asked.wish)}))
    return Answer(events=[*events, b"data: [DONE]\n\n"], pause_s=asked.wish.pause_ms / 1000)


def _response(asked: Asked) -> Answer:
    wish, name = asked.wish, asked.headers.get("x-request-id", "none")
    text = {"type": "output_text", "text": wish.answer, "annotations": []}
    item = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    usage = {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": wish.parts,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 9 + wish.parts,
    }  # fmt: skip
    whole = {
        "id": f"resp_{name}", "object": "response", "created_at": _CREATED, "model": asked.body.get("model"),
        "status": "completed", "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": usage, "metadata": {"salt": str(asked.body.get("cache_salt"))},
    }  # fmt: skip
    if not asked.stream:
        return Answer(content=_json(whole))
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    empty = {**item, "status": "in_progress", "content": []}
    said: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": empty}),
        ("response.content_part.added", {**place, "part": {**text, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": wish.part(n), "logprobs": []}) for n in range(wish.parts)),
        ("response.output_text.done", {**place, "text": wish.answer, "logprobs": []}),
        ("response.content_part.done", {**place, "part": text}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    events = [
        b"event: %b\n%b" % (kind.encode(), _event({"type": kind, "sequence_number": number, **fields}))
        for number, (kind, fields) in enumerate(said)
    ]
    return Answer(events=events, pause_s=wish.pause_ms / 1000)


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("input")
    texts = given if isinstance(given, list) else [given]
    vectors: list[Any] = [vector_of(str(text)) for text in texts]
    if body.get("encoding_format") == "base64":
        vectors = [base64.b64encode(struct.pack(f"<{len(each)}f", *each)).decode() for each in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(vectors)]
    return {"object": "list", "data": data, "model": "toy", "usage": {"prompt_tokens": 9, "total_tokens": 9}}


def _common(asked: Asked, kind: str) -> dict[str, Any]:
    name = asked.headers.get("x-request-id", "none")
    salt = str(asked.body.get("cache_salt"))
    return {
        "id": f"cmpl-{name}",
        "object": kind,
        "created": _CREATED,
        "model": asked.body.get("model"),
        "system_fingerprint": salt,
    }


def _usage(wish: Wish) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": wish.parts, "total_tokens": 9 + wish.parts}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _event(value: object) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


# --- the process --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Manners:
    """How often it lies, and where it writes down which lie it told."""

    lies: float = 0.0
    rng: Random = field(default_factory=Random)
    log: int = -1

    def lie(self) -> str | None:
        if self.rng.random() >= self.lies:
            return None
        name = self.rng.choice(sorted(LIES))
        os.write(self.log, f"{name}\n".encode())
        return name


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, manners: Manners) -> None:
    """One connection: a request, its answer, the next one. Who hangs up is answered no longer."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head[:-4].split("\r\n")
            headers = dict(each.lower().split(": ", 1) for each in lines)
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = line.split(" ")
            if path == "/health":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                continue
            asked = Asked(method, path, headers, json.loads(raw or b"{}"))
            right = answer(asked)
            name = manners.lie() if method == "POST" and not asked.wish.honest else None
            if name is not None:
                await LIES[name](Wire(writer, list(right.pieces()), right.content, right.events, manners.rng))
                continue
            pieces = list(right.pieces())
            breaks = "please break off" in _text(asked.body)
            for piece in pieces[:3] if breaks else pieces:
                writer.write(piece)
                await writer.drain()
                if right.pause_s:
                    await asyncio.sleep(right.pause_s)
            if breaks:
                break
    writer.close()


async def serve(port: int, manners: Manners) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await converse(reader, writer, manners)

    server = await asyncio.start_server(connected, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.edge.honest", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--lies", type=float, default=0.0, help="share of answers that are lies")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("--parent", type=int, default=os.getppid())
    asked = parser.parse_args()
    die_with_parent(asked.parent)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it writes to clients that have left all the time
    log = os.open(asked.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(serve(asked.port, Manners(asked.lies, Random(asked.seed), log)))


if __name__ == "__main__":
    main()

"""A toy fleet that serves requests beside each other, with the bugs that only a crowd shows.

Its model goes on with the last line of a prompt. Pages are leased until a request ends or its client has gone. Who
finds too few waits, or is told so where none will ever come back. Everything happens in one event loop, so a bug shows
by counting, not by luck.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.probes.toy import KEYS, PAGE, Toy, application, tokens_of

BUGS = ("swaps", "crosses", "kills", "loses-pages", "doubles", "first-token", "forgets", "rambles")


@dataclass
class Racing:
    """`bug` names what is wrong; `busy`: every so many requests are told to wait first. `tells`: its workers say what
    is left of their pools; `strangers`: somebody else is being answered whenever it is asked for them; `token_s`:
    seconds for each token, so that a client on a busy machine still leaves in the middle."""

    bug: str = ""
    toy: Toy = field(default_factory=Toy)
    busy: int = 0
    tells: bool = False
    strangers: bool = False
    token_s: float = 0.002
    live: dict[int, list[str]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    leftovers: deque[str] = field(default_factory=deque)
    count: int = 0
    most: int = 0
    asides: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pages = self.toy.decode_pool // PAGE
        self.changed = asyncio.Condition()

    def exhausted(self, pages: int) -> bool:
        """Pages are lost for good: too few are free, and nobody holds one who could give it back."""
        return self.pages < pages and not self.live

    def server_info(self, role: str) -> dict[str, object]:
        """With what is left of decode's pool; prefill holds nothing for long."""
        told = self.toy.server_info(role)
        if not self.tells:
            return told
        self.asides += self.strangers
        total = self.toy.decode_pool // PAGE
        pages = {"total": total, "free": self.pages if role == "decode" else total, "cached": 0, "retired": 0}
        return told | {"pages": pages, "generated_tokens": self.count + self.asides}

    def says(self, prompt: str, new: int, number: int) -> list[str]:
        """The tokens of an answer."""
        own = prompt.splitlines()[-2].removeprefix("- ").split()
        others = [words for n, words in self.live.items() if n != number and words != own]
        self.live[number] = own
        line = own
        if self.bug == "crosses" and others and number % 9 == 0:
            line = others[-1]
        if self.bug == "forgets" or (self.bug == "rambles" and number % 5 == 0):
            line = ["lorem", "ipsum"]
        said = ([f" {word}" for word in line] + ["\n", "-"]) * new
        if self.bug == "doubles" and others and number % 7 == 0:
            said[3:3] = [said[2]]
        if self.bug == "first-token" and others and number % 4 == 0:
            said[0] = f" {others[-1][0]}"
        return said[:new]


def racing_application(world: Racing) -> Starlette:
    async def completions(request: Request) -> Response:
        body = await request.json()
        world.asked.append(body)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in KEYS:
            return JSONResponse({"error": {"message": "bad key"}}, 401)
        world.count += 1
        number = world.count
        if world.busy and number % world.busy == 0:
            return JSONResponse({"error": {"message": "too many"}}, 429, {"retry-after": "0.01"})
        if body["prompt"] == "Hello":
            return JSONResponse(_whole([" there"], 1, 1))
        length = len(tokens_of(body["prompt"]))
        if world.exhausted(-(-(length + body["max_tokens"]) // PAGE)):
            return JSONResponse({"error": {"message": "no pages"}}, 503, {"retry-after": "0.01"})
        if body.get("stream"):
            return StreamingResponse(_stream(world, number, body, length), media_type="text/event-stream")
        said = [token async for token in _generate(world, number, body, length)]
        return JSONResponse(_whole(said, length, body["max_tokens"]))

    async def server_info(request: Request) -> Response:
        return JSONResponse(world.server_info(request.path_params["role"]))

    own = [Route("/v1/completions", completions, methods=["POST"]), Route("/{role}/server_info", server_info)]
    return Starlette(routes=[*own, *application(world.toy).routes])


def _whole(said: list[str], length: int, new: int) -> dict[str, Any]:
    usage = {"prompt_tokens": length, "completion_tokens": len(said)}
    return {
        "choices": [{"text": "".join(said), "finish_reason": "length" if len(said) >= new else "abort"}],
        "usage": usage,
    }


async def _generate(world: Racing, number: int, body: dict[str, Any], length: int) -> AsyncIterator[str]:
    pages = -(-(length + body["max_tokens"]) // PAGE)
    async with world.changed:
        await world.changed.wait_for(lambda: world.pages >= pages or world.exhausted(pages))
        if world.exhausted(pages):
            return
        world.pages -= pages
    said = world.says(body["prompt"], body["max_tokens"], number)
    world.most = max(world.most, len(world.live))
    at, whole = 0, False
    try:
        for at, token in enumerate(said):
            if number in world.killed:
                return
            while world.leftovers and at > 0:
                yield world.leftovers.popleft()
            yield token
            await asyncio.sleep(world.token_s)
        whole = True
    finally:
        world.live.pop(number, None)
        if not whole and number not in world.killed:
            _left(world, said[at:])
        if whole or number in world.killed or world.bug != "loses-pages":
            world.pages += pages
        asyncio.get_running_loop().create_task(_tell(world))


async def _tell(world: Racing) -> None:
    async with world.changed:
        world.changed.notify_all()


def _left(world: Racing, rest: list[str]) -> None:
    """A client has gone in the middle."""
    if world.bug == "swaps" and world.live:
        world.leftovers.extend(rest[:8])
    if world.bug == "kills" and world.live:
        world.killed.add(next(iter(world.live)))


async def _stream(world: Racing, number: int, body: dict[str, Any], length: int) -> AsyncIterator[str]:
    said = 0
    async for token in _generate(world, number, body, length):
        said += 1
        yield f"data: {json.dumps({'choices': [{'text': token, 'finish_reason': None}]})}\n\n"
    if number in world.killed or said == 0:
        return
    yield f"data: {json.dumps({'choices': [{'text': '', 'finish_reason': 'length'}]})}\n\n"
    usage = {"prompt_tokens": length, "completion_tokens": body["max_tokens"]}
    yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def nonce_of(body: dict[str, Any]) -> str:
    return re.split(r"\s", body["prompt"], maxsplit=1)[0]

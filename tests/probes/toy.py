"""A page-exact toy fleet over real HTTP, with the bugs that probes must see.

Its "model" copies: asked to go on, it repeats the line that fills most of what it can read. What it can read is the
pages that decode holds for the request, so a page that nobody wrote still holds its last tenant's tokens. The pool is
a LIFO free list and pages are not cleared. A token is a word, a mark or a line end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

PAGE = 16
KEYS = ("key-a-123456", "key-b-654321")


def tokens_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+|\n|[^\w\s]", text)


@dataclass
class Toy:
    """One world. `bug` names what is wrong with it; `calls` counts prompts, to prove that none was sent."""

    bug: str = ""
    context: int = 512
    prefill_pool: int = 640
    decode_pool: int = 640
    ready: bool = True
    count_tokens: bool = True
    counted: int = 1 << 30  # characters of the longest text that is counted
    busy: bool = False  # each text is counted at the second asking only
    info: dict[str, object] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    slips: frozenset[str] = frozenset()  # words over which this model slips
    bare: bool = False  # any OpenAI-compatible server: a model list and completions, no figures
    promises: int | None = 0  # max_model_len of the model list; 0 for the context, None for none
    retry_after: str | None = None  # of its 429s
    down: bool = False  # nobody listens any more
    after: int = 0  # answers before the bug begins, where it is one that begins
    caches: bool = True
    tells_cached: bool = True
    counts: bool = True  # whether the workers have /metrics
    neighbours: int = 0  # requests of others for each of ours, in the counters only
    usage: dict[str, int] = field(default_factory=dict)  # what every answer reports instead of the truth
    pace_s: float = 0.0  # what computing one prompt token takes
    aside: str = ""  # words of nobody's prompt at the end of what the stub answers

    def __post_init__(self) -> None:
        self.free = list(range(self.decode_pool // PAGE))
        self.memory = [[""] * PAGE for _ in self.free]
        self.kept: dict[int, str] = {}
        self.hung = False
        self.asked: set[str] = set()
        self.cache: set[tuple[str, ...]] = set()
        self.counters = dict.fromkeys(("prompts", "computed_tokens", "cached_tokens", "handoffs", "prompt_tokens"), 0)

    def look_up(self, key: str, tokens: list[str]) -> int:
        """Tokens of the full pages that this key has had before; all of them are cached from now on."""
        if not self.caches:
            return 0
        whose = "" if self.bug == "unsalted" else key
        found, on = 0, True
        for end in range(PAGE, len(tokens) + 1, PAGE):
            start = end - PAGE if self.bug == "unchained" else 0
            page = (whose, *tokens[start:end])
            on = (on or self.bug == "unchained") and page in self.cache
            found += PAGE if on else 0
            self.cache.add(page)
        return found

    def count(self, length: int, cached: int) -> None:
        """What prefill and decode count for one prompt."""
        stub = self.bug == "stub" and length > self.longest
        for _ in range(1 + self.neighbours):
            self.counters["prompts"] += 1
            self.counters["handoffs"] += 1
            self.counters["computed_tokens"] += 1 if stub else length - cached
            self.counters["cached_tokens"] += cached
            self.counters["prompt_tokens"] += length

    def metrics(self, role: str) -> str:
        names = ("handoffs", "prompt_tokens") if role == "decode" else ("prompts", "computed_tokens", "cached_tokens")
        lines = [f'pagefence_{name}_total{{role="{role}"}} {self.counters[name]}' for name in names]
        return "\n".join([f'pagefence_worker_info{{role="{role}"}} 1.0', *lines]) + "\n"

    def server_info(self, role: str) -> dict[str, object]:
        pool = self.prefill_pool if role == "prefill" else self.decode_pool
        told: dict[str, object] = {
            "engine": "pagefence",
            "version": "0.1.0",
            "disaggregation_mode": role,
            "max_total_num_tokens": pool,
            "max_req_input_len": min(self.context, pool) - 6,
            "page_size": PAGE,
            "context_length": self.context,
            "kv_bytes_per_token": 100,
        }
        return told | self.info

    @property
    def longest(self) -> int:
        return min(self.context, self.prefill_pool, self.decode_pool) - 6

    def leaves(self, tokens: list[str], new: int, length: int) -> list[str]:
        """Lease pages, write what prefill sends, read all that was leased, release. What attention sees comes back."""
        pages = [self.free.pop() for _ in range(-(-(length + new) // PAGE))]
        for i, token in enumerate(tokens):
            self.memory[pages[i // PAGE]][i % PAGE] = token
        seen = [self.memory[pages[i // PAGE]][i % PAGE] for i in range(length)]
        self.free.extend(reversed(pages))
        return seen

    def answer(self, prompt: str, new: int) -> tuple[str, int]:
        """The text and the prompt tokens that the answer reports."""
        tokens = tokens_of(prompt)
        length = len(tokens)
        if self.bug in ("truncates", "drops-old") and length > 100:
            tokens = tokens[:100] if self.bug == "truncates" else tokens[-100:]
            return copy(tokens, new), len(tokens)
        if self.bug == "nonsense":
            return " ".join(f"{length % 7}{word}" for word in ["colourless", "green", "ideas", "sleep"]), length
        if self.bug == "canned":
            return "Thank you for your question. I am happy to help you with that today.", length
        if self.bug == "answer-cache":
            return self.kept.setdefault(length, copy(tokens, new)), length
        if self.slips & set(tokens):
            return "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor", length
        if self.bug == "forgets" or (self.bug == "forgets-long" and length > 200):
            return " ".join(["the"] * new), length
        if length > self.longest and self.bug == "stub":
            return f"{copy(self.leaves(['<s>'], new, length), new)} {self.aside}".rstrip(), length
        if self.bug == "accepts" or length <= self.longest:
            if length > self.longest:
                return copy(tokens, new), length
            return copy(self.leaves(tokens, new, length), new), length
        raise AssertionError("refused before")


def copy(seen: list[str], new: int) -> str:
    """The line that is seen most often, again and again."""
    lines = Counter(" ".join(seen).split("\n"))
    line = max(lines, key=lambda text: (lines[text], len(text))) if lines else "the"
    words = (f"{line.strip()} \n " * (new + 1)).split(" ")[:new]
    return " ".join(words)


def application(toy: Toy) -> Starlette:  # noqa: PLR0915 (one bug a line, side by side)
    def node(role: str) -> Any:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(toy.server_info(role))

        return endpoint

    def metrics(role: str) -> Any:
        async def endpoint(request: Request) -> Response:
            return Response(toy.metrics(role), 200 if toy.counts else 404)

        return endpoint

    async def router_info(request: Request) -> Response:
        workers = [{"name": r, "role": r, "url": f"{toy.url}/{r}", "alive": True} for r in ("prefill", "decode")]
        return JSONResponse(
            {
                "engine": "pagefence",
                "role": "router",
                "model_name": "toy",
                "context_length": toy.context,
                "max_req_input_len": toy.longest,
                "ready": toy.ready,
                "reasons": [] if toy.ready else ["I8: a pool is below context x headroom"],
                "guards": {"readiness": True},
                "workers": workers,
            }
        )

    async def models(request: Request) -> Response:
        card: dict[str, object] = {"id": "toy"}
        if toy.promises is not None:
            card["max_model_len"] = toy.promises or toy.context
        return JSONResponse({"object": "list", "data": [card]})

    async def readyz(request: Request) -> Response:
        return JSONResponse({"ready": toy.ready, "reasons": []}, 200 if toy.ready else 503)

    async def tokenize(request: Request) -> Response:
        if not toy.count_tokens:
            return JSONResponse({"detail": "Not Found"}, 404)
        text = (await request.json())["prompt"]
        if toy.busy and text not in toy.asked:
            toy.asked.add(text)
            return error(429, "too many of your long requests wait", code="rate_limit_exceeded")
        if len(text) > toy.counted:
            return error(503, "busy")
        tokens = tokens_of(text)
        return JSONResponse({"tokens": [hash(t) % 9973 for t in tokens], "count": len(tokens)})

    def error(status: int, message: str, **fields: object) -> Response:
        return JSONResponse({"error": {"message": message, "type": "server_error", "code": None, **fields}}, status)

    async def completions(request: Request) -> Response:
        body = await request.json()
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in KEYS:
            return error(401, "bad key", type="invalid_request_error", code="invalid_api_key")
        length, new = len(tokens_of(body["prompt"])), body["max_tokens"]
        toy.calls.append(length)
        toy.bodies.append(body)
        if not toy.ready:
            return error(503, "not ready", code="not_ready")
        over = length > toy.longest or length + new > toy.context
        began = len(toy.calls) > toy.after
        if toy.bug == "limited" and began:
            headers = {} if toy.retry_after is None else {"retry-after": toy.retry_after}
            return JSONResponse({"error": {"message": "slow down", "type": "rate_limit_error"}}, 429, headers)
        if toy.bug == "refuses" and length > 8:
            return error(400, "I would rather not", type="invalid_request_error")
        if toy.bug == "too-long-always" and length > 8:
            return error(400, "maximum context length is 8 tokens", type="invalid_request_error")
        if (over and toy.bug in ("hangs", "hangs-for-good")) or toy.hung:
            toy.hung = toy.bug == "hangs-for-good"
            await asyncio.sleep(60)
        if over and toy.bug == "closes":
            return Response(b"", 200, {"content-length": "100", "content-type": "application/json"})
        if over and toy.bug == "works-first":
            length_error = {"message": f"maximum context length is {toy.context}", "type": "invalid_request_error"}
            return JSONResponse({"error": length_error, "usage": {"prompt_tokens": 1, "completion_tokens": new}}, 400)
        if over and toy.bug == "guarded":
            fields = {"type": "isolation_error", "code": "handoff_refused", "rule": "I4", "guard": "handoff-check"}
            return error(502, "1 page came, 8 were reserved", **fields)
        if over and toy.bug == "late-error" and body.get("stream"):
            return StreamingResponse(_late(length, toy), media_type="text/event-stream")
        if over and toy.bug == "bad-error":
            return error(500, "assertion failed")
        cuts = toy.bug in ("truncates", "drops-old")
        if over and not cuts and (length + new > toy.context or toy.bug not in ("stub", "accepts")):
            said = (
                f"This model's maximum context length is {toy.context} tokens. Your prompt resulted in {length} tokens."
            )
            if toy.bug == "mute":
                said = "the input is too long"
            return error(400, said, type="invalid_request_error", code="context_length_exceeded")
        key = "" if toy.bug == "keyless" else request.headers["authorization"]
        key += str(body.get("cache_salt", ""))
        cached = toy.look_up(key, tokens_of(body["prompt"])) if length <= toy.longest else 0
        if toy.pace_s and not (over and toy.bug == "stub"):
            await asyncio.sleep(toy.pace_s * (1 if toy.bug == "instant" else length))
        text, counted = toy.answer(body["prompt"], new)
        usage: dict[str, Any] = {"prompt_tokens": counted, "completion_tokens": new, "total_tokens": counted + new}
        toy.count(length, cached)
        usage |= toy.usage
        if toy.bug == "empty":
            text, usage["completion_tokens"], usage["total_tokens"] = "", 0, counted
        if toy.bug == "bad-cache" and cached:
            text = " ".join(["the"] * new)
        if toy.bug == "stream-counts" and body.get("stream"):
            usage |= {"prompt_tokens": counted - 1, "total_tokens": counted - 1 + new}
        if toy.tells_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": counted - 1 if toy.bug == "cached" else cached}
        if toy.bug == "no-usage":
            usage = {}
        if not body.get("stream"):
            return JSONResponse({"choices": [{"text": text, "finish_reason": "length"}], "usage": usage})
        return StreamingResponse(_events(text, usage, toy), media_type="text/event-stream")

    told = [
        Route("/server_info", router_info),
        Route("/readyz", readyz),
        Route("/prefill/server_info", node("prefill")),
        Route("/decode/server_info", node("decode")),
        Route("/prefill/metrics", metrics("prefill")),
        Route("/decode/metrics", metrics("decode")),
    ]
    return Starlette(
        routes=[
            *([] if toy.bare else told),
            Route("/v1/models", models),
            Route("/tokenize", tokenize, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
        ]
    )


async def _events(text: str, usage: dict[str, object], toy: Toy) -> AsyncIterator[str]:
    for word in re.findall(r"\S+\s*|\s+", text):
        yield f"data: {json.dumps({'choices': [{'text': word, 'finish_reason': None}]})}\n\n"
    yield f"data: {json.dumps({'choices': [{'text': '', 'finish_reason': 'length'}]})}\n\n"
    if toy.bug == "dies":
        return
    yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


async def _late(length: int, toy: Toy) -> AsyncIterator[str]:
    said = f"maximum context length is {toy.longest}, you sent {length}"
    yield f"data: {json.dumps({'error': {'message': said, 'type': 'BadRequestError', 'code': 400}})}\n\n"
    yield "data: [DONE]\n\n"


@contextlib.contextmanager
def served(application: Any) -> Iterator[str]:
    """Serve an ASGI application on a free port in a thread; yields its URL.

    The thread is not waited for: its server takes a fifth of a second to stop, and the suite has a thousand of them.
    """
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio leaves Nagle on: 40 ms an answer
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(application, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    )
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True


@contextlib.contextmanager
def running(toy: Toy) -> Iterator[Toy]:
    with served(application(toy)) as url:
        toy.url = "http://127.0.0.1:9" if toy.down else url
        yield toy

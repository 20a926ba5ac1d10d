"""A gateway that does as it is told, a tokenizer of bytes, and a server around them on a real socket."""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from pagefence.engine.api.app import create_app
from pagefence.engine.api.ports import Call, CallEvent, Job
from pagefence.engine.api.serving import listening_socket, serve_in_thread
from pagefence.engine.api.tenants import Tenants, tenants_from
from pagefence.protocol import errors
from pagefence.protocol.effects import Begin, Emit, End, Refuse
from pagefence.protocol.messages import ErrorInfo, FinishReason, Logprob, Room

MODEL = "scripted-1"
CONTEXT = 2048
VOCAB = 300
MAX_BODY = 200_000
TURN, END_OF_TURN = 256, 257
KEYS = {"ann": "key-of-ann", "bob": "key-of-bob"}
SECRET = b"a secret for tests"

# Without TLS and without a key; one for all, because to make one costs more than a hundred requests.
anybody = httpx.Client(verify=False, timeout=10)

Pause = threading.Event
Script = Callable[[Job], Sequence[CallEvent | Pause | Exception]]


def begin(cached_tokens: int = 0) -> Begin:
    return Begin(1, Room(1, 1, "n"), cached_tokens)


def emit(text: str | bytes, top: int | None = None) -> Emit:
    """A byte a token; with `top`, each with a log-probability that tells it, and so many others."""
    ids = tuple(text if isinstance(text, bytes) else text.encode())
    return Emit(1, ids, () if top is None else tuple(likely(token, top) for token in ids))


def likely(token: int, top: int) -> Logprob:
    """The token itself is the likeliest, the ones after it follow."""
    return Logprob(-token / 8, tuple(((token + i) % VOCAB, -token / 8 - i) for i in range(top)))


def end(job: Job, completion: int, reason: FinishReason = "stop") -> End:
    return End(1, reason, len(job.token_ids), completion)


def refuse(error: ErrorInfo) -> Refuse:
    return Refuse(1, error)


def says(text: str, reason: FinishReason = "stop") -> Script:
    """Answers `text`, a byte a token."""

    def script(job: Job) -> Sequence[CallEvent | Pause | Exception]:
        emits = (emit(bytes([byte]), job.sampling.logprobs) for byte in text.encode())
        return [begin(), *emits, end(job, len(text.encode()), reason)]

    return script


def limited(job: Job) -> Sequence[CallEvent | Pause | Exception]:
    """The router's own limit, then a short answer."""
    if len(job.token_ids) >= CONTEXT:
        return [refuse(errors.context_length(CONTEXT, len(job.token_ids), job.param))]
    return says("fine")(job)


@dataclass
class ScriptedCall:
    steps: Sequence[CallEvent | Pause | Exception]
    cancels: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    async def events(self) -> AsyncIterator[CallEvent]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, threading.Event):
                while not step.is_set():
                    await asyncio.sleep(0.005)
            else:
                yield step

    def cancel(self) -> None:
        self.cancels += 1
        self.cancelled.set()


@dataclass
class ScriptedGateway:
    script: Script = limited
    model_name: str = MODEL
    context: int = CONTEXT
    max_prompt_tokens: int = CONTEXT - 1
    max_in_flight: int = 100
    why_not: tuple[str, ...] = ()
    jobs: list[Job] = field(default_factory=list)
    calls: list[ScriptedCall] = field(default_factory=list)

    def reasons(self) -> tuple[str, ...]:
        return self.why_not

    def submit(self, job: Job) -> Call:
        self.jobs.append(job)
        self.calls.append(ScriptedCall(self.script(job)))
        return self.calls[-1]

    def server_info(self) -> dict[str, object]:
        return {"version": "0.1.0", "workers": []}

    def metrics(self) -> bytes:
        return b"# TYPE pagefence_router_requests_total counter\npagefence_router_requests_total 3.0\n"


class ByteTokenizer:
    """A byte is a token; turns are framed by control tokens that no text can spell."""

    vocab = VOCAB

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def token_bytes(self, token: int, skip_special: bool) -> bytes:
        control = b"" if skip_special else f"<{token}>".encode()
        return bytes([token]) if token < 256 else control

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        return list(text.encode())

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if messages[0]["role"] == "assistant":
            raise ValueError("the model's chat template refuses these messages: it starts with an answer")
        ids: list[int] = []
        for message in messages:
            ids += [TURN, *f"{message['role']}\n{message['content']}".encode(), END_OF_TURN]
        return [*ids, TURN]


class ByteText:
    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Sequence[int]) -> str:
        return self._utf8.decode(bytes(i for i in ids if i < 256))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


def two_tenants() -> Tenants:
    return tenants_from([f"{tenant}={key}" for tenant, key in KEYS.items()], SECRET)


@dataclass(frozen=True)
class Running:
    gateway: ScriptedGateway
    port: int
    url: str


@contextmanager
def running(
    gateway: ScriptedGateway, tenants: Tenants | None = None, tokenizer: ByteTokenizer | None = None
) -> Iterator[Running]:
    app = create_app(gateway, tokenizer or ByteTokenizer(), tenants or two_tenants(), ByteText, MAX_BODY)
    server = serve_in_thread(app, listening_socket("127.0.0.1", 0))
    try:
        yield Running(gateway, server.port, f"http://127.0.0.1:{server.port}")
    finally:
        server.stop()

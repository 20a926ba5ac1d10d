"""One answer of a fleet, read from its bytes. Whatever the bytes are, reading them never raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

# Phrases of refusals for length, in lower case: of vLLM, SGLang, llama-server, Ollama and PageFence; then vLLM's of a
# prompt as long as the context; TensorRT-LLM's without chunked prefill; and the two of TGI.
_TOO_LONG = (
    "context length",
    "maximum context",
    "context size",
    "input length",
    "too long",
    "max_tokens must be at least 1, got 0",
    "should not exceed max_num_tokens",
    "`inputs` must have less than",
    "`inputs` tokens + `max_new_tokens` must be",
)
_MOST_TOKENS = 2**40


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error as its client saw it. `rule` and `guard` are set when a guard contained a fault."""

    message: str
    type: str | None = None
    code: str | None = None
    param: str | None = None
    rule: str | None = None
    guard: str | None = None

    @property
    def about_length(self) -> bool:
        """Whether it says that the prompt is too long, in the words of any engine.

        vLLM says of a prompt as long as its context that `max_tokens` is 0, though the client asked for more [seen on
        0.32.0]: that was left of the context.
        """
        if self.code == "context_length_exceeded" or self.type == "exceed_context_size_error":
            return True
        said = self.message.lower()
        return any(mark in said for mark in _TOO_LONG)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request.

    `status` None means that no answer came; `problem` says why, and also when an answer broke off or was no JSON.
    `begun` tells that body bytes of a stream had been sent before the error (or the end) came. `timed_out`: the
    deadline came first. `at`: when it was asked, Unix seconds. `hung_up`: our own client went away on purpose; what had
    come by then is `text`, and it is no complete answer.
    """

    status: int | None
    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None
    error: ErrorBody | None = None
    problem: str | None = None
    stream: bool = False
    begun: bool = False
    ttft_s: float | None = None
    total_s: float = 0.0
    retry_after_s: float | None = None
    timed_out: bool = False
    at: float = 0.0
    hung_up: bool = False

    @property
    def answered(self) -> bool:
        """A complete answer: text that a client would take for the model's."""
        return self.status == 200 and self.error is None and self.problem is None

    @property
    def refused_as_too_long(self) -> bool:
        """The original error: 4xx, about the length, before any body byte of an answer.

        A stream that began with HTTP 200 and then says so is none: see `error.about_length`.
        """
        if self.status is None or not 400 <= self.status < 500 or self.begun or self.error is None:
            return False
        return self.error.about_length

    @property
    def refused_in_stream(self) -> bool:
        """The error about the length, alone in a stream that had begun with HTTP 200: in effect a refusal, in a form
        that most clients take for an answer."""
        return self.status == 200 and self.error is not None and self.error.about_length and not self.text

    @property
    def contained(self) -> bool:
        """A guard of the fleet refused, and says which rule it kept."""
        return self.error is not None and self.error.type == "isolation_error"


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def decode_json(body: bytes) -> object:
    """The JSON value of `body`, or None when it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def shape(body: bytes) -> str:
    """What a body that is no answer looks like, without a word of it: it may be somebody else's."""
    value = decode_json(body)
    size = f"{len(body):,} bytes"
    if isinstance(value, dict):
        names = [name for name in list(value)[:8] if re.fullmatch(r"[A-Za-z_]{1,24}", name)]
        return f"{size} of JSON with the fields {', '.join(names)}" if names else f"{size} of JSON"
    if value is not None:
        return f"{size} of JSON, no object"
    if body.lstrip()[:1] == b"<":
        return f"{size} of HTML or XML"
    return f"{size} of text" if body else "nothing at all"


def read_error(body: object) -> ErrorBody | None:
    """OpenAI's nested shape, the flat one of SGLang, a FastAPI `detail`, TGI's words beside an `error_type`, and the
    abort that SGLang's own `/generate` puts in place of a finish reason."""
    outer = mapping(body)
    inner = outer.get("error")
    if isinstance(inner, str):
        return ErrorBody(message=inner[:2000], type=_word(outer.get("error_type")))
    fields = mapping(inner)
    if not fields and outer.get("object") == "error":
        fields = outer
    if not fields and "detail" in outer:
        return ErrorBody(message=str(outer["detail"])[:2000])
    finish = mapping(mapping(outer.get("meta_info")).get("finish_reason"))
    if not fields and finish.get("type") == "abort":
        fields = {"message": finish.get("message"), "type": finish.get("err_type"), "code": finish.get("status_code")}
    if not fields:
        return None
    return ErrorBody(
        message=str(fields.get("message", ""))[:2000],
        type=_word(fields.get("type")),
        code=_word(fields.get("code")),
        param=_word(fields.get("param")),
        rule=_word(fields.get("rule")),
        guard=_word(fields.get("guard")),
    )


def _word(value: object) -> str | None:
    return None if value is None else str(value)[:200]


def _count(value: object) -> int | None:
    """A number of tokens. One that no prompt can have is none: databases and divisions could not hold it either."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


@dataclass(frozen=True, slots=True)
class Piece:
    """What one JSON object of an answer (a whole one or one event of a stream) adds to it."""

    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None
    error: ErrorBody | None = None
    shaped: bool = True


def read_piece(value: object) -> Piece:
    """One completion or chat object, whole or as a chunk."""
    error = read_error(value)
    body = mapping(value)
    choices = body.get("choices")
    usage = mapping(body.get("usage"))
    if error is not None:
        return Piece(error=error, completion_tokens=_count(usage.get("completion_tokens")))
    if not isinstance(choices, list):
        return Piece(shaped=False)
    choice = mapping(choices[0]) if choices else {}
    said = choice.get("text")
    if not isinstance(said, str):
        said = mapping(choice.get("message") or choice.get("delta")).get("content")
    details = mapping(usage.get("prompt_tokens_details"))
    finish = choice.get("finish_reason")
    return Piece(
        text=said if isinstance(said, str) else "",
        finish_reason=finish if isinstance(finish, str) else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        total_tokens=_count(usage.get("total_tokens")),
    )

"""From a request body to a `Job`: the slow, pure part, run off the event loop so that no prompt stalls the others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from pagefence.engine.api import requests
from pagefence.engine.api.body import parse_object
from pagefence.engine.api.parameters import Common, Message
from pagefence.engine.api.ports import Job, Tokenizer
from pagefence.engine.api.problems import bad_value, missing, model_not_found, unsupported_parameter
from pagefence.engine.api.shapes import Tokenized
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.models import ModelError

COMPLETION_NEW_TOKENS = 16
"""OpenAI's default for /v1/completions."""
CHAT_NEW_TOKENS = 1024
"""OpenAI's default for chat is "up to the context"; a bounded default keeps one client from reserving a whole pool."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the fleet says at this moment. A default shrinks to fit; an explicit wish is the router's to refuse."""

    model_name: str
    context: int
    max_model_len: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job for each choice, and how the answer is to be written. `echo`: the prompt's text, to be said first."""

    jobs: tuple[Job, ...]
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    token_ids: bool
    echo: str

    @property
    def scored(self) -> bool:
        """Whether log-probabilities were asked for."""
        return self.jobs[0].sampling.logprobs is not None


P = TypeVar("P", str, list[int])
Preparer = Callable[[bytes, str, Tokenizer, Limits], Prepared]


def prepare_completion(body: bytes, isolation_key: str, tokenizer: Tokenizer, limits: Limits) -> Prepared:
    raw = parse_object(body)
    _check_model(raw.get("model"), limits)
    request = requests.completion_request(raw)
    ids = _prompt_ids(request.prompt, tokenizer)
    wanted = request.max_tokens or _room(COMPLETION_NEW_TOKENS, ids, limits)
    echo = _echo(request.prompt, tokenizer) if request.echo else ""
    job = Job(isolation_key, tuple(ids), wanted, _sampling(request, request.logprobs, tokenizer.vocab), "prompt")
    return _prepared(request, job, echo)


def prepare_chat(body: bytes, isolation_key: str, tokenizer: Tokenizer, limits: Limits) -> Prepared:
    raw = parse_object(body)
    _check_model(raw.get("model"), limits)
    request = requests.chat_request(raw)
    ids = _chat_ids(request.messages, tokenizer)
    wanted = request.max_completion_tokens or request.max_tokens or _room(CHAT_NEW_TOKENS, ids, limits)
    scores = (request.top_logprobs or 0) if request.logprobs else None
    job = Job(isolation_key, tuple(ids), wanted, _sampling(request, scores, tokenizer.vocab), "messages")
    return _prepared(request, job)


def prepare_tokenize(body: bytes, tokenizer: Tokenizer, limits: Limits) -> Tokenized:
    """The ids that the same prompt or messages would have as a request."""
    raw = parse_object(body)
    request = requests.tokenize_request(raw)
    if request.model is not None:
        _check_model(request.model, limits)
    if request.messages is not None:
        ids = _chat_ids(request.messages, tokenizer)
    else:
        ids = _encode(request.prompt or "", tokenizer)
    return Tokenized(ids, len(ids), limits.max_model_len)


def choice_seed(seed: int, index: int) -> int:
    """What choice `index` draws with: the first as if it were alone, the others each by itself, always the same."""
    if index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}:choice:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _sampling(request: Common, logprobs: int | None, vocab: int) -> SamplingParams:
    return SamplingParams(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=request.seed,
        logit_bias=_biases(request.logit_bias or {}, vocab),
        logprobs=logprobs,
    )


def _prepared(request: Common, job: Job, echo: str = "") -> Prepared:
    options = request.stream_options
    if request.return_token_ids and request.stream:
        raise unsupported_parameter("return_token_ids", "Ask for token ids without streaming.")
    return Prepared(
        jobs=tuple(_choice(job, index) for index in range(request.n or 1)),
        stops=requests.stops_of(request),
        stream=bool(request.stream),
        include_usage=options is not None and bool(options.include_usage),
        token_ids=bool(request.return_token_ids),
        echo=echo,
    )


def _choice(job: Job, index: int) -> Job:
    if job.sampling.seed is None:
        return job
    seed = choice_seed(job.sampling.seed, index)
    return replace(job, sampling=msgspec.structs.replace(job.sampling, seed=seed))


def _check_model(name: object, limits: Limits) -> None:
    """First of all checks: a client of another model should hear that, not what this one thinks of its parameters."""
    if name is None:
        raise missing("model")
    if not isinstance(name, str):
        raise bad_value("The model is named by a string.", "model")
    if name != limits.model_name:
        raise model_not_found(name)


def _room(default: int, ids: list[int], limits: Limits) -> int:
    """`default`, or what the context leaves. At least 1: a prompt that leaves nothing is refused by the router."""
    return max(1, min(default, limits.context - len(ids)))


def _prompt_ids(prompt: str | list[int | str], tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        # Asked of the text: its ids may begin with a token that nobody wrote.
        return _encode(_some(prompt, "prompt"), tokenizer)
    ids = [part for part in prompt if isinstance(part, int)]
    if len(ids) == len(prompt):
        return _in_vocabulary(_some(ids, "prompt"), tokenizer.vocab)
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return _prompt_ids(prompt[0], tokenizer)
    if not ids:
        raise unsupported_parameter("prompt", "Send one prompt in a request.")
    raise bad_value("A prompt is a string or a list of token ids, not both.", "prompt")


def _echo(prompt: str | list[int | str], tokenizer: Tokenizer) -> str:
    """A text as it was written, ids as they read. `_prompt_ids` has taken it, so it is one prompt of one kind."""
    if isinstance(prompt, str):
        return prompt
    return "".join(part for part in prompt if isinstance(part, str)) or tokenizer.decode(
        [part for part in prompt if isinstance(part, int)]
    )


def _chat_ids(messages: list[Message], tokenizer: Tokenizer) -> list[int]:
    plain = requests.plain_messages(messages)
    try:
        ids = tokenizer.render_chat(plain)
    except (ValueError, ModelError) as error:
        raise bad_value(str(error), "messages") from None
    return _some(ids, "messages")


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    try:
        return tokenizer.encode(text, add_special=True)
    except (ValueError, ModelError) as error:
        raise bad_value(str(error), "prompt") from None


def _some(prompt: P, param: str) -> P:
    if not prompt:
        raise bad_value("The prompt is empty.", param)
    return prompt


def _in_vocabulary(ids: list[int], vocab: int) -> list[int]:
    if min(ids) < 0 or max(ids) >= vocab:
        raise bad_value(f"A token id is outside the vocabulary of {vocab}.", "prompt")
    return ids


def _biases(biases: dict[str, float], vocab: int) -> tuple[tuple[int, float], ...]:
    pairs = tuple((int(name), bias) for name, bias in biases.items())
    for token, _ in pairs:
        if token >= vocab:
            raise bad_value(f"{token} is not a token id of this model's vocabulary of {vocab}.", "logit_bias")
    return pairs

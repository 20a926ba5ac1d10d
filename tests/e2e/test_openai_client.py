"""The official client finds what it expects."""

from __future__ import annotations

import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.e2e.fleets import KEY_A, MODEL, Fleet

CAPITAL = "The capital of France is"
QUESTION: Any = [{"role": "user", "content": "Name a colour."}]
FILLER = "The quick brown fox jumps over the lazy dog. "


@pytest.fixture
def client(fleet: Fleet) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.router}/v1", api_key=KEY_A, max_retries=0)


def test_a_chat_is_answered_with_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
        max_tokens=24,
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 <= answer.usage.completion_tokens <= 24


def test_a_streamed_chat_says_the_same_and_ends_with_usage(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Name three colours."}]
    whole = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=16, temperature=0)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize("stream", [False, True])
def test_an_over_length_prompt_gets_the_context_error_before_any_body(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt=FILLER * 300, max_tokens=4, stream=stream)
    assert refused.value.status_code == 400
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "prompt"
    assert "maximum context length is 2048 tokens" in refused.value.message


def test_log_probabilities_are_the_same_in_both_shapes_whole_and_streamed(client: openai.OpenAI) -> None:
    """Greedy, so every token is the likeliest; the first comes with prefill's receipt, the others from decode."""
    ask: Any = {"model": MODEL, "prompt": CAPITAL, "max_tokens": 5, "temperature": 0, "logprobs": 3}
    scores = client.completions.create(**ask).choices[0].logprobs
    assert scores is not None
    assert scores.tokens is not None
    assert scores.token_logprobs is not None
    assert scores.top_logprobs is not None
    assert scores.tokens[0] == " Paris"
    assert scores.text_offset == [len("".join(scores.tokens[:i])) for i in range(5)]
    for token, logprob, best in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs, strict=True):
        assert (len(best), max(best, key=best.__getitem__), best[token]) == (3, token, logprob)
        assert sum(math.exp(value) for value in best.values()) <= 1.0
    chunks = [chunk.choices[0].logprobs for chunk in client.completions.create(**ask, stream=True)]
    streamed = [logprob for chunk in chunks if chunk is not None for logprob in chunk.token_logprobs or []]
    # A worker that has all cores for the moment adds in another order than one that shares them: they round otherwise.
    assert streamed == pytest.approx(scores.token_logprobs, abs=1e-3)


def test_log_probabilities_of_a_chat_are_there_before_bias_and_temperature(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "messages": QUESTION, "max_tokens": 4, "logprobs": True, "top_logprobs": 2}
    plain = client.chat.completions.create(**ask, temperature=0).choices[0].logprobs
    assert plain is not None
    assert plain.content is not None
    likeliest, second = plain.content[0].top_logprobs
    assert (likeliest.token, likeliest.logprob) == (plain.content[0].token, plain.content[0].logprob)
    assert second.logprob <= likeliest.logprob
    hot = client.chat.completions.create(**ask, temperature=1.9, seed=3).choices[0].logprobs
    assert hot is not None
    assert hot.content is not None
    assert hot.content[0].top_logprobs == plain.content[0].top_logprobs


def test_several_choices_are_those_of_their_seed_and_the_first_is_the_answer_to_one(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "messages": QUESTION, "max_tokens": 6, "temperature": 1.2, "seed": 11}
    one = client.chat.completions.create(**ask)
    three = client.chat.completions.create(**ask, n=3)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert texts[0] == one.choices[0].message.content
    assert len(set(texts)) == 3
    assert three.usage is not None
    assert one.usage is not None
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert one.usage.completion_tokens < three.usage.completion_tokens <= 18
    streamed: dict[int, str] = defaultdict(str)
    for chunk in client.chat.completions.create(**ask, n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert [streamed[index] for index in range(3)] == texts


def test_a_seed_gives_the_same_answer_alone_and_beside_others(client: openai.OpenAI) -> None:
    def answer(seed: int) -> str:
        return (
            client.completions.create(model=MODEL, prompt=CAPITAL, max_tokens=6, temperature=1.0, seed=seed)
            .choices[0]
            .text
        )

    alone = [answer(seed) for seed in range(3)]
    assert len(set(alone)) == 3
    with ThreadPoolExecutor(3) as clients:
        assert list(clients.map(answer, range(3))) == alone


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_is_prompt_and_answer(client: openai.OpenAI, stream: bool) -> None:
    ask: Any = {"model": MODEL, "prompt": CAPITAL, "max_tokens": 2, "temperature": 0, "stream": stream}
    plain, echoed = (client.completions.create(**ask, echo=echo) for echo in (False, True))
    assert _text(echoed) == CAPITAL + _text(plain)


def _text(answer: Any) -> str:
    parts = [answer] if hasattr(answer, "choices") else list(answer)
    return "".join(part.choices[0].text for part in parts)


def test_a_wrong_key_is_refused(fleet: Fleet) -> None:
    client = openai.OpenAI(base_url=f"{fleet.router}/v1", api_key="not-a-key", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.models.list()

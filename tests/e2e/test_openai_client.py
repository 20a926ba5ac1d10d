"""The official client finds what it expects."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.e2e.fleets import KEY_A, MODEL, Fleet

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


def test_a_wrong_key_is_refused(fleet: Fleet) -> None:
    client = openai.OpenAI(base_url=f"{fleet.router}/v1", api_key="not-a-key", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.models.list()

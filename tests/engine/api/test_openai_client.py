"""The official client, against the real routes."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from pagefence.protocol import errors

from .scripted import CONTEXT, KEYS, MODEL, Running, begin, emit, refuse


@pytest.fixture(scope="module")
def official(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEYS["ann"], max_retries=0, timeout=10) as client:
        yield client


def test_it_lists_models(official: openai.OpenAI, fleet: Running) -> None:
    (model,) = official.models.list().data
    assert (model.id, official.models.retrieve(model.id).owned_by) == (MODEL, "pagefence")


def test_it_chats(official: openai.OpenAI, fleet: Running) -> None:
    answer = official.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], n=1, user="u")
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("fine", "stop")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(fleet.gateway.jobs[0].token_ids)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_it_continues_a_conversation_with_the_answer_it_got(official: openai.OpenAI, fleet: Running) -> None:
    user = {"role": "user", "content": "hi"}
    first = official.chat.completions.create(model=MODEL, messages=[user])  # type: ignore[list-item]
    message = first.choices[0].message.model_dump()
    again = official.chat.completions.create(model=MODEL, messages=[user, message, user])  # type: ignore[list-item]
    assert again.choices[0].message.content == "fine"


def test_it_streams_with_usage(official: openai.OpenAI, fleet: Running) -> None:
    stream = official.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "fine"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_it_completes(official: openai.OpenAI, fleet: Running) -> None:
    assert official.completions.create(model=MODEL, prompt="hi", max_tokens=4).choices[0].text == "fine"
    stream = official.completions.create(model=MODEL, prompt="hi", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "fine"


@pytest.mark.parametrize("stream", [False, True])
def test_it_sees_the_over_length_error(official: openai.OpenAI, fleet: Running, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        official.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x" * CONTEXT}], stream=stream
        )
    assert (error.value.code, error.value.param) == ("context_length_exceeded", "messages")


def test_it_sees_other_errors_by_their_class(official: openai.OpenAI, fleet: Running) -> None:
    with pytest.raises(openai.NotFoundError):
        official.completions.create(model="other", prompt="x")
    with pytest.raises(openai.AuthenticationError):
        official.with_options(api_key="wrong").models.list()
    fleet.gateway.script = lambda job: [refuse(errors.overloaded("full"))]
    with pytest.raises(openai.RateLimitError):
        official.completions.create(model=MODEL, prompt="x")
    fleet.gateway.script = lambda job: [begin(), emit("a"), refuse(errors.internal("the worker died"))]
    with pytest.raises(openai.APIError, match="the worker died"):
        list(official.completions.create(model=MODEL, prompt="x", stream=True))

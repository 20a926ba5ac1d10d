"""The official client in front of a real edge: only its base URL is another, and every error has its class."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.edge.served import KEY, OTHER_KEY, Served
from tests.edge.soak.words import Wish, vector_of

WISH = Wish("nonce-000000000000000000000001", parts=4)
MESSAGES: Any = [{"role": "user", "content": WISH.text}]
TOO_LONG: Any = [{"role": "user", "content": " and" * 9000}]


@pytest.fixture
def edge(served_edge: Served) -> Served:
    return served_edge


@pytest.fixture
def client(edge: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0) as made:
        yield made


def test_chat(client: openai.OpenAI) -> None:
    said = client.chat.completions.create(
        model="toy",
        messages=MESSAGES,
        temperature=0.5,
        max_completion_tokens=50,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
        response_format={"type": "json_object"},
        stop=["never"],
        seed=3,
    )
    assert said.choices[0].message.content == WISH.answer
    assert said.usage is not None
    assert said._request_id is not None
    assert said._request_id.startswith("edge-")


def test_a_chat_that_streams(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="toy", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert words == WISH.answer
    assert chunks[-1].usage is not None
    assert len(chunks) == WISH.parts + 3


def test_the_helper_for_streams(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="toy", messages=MESSAGES) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == WISH.answer


def test_completions(client: openai.OpenAI) -> None:
    assert client.completions.create(model="toy", prompt=WISH.text).choices[0].text == WISH.answer
    chunks = client.completions.create(model="toy", prompt=WISH.text, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == WISH.answer


def test_responses(client: openai.OpenAI) -> None:
    said = client.responses.create(model="toy", input=WISH.text, max_output_tokens=50)
    assert said.output_text == WISH.answer
    events = list(client.responses.create(model="toy", input=MESSAGES, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == WISH.answer
    assert events[-1].type == "response.completed"
    with client.responses.stream(model="toy", input=WISH.text) as stream:
        assert stream.get_final_response().output_text == WISH.answer


def test_embeddings_and_models(client: openai.OpenAI) -> None:
    """The client asks for base64 by itself, and gives floats."""
    said = client.embeddings.create(model="toy", input=["one", "two"])
    assert [each.embedding for each in said.data] == [vector_of("one"), vector_of("two")]
    plain = client.embeddings.create(model="toy", input="one", encoding_format="float")
    assert plain.data[0].embedding == vector_of("one")
    assert [model.id for model in client.models.list()] == ["toy"]


def test_raw_and_streaming_responses(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="toy", messages=MESSAGES)
    assert re.fullmatch("edge-[0-9a-f]{32}", raw.headers["x-request-id"])
    assert raw.parse().choices[0].message.content == WISH.answer
    with client.completions.with_streaming_response.create(model="toy", prompt=WISH.text) as streamed:
        assert streamed.headers["content-type"] == "application/json"
        assert b"".join(streamed.iter_bytes()).startswith(b'{"id":')


def test_many_at_once_with_the_asynchronous_client(edge: Served) -> None:
    async def ask(client: openai.AsyncOpenAI, number: int) -> None:
        wish = Wish(f"nonce-{number:024x}", parts=1 + number % 5)
        messages: Any = [{"role": "user", "content": wish.text}]
        if number % 3 == 0:
            stream = await client.chat.completions.create(model="toy", messages=messages, stream=True)
            said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        elif number % 3 == 1:
            said = (await client.responses.create(model="toy", input=wish.text)).output_text
        else:
            whole = await client.chat.completions.create(model="toy", messages=messages)
            said = whole.choices[0].message.content or ""
        assert said == wish.answer

    async def all_of_them() -> None:
        async with openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0) as client:
            await asyncio.gather(*(ask(client, number) for number in range(30)))

    asyncio.run(all_of_them())


def test_each_tenant_has_an_isolation_key_of_its_own(edge: Served, client: openai.OpenAI) -> None:
    """What upstream got as cache_salt, told in `system_fingerprint`."""
    with openai.OpenAI(base_url=f"{edge.url}/v1", api_key=OTHER_KEY) as other:
        mine, again, theirs = (
            each.chat.completions.create(model="toy", messages=MESSAGES).system_fingerprint
            for each in (client, client, other)
        )
    assert mine == again != theirs
    assert mine is not None
    assert re.fullmatch("[0-9a-f]{64}", mine)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="toy", messages=TOO_LONG, stream=stream)
    assert (error.value.code, error.value.type) == ("context_length_exceeded", "invalid_request_error")
    assert error.value.param == "messages"
    assert "maximum context length" in error.value.message
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.responses.create(model="toy", input=" and" * 9000, stream=stream)


def test_every_error_has_its_class(edge: Served, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as forbidden:
        client.chat.completions.create(model="toy", messages=MESSAGES, extra_body={"bootstrap_room": 7})
    assert forbidden.value.param == "bootstrap_room"
    with pytest.raises(openai.NotFoundError):
        client.files.list()
    with pytest.raises(openai.RateLimitError) as many:
        client.completions.create(model="toy", prompt="please fail 429")
    assert (many.value.code, many.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "0")
    with pytest.raises(openai.InternalServerError) as broken:
        client.completions.create(model="toy", prompt="please fail 500")
    assert broken.value.code == "broken"
    with openai.OpenAI(base_url=f"{edge.url}/v1", api_key="nobodys-key-0123456789", max_retries=0) as nobody:
        with pytest.raises(openai.AuthenticationError) as unknown:
            nobody.models.list()
        assert unknown.value.code == "invalid_api_key"


def test_what_breaks_off_is_an_error_in_every_form(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError):
        list(client.completions.create(model="toy", prompt="please break off parts=9 pause=50", stream=True))
    with pytest.raises(openai.APIError):
        list(client.responses.create(model="toy", input="please break off parts=9 pause=50", stream=True))


def test_a_stream_that_is_closed_costs_upstream_nothing_more(edge: Served, client: openai.OpenAI) -> None:
    stream = client.completions.create(model="toy", prompt="parts=200 pause=20", stream=True)
    next(iter(stream))
    stream.close()
    edge.guard.until(lambda: edge.metrics().sum("pagefence_edge_upstream_connections", state="busy") == 0)

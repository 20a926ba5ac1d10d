"""The official client works unchanged, and sees what went wrong as an error."""

from __future__ import annotations

import json

import openai
import pytest

from tests.edge.proxy_scene import STREAM, Asked, Scene, chunk, played, says, scene, whole

_CHOICE = {"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": "word "}}
EVENT = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [_CHOICE]}
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "word"}}],
}
DATA = chunk(b"data: " + json.dumps(EVENT).encode() + b"\n\n")
DONE = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def client_of(on: Scene) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{on.port}/v1", api_key="key", max_retries=0)


async def words(client: openai.AsyncOpenAI) -> list[str | None]:
    stream = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hello"}], stream=True
    )
    return [event.choices[0].delta.content async for event in stream]


@played
async def test_both_forms_work() -> None:
    async def behave(asked: Asked) -> None:
        stream = json.loads(asked.body).get("stream")
        await asked.say(STREAM + DATA * 3 + DONE if stream else whole(json.dumps(ANSWER).encode()))

    async with scene(behave) as on, client_of(on) as client:
        assert await words(client) == ["word "] * 3
        said = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        assert said.choices[0].message.content == "word"
        assert said._request_id is not None
        assert said._request_id.startswith("edge-")


@played
async def test_a_stream_that_breaks_off_is_an_error_there() -> None:
    async with scene(says(STREAM + DATA, close=True)) as on, client_of(on) as client:
        with pytest.raises(openai.APIError, match="within its answer"):
            await words(client)


@played
async def test_a_refusal_is_the_error_of_its_kind() -> None:
    async with scene(says(b"nonsense\r\n\r\n")) as on, client_of(on) as client:
        with pytest.raises(openai.InternalServerError) as error:
            await words(client)
        assert error.value.code == "upstream_malformed"

"""A completion that begins with its prompt."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .scripted import END_OF_TURN, Running, says
from .test_answers import TEXT, events, post, text_of


@pytest.mark.parametrize("prompt", ["Grüße", list("Grüße".encode()), ["Grüße"], [*"Grüße".encode(), END_OF_TURN]])
def test_the_text_is_prompt_and_answer_whole_and_streamed(ann: httpx.Client, fleet: Running, prompt: Any) -> None:
    fleet.gateway.script = says("!?")
    body = {**TEXT, "prompt": prompt, "echo": True}
    whole = post(ann, body).json()
    assert whole["choices"][0]["text"] == "Grüße!?"
    assert whole["usage"]["completion_tokens"] == 2
    chunks = events(post(ann, {**body, "stream": True}))
    assert text_of(chunks) == "Grüße!?"
    assert text_of(chunks[:1]) == "Grüße", "the prompt is the first event"


def test_every_choice_begins_with_the_prompt(ann: httpx.Client, fleet: Running) -> None:
    body = {**TEXT, "echo": True, "n": 2}
    assert [choice["text"] for choice in post(ann, body).json()["choices"]] == ["hellofine"] * 2
    first, second, *_ = events(post(ann, {**body, "stream": True}))
    assert [chunk["choices"][0]["index"] for chunk in (first, second)] == [0, 1]
    assert text_of([first, second]) == "hello" * 2


def test_a_stop_string_in_the_prompt_stops_nothing(ann: httpx.Client, fleet: Running) -> None:
    assert post(ann, {**TEXT, "echo": True, "stop": "ell"}).json()["choices"][0]["text"] == "hellofine"


def test_the_prompt_is_not_repeated_unasked(ann: httpx.Client, fleet: Running) -> None:
    assert post(ann, {**TEXT, "echo": False}).json()["choices"][0]["text"] == "fine"

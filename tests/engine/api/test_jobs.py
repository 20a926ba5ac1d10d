"""What the router is asked for, from what the client asked for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from pagefence.engine.api.ports import Job

from .scripted import CONTEXT, MODEL, Running

TEXT: dict[str, Any] = {"model": MODEL, "prompt": "hello"}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


def post(client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    return client.post("/v1/chat/completions" if "messages" in body else "/v1/completions", json=body)


def test_the_job_says_what_the_client_asked_for(ann: httpx.Client, fleet: Running) -> None:
    wish = {"temperature": 0, "top_p": 0.5, "seed": -3, "logit_bias": {"7": -100}, "max_tokens": 9}
    post(ann, {**TEXT, **wish})
    job = fleet.gateway.jobs[0]
    assert (job.token_ids, job.max_new_tokens, job.param) == (tuple(b"hello"), 9, "prompt")
    sampling = job.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.0, 0.5, -3)
    assert sampling.logit_bias == ((7, -100.0),)


@pytest.mark.parametrize(
    ("body", "new_tokens"),
    [
        (TEXT, 16),
        (CHAT, 1024),
        ({**TEXT, "prompt": [5] * (CONTEXT - 3)}, 3),
        ({**TEXT, "prompt": [5] * (CONTEXT + 10)}, 1),
        ({**CHAT, "messages": [{"role": "user", "content": "x" * 1500}]}, CONTEXT - 1500 - len("user\n") - 3),
        ({**TEXT, "max_tokens": CONTEXT * 2}, CONTEXT * 2),
        ({**CHAT, "max_completion_tokens": 7}, 7),
    ],
)
def test_a_default_fits_the_room_left_and_a_wish_is_passed_on(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], new_tokens: int
) -> None:
    post(ann, body)
    job: Job = fleet.gateway.jobs[0]
    assert job.max_new_tokens == new_tokens
    assert job.sampling.temperature == 1.0


def test_a_prompt_may_be_text_ids_or_a_list_of_one_text(ann: httpx.Client, fleet: Running) -> None:
    for prompt in ("hey", list(b"hey"), ["hey"]):
        post(ann, {**TEXT, "prompt": prompt})
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "y"}]
    for content in ("hey", parts):
        post(ann, {**CHAT, "messages": [{"role": "developer", "content": content}]})
    first, second, third, fourth, fifth = (job.token_ids for job in fleet.gateway.jobs)
    assert first == second == third == tuple(b"hey")
    assert fourth == fifth
    assert b"system\nhey" in bytes(i for i in fourth if i < 256)

"""Several answers to one prompt: a room for each, one outcome for the client (I3, I5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from pagefence.engine.api.ports import CallEvent, Job
from pagefence.engine.api.prepare import choice_seed
from pagefence.protocol import errors

from .scripted import Pause, Running, Script, begin, emit, end, refuse
from .test_answers import BOTH, CHAT, TEXT, events, path_of, post, released_once
from .test_client_gone import submitted

Steps = Sequence[CallEvent | Pause | Exception]


def in_turn(*scripts: Callable[[Job], Steps]) -> Script:
    """The first call plays the first script, and so on."""
    waiting = iter(scripts)

    def script(job: Job) -> Steps:
        return next(waiting)(job)

    return script


def answers(*texts: str, cached: int = 0) -> Script:
    waiting = iter(texts)

    def script(job: Job) -> Steps:
        text = next(waiting)
        return [begin(cached), emit(text), end(job, len(text))]

    return script


def content(choice: dict[str, Any]) -> str:
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


@BOTH
def test_each_choice_is_a_job_of_its_own_and_has_its_index(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    fleet.gateway.script = answers("one", "two", "three")
    answer = post(ann, {**body, "n": 3}).json()
    assert [(choice["index"], content(choice)) for choice in answer["choices"]] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
    ]
    assert len({job.token_ids for job in fleet.gateway.jobs}) == 1
    released_once(fleet)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_usage_counts_the_prompt_once_and_every_choices_tokens(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], stream: bool
) -> None:
    fleet.gateway.script = answers("one", "three", cached=4)
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer = post(ann, {**body, "n": 2, **options})
    usage = events(answer)[-2]["usage"] if stream else answer.json()["usage"]
    prompt = len(fleet.gateway.jobs[0].token_ids)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (prompt, 8, prompt + 8)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}


def test_metrics_count_a_prompt_once(ann: httpx.Client, fleet: Running) -> None:
    def counted() -> float:
        lines = ann.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("pagefence_api_tokens_total") and 'kind="prompt"' in line]
        return float(found[0].split()[-1]) if found else 0.0

    before = counted()
    post(ann, {**TEXT, "n": 3})
    assert counted() == before + 5


def test_the_first_choice_draws_as_if_it_were_alone_and_the_others_each_in_their_own_way(
    ann: httpx.Client, fleet: Running
) -> None:
    post(ann, {**TEXT, "seed": 7})
    post(ann, {**TEXT, "seed": 7, "n": 4})
    post(ann, {**TEXT, "seed": 7, "n": 2})
    post(ann, {**TEXT, "n": 2})
    alone, *four = [job.sampling.seed for job in fleet.gateway.jobs[:5]]
    assert alone == four[0] == 7
    assert len(set(four)) == 4
    assert [job.sampling.seed for job in fleet.gateway.jobs[5:]] == [*four[:2], None, None]


def test_seeds_of_choices_are_pinned() -> None:
    """The same request gives the same choices on another machine and in a later version."""
    assert [choice_seed(7, index) for index in range(3)] == [7, 490813061189756051, 8568531171389613544]
    assert all(0 <= choice_seed(-(2**63), index) < 2**63 for index in range(1, 8))


@BOTH
def test_choices_are_streamed_side_by_side_each_chunk_with_its_index(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    slow = threading.Event()
    fleet.gateway.script = in_turn(
        lambda job: [begin(), emit("a"), slow, emit("A"), end(job, 2, "length")],
        lambda job: [begin(), emit("b"), emit("B"), end(job, 2)],
    )
    threading.Timer(0.2, slow.set).start()
    chunks = events(post(ann, {**body, "n": 2, "stream": True}))
    assert chunks.pop() == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    texts = [(c["index"], c["text"] if "text" in c else c["delta"].get("content", "")) for c in choices]
    assert [piece for piece in texts if piece[1]] in (
        [(0, "a"), (1, "b"), (1, "B"), (0, "A")],
        [(1, "b"), (0, "a"), (1, "B"), (0, "A")],
        [(1, "b"), (1, "B"), (0, "a"), (0, "A")],
    )
    ends = [(c["index"], c["finish_reason"]) for c in choices if c["finish_reason"]]
    assert ends == [(1, "stop"), (0, "length")]
    if body is CHAT:
        assert [(c["index"], c["delta"].get("role")) for c in choices[:2]] == [(0, "assistant"), (1, "assistant")]


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_choice_that_is_refused_refuses_the_request_and_aborts_the_others(
    ann: httpx.Client, fleet: Running, body: dict[str, Any], stream: bool
) -> None:
    never = threading.Event()
    fleet.gateway.script = in_turn(
        lambda job: [begin(), emit("a"), never],
        lambda job: [begin(), emit("b"), end(job, 1)],
        lambda job: [refuse(errors.overloaded("full"))],
    )
    answer = post(ann, {**body, "n": 3, "stream": stream})
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "full")
    released_once(fleet)


@BOTH
def test_headers_wait_until_no_choice_can_be_refused_any_more(
    ann: httpx.Client, fleet: Running, body: dict[str, Any]
) -> None:
    """The first choice is all there long before the second is refused."""
    late = threading.Event()
    fleet.gateway.script = in_turn(
        lambda job: [begin(), emit("a"), end(job, 1)], lambda job: [late, refuse(errors.overloaded("full"))]
    )
    threading.Timer(0.3, late.set).start()
    assert post(ann, {**body, "n": 2, "stream": True}).status_code == 429


@pytest.mark.parametrize("stream", [False, True])
def test_a_choice_that_fails_after_begin_ends_the_answer_with_its_error(
    ann: httpx.Client, fleet: Running, stream: bool
) -> None:
    never = threading.Event()
    fleet.gateway.script = in_turn(
        lambda job: [begin(), emit("a"), refuse(errors.internal("the worker died"))],
        lambda job: [begin(), emit("b"), never],
    )
    answer = post(ann, {**TEXT, "n": 2, "stream": stream})
    if stream:
        assert events(answer)[-1]["error"]["message"] == "the worker died"
    else:
        assert (answer.status_code, answer.json()["error"]["message"]) == (500, "the worker died")
    released_once(fleet)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_lets_go_of_every_choice(ann: httpx.Client, fleet: Running, stream: bool) -> None:
    never = threading.Event()
    fleet.gateway.script = lambda job: [begin(), emit("a"), never]
    with pytest.raises(httpx.ReadTimeout):
        ann.post(path_of(TEXT), json={**TEXT, "n": 3, "stream": stream}, timeout=0.3)
    submitted(fleet, 3)
    released_once(fleet)
    time.sleep(0.1)
    assert [call.cancels for call in fleet.gateway.calls] == [1, 1, 1]


def test_a_stop_string_ends_its_own_choice_only(ann: httpx.Client, fleet: Running) -> None:
    fleet.gateway.script = answers("ab!cd", "abcd")
    choices = post(ann, {**TEXT, "n": 2, "stop": "!"}).json()["choices"]
    assert [(c["text"], c["finish_reason"]) for c in choices] == [("ab", "stop"), ("abcd", "stop")]


def test_best_of_may_be_what_n_is(ann: httpx.Client, fleet: Running) -> None:
    assert len(post(ann, {**TEXT, "n": 2, "best_of": 2}).json()["choices"]) == 2
    assert post(ann, {**TEXT, "best_of": 1}).is_success

"""Two prefill and two decode workers: the answers of one of each, all of them at work, and one death is its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from pagefence.sim.correspondence import check_recordings, describe
from tests.e2e.fleets import Fleet, complete, serving

pytestmark = pytest.mark.slow  # two fleets, five workers: more than a minute of two cores

FLAGS = ("--context", "256", "--kv-pool-tokens", "1024", "--page-size", "16", "--chunk-tokens", "32",
         "--dtype", "float32")  # fmt: skip
TWO_BY_TWO = ("--prefill-workers", "2", "--decode-workers", "2", "--max-in-flight", "8")
# As many tokens each, so that the router can only share them evenly; no two begin alike.
PROMPTS = [list(range(1000 + 100 * i, 1048 + 100 * i)) for i in range(8)]
FEW, MANY = 12, 32  # new tokens: enough to compare, and enough for all prompts to be in the middle at once
Answers = list[list[int]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Token ids that one prefill and one decode worker answer."""
    with serving(tmp_path_factory.mktemp("one"), *FLAGS) as fleet:
        answers = [token_ids(answer) for answer in ask_at_once(fleet, PROMPTS, MANY)]
    assert {len(answer) for answer in answers} == {MANY}, "an answer ends too early"
    return answers


@pytest.fixture(scope="module")
def many(expected: Answers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """After the other one has ended: two at once are too many for two cores. Its record is held against the model."""
    folder = tmp_path_factory.mktemp("many")
    with serving(folder, *FLAGS, *TWO_BY_TWO, "--record", str(folder / "record")) as running:
        yield running
    seen = check_recordings(folder / "record")
    assert seen.legal, describe(seen)
    assert seen.inputs["LastOrders"] == 1


def ask_at_once(fleet: Fleet, prompts: Answers, new_tokens: int) -> list[httpx.Response]:
    """All of them at the same time, each on a connection of its own."""

    def ask(prompt: list[int]) -> httpx.Response:
        with fleet.client() as client:
            return complete(client, prompt, new_tokens, return_token_ids=True)

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def token_ids(answer: httpx.Response) -> list[int]:
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


def test_many_workers_answer_as_one_of_each_and_every_one_of_them_works(many: Fleet, expected: Answers) -> None:
    answers = ask_at_once(many, PROMPTS, FEW)
    assert [token_ids(answer) for answer in answers] == [right[:FEW] for right in expected]
    workers = many.workers()
    assert sorted(workers) == ["decode-0", "decode-1", "prefill-0", "prefill-1"]
    assert [workers[name]["handoffs"] for name in ("decode-0", "decode-1")] == [4, 4]
    computed = [workers[name]["computed_tokens"] for name in ("prefill-0", "prefill-1")]
    assert min(computed) >= 2 * len(PROMPTS[0])
    assert sum(computed) == sum(map(len, PROMPTS))
    assert sorted(many.at_rest()) == sorted(workers)


def test_a_burst_beyond_what_is_taken_gets_429_at_once_and_nothing_taken_is_lost(
    many: Fleet, expected: Answers
) -> None:
    answers = ask_at_once(many, PROMPTS * 2, FEW)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 8
    for answer, right in zip(answers, expected * 2, strict=True):
        if answer.status_code == 200:
            assert token_ids(answer) == right[:FEW]
        else:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(answer.headers["retry-after"]) >= 1
    many.at_rest()


def test_the_death_of_one_decode_worker_touches_its_own_requests_and_no_others(many: Fleet, expected: Answers) -> None:
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask_at_once, many, PROMPTS, MANY)
        victim = wait_until_all_run(many)["decode-1"]
        os.kill(victim["pid"], signal.SIGKILL)
        answers = asked.result(120)
    lost = [answer for answer in answers if answer.status_code != 200]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in lost] == [(503, "worker_lost")] * 4
    for answer, right in zip(answers, expected, strict=True):
        assert answer.status_code == 503 or token_ids(answer) == right

    (meanwhile,) = ask_at_once(many, PROMPTS[:1], FEW)
    assert token_ids(meanwhile) == expected[0][:FEW], "the others go on"
    many.at_rest()


def wait_until_all_run(fleet: Fleet) -> dict[str, dict[str, int]]:
    """Until both decode workers generate for four requests each."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        workers = fleet.workers()
        if all(workers[name]["running"] == 4 for name in ("decode-0", "decode-1")):
            return workers
        time.sleep(0.02)
    pytest.fail(f"not all requests were ever in the middle: {workers}")

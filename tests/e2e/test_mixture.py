"""Real fleets of every kind, requests that begin alike, share batches and leave: the tokens of each alone.

`tests/engine/model/test_mixture.py` draws many more mixtures, in one process. Here are processes, sockets and clocks.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch

from pagefence.engine.kv.mooncake import require
from pagefence.engine.kv.transfer import BackendMissing
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.models import resolve
from tests.alone import GREEDY, Ask
from tests.e2e.clients import Manner, Result, Right, ask_fleet, prose
from tests.e2e.fleets import KEY_A, KEY_B, Fleet, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS, AT_ONCE, LIMIT_S = 3, 8, 300.0
LENGTHS = (17, 40, 64, 129, 200, 333)
COMMON = ("--context", "512", "--kv-pool-tokens", "1280", "--dtype", "float32")
MANNERS: tuple[Manner, ...] = ("whole", "whole", "stream", "stalls", "leaves before", "leaves within")
FLEETS = {
    "small chunks, few rows": ("--page-size", "16", "--chunk-tokens", "16", "--max-requests", "2"),
    "odd pages, many rows": ("--page-size", "7", "--chunk-tokens", "70", "--max-requests", "8"),
    "two by two": ("--page-size", "16", "--chunk-tokens", "64", "--prefill-workers", "2", "--decode-workers", "2"),
    "without a cache": ("--page-size", "64", "--chunk-tokens", "256", "--decode-workers", "2", "--no-prefix-cache"),
    "over mooncake": ("--page-size", "16", "--chunk-tokens", "32", "--transfer", "mooncake"),
}


@pytest.fixture(scope="module")
def answers() -> list[Right]:
    """Two prompts of each length that begin alike, one of them sampled; and what each is answered alone."""
    torch.set_num_threads(1)
    path = resolve("smollm2-135m-instruct")
    model, tokenizer = Decoder.load(path), Tokenizer.load(path)
    made = []
    for number, length in enumerate(LENGTHS * 2):
        prompt = prose(tokenizer, 333, 1)[: length - 8] + prose(tokenizer, 8, 2 + number)
        sampling = GREEDY if number < len(LENGTHS) else SamplingParams(temperature=0.8, top_p=0.9, seed=number)
        made.append(Right.of(model, tokenizer, Ask(tuple(prompt), 16 + number, sampling)))
    return made


def play_a_round(fleet: Fleet, answers: list[Right], seed: str) -> list[Result]:
    """All at the same time. One of each manner is there; who asks what is drawn, but for a long one that is read."""
    rng = random.Random(seed)
    manners = [*MANNERS, *rng.choices(MANNERS, k=AT_ONCE - len(MANNERS))]
    asked = [(rng.choice((KEY_A, KEY_A, KEY_B)), right) for right in rng.choices(answers, k=AT_ONCE)]
    asked[0] = (KEY_A, answers[len(LENGTHS) - 1])

    def ask(number: int) -> Result:
        key, right = asked[number]
        return ask_fleet(fleet, key, right, manners[number], random.Random(f"{seed}/{number}"), LIMIT_S)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, range(AT_ONCE)))


@pytest.mark.parametrize("kind", FLEETS)
def test_every_answer_is_the_one_alone(
    kind: str, answers: list[Right], tmp_path_factory: pytest.TempPathFactory
) -> None:
    flags = FLEETS[kind]
    if "mooncake" in flags:
        try:
            require()
        except BackendMissing as missing:
            pytest.skip(str(missing))
    with serving(tmp_path_factory.mktemp("mixture"), *COMMON, *flags) as fleet:
        results = [one for number in range(ROUNDS) for one in play_a_round(fleet, answers, f"{kind}/{number}")]
        workers = fleet.workers()
        cancelled = cancelled_requests(fleet)
        fleet.at_rest()
    kinds = Counter(result.kind for result in results)
    cached = sum(info.get("cached_tokens", 0) for info in workers.values())
    ties = sum(len(right.expected.ties) for right in answers)
    positions = sum(len(right.expected.ids) for right in answers)
    print(f"{kind}: {dict(kinds)}, {cached} tokens cached, {cancelled} cancelled, {ties}/{positions} positions tied")
    assert not [result for result in results if result.kind not in ("same", "tie", "left")]
    assert kinds["same"] >= ROUNDS * 3
    # What a mixture is for has happened, or nothing was shown.
    assert cancelled > 0
    assert {result.manner for result in results if result.kind == "left"} == {"leaves before", "leaves within"}
    assert (cached > 0) == ("--no-prefix-cache" not in flags)
    if cached:
        assert any(result.cached for result in results)
    assert max(LENGTHS) > int(flags[flags.index("--chunk-tokens") + 1])  # a prompt of several chunks was asked
    decodes = [info["handoffs"] for info in workers.values() if "handoffs" in info]
    assert min(decodes) > 0


def cancelled_requests(fleet: Fleet) -> int:
    """Requests that the router ended because their client was gone."""
    lines = httpx.get(f"{fleet.router}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if 'outcome="cancelled"' in line)

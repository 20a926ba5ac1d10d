"""Whatever a request is mixed with, its tokens are those that it gets alone.

Batches, chunks, pages, the prefix cache, the way of the KV and clients that leave are mixed at random, in one process
(`tests/engine/pair.py`); `tests/e2e/test_mixture.py` does the same to real fleets. Where the reference itself is
undecided, in the last digits, the answer may differ: such ties are counted and printed (`tests/alone.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pagefence.engine.kv.mooncake import require
from pagefence.engine.kv.transfer import BackendMissing
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.settings import Settings
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Refuse
from tests.alone import GREEDY, Ask, Expected, answer_alone
from tests.engine.pair import Client, Got, Pair, paired

PREFIXES = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """How large mixtures are: of `page` tokens a page, prompts of at most `longest` and answers of `new_tokens`."""

    page: int
    longest: int
    new_tokens: int
    vocab: range
    moves: int

    def prompt(self, prefix: int, shared: int, seed: int, own: int) -> tuple[int, ...]:
        """The first `shared` tokens of a prefix that others have too, and `own` of its own."""
        begin = Random(prefix).choices(self.vocab, k=self.longest)[:shared]
        return (*begin, *Random(f"{prefix}/{seed}").choices(self.vocab, k=own))


@dataclass(frozen=True, slots=True)
class Mixture:
    """One random fleet and its clients."""

    pages_in_a_chunk: int
    rows: int
    prefix_cache: bool
    transfer: str
    order: int
    clients: tuple[Client, ...]


TINY = Scale(page=4, longest=40, new_tokens=10, vocab=range(2, 97), moves=60)
SMOLLM = Scale(page=16, longest=150, new_tokens=16, vocab=range(1000, 40_000), moves=90)


def transfers() -> tuple[str, ...]:
    """Those that can be loaded here."""
    try:
        require()
    except BackendMissing:
        return ("shm",)
    return ("shm", "mooncake")


def mixtures(scale: Scale, ways: tuple[str, ...] = ("shm",)) -> st.SearchStrategy[Mixture]:
    """Two to seven clients; every second one is sampled, many leave before their end."""
    sampling = st.one_of(
        st.just(GREEDY),
        st.builds(SamplingParams, temperature=st.just(0.8), top_p=st.sampled_from((0.9, 1.0)), seed=st.integers(0, 9)),
    )
    prompt = st.builds(
        scale.prompt,
        st.integers(0, PREFIXES - 1),
        st.integers(0, scale.longest),
        st.integers(0, 3),
        st.integers(1, scale.longest // 3),
    )
    client = st.builds(
        Client,
        st.builds(Ask, prompt, st.integers(1, scale.new_tokens), sampling),
        st.sampled_from((0, 0, 0, 1)),
        st.one_of(st.none(), st.none(), st.integers(0, scale.moves)),
        st.one_of(st.none(), st.none(), st.integers(1, scale.new_tokens)),
    )
    return st.builds(
        Mixture,
        st.integers(1, 4),
        st.integers(1, 6),
        st.sampled_from((True, True, False)),
        st.sampled_from(ways),
        st.integers(0, 2**32),
        st.lists(client, min_size=2, max_size=7).map(tuple),
    )


def everything(scale: Scale, transfer: str = "shm") -> Mixture:
    """A mixture that is sure to go through all that a mixture is for."""
    long = scale.longest

    def ask(shared: int, sampling: SamplingParams, seed: int) -> Ask:
        return Ask(scale.prompt(0, shared, seed, long // 4), scale.new_tokens, sampling)

    sampled = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
    staying = [Client(ask(long - scale.page * i, (GREEDY, sampled)[i % 2], i)) for i in range(5)]
    leaving = [Client(ask(long, GREEDY, 9), moves=1), Client(ask(long, GREEDY, 9), moves=12)]
    leaving += [Client(ask(long, sampled, 8), tokens=tokens) for tokens in (1, scale.new_tokens // 2)]
    mixed = [one for pair in zip(staying, leaving, strict=False) for one in pair]
    return Mixture(1, 4, True, transfer, 3, (*mixed, staying[-1], Client(ask(long, sampled, 0))))


class Tally:
    """Plays mixtures and holds every answer against the one alone."""

    def __init__(self, model: Decoder, scale: Scale) -> None:
        self.model, self.scale = model, scale
        self.alone: Callable[[Ask], Expected] = cache(lambda ask: answer_alone(model, ask))
        self.seen: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def settings_of(self, mixture: Mixture) -> Settings:
        """Pools that hold about three rooms at a time, so that others wait and cached pages are evicted."""
        page = self.scale.page
        context = -(-(self.scale.longest * 4 // 3 + 1 + self.scale.new_tokens) // page) * page
        return Settings(
            model="m",
            model_name="m",
            context=context,
            page_size=page,
            prefill_pool_tokens=3 * context,
            decode_pool_tokens=3 * context,
            chunk_tokens=page * mixture.pages_in_a_chunk,
            max_requests=mixture.rows,
            prefix_cache=mixture.prefix_cache,
            transfer=mixture.transfer,  # type: ignore[arg-type]
        )

    def play(self, mixture: Mixture) -> None:
        """Fails at the first answer that is not the one alone, and when something is still held in the end."""
        with paired(self.model, self.settings_of(mixture)) as pair:
            for got in pair.play(mixture.clients, Random(mixture.order)):
                self.judge(got)
            assert pair.at_rest()
            longest = max(len(client.ask.prompt) for client in mixture.clients)
            pair.seen["chunks of a prompt"] = -(-longest // (self.scale.page * mixture.pages_in_a_chunk))
            if mixture.transfer != "shm":
                pair.seen[mixture.transfer] = 1
        for what, count in pair.seen.items():
            largest = what in ("rows in a step", "prompts in a pass", "chunks of a prompt")
            self.seen[what] = max(self.seen[what], count) if largest else self.seen[what] + count

    def judge(self, got: Got) -> None:
        """A client that stayed has a whole answer, one that left a part of it."""
        expected = self.alone(got.client.ask)
        stayed = got.left_in is None
        if isinstance(got.outcome, Refuse):
            assert got.outcome.error.code == "quarantine", got.outcome  # others left, and their pages wait for a proof
            assert not got.ids
            self.seen["refused"] += 1
            return
        verdict = expected.judge(got.ids, whole=stayed)
        assert verdict != "wrong", f"{got.ids} for {expected}"
        self.verdicts[verdict] += 1
        self.verdicts["positions"] += len(got.ids)
        self.verdicts["tied positions"] += sum(at < len(got.ids) for at in expected.ties)

    def report(self) -> str:
        """What was seen, for the record."""
        counted = {**self.verdicts, **self.seen}
        return ", ".join(f"{what}: {count}" for what, count in counted.items())

    def require(self, *ways: str) -> None:
        """A run that did not go through everything has shown nothing."""
        assert self.seen["cached tokens"] > 0
        assert self.seen["chunks of a prompt"] >= 3
        assert self.seen["prompts in a pass"] >= 2
        assert self.seen["rows in a step"] >= 3
        assert self.seen["left when started"] > 0
        assert self.seen["left when committed"] > 0
        assert all(self.seen[way] for way in ways if way != "shm")
        assert self.verdicts["same"] > 0


QUICK: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture(scope="module")
def tally(tiny: tuple[Decoder, Any]) -> Tally:
    return Tally(tiny[0], TINY)


def test_a_requests_tokens_do_not_depend_on_what_it_is_mixed_with(tally: Tally) -> None:
    @example(everything(TINY))
    @settings(max_examples=12, **QUICK)
    @given(mixtures(TINY))
    def any_mixture(mixture: Mixture) -> None:
        tally.play(mixture)

    any_mixture()
    print(tally.report())
    tally.require()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nor_do_those_of_smollm2_whichever_way_their_kv_goes(smollm: Decoder) -> None:
    tally, ways = Tally(smollm, SMOLLM), transfers()

    @settings(max_examples=10, **QUICK)
    @given(mixtures(SMOLLM, ways))
    def any_mixture(mixture: Mixture) -> None:
        tally.play(mixture)

    for way in ways:
        any_mixture = example(everything(SMOLLM, way))(any_mixture)
    any_mixture()
    print(tally.report())
    tally.require(*ways)


# The counterpart: what must not happen would show.

ONE = Client(Ask(TINY.prompt(0, 16, 1, 3), TINY.new_tokens))
ALIKE = Client(Ask(TINY.prompt(0, 16, 2, 3), TINY.new_tokens))
FOREIGN = Client(Ask(TINY.prompt(1, 16, 2, 3), TINY.new_tokens))
CACHING = Mixture(2, 4, True, "shm", 0, ())


def one_after_the_other(pair: Pair, *clients: Client) -> list[Got]:
    return [got for client in clients for got in pair.play([client], Random(0))]


def test_a_wrong_number_in_a_cached_page_would_show(tally: Tally) -> None:
    with paired(tally.model, tally.settings_of(CACHING)) as pair:
        (first,) = one_after_the_other(pair, ONE)
        (cached, *_) = pair.prefill.state.pool.cache.pages.values()
        pair.prefill.segment.kv[cached.page.index, :, :, 1] += 1.0
        (second,) = one_after_the_other(pair, ALIKE)
    assert second.cached == 16
    assert tally.alone(ONE.ask).judge(first.ids) == "same"
    assert tally.alone(ALIKE.ask).judge(second.ids) == "wrong"


def test_a_cached_page_that_another_prompt_gets_would_show(tally: Tally) -> None:
    wrong = Decisions(cache_key=lambda parent, key, tokens: parent + b".", same_content=lambda *_: True)
    for decisions, verdict in ((Decisions(), "same"), (wrong, "wrong")):
        with paired(tally.model, tally.settings_of(CACHING), decisions) as pair:
            *_, foreign = one_after_the_other(pair, ONE, FOREIGN)
        assert (foreign.cached > 0) == (verdict == "wrong")
        assert tally.alone(FOREIGN.ask).judge(foreign.ids) == verdict


def test_a_wrong_number_in_a_page_of_the_batch_would_show_in_its_own_row_only(tally: Tally) -> None:
    with paired(tally.model, tally.settings_of(CACHING)) as pair:
        step = pair.decode.work.do_one

        def meddle() -> None:
            for room, request in pair.decode.state.requests.items():
                if room.nonce == "n0" and request.emitted == 3:
                    pair.decode.segment.kv[pair.decode.state.pool.lease_of(room).pages[1].index] *= -1.0
            step()

        pair.decode.work.do_one = meddle  # type: ignore[method-assign]
        verdicts = [tally.alone(got.client.ask).judge(got.ids) for got in pair.play([ONE, ALIKE], Random(0))]
    assert verdicts == ["wrong", "same"]

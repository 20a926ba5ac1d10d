"""A race is planned before it is run: the same for the same seed, within its caps, skewed, and known word for word."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import Limits
from pagefence.probes.race.aside import tail
from pagefence.probes.race.course import Course, course, expected
from pagefence.probes.race.plan import CONTROLS, Profile, plan
from pagefence.probes.race.words import Index, accidents, draw_pairwise
from pagefence.probes.sentinel import Sentinel, scan

LIMITS = Limits(2042, 2560, 2048, 2560, 2048, (2560,))
OWN = Sentinel("me", "a", ("cash", "adjust", "wagon", "start"))
RIGHT = "".join(f" {OWN}\n-" for _ in range(4))


def test_the_same_seed_plans_the_same_race_and_another_one_another() -> None:
    assert plan(LIMITS, 3, Profile(300)) == plan(LIMITS, 3, Profile(300))
    assert plan(LIMITS, 3, Profile(300)) != plan(LIMITS, 4, Profile(300))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 400), st.integers(12_000, 200_000), st.integers(2, 64))
def test_a_race_keeps_its_caps(seed: int, probes: int, tokens: int, at_once: int) -> None:
    made = plan(LIMITS, seed, Profile(probes, tokens, 60.0, at_once))
    assert len(made.shots) <= probes
    assert sum(made.tokens) <= tokens
    assert all(2 <= block.at_once <= at_once for block in made.blocks)
    assert all(s.tokens <= LIMITS.longest and s.tokens + s.max_tokens <= LIMITS.context for s in made.everything)


def test_both_legs_have_their_turn_to_be_busy_and_clients_go_at_every_moment() -> None:
    shots = plan(LIMITS, 1, Profile(2000)).shots
    assert sum(s.max_tokens == 1 and s.tokens >= 128 for s in shots) > 200
    assert sum(s.max_tokens >= 32 and s.tokens <= 64 for s in shots) > 200
    assert {s.tenant for s in shots} == {"a", "b"}
    gone = [s.hang_up for s in shots if s.hang_up is not None]
    assert 0.2 < len(gone) / len(shots) < 0.4
    kinds = Counter((g.events is not None, g.at_end, g.paces is not None) for g in gone)
    assert len(kinds) == 3
    assert min(kinds.values()) > 20
    seeds = [s.seed for s in shots]
    assert any(a == b for a, b in pairwise(seeds)), "some clients choose the same seed"


def test_only_what_is_asked_again_shares_nonce_and_words() -> None:
    made = plan(LIMITS, 1, Profile(500))
    once = [s for s in made.everything if not s.id.endswith("-again")]
    assert len({s.nonce for s in once}) == len({s.sentinel for s in once}) == len(once)
    assert len(made.controls) == len(made.after) == CONTROLS
    by_id = {s.id: s for s in made.shots}
    again = [s for s in made.shots if s.id.endswith("-again")]
    assert again
    assert all(s.nonce == by_id[s.id.removesuffix("-again")].nonce and s.hang_up is None for s in again)


def test_thousands_of_sentinels_share_no_pair_of_words() -> None:
    drawn = list(islice(draw_pairwise(1), 5000))
    pairs = Counter(frozenset(p) for words in drawn for p in combinations(words, 2))
    assert set(pairs.values()) == {1}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.data())
def test_the_index_finds_what_a_search_for_each_sentinel_finds(seed: int, data: st.DataObject) -> None:
    live = [Sentinel(f"r{i}", "ab"[i % 2], words) for i, words in enumerate(islice(draw_pairwise(seed), 40))]
    words = [w for s in live[:6] for w in s.words]
    said = data.draw(st.lists(st.one_of(st.sampled_from(words), st.sampled_from(["the", "-", "\n", "7"])), max_size=30))
    runs = data.draw(st.lists(st.sampled_from([str(s) for s in live]), max_size=2))
    text = " ".join([*said, *runs])
    found = {(s.sentinel.owner, s.whole, s.shards) for s in Index.of(live).scan(text, live[0])}
    assert found == {(s.sentinel.owner, s.whole, s.shards) for s in scan(text, live, live[0])}


@given(st.integers(0, len(RIGHT)))
def test_an_answer_that_was_left_is_right_wherever_it_ends(cut: int) -> None:
    assert course(RIGHT[:cut], OWN) is Course.RIGHT


@given(st.integers(1, 12), st.integers(1, 6), st.sampled_from(["doubled", "left out", "exchanged"]))
def test_tokens_that_are_doubled_left_out_or_exchanged_are_out_of_order(at: int, many: int, how: str) -> None:
    tokens = [w for _ in range(6) for w in (*(f" {w}" for w in OWN.words), "\n", "-")]
    if how == "doubled":
        said = [*tokens[: at + many], *tokens[at:]]
    elif how == "left out":
        said = [*tokens[:at], *tokens[at + many :]]
    else:
        said = [*tokens[:at], tokens[at + 1], tokens[at], *tokens[at + 2 :]]
    text = "".join(said[:24])
    right = "".join(expected(OWN, 300).split())
    same = right.startswith("".join(text.split()))
    assert course(text, OWN) in ((Course.RIGHT, Course.ORDER) if same else (Course.ORDER,))


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (" cash adjust wagon start\n- cash elegant fig", Course.OTHER),
        (" the the the the the", Course.LOST),
        ("", Course.RIGHT),
    ],
)
def test_what_else_an_answer_may_be(text: str, how: Course) -> None:
    assert course(text, OWN) is how


def test_own_words_alone_are_no_accident_waiting_to_happen() -> None:
    assert accidents([(RIGHT, OWN)] * 1000, 4000) == 0.0
    rambling = " ".join(random.Random(1).sample([w for words in islice(draw_pairwise(2), 40) for w in words], 30))
    assert accidents([(rambling, OWN)] * 100, 4000) > 1e-6


def test_the_tail_of_a_binomial_is_exact_where_it_is_known() -> None:
    assert tail(0, 5, 0.3) == pytest.approx(1.0)
    assert tail(5, 5, 0.3) == pytest.approx(0.3**5)
    assert tail(1, 2, 0.5) == pytest.approx(0.75)

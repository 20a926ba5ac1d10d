"""What the canary asks, planned before anything is sent: within its budget, the most telling first, at any size."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import Answer, Limits
from pagefence.probes.boundary.shots import borders_over
from pagefence.probes.canary.prior import FORMS, LENGTHS, Belief, Cell, schedule
from pagefence.probes.plan import make_plan, usual_budget
from pagefence.probes.prompt import ASKING, NEUTRAL, Manner, Prompt
from pagefence.probes.run import Outcome, settled
from pagefence.probes.sentinel import LEAST_BITS, LENGTH, Sentinel, bits, coincidence, draw, look
from pagefence.probes.shot import ASKED, LISTED, PLAIN, Maker, Purpose
from pagefence.probes.wordlist import WORDS

EMBEDDED = Limits(2047, 2560, 2048, 2560, 2048, (2560,))
MILLION = Limits(1_048_575, 1_310_720, 1_048_576, 1_310_720, 1_048_576, (1_310_720,))
INCIDENT = Limits(681_280, 681_280, 1_048_576, 1_310_720, 1_048_576, (681_280, 1_310_720))


def test_the_embedded_fleet_is_asked_for_a_third_of_thirty_thousand_tokens() -> None:
    """The other probes of `verify` have the rest."""
    plan = make_plan(EMBEDDED, 1)
    assert plan.prompt_tokens <= 11_000
    assert sum(shot.purpose is Purpose.READ for shot in plan.expected) >= 10


def test_a_million_tokens_are_planned_right_without_being_sent() -> None:
    assert borders_over(MILLION) == (1_048_576, 1_048_577, 1_310_720, 1_310_721, 2_097_152)
    plan = make_plan(MILLION, 1)
    within = sorted({shot.tokens for shot in plan.shots if shot.purpose is Purpose.WITHIN})
    assert within == [1_048_574, 1_048_575]
    assert plan.prompt_tokens_of("boundary") == pytest.approx(3 * 1_048_575, rel=0.001)
    assert plan.prompt_tokens <= usual_budget(MILLION)


def test_the_incident_is_asked_between_its_pool_and_its_context() -> None:
    lengths = borders_over(INCIDENT)
    assert lengths[0] == 681_281
    assert {1_048_576, 1_048_577} <= set(lengths)
    readers = [shot.tokens for shot in make_plan(INCIDENT, 1).shots if shot.purpose is Purpose.READ_OVER]
    assert min(readers) == 681_281
    assert any(900_000 > n > 800_000 for n in readers)


@settings(max_examples=25, deadline=None)
@given(st.integers(100, 20_000), st.integers(500, 200_000))
def test_a_plan_stays_within_its_budget_but_for_the_controls(longest: int, budget: int) -> None:
    limits = Limits(longest, longest + 1, longest + 1, longest + 1, longest + 1, (longest + 1,))
    plan = make_plan(limits, 1, budget=budget)
    always = sum(s.tokens for s in plan.expected if s.purpose in (Purpose.CONTROL, Purpose.ALIVE))
    one_plant = longest  # without one planted prompt nothing could show
    assert plan.prompt_tokens <= max(budget, always + one_plant)


def test_a_larger_budget_asks_more() -> None:
    small, large = (make_plan(EMBEDDED, 1, budget=budget) for budget in (14_000, 40_000))
    assert len(large.expected) > len(small.expected)
    assert small.prompt_tokens < large.prompt_tokens


def test_every_kind_of_reader_comes_to_its_turn() -> None:
    picked = [cell for cell, _ in schedule(lambda cell: round(2047 * cell.length), 30_000, 60)]
    assert {cell.stream for cell in picked} == {True, False}
    assert {cell.wording for cell in picked} == {NEUTRAL, ASKING}
    assert {cell.temperature for cell in picked} == {0.0, 0.8}
    assert {cell.length for cell in picked} == set(LENGTHS)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([Cell(n, *form) for n, form in itertools.product(LENGTHS, FORMS)]), max_size=12))
def test_belief_is_a_probability_and_information_no_more_than_one_bit(cells: list[Cell]) -> None:
    belief = Belief()
    for cell in cells:
        assert 0 <= belief.information(cell) <= 1
        after = belief.after(cell)
        assert 0 <= sum(after.odds) <= sum(belief.odds) + 1e-12
        belief = after


def test_a_reader_that_showed_nothing_tells_less_the_next_time() -> None:
    cell = Cell(0.1, ASKING, 0.0, stream=False)
    assert Belief().after(cell).information(cell) < Belief().information(cell)


# --- sentinels


def test_a_sentinel_holds_sixty_bits() -> None:
    assert bits(len(WORDS)) >= LEAST_BITS
    assert len(next(draw(1))) == LENGTH


def test_sentinels_are_disjoint_as_long_as_the_words_last_and_then_go_on() -> None:
    laps = list(itertools.islice(draw(1), len(WORDS) // LENGTH + 5))
    words = [word for words in laps[: len(WORDS) // LENGTH] for word in words]
    assert len(set(words)) == len(words)


def test_the_chance_of_a_coincidence_is_bounded_by_its_formula() -> None:
    """On a list so short that coincidences happen: the bound holds, and is not far above what is drawn."""
    few, rounds = WORDS[:24], 20_000
    said = [*random.Random(3).sample(few, 8), few[0], few[2]]
    text, chance = " ".join(said), random.Random(5)
    hits = sum(look(text, Sentinel("x", "a", tuple(chance.sample(few, LENGTH)))).proof for _ in range(rounds))
    bound = coincidence([(text, None)], 1, len(few))
    assert bound / 4 < hits / rounds <= bound


# --- the manners that this model copies


def control(manner: Manner, holds: bool) -> Outcome:
    shot = replace(Maker(1).shot("canary", Purpose.CONTROL, "a", 64, 24), manner=manner)
    answer = Answer(200, text=str(shot.sentinel) if holds else "no", finish_reason="length")
    return Outcome(shot, Prompt("", 64, True), answer, {})


def test_a_manner_in_which_the_model_copies_nothing_gives_way_to_the_best() -> None:
    controls = [control(PLAIN, True), control(PLAIN, True), control(ASKED, False), control(ASKED, True)]
    assert settled(controls) == {ASKED: PLAIN}


def test_where_no_manner_works_none_is_chosen() -> None:
    assert settled([control(PLAIN, False), control(LISTED, False)]) == {}

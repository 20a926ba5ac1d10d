"""What goes into one forward pass of prefill, whatever waits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.portions import portions


@dataclass(eq=False)
class Prompt:
    """As the worker's: computed up to a page border or to its end."""

    token_ids: range
    computed: int = 0

    @property
    def left(self) -> int:
        return len(self.token_ids) - self.computed


@dataclass(frozen=True)
class Queue:
    page_size: int
    tokens: int
    prompts: list[Prompt]

    def share(self) -> list[tuple[Prompt, int]]:
        return portions(self.prompts, self.tokens, self.page_size)


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """Some prompts have begun, a few are computed to their end and not gone yet."""
    page = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(1, 6 * page), max_size=8))
    prompts = [Prompt(range(length), draw(st.sampled_from([*range(0, length, page), length, 0]))) for length in lengths]
    return Queue(page, page * draw(st.integers(1, 4)), prompts)


@given(queues())
def test_a_pass_holds_no_more_than_its_tokens_and_everybody_once_in_the_order_of_the_queue(queue: Queue) -> None:
    shared = queue.share()
    assert sum(count for _, count in shared) <= queue.tokens
    places = [queue.prompts.index(prompt) for prompt, _ in shared]
    assert all(before < after for before, after in pairwise(places))


@given(queues())
def test_a_portion_is_never_empty_and_ends_on_a_page_border_or_with_its_prompt(queue: Queue) -> None:
    for prompt, count in queue.share():
        assert 0 < count <= prompt.left
        assert count == prompt.left or (prompt.computed + count) % queue.page_size == 0


@given(queues())
def test_nothing_stays_empty_that_somebody_could_use(queue: Queue) -> None:
    shared = queue.share()
    given_to = {id(prompt): count for prompt, count in shared}
    rest = queue.tokens - sum(given_to.values())
    for prompt in queue.prompts:
        more = prompt.left - given_to.get(id(prompt), 0)
        assert more == 0 or (rest < more and rest < queue.page_size), "more would have gone in"


@given(queues())
def test_half_of_a_pass_is_the_oldests_as_long_as_it_needs_it(queue: Queue) -> None:
    unfinished = [prompt for prompt in queue.prompts if prompt.left]
    if unfinished:
        oldest, count = queue.share()[0]
        assert oldest is unfinished[0]
        assert count == oldest.left or count > queue.tokens // 2 - queue.page_size


@given(queues())
def test_pass_by_pass_every_token_is_computed_once_and_the_oldest_is_in_every_pass(queue: Queue) -> None:
    computed = {id(prompt): list(prompt.token_ids[: prompt.computed]) for prompt in queue.prompts}
    while unfinished := [prompt for prompt in queue.prompts if prompt.left]:
        shared = queue.share()
        assert shared
        assert shared[0][0] is unfinished[0]
        for prompt, count in shared:
            computed[id(prompt)] += prompt.token_ids[prompt.computed : prompt.computed + count]
            prompt.computed += count
    assert all(computed[id(prompt)] == list(prompt.token_ids) for prompt in queue.prompts)
    assert queue.share() == []


def test_sixteen_prompts_of_sixteen_tokens_are_one_pass() -> None:
    prompts = [Prompt(range(16)) for _ in range(16)]
    assert portions(prompts, 256, 64) == [(prompt, 16) for prompt in prompts]


def test_a_short_prompt_does_not_wait_for_the_long_one_before_it() -> None:
    long, short, next_long = Prompt(range(100)), Prompt(range(5)), Prompt(range(90))
    assert portions([long, short, next_long], 16, 4) == [(long, 8), (short, 5)]
    assert portions([long, next_long], 16, 4) == [(long, 16)]


def test_a_long_prompt_does_not_stand_in_the_way_of_a_short_one_that_still_fits() -> None:
    first, long, short = Prompt(range(10)), Prompt(range(40)), Prompt(range(3))
    assert portions([first, long, short], 16, 8) == [(first, 10), (short, 3)]

"""The figures that readiness and limits are judged on, and who is let in by them, to the token."""

from __future__ import annotations

import pytest

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool, PageRef
from pagefence.protocol.admission import (
    Node,
    Topology,
    admit_offer,
    admit_prompt,
    longest_prompt,
    not_ready,
    router_limit,
)
from pagefence.protocol.messages import Capacity, ErrorInfo, Offer, Reservation, Role, Room, Start, Submit, WorkerRef

ROOM, PREFILL, DECODE = Room(7, 0, "n"), WorkerRef("p", 1), WorkerRef("d", 1)
PAGE = 4


def topology(pool: int, headroom: float = 1.25) -> Topology:
    nodes = tuple(Node(role, role, Capacity(pool, 1, 1)) for role in ("prefill", "decode"))
    return Topology(2049, headroom, nodes)


def node(role: Role, pool: int) -> Node:
    return Node(role[0], role, Capacity(pool, PAGE, 1))


def ask(prompt: int, max_new: int) -> Submit:
    return Submit(0, "n", "tenant", tuple(range(prompt)), max_new, param="messages")


def offer(prompt: int, max_new: int) -> Offer:
    return Offer(ROOM, 0, PREFILL, "tenant", prompt, max_new)


def start(prompt: int, *, reserved: int | None = None, page_size: int = PAGE, pages: int | None = None) -> Start:
    """By default with the reservation that belongs to the prompt."""
    refs = tuple(PageRef(i, 1) for i in range(-(-prompt // PAGE) if pages is None else pages))
    words = Reservation(ROOM, PREFILL, DECODE, prompt if reserved is None else reserved, page_size, 2, refs)
    return Start(ROOM, 0, "tenant", tuple(range(prompt)), words)


def code(answer: Admitted | ErrorInfo | None) -> str | None:
    return answer.code if isinstance(answer, ErrorInfo) else None


# --- readiness ----------------------------------------------------------------------------------------------------


def test_a_pool_that_covers_all_but_a_fraction_of_a_token_does_not_cover() -> None:
    assert len(not_ready(topology(2561))) == 2  # 2,049 x 1.25 = 2,561.25
    assert not_ready(topology(2562)) == ()


def test_every_role_is_needed_and_the_missing_one_is_named() -> None:
    assert not_ready(Topology(8, 1.0, ())) == ("no prefill worker is alive", "no decode worker is alive")
    assert not_ready(Topology(8, 1.0, (node("prefill", 8),))) == ("no decode worker is alive",)
    assert not_ready(Topology(8, 1.0, (node("decode", 8),))) == ("no prefill worker is alive",)


def test_one_pool_that_is_too_small_is_enough_and_is_named() -> None:
    nodes = (node("prefill", 100), node("decode", 9), node("prefill", 10))
    assert not_ready(Topology(8, 1.25, nodes)) == (
        "d (decode): pool of 9 tokens is smaller than 8 x headroom 1.25 = 10",
    )


def test_a_declared_limit_takes_the_place_of_a_longer_context_and_never_of_a_shorter_one() -> None:
    nodes = (node("prefill", 10), node("decode", 10))
    assert not_ready(Topology(100, 1.25, nodes)) != ()
    assert not_ready(Topology(100, 1.25, nodes, limit=8)) == ()
    assert Topology(8, 1.25, nodes, limit=100).longest == 8


# --- the router's limit -------------------------------------------------------------------------------------------


def test_the_longest_prompt_leaves_one_token_for_the_answer() -> None:
    assert longest_prompt(Topology(24, 1.0, (node("prefill", 99), node("decode", 99)))) == 23


def test_the_smallest_pool_bounds_the_prompt_and_only_decode_needs_room_for_an_answer() -> None:
    assert longest_prompt(Topology(24, 1.0, (node("prefill", 12), node("decode", 99)))) == 12
    assert longest_prompt(Topology(24, 1.0, (node("prefill", 99), node("decode", 12)))) == 11
    assert longest_prompt(Topology(24, 1.0, (node("prefill", 99), node("decode", 12), node("prefill", 5)))) == 5


def test_the_router_takes_exactly_what_fits_the_context() -> None:
    fleet = Topology(24, 1.0, (node("prefill", 99), node("decode", 99)))
    assert router_limit(ask(23, 1), fleet) is None
    assert router_limit(ask(20, 4), fleet) is None
    for prompt, max_new, says in ((24, 1, "24 tokens"), (20, 5, "24 tokens"), (23, 2, "24 tokens")):
        error = router_limit(ask(prompt, max_new), fleet)
        assert error is not None
        assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
        assert f"maximum context length is {says}" in error.message
        assert f"resulted in {prompt} tokens" in error.message
    both = router_limit(ask(20, 5), fleet)
    assert both is not None
    assert "asked for 5 more" in both.message


def test_a_prompt_over_the_smallest_pool_is_told_that_pools_limit() -> None:
    fleet = Topology(24, 1.0, (node("prefill", 12), node("decode", 99)))
    assert router_limit(ask(12, 1), fleet) is None
    error = router_limit(ask(13, 1), fleet)
    assert error is not None
    assert "maximum context length is 13 tokens" in error.message


# --- decode's admission -------------------------------------------------------------------------------------------


def test_decode_admits_prompt_and_answer_together_up_to_its_whole_pool() -> None:
    pool = PagePool.of(2, PAGE)
    assert admit_offer(offer(5, 3), pool) == Admitted(ROOM, "tenant", 8)
    error = admit_offer(offer(5, 4), pool)
    assert isinstance(error, ErrorInfo)
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")
    assert "length is 8 tokens" in error.message
    assert "resulted in 5 tokens and asked for 4 more" in error.message


@pytest.mark.parametrize(("prompt", "max_new"), [(0, 1), (1, 0), (-1, 5), (5, -1)])
def test_decode_wants_at_least_one_token_of_each(prompt: int, max_new: int) -> None:
    error = admit_offer(offer(prompt, max_new), PagePool.of(2, PAGE))
    assert isinstance(error, ErrorInfo)
    assert (error.code, error.param) == ("invalid_value", "prompt")
    assert isinstance(admit_offer(offer(1, 1), PagePool.of(2, PAGE)), Admitted)


# --- prefill's admission ------------------------------------------------------------------------------------------


def test_prefill_admits_the_prompt_that_was_reserved_for_up_to_its_whole_pool() -> None:
    pool = PagePool.of(2, PAGE)
    for tokens in (1, 4, 5, 8):
        assert admit_prompt(start(tokens), pool) == Admitted(ROOM, "tenant", tokens, tuple(range(tokens)))
    error = admit_prompt(start(9), pool)
    assert isinstance(error, ErrorInfo)
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")
    assert "length is 8 tokens" in error.message
    assert "resulted in 9 tokens. " in error.message


@pytest.mark.parametrize(
    "wrong",
    [
        start(5, reserved=4),
        start(5, reserved=6),
        start(5, page_size=2),
        start(5, page_size=8),
        start(5, pages=1),
        start(5, pages=3),
    ],
)
def test_prefill_calls_any_other_reservation_a_fault_of_the_fleet(wrong: Start) -> None:
    assert code(admit_prompt(wrong, PagePool.of(4, PAGE))) == "internal_error"

"""A figure is a positive whole number or it is unknown with its reason; reading one never raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagefence.fleet.answer import read_error, read_piece
from pagefence.fleet.engines import ADAPTERS, Asked
from pagefence.fleet.engines.pagefence import INFO, read
from pagefence.fleet.facts import FleetFacts, Limits, NodeFacts, figure, limits, positive, unknown
from pagefence.fleet.http import Reply

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
NAMES = ("max_total_num_tokens", "max_req_input_len", "context_length", "disaggregation_mode", "page_size")


@given(json_values)
def test_a_figure_has_a_value_or_a_problem_never_both(value: object) -> None:
    found = positive(value, "here")
    assert (found.value is None) != (found.problem is None)
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**53
    assert (found.value is not None) == sound


@given(st.dictionaries(st.sampled_from(NAMES), json_values))
def test_any_server_info_can_be_read(body: dict[str, object]) -> None:
    for adapter in ADAPTERS:
        reply = Reply(200, body, None)
        adapter.recognises(reply)
        node = adapter.read(Asked("http://x", dict.fromkeys((adapter.sign, *adapter.asks), reply)))
        assert node.role in ("prefill", "decode", "router", "single", "unknown")


@given(json_values)
def test_any_answer_can_be_read(value: object) -> None:
    read_piece(value)
    read_error(value)


def test_a_missing_figure_says_so() -> None:
    assert figure({}, ("max_total_num_tokens",), "/server_info").problem == "is missing"


def facts_of(url: str, info: dict[str, object]) -> NodeFacts:
    return read(Asked(url, {INFO: Reply(200, info, None)}))


def fleet(*infos: dict[str, object], advertised: int = 2048) -> FleetFacts:
    nodes = tuple(facts_of(f"http://n{i}", info) for i, info in enumerate(infos))
    return FleetFacts("http://r", "m", positive(advertised, "s"), nodes)


def node(role: str, pool: int, longest: int, context: int = 2048) -> dict[str, object]:
    return dict(zip(NAMES, (pool, longest, context, role, 64), strict=True))


def test_a_limit_is_the_smallest_over_all_nodes() -> None:
    found = limits(fleet(node("prefill", 1024, 1018), node("decode", 4096, 2042)))
    assert found == Limits(1018, 1024, 2048, 4096, 2048, (1024, 4096), 64)


def test_unknown_pools_or_contexts_give_a_reason_instead_of_limits() -> None:
    assert isinstance(limits(fleet({})), str)
    empty = FleetFacts("http://r", "m", unknown("s", "is missing"), ())
    assert isinstance(limits(empty), str)

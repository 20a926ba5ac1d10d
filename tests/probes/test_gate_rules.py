"""Each rule of the gate has a fleet that breaks only it, and a sound fleet breaks none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefence.fleet import Answer, ErrorBody, Figure, FleetFacts, NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, UNKNOWN
from pagefence.mistakes import Usage
from pagefence.probes import Kind, ProbeResult
from pagefence.probes.gate import RULES, ActiveResults, Policy, gate
from pagefence.probes.gate import rules as page
from pagefence.probes.gate.asked import FIELDS
from pagefence.probes.gate.lock import SCHEMA_VERSION, Approved, LockState, record
from pagefence.verdict import decide
from tests.probes.gate_facts import (
    CONTEXT,
    LIMIT,
    POOL,
    figure,
    kept,
    pair,
    sglang,
    silent,
    single,
    with_flag,
    with_pool,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gate-rules.md"
TODAY = date(2026, 12, 1)
LOCK = Path("approved.json")
EVERYTHING = Policy(edge_limit=LIMIT, lock=LOCK, active=True)


def look(facts: FleetFacts, policy: Policy | None = None, **other: Any) -> ProbeResult:
    return gate(facts, declared_pd=len(facts.nodes) > 1, policy=policy, today=TODAY, **other)


def approved(facts: FleetFacts) -> LockState:
    return LockState(str(LOCK), Approved(SCHEMA_VERSION, {n.url: record(n) for n in facts.everyone()}))


def broken(result: ProbeResult) -> set[tuple[str, Kind]]:
    return {(e.check, e.kind) for e in result.evidence}


def rows(result: ProbeResult, check: str) -> str:
    return "\n".join(f"{c.where}: {c.text}" for c in result.checks if c.id == check)


def short_rank(pool: int) -> NodeFacts:
    """A prefill leg whose second rank has another pool."""
    node = sglang(PREFILL)
    source = "/server_info internal_states[1].memory_usage.token_capacity"
    return with_pool(replace(node, ranks=(node.ranks[0], Figure(pool, source))))


def both(pool: int) -> tuple[NodeFacts, NodeFacts]:
    """Both legs, of one rank with this pool."""
    return sglang(PREFILL, ranks=(figure(pool),)), sglang(DECODE, ranks=(figure(pool),))


# By rule: a fleet that breaks it and no other, and how.
FAILING: dict[str, FleetFacts] = {
    "pool": pair(short_rank(CONTEXT + 1)),
    "context": pair(sglang(PREFILL, context=figure(1536)), advertised=figure(1536)),
    "advertised": pair(advertised=figure(CONTEXT + 1), nodes=both(4096)),
    "truncation": pair(with_flag(sglang(PREFILL), "auto_truncate", True)),
    "checksum": pair(decode=with_flag(sglang(DECODE), "kv_checksum", False)),
    "advisory": single(version="0.29.0"),
    "exposed": pair(decode=sglang(DECODE, open_api=True)),
}  # fmt: skip
DOUBTFUL: dict[str, FleetFacts] = {
    "facts": pair(problems=("the router lists 2 decode workers, but 1 were named",)),
    "pool": pair(with_pool(replace(sglang(PREFILL), ranks=(figure(POOL), silent())))),
    "roles": replace(pair(), nodes=(sglang(PREFILL),)),
    "context": pair(sglang(PREFILL, context=silent())),
    "advertised": pair(advertised=silent("/v1/models max_model_len")),
    "ready": pair(ready=False, reasons=("I8",)),
    "figures": pair(replace(sglang(PREFILL), engine="vllm", version="0.32.0", page_size=silent())),
    "truncation": pair(with_flag(sglang(PREFILL), "auto_truncate", None)),
    "checksum": pair(with_flag(sglang(PREFILL), "kv_checksum", None)),
    "advisory": single(version=None),
    "exposed": pair(sglang(PREFILL, open_api=None)),
}


@pytest.mark.parametrize("facts", [pair(), single()], ids=["disaggregated", "single"])
def test_a_sound_fleet_breaks_none(facts: FleetFacts) -> None:
    result = look(facts)
    assert broken(result) == set()
    assert decide([result]).exit_code == 0


def test_a_sound_fleet_breaks_none_when_everything_is_asked() -> None:
    result = look(pair(), EVERYTHING, active=kept(), lock=approved(pair()))
    assert broken(result) == set()
    assert {c.id for c in result.checks} == {rule.id for rule in RULES} - {"facts"}


@pytest.mark.parametrize("rule", FAILING)
def test_a_fleet_that_breaks_one_rule_fails_by_it_alone(rule: str) -> None:
    assert broken(look(FAILING[rule])) == {(rule, Kind.FAIL)}


@pytest.mark.parametrize("rule", DOUBTFUL)
def test_what_one_rule_needs_and_nobody_tells_is_inconclusive_by_it_alone(rule: str) -> None:
    assert broken(look(DOUBTFUL[rule])) == {(rule, Kind.INCONCLUSIVE)}


def test_every_rule_has_its_fleet() -> None:
    asked_below = {"topology", "enforced", "drift"}
    assert {rule.id for rule in RULES} == {*FAILING, *DOUBTFUL, *asked_below}


def test_findings_carry_rule_remedy_and_reference() -> None:
    for facts in (*FAILING.values(), *DOUBTFUL.values()):
        for evidence in look(facts).evidence:
            assert evidence.rule
            assert evidence.remedy
            assert str(evidence.details["reference"]).startswith("https://")


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.render(), "run: make docs"


# pool


def test_a_short_pool_is_told_with_its_rank_and_where_it_was_read() -> None:
    said = look(FAILING["pool"]).evidence[0]
    assert "read at rank 1, /server_info internal_states[1].memory_usage.token_capacity" in said.what
    assert "pool 2,049 tokens, needs 2,560 (context 2,048 x 1.25)" in said.what
    assert said.where == "prefill http://prefill:9000"
    assert said.details["rank"] == 1


def test_a_pool_that_is_known_only_as_at_least_is_inconclusive() -> None:
    bound = Figure(65_536, "/props default_generation_settings.n_ctx", "is the least it can be: the KV may be unified")
    result = look(single(engine="llama.cpp", version="b11434", pool=bound))
    assert broken(result) == {("pool", Kind.INCONCLUSIVE)}
    assert "says 65,536, but" in rows(result, "pool")


def test_a_declared_pool_stands_for_ranks_that_nobody_tells_but_not_for_one_that_is_short() -> None:
    declared = figure(POOL, "declared (/props n_ctx is missing)")
    assert broken(look(single(pool=declared, ranks=(silent(),)))) == set()
    assert broken(look(single(pool=declared, ranks=(figure(64),)))) >= {("pool", Kind.FAIL)}


def test_a_node_that_cannot_be_read_is_said_once() -> None:
    gone = NodeFacts(DECODE, "http://decode:9000", None, None, problem="/server_info did not answer")
    assert broken(look(pair(decode=gone))) == {("pool", Kind.INCONCLUSIVE)}


# edge limit

SMALL = pair(nodes=both(1250))
SHOWN = Policy(edge_limit=LIMIT, active=True)


def test_an_edge_limit_that_is_shown_makes_a_smaller_pool_enough() -> None:
    assert {check for check, _ in broken(look(SMALL))} == {"pool", "advertised"}
    assert broken(look(SMALL, SHOWN, active=kept())) == set()


def test_a_pool_below_the_edge_limit_fails_whatever_the_edge_does() -> None:
    facts = pair(nodes=(sglang(PREFILL, ranks=(figure(1249),)), sglang(DECODE, ranks=(figure(1250),))))
    assert broken(look(facts, SHOWN, active=kept())) == {("pool", Kind.FAIL)}


def test_an_edge_limit_that_is_only_declared_is_inconclusive() -> None:
    for policy in (Policy(edge_limit=LIMIT), SHOWN):
        found = broken(look(SMALL, policy))
        assert {("enforced", Kind.INCONCLUSIVE), ("advertised", Kind.INCONCLUSIVE)} <= found
        assert decide([look(SMALL, policy)]).exit_code == 3


@pytest.mark.parametrize(
    ("form", "answer", "kind"),
    [
        ("plain", Answer(200, "x", "length", LIMIT + 1, 1), Kind.FAIL),
        ("stream", Answer(200, error=ErrorBody("maximum context length"), stream=True), Kind.FAIL),
        ("stream", Answer(200, "x", problem="the stream broke off", stream=True, begun=True), Kind.FAIL),
        ("plain", Answer(400, "x", completion_tokens=1, error=ErrorBody("maximum context length")), Kind.FAIL),
        ("plain", Answer(400, error=ErrorBody("no such model")), Kind.FAIL),
        ("plain", Answer(500, error=ErrorBody("assertion failed")), Kind.FAIL),
        ("plain", Answer(None, problem="no complete answer within 60 s"), Kind.INCONCLUSIVE),
        ("plain", Answer(503, error=ErrorBody("busy")), Kind.INCONCLUSIVE),
        ("within", Answer(400, error=ErrorBody("maximum context length")), Kind.INCONCLUSIVE),
    ],
)
def test_an_edge_that_does_not_keep_its_limit_breaks_only_that(form: str, answer: Answer, kind: Kind) -> None:
    assert broken(look(pair(), SHOWN, active=kept(**{form: answer}))) == {("enforced", kind)}


def test_an_edge_that_was_asked_in_one_form_only_is_not_shown() -> None:
    half = replace(kept(), edge=kept().edge[:2])
    assert broken(look(pair(), SHOWN, active=half)) == {("enforced", Kind.INCONCLUSIVE)}


# topology


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(200, "x", "length", 1, 1), Kind.FAIL),
        (Answer(502, error=ErrorBody("bad gateway")), Kind.FAIL),
        (Answer(400, error=ErrorBody("bad request")), Kind.INCONCLUSIVE),
        (Answer(401, error=ErrorBody("rid")), Kind.INCONCLUSIVE),
        (Answer(None, problem="no complete answer within 20 s"), Kind.INCONCLUSIVE),
    ],
    ids=["answered", "failed", "refused without a name", "no permission", "silence"],
)
def test_a_field_that_is_not_refused_by_name_breaks_only_that(name: str, answer: Answer, kind: Kind) -> None:
    assert broken(look(pair(), Policy(active=True), active=kept(**{name: answer}))) == {("topology", kind)}


def test_topology_is_judged_only_when_it_was_to_be_asked() -> None:
    assert rows(look(pair()), "topology") == ""
    assert broken(look(pair(), Policy(active=True))) == {("topology", Kind.INCONCLUSIVE)}
    nothing = ActiveResults(obstacle="no router URL was given")
    assert broken(look(pair(), Policy(active=True), active=nothing)) == {("topology", Kind.INCONCLUSIVE)}
    partly = replace(kept(), fields=kept().fields[1:])
    assert broken(look(pair(), Policy(active=True), active=partly)) == {("topology", Kind.INCONCLUSIVE)}


# exposed, truncation, checksum, figures, advisory, roles


def test_a_worker_without_a_role_is_told_that_it_may_do_both() -> None:
    found = look(pair(replace(sglang(PREFILL), role=UNKNOWN), replace(sglang(DECODE), role=UNKNOWN))).evidence
    assert ["[[worker]]" in str(e.remedy) for e in found if "does not say" in e.what] == [True, True]


def test_inside_the_trusted_network_nothing_is_said_against_a_worker_that_answers() -> None:
    result = look(FAILING["exposed"], Policy(inside=True))
    assert broken(result) == set()
    assert "--inside" in rows(result, "exposed")


def test_a_single_server_without_a_router_is_not_behind_one() -> None:
    assert rows(look(single(open_api=True)), "exposed") == ""


def test_engines_without_the_switch_are_not_asked_for_truncation() -> None:
    assert rows(look(single()), "truncation") == ""
    assert broken(look(single(engine="sglang", version="0.5.23"))) == {("truncation", Kind.INCONCLUSIVE)}


@pytest.mark.parametrize(
    ("decode", "kind"),
    [
        (with_flag(sglang(DECODE), "kv_transfer", "nixl"), Kind.FAIL),
        (sglang(DECODE, page_size=figure(32)), Kind.FAIL),
        (sglang(DECODE, settings={"kv_cache_dtype": "fp8_e4m3"}), Kind.FAIL),
        (sglang(DECODE, settings={}), Kind.INCONCLUSIVE),
        (with_flag(sglang(DECODE), "kv_transfer", None), Kind.INCONCLUSIVE),
    ],
)
def test_checksums_that_cannot_agree_are_none(decode: NodeFacts, kind: Kind) -> None:
    assert broken(look(pair(decode=decode))) == {("checksum", kind)}


@pytest.mark.parametrize("said", ["None", ""])
def test_a_data_type_that_is_none_on_both_sides_is_not_the_same(said: str) -> None:
    legs = (sglang(role, settings={"kv_cache_dtype": said}) for role in (PREFILL, DECODE))
    assert broken(look(pair(*legs))) == {("checksum", Kind.INCONCLUSIVE)}


@pytest.mark.parametrize("source", ["/server_info max_total_tokens", "/get_server_info pool", "/v1/models n_ctx_train"])
def test_a_deprecated_or_configured_field_is_no_live_figure(source: str) -> None:
    result = look(single(pool=figure(46_464, source)))
    assert broken(result) == {("figures", Kind.INCONCLUSIVE)}
    assert broken(look(single(pool=figure(46_464, f"declared ({source} is missing)")))) == set()


@pytest.mark.parametrize("version", ["0.29.0", "0.29.0+cu130", "0.29.1.dev12", "0.24.0", "v0.24.0"])
def test_affected_versions_are_found(version: str) -> None:
    assert ("advisory", Kind.FAIL) in broken(look(single(version=version)))


@pytest.mark.parametrize("version", [None, "nightly", "0.1.dev20111+g7f1e92bec", "0.30.0rc1", "0.30.0.dev12"])
def test_a_version_that_cannot_be_compared_may_be_affected(version: str | None) -> None:
    assert broken(look(single(version=version))) == {("advisory", Kind.INCONCLUSIVE)}


def test_an_engine_that_nobody_recognised_has_no_list_to_be_held_against() -> None:
    for engine in (None, "openai-compatible"):
        assert ("advisory", Kind.INCONCLUSIVE) in broken(look(single(engine=engine, version=None)))


def test_an_engine_without_advisories_needs_no_version() -> None:
    assert broken(look(single(engine="llama.cpp", version="b11434-1d8"))) == set()


def test_the_age_of_the_list_is_shown_and_an_old_one_is_said_to_be_old() -> None:
    assert "1 days old" in rows(look(single()), "advisory")
    later = gate(single(), today=date(2027, 12, 1))
    assert "too old to rely on" in rows(later, "advisory")


def test_a_worker_without_a_role_breaks_the_roles_of_a_disaggregated_fleet() -> None:
    facts = replace(pair(), nodes=(sglang(PREFILL), sglang(DECODE), replace(sglang(UNKNOWN))))
    assert broken(look(facts)) == {("roles", Kind.INCONCLUSIVE)}


# policy


@pytest.mark.parametrize(
    "given_", [{"headroom": 0.5}, {"headroom": float("nan")}, {"edge_limit": 0}, {"approve": True}], ids=str
)
def test_a_policy_that_says_nothing_is_a_mistake(given_: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        Policy(**given_)


# laws

RANK = {1: 2, 3: 1, 0: 0}
figures = st.one_of(st.integers(1, 6000).map(figure), st.just(silent()))


@st.composite
def legs(draw: st.DrawFn, role: str) -> NodeFacts:
    ranks = tuple(draw(st.lists(figures, min_size=1, max_size=3)))
    flags = {name: draw(st.sampled_from([True, False, None])) for name in ("auto_truncate", "kv_checksum")}
    node = sglang(role, ranks=ranks, context=draw(figures), page_size=draw(figures))
    for name, value in flags.items():
        node = with_flag(node, name, value)
    return replace(node, open_api=draw(st.sampled_from([True, False, None])))


@st.composite
def fleets(draw: st.DrawFn) -> FleetFacts:
    return pair(draw(legs(PREFILL)), draw(legs(DECODE)), advertised=draw(figures))


policies = st.sampled_from([Policy(), Policy(inside=True), SHOWN, Policy(edge_limit=LIMIT)])


def severity(facts: FleetFacts, policy: Policy) -> int:
    return RANK[decide([look(facts, policy, active=kept())]).exit_code]


def unlearned(facts: FleetFacts) -> Iterable[FleetFacts]:
    """The same fleet with one thing unknown."""
    yield replace(facts, advertised=silent())
    for i, node in enumerate(facts.nodes):
        without = [replace(node, context=silent()), replace(node, page_size=silent())]
        without += [
            with_pool(replace(node, ranks=(*node.ranks[:k], silent(), *node.ranks[k + 1 :])))
            for k in range(len(node.ranks))
        ]
        without += [with_flag(node, name, None) for name in node.flags]
        without += [replace(node, open_api=None), replace(node, version=None), replace(node, engine=None)]
        for other in without:
            yield replace(facts, nodes=(*facts.nodes[:i], other, *facts.nodes[i + 1 :]))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets(), policies)
def test_not_knowing_never_clears_a_fleet(facts: FleetFacts, policy: Policy) -> None:
    if severity(facts, policy) == 0:
        return
    for other in unlearned(facts):
        assert severity(other, policy) > 0


def test_not_knowing_one_thing_of_a_sound_fleet_is_never_clean() -> None:
    for other in unlearned(pair()):
        assert severity(other, Policy()) == RANK[3]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets(), policies, st.integers(0, 1), st.integers(0, 2), st.integers(1, 6000))
def test_a_smaller_pool_is_never_better(facts: FleetFacts, policy: Policy, leg: int, rank: int, less: int) -> None:
    node = facts.nodes[leg]
    rank %= len(node.ranks)
    have = node.ranks[rank].value
    if have is None or have <= 1:
        return
    smaller = figure(max(1, have - less))
    other = with_pool(replace(node, ranks=(*node.ranks[:rank], smaller, *node.ranks[rank + 1 :])))
    nodes = tuple(other if i == leg else n for i, n in enumerate(facts.nodes))
    assert severity(replace(facts, nodes=nodes), policy) >= severity(facts, policy)


# context


def in_front(context: int) -> FleetFacts:
    router = NodeFacts(ROUTER, "http://edge:8780", "pagefence", "0.1.0", context=figure(context))
    return pair(router=router, advertised=figure(context))


def test_a_router_that_lets_in_less_than_its_nodes_hold_disagrees_with_none_of_them() -> None:
    assert broken(look(in_front(CONTEXT - 500))) == set()
    assert ("context", Kind.FAIL) in broken(look(in_front(CONTEXT + 1)))

"""Whatever comes in, what goes upstream holds known names, the tenant's salt, and nothing of the client but values."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefence.edge.call import Call, Operation
from pagefence.edge.front.front import mint
from pagefence.edge.outgoing import DIALECTS, Dialect, upstream_body
from pagefence.edge.policy import Clean, clean
from pagefence.edge.policy_settings import Policy
from pagefence.edge.reading import Limits, read
from pagefence.edge.refusal import Refusal, body_of
from pagefence.edge.tenants import Identity
from tests.edge.hostile import honest, hostile
from tests.edge.strict_model import ALLOWED, only_once, violations, within

HEADERS = [(b"content-type", b"application/json")]
TENANT = Identity(b"s" * 32).tenant("acme")
OPERATIONS = sorted(ALLOWED)
POLICIES = [
    Policy(),
    Policy(forbidden="strip"),
    Policy(unknown="strip"),
    Policy(unknown="pass"),
    Policy(forbidden="strip", unknown="strip"),
    Policy(forbidden="strip", unknown="pass"),
    Policy(media="data"),
]
SEEN: Counter[str] = Counter()


def hold_against_the_model(random: Random) -> None:
    operation = random.choice(OPERATIONS)
    policy, dialect = random.choice(POLICIES), random.choice(list(DIALECTS.values()))
    raw = hostile(random, operation)
    outcome = through(raw, operation, policy)
    SEEN["refused" if isinstance(outcome, Refusal) else "passed"] += 1
    if isinstance(outcome, Refusal):
        assert 400 <= outcome.status < 500
        assert body_of(outcome)
        return
    call = Call(operation, TENANT, mint(), outcome.body, outcome.asked.model, outcome.asked.stream)
    sent = upstream_body(call, dialect)
    made = only_once(sent)
    assert sent == msgspec.json.encode(made), "bytes of the client's are between the values"
    take_out_what_was_added(made, call, dialect)
    passes = policy.unknown == "pass"
    assert violations(made, ALLOWED[operation], unknown_may_pass=passes) == []
    assert within(made, only_once(raw))
    assert len(made) <= len(only_once(raw))


def through(raw: bytes, operation: Operation, policy: Policy) -> Clean | Refusal:
    body = read(raw, HEADERS, Limits())
    return body if isinstance(body, Refusal) else clean(operation, body, policy)


def take_out_what_was_added(made: dict[str, object], call: Call, dialect: Dialect) -> None:
    """The salt is this tenant's, the id the minted one, and where an engine takes none there is none."""
    if dialect.separates(call.operation):
        assert made.pop("cache_salt") == call.tenant.isolation_key
    name = dialect.ids.get(call.operation)
    if name is not None:
        assert made.pop(name) == call.request_id
    if call.operation is Operation.RESPONSE and dialect.stateful:
        assert made.pop("store") is False
    assert not made.keys() & {"cache_salt", "rid", "request_id", "extra_key"}


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_nothing_reaches_upstream_that_the_model_does_not_allow(random: Random) -> None:
    hold_against_the_model(random)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_of_100_000_bodies_reaches_upstream_that_the_model_does_not_allow() -> None:
    SEEN.clear()

    @settings(max_examples=100_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64 - 1))
    def hold(seed: int) -> None:
        hold_against_the_model(Random(seed))  # five times as fast as numbers drawn one by one, which could shrink

    hold()
    print(dict(SEEN))
    assert SEEN.total() >= 100_000
    assert min(SEEN["passed"], SEEN["refused"]) > 10_000, "both ways out must be taken often"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_an_honest_request_arrives_as_it_was_sent(random: Random) -> None:
    operation = random.choice(OPERATIONS)
    body = honest(random, operation)
    outcome = through(msgspec.json.encode(body), operation, random.choice(POLICIES))
    assert isinstance(outcome, Clean), outcome
    assert outcome.body == body
    assert not outcome.taken_out

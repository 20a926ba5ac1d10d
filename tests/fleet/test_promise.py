"""What clients are promised where nobody tells it, and settings that are too long to be kept whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pagefence.fleet import FleetFacts
from pagefence.fleet.engines.adapter import settings
from tests.fleet.replay import Document, Stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage().open() as opened:
        yield opened


def listed(stage: Stage, card: str, declared: Mapping[str, int] | None = None) -> FleetFacts:
    """A server with nothing but a model list of one card."""
    body = f'{{"object": "list", "data": [{{"id": "m"{card}}}]}}'.encode()
    return stage.facts(("router", {"/v1/models": Document(200, body)}), declared=declared)


def test_a_declared_context_is_the_promise_of_a_list_that_promises_no_length(stage: Stage) -> None:
    assert listed(stage, "").advertised.value is None
    promised = listed(stage, "", {"context": 8192}).advertised
    assert (promised.value, promised.source[:8]) == (8192, "declared")


@pytest.mark.parametrize("said", ['"much"', "null", "0"])
def test_a_promise_that_cannot_be_believed_is_not_declared_away(stage: Stage, said: str) -> None:
    assert listed(stage, f', "max_model_len": {said}', {"context": 8192}).advertised.value is None


def test_a_change_at_the_end_of_a_long_setting_is_a_change() -> None:
    graphs = "x" * 5000
    before, after = settings({"a": graphs + "1"}, ("a",)), settings({"a": graphs + "2"}, ("a",))
    assert before != after
    assert len(before["a"]) < 400
    assert settings({"a": graphs[:300]}, ("a",)) == {"a": graphs[:300]}

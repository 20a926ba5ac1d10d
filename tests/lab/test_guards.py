"""Guards are left out by name, and only the named ones."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pagefence.lab import guards
from pagefence.lab.faults import FAULTS, UnknownFault, find
from pagefence.protocol.decisions import GUARDS, Decisions


def changed(decisions: Decisions) -> set[str]:
    """Names of the decisions that are not the product's."""
    product = Decisions()
    names = {field.name for field in fields(Decisions)} - {"guards"}
    return {name for name in names if getattr(decisions, name) != getattr(product, name)}


def test_the_product_has_every_guard_in_force() -> None:
    assert Decisions().guards == GUARDS


def test_every_guard_can_be_left_out() -> None:
    assert set(guards.WITHOUT) == set(GUARDS)


def test_each_guard_left_out_changes_its_own_decisions_and_no_other() -> None:
    seen: set[str] = set()
    for guard in guards.WITHOUT:
        kept = tuple(other for other in GUARDS if other != guard)
        mine = changed(guards.without(Decisions(), kept))
        assert mine, f"leaving {guard} out changes nothing"
        assert not mine & seen, f"{guard} shares a decision with another guard"
        seen |= mine


def test_on_leaves_out_only_what_stands_before_the_fault() -> None:
    fault = find("stub-transfer")
    left_out = set(GUARDS) - set(fault.decisions("on").guards)
    assert left_out == {"readiness", "router-limit"}


def test_off_also_leaves_out_what_would_hide_the_fault() -> None:
    fault = find("stub-transfer")
    left_out = set(GUARDS) - set(fault.decisions("off").guards)
    assert left_out == {"readiness", "router-limit", "handoff-check", "page-frames", "zero-on-lease"}


def test_a_list_names_what_stays_and_no_name_names_what_goes() -> None:
    fault = find("stub-transfer")
    assert set(fault.decisions("page-frames").guards) == {"page-frames"}
    left_out = set(GUARDS) - set(fault.decisions("no-handoff-check").guards)
    assert left_out == {"readiness", "router-limit", "handoff-check"}


@pytest.mark.parametrize("spec", ["", "nothing", "no-", "handoff-check,typo", "no-handoff-check,page-frames"])
def test_an_unknown_guard_is_refused_by_name(spec: str) -> None:
    with pytest.raises(guards.UnknownGuard):
        find("stub-transfer").decisions(spec)


def test_a_fault_overrides_one_decision() -> None:
    assert changed(find("stub-transfer").override(Decisions())) == {"admit_prompt"}


def test_every_fault_tells_its_mechanism_its_rules_and_where_it_was_seen() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert len(fault.mechanism.split()) > 10
        assert fault.rules
        assert fault.reference


def test_an_unknown_fault_is_refused_with_the_list() -> None:
    with pytest.raises(UnknownFault, match="stub-transfer"):
        find("stub")

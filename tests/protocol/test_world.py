"""The protocol under hostile schedules: no rule breaks, and a world with a fault in it breaks one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import Lease, PagePool
from pagefence.protocol import admission, decode, decode_state, handoff, prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import End, Refuse
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import Abort, ErrorInfo, Receipt, Reservation, Start, Timer

from .processes import OPEN
from .world import World

SEEDS = range(200)
FAULT_SEEDS = range(100)
CONTAINED_SEEDS = range(25)
SMALL_POOL = 3


def first_violation(decisions: Decisions, prefill_pages: int = 9) -> Violation | None:
    """The first rule that breaks within the seeds."""
    for seed in FAULT_SEEDS:
        try:
            World(seed, decisions, prefill_pages).run()
        except Violation as violation:
            return violation
    return None


# --- the product --------------------------------------------------------------------------------------------------


def test_every_rule_holds_and_everything_comes_to_rest_and_the_schedules_were_hostile_enough() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(seed).run()
        seen += world.seen
        seen.update(type(outcome).__name__ for outcome in world.outcomes.ended.values())
    sometimes = (
        "a page was reused by another room",
        "an abort overtook a start",
        "pages were in quarantine",
        "a write landed in quarantine",
        "a worker crashed",
        "a silent worker was recycled",
        "a prefix was shared",
        "Receipt was lost",
        "Ack was lost",
        "End",
        "Refuse",
        "NoneType",
    )
    assert not [what for what in sometimes if not seen[what]]


def test_a_seed_repeats_its_run() -> None:
    first, second = World(11).run(), World(11).run()
    assert first.seen == second.seen
    assert first.outcomes == second.outcomes


# --- one decision replaced ----------------------------------------------------------------------------------------


def release_at_once(_: Lease) -> bool:
    return True


def placeholder(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """The incident: a rejected prompt goes on as one token."""
    admitted = admission.admit_prompt(start, pool)
    if isinstance(admitted, ErrorInfo):
        return Admitted(start.room, start.isolation_key, 1, (0,))
    return admitted


def accept_receipt(_: Reservation, __: Receipt, ___: bytes) -> handoff.Mismatch | None:
    return None


def accept_digests(_: Receipt, __: tuple[bytes, ...]) -> handoff.Mismatch | None:
    return None


def incident(**guards: Any) -> Decisions:
    """A prefill pool that is smaller than the context, and nobody who minds."""
    return replace(OPEN, admit_prompt=placeholder, **guards)


def test_freeing_pages_while_a_write_is_in_flight_is_caught_where_the_write_lands() -> None:
    violation = first_violation(Decisions(may_release=release_at_once))
    assert violation is not None
    assert violation.rule_id == "I2"


def test_the_incident_without_guards_reads_what_another_room_left_behind() -> None:
    decisions = incident(
        check_receipt=accept_receipt, check_digests=accept_digests, check_frames=False, zero_on_lease=False
    )
    violations = [violation for seed in CONTAINED_SEEDS for violation in violations_of(seed, decisions)]
    assert {violation.rule_id for violation in violations} == {"I1"}
    assert any("which holds Cell(room=Room" in str(violation) for violation in violations)


def violations_of(seed: int, decisions: Decisions) -> list[Violation]:
    """What breaks under one seed, if anything."""
    try:
        World(seed, decisions, SMALL_POOL).run()
    except Violation as violation:
        return [violation]
    return []


def test_the_incident_is_contained_by_the_handoff_check() -> None:
    contained = outcomes_of(incident())
    assert ("I4", "handoff-check") in contained


def test_the_incident_is_contained_by_the_page_frames_when_the_handoff_check_is_left_out() -> None:
    contained = outcomes_of(incident(check_receipt=accept_receipt, check_digests=accept_digests))
    assert ("I1", "page-frames") in contained


def test_a_prompt_over_the_prefill_pool_gets_prefills_own_error() -> None:
    codes: Counter[int] = Counter()
    for seed in CONTAINED_SEEDS:
        world = World(seed, OPEN, SMALL_POOL).run()
        for ticket, outcome in world.outcomes.ended.items():
            codes.update([outcome.error.status] if isinstance(outcome, Refuse) else [])
            room = world.room_of.get(ticket)
            if room and len(world.prompts[room]) > SMALL_POOL * 4:
                assert not isinstance(outcome, End)
                assert ticket not in world.outcomes.begun
    assert codes[400] > 0


def outcomes_of(decisions: Decisions) -> set[tuple[str | None, str | None]]:
    """(rule, guard) of every refusal over the seeds; raises Violation where a rule breaks."""
    found = set()
    for seed in CONTAINED_SEEDS:
        for outcome in World(seed, decisions, SMALL_POOL).run().outcomes.ended.values():
            if isinstance(outcome, Refuse):
                found.add((outcome.error.rule, outcome.error.guard))
    return found


# --- one cell of a table replaced ---------------------------------------------------------------------------------


def _acts(table: Mapping[Any, Mapping[type, Any]], phase: Any) -> dict[type, Any]:
    return cast("dict[type, Any]", table[phase])


def _release_by_timer(d: Decisions, s: decode_state.DecodeState, m: Timer) -> decode.Step:
    pool = s.pool
    for holder in pool.lease_of(m.room).holders:
        pool = pool.drained(m.room, holder)
    return decode._leave(d, replace(s, pool=pool), m.room)


def _settle_with_writes_in_flight(d: Decisions, s: prefill.PrefillState, m: Abort) -> prefill.Step:
    return prefill._settle(d, s, m.room)


@pytest.mark.parametrize(
    ("row", "message", "rule", "broken"),
    [
        pytest.param(
            _acts(prefill.TABLE, prefill.Phase.OVER), Start, prefill.start_arrives, {"I2", "I5"}, id="no tombstone"
        ),
        pytest.param(
            _acts(prefill.TABLE, prefill.Phase.COMPUTING),
            Abort,
            _settle_with_writes_in_flight,
            {"I1", "I2"},
            id="no drain",
        ),
        pytest.param(
            _acts(decode.TABLE, decode_state.Phase.QUARANTINED), Timer, _release_by_timer, {"I2"}, id="timer releases"
        ),
        pytest.param(
            _acts(decode.TABLE, decode_state.Phase.RESERVED),
            Abort,
            decode.prefill_is_drained,
            {"I2"},
            id="router's word",
        ),
    ],
)
def test_a_wrong_cell_in_a_table_is_caught(
    monkeypatch: pytest.MonkeyPatch, row: dict[type, Any], message: type, rule: Any, broken: set[str]
) -> None:
    monkeypatch.setitem(row, message, rule)
    violation = first_violation(Decisions())
    assert violation is not None
    assert violation.rule_id in broken

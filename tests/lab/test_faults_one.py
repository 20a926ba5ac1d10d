"""Faults of the first three families in the explorer: each is found for its own reason, and what contains it is known.

The families: a rejection that is not one, freed or reused while in flight, read before ready. Every search is small.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from pagefence.lab.fault import Fault, unchanged
from pagefence.lab.faults import find
from pagefence.lab.hunt import hunt
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.invariants import Violation
from pagefence.sim import processes as proc
from pagefence.sim.explorer import Result, Search, explore
from pagefence.sim.memory import read
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess
from pagefence.sim.scene import Scene

# Fault -> the rule for which it is found, and words of the message that tell its own reason.
REASONS = {
    "wrong-limit": ("I3", "within the limit that the fleet states and a worker refuses it"),
    "abort-overwritten": ("I5", "its client is told a normal finish"),
    "decode-not-told": ("I3", "ended on prefill and d1 is not told"),
    "abort-matches-many": ("I9", "the router forgot request 1, whose client still waits"),
    "failed-load-as-done": ("I4", "starts, and its page"),
    "silent-drop": ("I3", "ended on prefill and router is not told"),
    "auto-truncate": ("I6", "prefill computed "),
    "free-while-writing": ("I2", "which is not its own any more"),
    "source-freed": ("I1", "were let go while a write read them"),
    "timeout-releases": ("I2", "the timer drain of"),
    "preempt-while-storing": ("I1", "the forward pass of"),
    "early-send": ("I4", "starts, and its page"),
    "short-source": ("I4", "starts, and its page"),
}
CONTAINED = {
    "failed-load-as-done": "handoff-check",
    "auto-truncate": "handoff-check",
    "short-source": "handoff-check",
}
# Why a fault breaks its rule with every guard in force. Whether another tenant's text can get out is asked below.
NOT_CONTAINED = {
    "wrong-limit": "a clean refusal of a prompt that was welcome; no page is at stake",
    "abort-overwritten": "the router speaks last: nothing stands between it and the client",
    "decode-not-told": "the rule is broken as it is said; the router's abort makes good for it",
    "abort-matches-many": "the router speaks last: nothing stands between it and the client",
    "silent-drop": "the rule is broken as it is said; deadline and hand-off timer end the wait",
    "free-while-writing": "it leaves out the guard drain, in one cell; page frames hold",
    "source-freed": "the rule is broken when the write lands; page frames hold",
    "timeout-releases": "it leaves out the guard drain, in one cell; page frames hold",
    "preempt-while-storing": "frames and digests are of what was sent; zero on lease makes it blank",
    "early-send": "frames and digests are of what was sent; zero on lease makes it blank",
}


def test_every_fault_here_has_its_answer_with_guards_on() -> None:
    assert REASONS.keys() == CONTAINED.keys() | NOT_CONTAINED.keys()
    assert not CONTAINED.keys() & NOT_CONTAINED.keys()


@pytest.mark.parametrize("name", REASONS)
def test_a_fault_overrides_one_decision_or_one_cell(name: str) -> None:
    product, faulty = Decisions(), find(name).override(Decisions())
    changed = [field.name for field in fields(Decisions) if getattr(product, field.name) != getattr(faulty, field.name)]
    assert len(changed) == 1
    assert len(faulty.cells) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", REASONS)
def test_without_the_fault_the_same_search_finds_nothing(name: str) -> None:
    fault = find(name)
    reached = min(len(found(fault, "off").progress.known), 400)
    same_world = replace(fault, override=unchanged).small_world("on")
    assert explore(same_world, Search(cores=1, most_states=reached)).found is None


@pytest.mark.parametrize("name", CONTAINED)
def test_with_guards_on_a_guard_contains_it(name: str) -> None:
    result = found(find(name), "on")
    assert result.complete
    assert result.found is None
    assert f"contained by {CONTAINED[name]}" in result.progress.sometimes


@pytest.mark.parametrize("name", ["failed-load-as-done", "short-source"])
def test_without_the_hand_off_check_the_page_frames_contain_it(name: str) -> None:
    result = found(find(name), "no-handoff-check")
    assert result.complete
    assert result.found is None
    assert "contained by page-frames" in result.progress.sometimes


@pytest.mark.parametrize("name", NOT_CONTAINED)
def test_with_guards_on_its_own_rule_is_broken_all_the_same(name: str) -> None:
    result = found(find(name), "on")
    assert result.found is not None
    assert result.found.rule == REASONS[name][0]


# --- where the rule is broken although every guard is in force: what still stands ------------------------------------


@pytest.mark.parametrize("name", ["decode-not-told", "silent-drop"])
def test_who_is_not_told_learns_of_it_by_abort_or_timer(name: str) -> None:
    """Every page comes back and every client gets an outcome, late."""
    result = in_the_end(find(name), "on")
    assert result.complete
    assert result.found is None


@pytest.mark.parametrize("name", ["free-while-writing", "source-freed"])
def test_page_frames_stand_behind_the_drain(name: str) -> None:
    result = in_the_end(find(name), "on")
    assert result.complete
    assert result.found is None
    assert "contained by page-frames" in result.progress.sometimes


def test_zero_on_lease_stands_behind_a_transfer_that_runs_ahead() -> None:
    result = in_the_end(find("early-send"), "on")
    assert result.complete
    assert result.found is None


@pytest.mark.parametrize("name", ["free-while-writing", "early-send"])
def test_without_them_another_tenants_text_is_read(name: str) -> None:
    result = in_the_end(find(name), "off")
    assert result.found is not None
    assert "is about to read another tenant's page" in result.found.message


def found(fault: Fault, spec: str) -> Result:
    """The search of a fault's own world."""
    return hunt(fault, spec, Search(cores=1, most_states=5_000))


def in_the_end(fault: Fault, spec: str) -> Result:
    """The same, asking only whether another tenant's text is read and whether everything comes to rest."""
    world = replace(fault.small_world(spec), watched=frozenset(), below=foreign_text_is_read)
    return explore(world, Search(cores=1, most_states=5_000))


def foreign_text_is_read(scene: Scene, _: Move) -> None:
    """No row of the batch lies over another tenant's bytes, unless its frames are looked at first and are broken."""
    decodes = (process for process in scene.processes if isinstance(process, DecodeProcess))
    for process, room, row in ((p, room, row) for p in decodes for room, row in p.rows.items()):
        if scene.decisions.check_frames and proc.broken_frame(process, room, row.run.pages):
            continue
        tenants = {read(process.memory, ref).tenant for ref in row.run.pages} - {""}
        if not tenants <= {scene.tenant(room)}:
            raise Violation("I1", f"{room} is about to read another tenant's page")

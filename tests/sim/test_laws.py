"""Two laws that no single state shows (`sim/laws.py`), each seen to fail in a world that breaks it and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.protocol import errors
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import End, Refuse
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import ErrorInfo
from pagefence.sim.bounds import Ask
from pagefence.sim.memory import Cell
from pagefence.sim.moves import Kind, Move
from pagefence.sim.scene import Scene
from pagefence.sim.world import Below, World

from .small import ALONE, calmly

# Two of three decode pages are let, so that nobody but the law could mind what lies in the last one.
SPARE = replace(ALONE, name="a page to spare", asks=(Ask("a", 2, 2),), decode_pages=3)
LAST = SPARE.decode_pages - 1


def test_a_world_that_breaks_no_law_is_played_to_its_good_end() -> None:
    state, _, _ = calmly(World(SPARE))
    assert isinstance(state.outcomes.ended[0], End)


# --- I2: a decode step writes nothing but its own row's slot ------------------------------------------------------


def writing_the_last_page(during: Kind) -> Below:
    """Moves of this kind leave something behind in decode's last page."""

    def below(scene: Scene, move: Move) -> None:
        if move.kind == during:
            process = scene.decode("d1")
            scene.put(replace(process, memory=process.memory.set(LAST, Cell(tokens=(-1,)))))

    return below


def test_a_decode_step_that_writes_elsewhere_is_caught() -> None:
    with pytest.raises(Violation, match=f"a decode step of request 0 wrote elsewhere, into page {LAST}$") as caught:
        calmly(World(SPARE, below=writing_the_last_page("generate")))
    assert caught.value.rule_id == "I2"


@pytest.mark.parametrize("during", ["compute", "land", "verify"])
def test_only_a_decode_step_is_asked_what_else_it_wrote(during: Kind) -> None:
    state, _, _ = calmly(World(SPARE, below=writing_the_last_page(during)))
    assert isinstance(state.outcomes.ended[0], End)


# --- I3: what is within the stated limit is refused as too long by nobody -----------------------------------------


TOO_LONG = errors.context_length(1, 2, "prompt")
BUSY = errors.overloaded("not now")
by_either_worker = pytest.mark.parametrize("worker", ["prefill", "decode"])


def refusing(worker: str, error: ErrorInfo) -> Decisions:
    """This worker refuses whatever it is asked, and the router nothing."""
    unlimited = Decisions(router_limit=lambda *_: None)
    if worker == "prefill":
        return replace(unlimited, admit_prompt=lambda *_: error)
    return replace(unlimited, admit_offer=lambda *_: error)


@by_either_worker
def test_a_refusal_of_what_is_within_the_stated_limit_is_caught(worker: str) -> None:
    with pytest.raises(Violation, match="request 0 is within the limit that the fleet states") as caught:
        calmly(World(SPARE, refusing(worker, TOO_LONG)))
    assert caught.value.rule_id == "I3"


@by_either_worker
def test_a_worker_may_refuse_for_another_reason(worker: str) -> None:
    state, _, _ = calmly(World(SPARE, refusing(worker, BUSY)))
    assert state.outcomes.ended[0] == Refuse(0, BUSY)


@by_either_worker
def test_a_worker_may_refuse_what_is_over_the_stated_limit(worker: str) -> None:
    lower = replace(SPARE, limit=SPARE.context - 1)
    state, _, _ = calmly(World(lower, refusing(worker, TOO_LONG)))
    assert state.outcomes.ended[0] == Refuse(0, TOO_LONG)

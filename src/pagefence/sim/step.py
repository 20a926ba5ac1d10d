"""One move of a world. Pure: what a world is now and a move give what it is next."""

from __future__ import annotations

from pagefence.sim import laws
from pagefence.sim.happenings import MOVES
from pagefence.sim.moves import Move
from pagefence.sim.reduction import without_the_dead
from pagefence.sim.scene import Scene
from pagefence.sim.state import WorldState, empty
from pagefence.sim.steps import Steps
from pagefence.sim.world import Outcome, World, delivery


def beginning(world: World) -> WorldState:
    """Every worker is up and knows its peers; nothing was asked yet."""
    state = empty(world.bounds)
    for name in world.names:
        state = apply(world, state, Move("restart", name)).state
    while state.network:
        state = apply(world, state, delivery("deliver", state.network[0], state)).state
    return state


def apply(world: World, state: WorldState, move: Move, steps: Steps | None = None) -> Outcome:
    """The world after `move`. Raises Violation on the first broken rule, NotPossible for a move that there is not.

    `steps` remembers what the machines did in other schedules of this world.
    """
    scene = Scene(world, state, steps)
    MOVES[move.kind](scene, move)
    if world.below is not None:
        world.below(scene, move)
    laws.nothing_else_written(scene, move)
    after = scene.state()
    if world.reduced:
        after = without_the_dead(state, after, world.names, world.decisions.cells)
    return Outcome(after, tuple(scene.sometimes), tuple(scene.effects), scene.delivered)

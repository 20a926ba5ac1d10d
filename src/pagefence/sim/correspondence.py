"""What runs is what was proven: the recordings of a real fleet, replayed as one run of the model.

Every incarnation's machine is started from its recorded configuration and fed its recorded inputs. An input is taken
only once the model has it: a message when its sender has sent it and it is the oldest of its channel, a timer that was
set, an answer that an effect asked for, a reaping when the dead have taken their last step. If every recording can be
taken to its end in this way, some order of all steps is a run of the model, and each state in it has passed the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import End, Refuse
from pagefence.protocol.invariants import Outcomes, Violation, check_rest
from pagefence.protocol.router import RouterState
from pagefence.sim.answers import NotLegal
from pagefence.sim.processes import DecodeProcess, PrefillProcess
from pagefence.sim.recordings import BadRecordings, load
from pagefence.sim.replay import Fleet, Machine

__all__ = ["BadRecordings", "Correspondence", "IllegalStep", "check_recordings", "describe"]

SHOWN = 400  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class IllegalStep:
    """The first step that the model does not have. `step` counts from 1 in its file; 0: the recordings as a whole.

    `expected` and `found` may hold prompts; as a string it is cut short.
    """

    file: str
    step: int
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.file}, step {self.step}: {self.what}: expected {_short(self.expected)}, found {_short(self.found)}"
        )


@dataclass(frozen=True, slots=True)
class Correspondence:
    """What was replayed, and the first illegal step, if there is one.

    `steps` by incarnation; `inputs` by kind; `outcomes` of requests: finished, aborted (the client hung up), refused or
    failed with their error's code, open. `unread`: messages that were sent and never received, because an end came
    first. `crashes`: incarnations that did not end in order. `at_rest`: nothing was under way when the fleet stopped,
    and nothing was held.
    """

    steps: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    rooms: int = 0
    unread: int = 0
    crashes: int = 0
    at_rest: bool = False
    illegal: IllegalStep | None = None

    @property
    def legal(self) -> bool:
        """True when every recorded step is one of the model."""
        return self.illegal is None


def check_recordings(path: Path, decisions: Decisions | None = None) -> Correspondence:
    """Replay the recordings in a folder through the machines. Raises BadRecordings for what cannot be read as such.

    The product's decisions unless others are given: a fleet in which a fault decides does not correspond.
    """
    fleet = Fleet(load(path), decisions or Decisions())
    illegal, at_rest = None, False
    try:
        _run(fleet)
        fleet.check_releases()
        at_rest = _came_to_rest(fleet)
    except _Illegal as broken:
        illegal = broken.step
    except NotLegal as error:
        illegal = IllegalStep(*fleet.where, error.what, error.expected, error.found)
    except Violation as violation:
        illegal = IllegalStep(
            *fleet.where, f"rule {violation.rule_id} is broken", "a state within the rules", str(violation)
        )
    machines = fleet.machines.values()
    return Correspondence(
        steps={str(machine.recording.me): machine.taken for machine in machines},
        inputs=dict(sorted(fleet.inputs.items())),
        outcomes=_outcomes(fleet.outcomes),
        rooms=len(fleet.minted),
        unread=sum(map(len, fleet.channels.values())),
        crashes=sum(not machine.recording.ended for machine in machines),
        at_rest=at_rest,
        illegal=illegal,
    )


class _Illegal(Exception):
    def __init__(self, step: IllegalStep) -> None:
        super().__init__(str(step))
        self.step = step


def _run(fleet: Fleet) -> None:
    """Take every step of every machine, each as soon as the model has it."""
    moved = True
    while moved:
        moved = False
        for machine in fleet.machines.values():
            while fleet.take(machine):
                moved = True
    stuck = [machine for machine in fleet.machines.values() if not machine.done]
    if stuck:
        raise _Illegal(_what_waits(fleet, stuck[0]))


def _what_waits(fleet: Fleet, machine: Machine) -> IllegalStep:
    """Every machine left waits for another one: no order of the steps has each cause before its effect."""
    others = ", ".join(f"{m.recording.file} step {m.at + 1}" for m in fleet.machines.values() if not m.done)
    found = f"{machine.head}; waiting in a circle: {others}"
    return IllegalStep(machine.recording.file, machine.at + 1, "no cause of it comes before it", "a cause", found)


def _came_to_rest(fleet: Fleet) -> bool:
    """True when nothing was under way at the end. Raises Violation when something was held all the same (I5, I6)."""
    router, outcomes = fleet.at_closing
    living = [machine for machine in fleet.machines.values() if machine.recording.ended and not machine.gone]
    names = {machine.recording.me for machine in living}
    if not any(isinstance(machine.process, RouterState) for machine in living):
        return False  # the router was killed
    on_its_way = any(queue and set(ends) <= names for ends, queue in fleet.channels.items())
    if router.requests or outcomes.open or on_its_way or any(map(_has_work, living)):
        return False
    fleet.where = ("the fleet at rest", 0)
    prefills = [m.process.state for m in living if isinstance(m.process, PrefillProcess)]
    decodes = [m.process.state for m in living if isinstance(m.process, DecodeProcess)]
    check_rest(router, prefills, decodes, outcomes)
    return True


def _has_work(machine: Machine) -> bool:
    """Something is computed, written, verified or generated, or a timer may still act on a room that is held."""
    process = machine.process
    if isinstance(process, RouterState):
        return False
    held = any(count and timer.room in process.state.requests for timer, count in machine.timers.items())
    if isinstance(process, PrefillProcess):
        return held or bool(process.jobs or process.writes)
    return held or bool(process.verifying or process.rows)


def _outcomes(outcomes: Outcomes) -> dict[str, int]:
    return dict(sorted(Counter(_named(outcomes)).items()))


def _named(outcomes: Outcomes) -> Iterator[str]:
    for ticket, end in outcomes.ended.items():
        if isinstance(end, End):
            yield "finished"
        elif isinstance(end, Refuse):
            yield f"{'failed' if ticket in outcomes.begun else 'refused'}: {end.error.code}"
        else:
            yield "aborted"
    yield from ("open" for _ in outcomes.open)


def describe(correspondence: Correspondence) -> str:
    """For a terminal: the verdict first, then what it rests on."""
    c = correspondence
    total = sum(c.steps.values())
    said = (
        f"NOT A RUN OF THE MODEL: {c.illegal}"
        if c.illegal
        else f"every step is one of the model: {total} steps of {len(c.steps)} machines"
    )
    rest = (
        "came to rest, and held nothing"
        if c.at_rest
        else "was stopped while something was under way, or never replayed"
    )
    lines = (
        ("steps", _listed(c.steps)),
        ("inputs", _listed(c.inputs)),
        ("requests", _listed(c.outcomes)),
        ("rooms", f"{c.rooms}; {c.unread} messages unread at an end; {c.crashes} crashes"),
        ("the fleet", rest),
    )
    return "\n".join([said, *(f"  {name}: {text}" for name, text in lines)])


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ... ({len(text)} characters)"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"

"""The page that shows the protocol is the protocol: complete, current, and true of what the machines send."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from pagefence.protocol import decode, messages, prefill, router, table
from pagefence.protocol.effects import Send
from pagefence.protocol.invariants import RULES
from pagefence.sim.simulator import Run, in_bounds, simulate
from pagefence.sim.step import apply, beginning
from pagefence.sim.weather import small
from pagefence.sim.world import World

from .processes import OPEN

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == table.render(), "run: python -m pagefence.protocol.table > docs/reference/protocol.md"


@pytest.mark.parametrize("page", table.PAGES, ids=lambda page: page.name)
def test_every_phase_says_what_it_does_with_every_message_about_a_room(page: table.MachinePage) -> None:
    assert set(page.table) == set(page.phases)
    for phase, row in page.table.items():
        assert set(row) == set(page.room_messages), phase


@pytest.mark.parametrize("module", [router, prefill, decode], ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_no_pair_of_phase_and_message_is_written_twice_in_the_source(module: object) -> None:
    """A dict literal silently keeps the last of two equal keys."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    (literal,) = (n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "TABLE")
    assert isinstance(literal, ast.Dict)
    pairs: Counter[tuple[str, str]] = Counter()
    for phase, row in zip(literal.keys, literal.values, strict=True):
        assert isinstance(row, ast.Dict)
        pairs.update((ast.unparse(phase or row), ast.unparse(message or row)) for message in row.keys)
    assert [pair for pair, count in pairs.items() if count > 1] == []


@pytest.mark.parametrize("page", table.PAGES, ids=lambda page: page.name)
def test_every_pair_stands_on_the_page_once(page: table.MachinePage) -> None:
    section = table.render().split(f"## The {page.name} machine")[1].split("\n## ")[0]
    for phase in page.phases:
        for message in page.room_messages:
            assert section.count(f"| {phase} | `{message.__name__}` |") == 1


def test_every_message_has_a_sender_and_a_receiver() -> None:
    driver = {
        message
        for machine in (router.Input, prefill.Input, decode.Input)
        for message in get_args(machine)
        if message is not messages.Envelope
    }
    assert set(table.SAYS) == set(get_args(messages.PeerMessage)) | driver


def test_every_timer_is_on_the_page_and_acts_somewhere() -> None:
    assert sorted(timer.kind for timer in table.TIMERS) == sorted(get_args(messages.TimerKind))
    timers = table.render().split("## Timers")[1].split("## The")[0]
    for timer in table.TIMERS:
        assert f"| {timer.kind} | {timer.machine} |" in timers
        page = next(page for page in table.PAGES if page.name == timer.machine)
        assert any(row[messages.Timer] is timer.fires for row in page.table.values())


def test_the_rules_are_i1_to_i10() -> None:
    assert list(RULES) == [f"I{i}" for i in range(1, 11)]
    assert all(rule.id == key and rule.statement.endswith(".") for key, rule in RULES.items())


def test_the_machines_say_only_what_the_page_says_they_say() -> None:
    said = set[tuple[type, str, str]]()
    for seed in range(20):
        said |= _said(simulate(seed, in_bounds(small), 150))
        said |= _said(simulate(seed, _too_small, 150))
    allowed = {(message, *way) for message, ways in table.SAYS.items() for way in ways if way[0] != "driver"}
    assert said == allowed


def _too_small(random: Random) -> World:
    """Nobody minds that prefill cannot hold what is advertised, so prefill rejects."""
    return World(replace(small(random), prefill_pages=2), OPEN, frozenset(RULES) - {"I8"})


def _said(run: Run) -> set[tuple[type, str, str]]:
    """(message, sender's role, receiver's role) of everything sent in a run."""
    roles = {"p": "prefill", "d": "decode", "r": "router"}
    state, said = beginning(run.world), set[tuple[type, str, str]]()
    for move in run.moves:
        outcome = apply(run.world, state, move)
        state = outcome.state
        for who, effect in outcome.effects:
            if isinstance(effect, Send):
                said.add((type(effect.body), roles[who.name[0]], roles[effect.to.name[0]]))
    return said

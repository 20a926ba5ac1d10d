"""Ask a fleet everything that a command wants to know: facts, gate, then one plan for the probes that send prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pagefence.files import CannotWrite, check_writable
from pagefence.fleet import Fleet, FleetFacts, Keys
from pagefence.fleet.describe import describe
from pagefence.probes.asking import Consent, ask
from pagefence.probes.examination import GATE, Examination
from pagefence.probes.gate import ActiveResults, Policy, may_approve
from pagefence.probes.gate.active import ask_active
from pagefence.probes.gate.asked import FIELDS
from pagefence.probes.gate.lock import read_lock, record, write_lock
from pagefence.probes.run import Progress


async def examine(
    fleet: Fleet,
    examination: Examination,
    progress: Progress,
    announce: Callable[[str], None],
    consent: Consent = lambda cost: None,
) -> None:
    """Run the configured probes; everything found is in `examination`. `announce` gets lines that should stay.
    `consent` is told what prompts will cost before the first of them, and what it raises ends the run.

    Raises CannotWrite before anything is asked when what is approved could not be written.
    """
    config = examination.config
    if GATE in config.probes and config.policy.lock is not None:
        if config.policy.approve:
            check_writable(config.policy.lock)
        examination.lock = read_lock(config.policy.lock)
    progress("reading the figures of every node", 0, 0)
    examination.facts = await describe(fleet)
    if GATE in config.probes and config.policy.active:
        examination.active = await _active(fleet, config.policy, progress, announce)
    await ask(fleet, examination, examination.facts, progress, announce, consent)
    _approve(examination, examination.facts, fleet.keys)


async def _active(fleet: Fleet, policy: Policy, progress: Progress, announce: Callable[[str], None]) -> ActiveResults:
    edge = f", and three prompts of {policy.edge_limit:,} tokens" if policy.edge_limit is not None else ""
    announce(
        f"active checks: {len(FIELDS) + 1} one-token requests, all but one with a field that no client may set{edge}"
    )
    progress("asking what must be refused", 0, 0)
    return await ask_active(fleet, policy.edge_limit)


def _approve(examination: Examination, facts: FleetFacts, keys: Keys) -> None:
    """Write what is approved, if it may be. What came of it is in `examination.lock`, and so in the results."""
    policy, state = examination.config.policy, examination.lock
    if not policy.approve or policy.lock is None or state is None:
        return
    refused = may_approve(facts, state, examination.results())
    if refused is None and _repeats(facts, keys):
        refused = "the fleet repeats an API key among its figures, and the file is one that others read"
    if refused is None:
        try:
            write_lock(policy.lock, facts)
        except CannotWrite as error:
            refused = str(error)
    examination.lock = replace(state, written=refused is None, refused=refused)


def _repeats(facts: FleetFacts, keys: Keys) -> bool:
    """Whether what would be approved holds a key; a short one may be part of any word."""
    approved = repr([record(node) for node in facts.everyone()])
    return any(key is not None and len(key) >= 16 and key in approved for key in (keys.a, keys.b, keys.admin))

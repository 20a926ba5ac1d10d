"""Ask a fleet whose figures are unknown for its limits: what is advertised, what it accepts, what it answers.

What was found stands in for figures that no endpoint tells, for the probes that need a border. It is no figure of a
live process: the gate goes on saying that those are unknown, and a pool that nobody tells stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pagefence.fleet import Fleet, FleetFacts, Limits
from pagefence.probes.boundary.classify import Form, form
from pagefence.probes.boundary.search import Search
from pagefence.probes.boundary.shots import NAME
from pagefence.probes.boundary.told import told_length, told_limit
from pagefence.probes.run import Log, Outcome, ask_once, ruler_for
from pagefence.probes.sentinel_file import SentinelFile, untold
from pagefence.probes.shot import PLAIN, Maker, Purpose, Shot

_REFUSED = (Form.REFUSED, Form.REFUSED_LATE, Form.IN_STREAM, Form.CONTAINED, Form.OTHER_ERROR)
_SILENT = (Form.SILENT, Form.CLOSED)
_MOST_SILENT = 2  # each costs a deadline


@dataclass(frozen=True, slots=True)
class Found:
    """What asking brought.

    answered  the longest prompt that was answered with at least a token, in tokens
    kept      what was left of a prompt that was truncated, None where none was
    problem   why the search ended without a limit
    """

    search: Search
    answered: int = 0
    kept: int | None = None
    silent: int = 0
    problem: str | None = None
    shots: tuple[Shot, ...] = ()

    @property
    def longest(self) -> int:
        return max(self.search.accepted, self.kept or 0)

    @property
    def sentence(self) -> str:
        """One line for the report."""
        search = self.search
        hint = f"advertised {search.hint:,}" if search.hint is not None else "nothing is advertised"
        told = f", its errors say {search.told:,}" if search.told is not None else ""
        refused = f", shortest refused {search.refused:,}" if search.refused is not None else ", none was refused"
        if self.kept is not None:
            refused += f", truncated to {self.kept:,}"
        return (
            f"found by asking: {hint}{told}; longest accepted {search.accepted:,}, longest answered {self.answered:,}"
            f"{refused}; {search.questions} questions, {search.spent:,} prompt tokens"
        )


def hint_of(facts: FleetFacts) -> int | None:
    """The figure to begin with: the smallest context that a node tells or somebody advertises."""
    said = [n.context.value for n in facts.everyone()] + [facts.advertised.value]
    return min((value for value in said if value is not None), default=None)


async def find(
    fleet: Fleet,
    facts: FleetFacts,
    maker: Maker,
    budget: int,
    log: Log,
    progress: Callable[[str, int, int], None],
    sentinels: SentinelFile | None = None,
) -> Found:
    """Ask until the limit is found, the budget (in accepted prompt tokens) is used up, or asking makes no sense.

    `sentinels`: where the words of each prompt are written down before it is sent.
    """
    tenant = "b" if fleet.keys.two else "a"
    found = Found(Search(hint_of(facts), budget))
    ruler = None
    while found.problem is None and found.kept is None and (tokens := found.search.next()) is not None:
        progress("finding the longest prompt that is accepted", found.search.questions, 0)
        shot = maker.shot(NAME, Purpose.SEARCH, tenant, tokens, 1)
        problem = untold(sentinels, (shot.sentinel,))
        if problem is not None:
            return replace(found, problem=problem)
        ruler = ruler or await ruler_for(fleet, tenant, shot.nonce, shot.sentinel, PLAIN)
        outcome = await ask_once(fleet, ruler, shot, log)
        found = learnt(replace(found, shots=(*found.shots, shot)), outcome)
    return found


def learnt(found: Found, outcome: Outcome) -> Found:
    """What one answer adds."""
    answer, tokens = outcome.answer, outcome.prompt.tokens
    what = form(outcome)
    if what in _REFUSED:
        counted = tokens if outcome.prompt.counted else told_length(answer.error) or tokens
        return replace(found, search=found.search.after(counted, False, told_limit(answer.error)))
    if what is Form.TRUNCATED:
        return replace(
            found, search=replace(found.search, questions=found.search.questions + 1), kept=answer.prompt_tokens
        )
    if what is Form.IN_FULL:
        counted = tokens if outcome.prompt.counted else answer.prompt_tokens or tokens
        longest = max(found.answered, counted) if answer.completion_tokens or answer.text else found.answered
        return replace(found, search=found.search.after(counted, True), answered=longest)
    if what in _SILENT and found.silent + 1 < _MOST_SILENT:
        return replace(found, search=found.search.after(tokens, False), silent=found.silent + 1)
    said = answer.error.message[:160] if answer.error else (answer.problem or "no message")
    return replace(found, problem=f"{what} at {tokens:,} tokens: {said}")


def limits_of(found: Found, facts: FleetFacts) -> Limits | str:
    """The borders to probe, or why none was found."""
    search, longest = found.search, found.longest
    if found.problem is not None and not longest:
        return found.problem
    if not longest:
        least = f", and all from {search.refused:,} tokens on were refused" if search.refused is not None else ""
        return f"no prompt was accepted within a budget of {search.budget:,} prompt tokens{least}; --budget allows more"
    if found.kept is None and search.refused is None:
        return f"nothing was refused up to {search.accepted:,} prompt tokens, which is all that the budget allows"
    pools = tuple(sorted({n.pool.value for n in facts.nodes if n.pool.value is not None} or {longest + 1}))
    said = [value for value in (search.hint, search.told, longest + 1) if value is not None]
    return Limits(
        longest=longest,
        pool=pools[0],
        context=longest + 1,
        cover=max(pools[-1], 2 * longest),
        advertised=max(said),
        pools=pools,
        page=max((n.page_size.value for n in facts.nodes if n.page_size.value), default=64),
        asked=True,
        refused=search.refused or 0,
    )

"""A fleet that was approved stays as it was, or is approved again: every change of capacity is one of isolation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pagefence.fleet import FleetFacts
from pagefence.probes.evidence import Kind, ProbeResult
from pagefence.probes.gate.lock import Change, LockState, changes
from pagefence.probes.gate.rule import Case, Finding, Rule, known


def drift(case: Case) -> Iterator[Finding]:
    """Nothing without a lock file. With --approve the differences are what is being approved."""
    if case.policy.lock is None:
        return
    path, state = str(case.policy.lock), case.lock
    if state is None:
        yield Finding(path, "the lock file was not read", Kind.INCONCLUSIVE)
    elif state.written:
        yield Finding(path, f"approved and written: {len(case.facts.everyone())} nodes")
    elif state.refused is not None:
        yield Finding(path, f"not approved, nothing was written: {state.refused}", Kind.INCONCLUSIVE)
    elif state.approved is None:
        yield from _nothing_to_compare(case, state)
    else:
        yield from _compared(case, state, changes(state.approved, case.facts))


def _nothing_to_compare(case: Case, state: LockState) -> Iterator[Finding]:
    if state.absent and case.policy.approve:
        yield Finding(state.path, "nothing was approved before")
        return
    remedy = (
        "Approve the fleet as it is with --approve, or name the right file."
        if state.absent
        else "Look at the file and move it away yourself; it is never written over unread."
    )
    yield Finding(state.path, f"nothing to compare with: {state.problem}", Kind.INCONCLUSIVE, remedy)


def _compared(case: Case, state: LockState, found: list[Change]) -> Iterator[Finding]:
    for change in found:
        if not change.told:
            yield Finding(change.url, f"cannot be compared with what was approved: {change.what}", Kind.INCONCLUSIVE)
        elif case.policy.approve:
            yield Finding(change.url, f"to be approved: {change.what}")
        else:
            yield Finding(change.url, f"a change of isolation: {change.what}", Kind.FAIL, details={"lock": state.path})
    if not found:
        yield Finding(state.path, f"{len(case.facts.everyone())} nodes are as they were approved")


def may_approve(facts: FleetFacts, state: LockState, results: Sequence[ProbeResult]) -> str | None:
    """Why this fleet may not be approved; None when it may. Nothing that fails, and nothing that was not read."""
    if state.approved is None and not state.absent:
        return f"{state.path}: {state.problem}; look at it and move it away yourself"
    violated = [e for r in results for e in r.evidence if e.kind is not Kind.INCONCLUSIVE]
    if violated:
        more = f" (and {len(violated) - 1} more)" if len(violated) > 1 else ""
        return f"{violated[0].kind}: {violated[0].what}{more}"
    unread = [n.url for n in facts.everyone() if n.problem is not None]
    unread += [n.url for n in facts.nodes if known(n.pool) is None or known(n.context) is None]
    if facts.problems or unread or not facts.nodes:
        return "not every node and figure could be read: " + (", ".join(unread[:3]) or "; ".join(facts.problems[:3]))
    return None


RULES = (
    Rule(
        "drift",
        "Pools, contexts, settings, switches and versions are those that were approved in the lock file.",
        "The pool follows from everything else that takes memory: a quantisation, a graph size or a new version "
        "changes what a rejection path meets, and nobody who changed it thought of tenants.",
        "Look at the change; then approve the fleet as it is (--approve), or take the change back.",
        "I8",
        ("https://github.com/sgl-project/sglang/issues/30233",),
        drift,
    ),
)

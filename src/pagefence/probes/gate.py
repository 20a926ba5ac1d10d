"""The deploy gate: does every node of the live fleet have room for the longest request it advertises? (I8)

Reads figures, sends no prompt, and fails closed: a figure that cannot be read is INCONCLUSIVE, never fine. The incident
passed every launch test and would have failed this one: a context of 1,048,576 tokens over a prefill pool of 681,280.
"""

from __future__ import annotations

import math

from pagefence.fleet import FleetFacts, NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL, UNKNOWN
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult

NAME = "gate"
HEADROOM = 1.25


def gate(facts: FleetFacts, headroom: float = HEADROOM, declared_pd: bool = False) -> ProbeResult:
    """Hold the figures of a fleet against the rules."""
    found: list[tuple[Check, Evidence | None]] = []
    context = _needed_context(facts)
    reach = "Let the gate reach this address."
    found += [_bad("facts", facts.url, Kind.INCONCLUSIVE, problem, reach) for problem in facts.problems]
    found += [_pool(node, context, headroom) for node in facts.nodes]
    found += _roles(facts, declared_pd)
    found += _contexts(facts)
    found += _advertised(facts)
    found += _readiness(facts)
    return ProbeResult(
        NAME, tuple(check for check, _ in found), tuple(evidence for _, evidence in found if evidence is not None)
    )


def _bad(
    check: str,
    where: str,
    kind: Kind,
    what: str,
    remedy: str,
    rule: str | None = "I8",
    details: dict[str, object] | None = None,
) -> tuple[Check, Evidence]:
    return (
        Check(check, where, what, kind),
        Evidence(kind, NAME, check, where, what, rule, remedy=remedy, details=details or {}),
    )


def _needed_context(facts: FleetFacts) -> int | None:
    """The longest context that anyone in the fleet promises: that is what the pools must cover."""
    known = [f.value for f in (facts.advertised, *(n.context for n in facts.everyone())) if f.value is not None]
    return max(known, default=None)


def label(node: NodeFacts) -> str:
    return f"{node.role} {node.url}"


def _pool(node: NodeFacts, context: int | None, headroom: float) -> tuple[Check, Evidence | None]:
    where = label(node)
    if node.problem is not None:
        return _bad("pool", where, Kind.INCONCLUSIVE, f"{node.url} {node.problem}", "Make /server_info reachable.")
    if node.pool.value is None:
        what = f"the pool is unknown: {node.pool.source} {node.pool.problem}"
        return _bad("pool", where, Kind.INCONCLUSIVE, what, "Ask the live process for its pool; do not assume one.")
    if context is None:
        what = f"the context is unknown: {node.context.source} {node.context.problem}"
        return _bad("pool", where, Kind.INCONCLUSIVE, what, "Declare the context length on the node.")
    need, have = math.ceil(context * headroom), node.pool.value
    figures = f"pool {have:,} tokens, needs {need:,} (context {context:,} x {headroom:g}){_price(node, need)}"
    if have < need:
        short = "and the context alone does not fit" if have < context else "so one long request leaves no headroom"
        return _bad(
            "pool",
            where,
            Kind.FAIL,
            f"{figures}: {need - have:,} tokens short, {short}",
            f"Give the node a pool of {need:,} tokens, or lower the context to {int(have / headroom):,} everywhere.",
            details={"pool": have, "needed": need, "context": context, "source": node.pool.source},
        )
    return Check("pool", where, figures), None


def _price(node: NodeFacts, need: int) -> str:
    each = node.bytes_per_token.value
    if each is None or node.pool.value is None:
        return ", price unknown"
    return f", has {_size(node.pool.value * each)}, needs {_size(need * each)}"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.1f} {unit}"


def _roles(facts: FleetFacts, declared_pd: bool) -> list[tuple[Check, Evidence | None]]:
    if not facts.nodes:
        what = "no worker was named, and the fleet lists none whose pool could be read"
        return [_bad("roles", facts.url, Kind.INCONCLUSIVE, what, "Name the workers with --prefill and --decode.")]
    roles = {n.role for n in facts.nodes}
    found: list[tuple[Check, Evidence | None]] = []
    for node in facts.nodes:
        if node.role == UNKNOWN:
            what = "does not say whether it is prefill or decode"
            found.append(_bad("roles", label(node), Kind.INCONCLUSIVE, what, "Declare it with --prefill or --decode."))
    if declared_pd or roles & {PREFILL, DECODE}:
        for role in (PREFILL, DECODE):
            if role not in roles:
                what = f"the fleet is disaggregated but no {role} node was found"
                found.append(_bad("roles", facts.url, Kind.INCONCLUSIVE, what, f"Name it with --{role} URL."))
    if not found:
        count = ", ".join(f"{sum(n.role == r for n in facts.nodes)} {r}" for r in sorted(roles))
        found.append((Check("roles", facts.url, count), None))
    return found


def _contexts(facts: FleetFacts) -> list[tuple[Check, Evidence | None]]:
    known = {label(n): n.context.value for n in facts.everyone() if n.context.value is not None}
    if len(set(known.values())) > 1:
        what = "nodes disagree on the context: " + ", ".join(f"{who} {n:,}" for who, n in known.items())
        return [_bad("context", facts.url, Kind.FAIL, what, "Start every node with the same context length.")]
    silent = [n for n in facts.nodes if n.problem is None and n.context.value is None]
    if silent:
        return [
            _bad(
                "context",
                label(n),
                Kind.INCONCLUSIVE,
                f"the context is unknown: {n.context.source} {n.context.problem}",
                "Ask the live process for its context length; do not assume that of another node.",
            )
            for n in silent
        ]
    return [(Check("context", facts.url, f"{n:,} tokens on every node"), None) for n in set(known.values())]


def _advertised(facts: FleetFacts) -> list[tuple[Check, Evidence | None]]:
    said = facts.advertised
    real = [n.context.value for n in facts.everyone() if n.context.value is not None]
    # Prefill holds the prompt alone: a context of one token more is the first answer token, which decode holds.
    real += [n.pool.value + (n.role == PREFILL) for n in facts.nodes if n.pool.value is not None]
    if said.value is None:
        if facts.router is None and not facts.url:
            return []
        what = f"the advertised limit is unknown: {said.source} {said.problem}"
        kind = None if said.problem == "no router was given" else Kind.INCONCLUSIVE
        if kind is None:
            return []
        return [_bad("advertised", facts.url, kind, what, "Let the gate read /v1/models (PAGEFENCE_KEY_A).")]
    if real and said.value > min(real):
        what = f"clients are promised {said.value:,} tokens, but the real limit is {min(real):,}"
        return [_bad("advertised", facts.url, Kind.FAIL, what, f"Advertise at most {min(real):,}, or enlarge it.")]
    return [(Check("advertised", facts.url, f"{said.value:,} tokens, which every node holds"), None)]


def _readiness(facts: FleetFacts) -> list[tuple[Check, Evidence | None]]:
    if facts.ready is False:
        why = "; ".join(facts.reasons) or "no reason given"
        what = f"the fleet itself says that it is not ready: {why}"
        return [_bad("ready", facts.url, Kind.INCONCLUSIVE, what, "Remove the reason, then ask again.")]
    if facts.ready is True:
        return [(Check("ready", facts.url, "the fleet says that it is ready"), None)]
    return []

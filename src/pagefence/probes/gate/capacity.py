"""Room for the longest request (I8): pools, contexts, what clients are promised, and an edge limit in their place.

The incident passed every launch test and would have failed here: a context of 1,048,576 tokens was promised over a
prefill pool of 681,280.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pagefence.fleet import Figure, NodeFacts
from pagefence.fleet.facts import PREFILL
from pagefence.probes.evidence import Kind
from pagefence.probes.gate.asked import edge_shown
from pagefence.probes.gate.rule import Case, Finding, Rule, known, label, unknown


def _context(case: Case) -> int | None:
    """The longest context that anyone in the fleet promises: that is what the pools must cover."""
    facts = case.facts
    values = (known(f) for f in (facts.advertised, *(n.context for n in facts.everyone())))
    return max((v for v in values if v is not None), default=None)


def pools(case: Case) -> Iterator[Finding]:
    """One row for each node, with its smallest rank."""
    longest = min((n for n in (_context(case), case.policy.edge_limit) if n is not None), default=None)
    yield from (_pool(case, node, longest) for node in case.facts.nodes)


def _pool(case: Case, node: NodeFacts, longest: int | None) -> Finding:
    where = label(node)
    if node.problem is not None:
        remedy = "Make the node's own endpoints reachable from here, or mend what it says."
        return Finding(where, f"{node.url} {node.problem}", Kind.INCONCLUSIVE, remedy)
    ranks = _ranks(node)
    sizes = {i: n for i, n in enumerate(map(known, ranks)) if n is not None}
    silent = next((f for f in ranks if known(f) is None), None)
    if longest is not None and sizes:
        least = min(sizes, key=sizes.__getitem__)
        need = math.ceil(longest * case.policy.headroom)
        text = _held_against(case, node, sizes[least], need, longest)
        if sizes[least] < need:
            return _short(case, node, ranks[least], least if len(ranks) > 1 else None, text, need, longest)
        if silent is None:
            rank = f", smallest of {len(ranks)} ranks" if len(ranks) > 1 else ""
            return Finding(where, f"{text}; read at {ranks[least].source}{rank}")
    if silent is not None or not sizes:
        what = f"the pool is unknown: {unknown(silent or node.pool)}"
        remedy = "Ask the live process for the pool of every rank, or declare it where no endpoint tells it."
        return Finding(where, what, Kind.INCONCLUSIVE, remedy)
    what = f"the context is unknown: {unknown(node.context)}"
    return Finding(where, what, Kind.INCONCLUSIVE, "Declare the context length on the node.")


def _ranks(node: NodeFacts) -> tuple[Figure, ...]:
    """Every figure that has to be large enough. A declared pool stands for ranks that no endpoint tells, not for those
    that are told."""
    if node.pool.source.startswith("declared"):
        return (*(rank for rank in node.ranks if known(rank) is not None), node.pool)
    # The smallest rank is the pool again. Where it is not, one of the two is another rank's, so both have to do.
    return node.ranks if node.pool in node.ranks else (*node.ranks, node.pool)


def _held_against(case: Case, node: NodeFacts, have: int, need: int, longest: int) -> str:
    name = "edge limit" if longest == case.policy.edge_limit else "context"
    each = known(node.bytes_per_token)
    price = "size in bytes unknown" if each is None else f"has {_size(have * each)}, needs {_size(need * each)}"
    return f"pool {have:,} tokens, needs {need:,} ({name} {longest:,} x {case.policy.headroom:g}), {price}"


def _short(
    case: Case, node: NodeFacts, figure: Figure, rank: int | None, text: str, need: int, longest: int
) -> Finding:
    have = known(figure) or 0
    why = "and the longest request alone does not fit" if have < longest else "so one long request leaves no headroom"
    place = f"rank {rank}, {figure.source}" if rank is not None else figure.source
    fits = int(have / case.policy.headroom)
    return Finding(
        label(node),
        f"{text}: {need - have:,} tokens short, {why}; read at {place}",
        Kind.FAIL,
        f"Give every rank a pool of {need:,} tokens, lower the context to {fits:,} everywhere, or refuse longer "
        f"prompts at the edge and declare that limit (--edge-limit {fits})",
        {"pool": have, "needed": need, "longest": longest, "source": figure.source, "rank": rank},
    )


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.1f} {unit}"


def contexts(case: Case) -> Iterator[Finding]:
    """One context for all, told by each node itself. A router that lets in less than they hold disagrees with none."""
    facts = case.facts
    told = {label(n): length for n in facts.nodes if (length := known(n.context)) is not None}
    front = known(facts.router.context) if facts.router is not None else None
    if facts.router is not None and front is not None and front > min(told.values(), default=0):
        told = {label(facts.router): front, **told}
    if len(set(told.values())) > 1:
        what = "nodes disagree on the context: " + ", ".join(f"{who} {n:,}" for who, n in list(told.items())[:8])
        yield Finding(facts.url, what, Kind.FAIL)
    silent = [n for n in case.readable if known(n.context) is None]
    for node in silent:
        what = f"the context is unknown: {unknown(node.context)}"
        remedy = "Ask the live process for its context length, or declare it; do not assume that of another node."
        yield Finding(label(node), what, Kind.INCONCLUSIVE, remedy)
    if len(set(told.values())) == 1 and not silent:
        yield Finding(facts.url, f"{next(iter(told.values())):,} tokens on every node")


def advertised(case: Case) -> Iterator[Finding]:
    """What clients are promised, against what the smallest node holds."""
    facts, said, limit = case.facts, case.facts.advertised, case.policy.edge_limit
    promised = known(said)
    real = [n for n in (known(node.context) for node in facts.everyone()) if n is not None]
    # Prefill holds the prompt alone: a context of one token more is the first answer token, which decode holds.
    for node in facts.nodes:
        real += [n + (node.role == PREFILL) for n in map(known, _ranks(node)) if n is not None]
    if promised is None:
        if said.problem != "no router was given" and not case.router_silent:
            what = f"the advertised limit is unknown: {unknown(said)}"
            yield Finding(facts.url, what, Kind.INCONCLUSIVE, _PROMISE)
        return
    if not real or promised <= min(real):
        declared = "; it was declared, not told" if said.source.startswith("declared") else ""
        yield Finding(facts.url, f"{promised:,} tokens, which every node holds{declared}")
        return
    what = f"clients are promised {promised:,} tokens, but the real limit is {min(real):,}"
    if limit is None or limit > min(real):
        yield Finding(facts.url, what, Kind.FAIL, f"Advertise at most {min(real):,}, or enlarge it.")
    elif edge_shown(case.active, limit):
        yield Finding(facts.url, f"{what}; the edge was shown to refuse what is over {limit:,}")
    else:
        what = f"{what}, and that the edge refuses what is over {limit:,} was not shown"
        yield Finding(facts.url, what, Kind.INCONCLUSIVE, "Let the gate ask the edge (--active).")


_PROMISE = (
    "Let the model list of the server or router tell it (/v1/models), or declare its context, which then counts as "
    "what it promises (--declare context=N)."
)
_INCIDENT = "https://github.com/sgl-project/sglang/issues/30233"

RULES = (
    Rule(
        "pool",
        "The pool of every prefill, decode and single rank, read from the running process, covers the context (or the "
        "declared edge limit) times the headroom.",
        "A prompt that does not fit is rejected in the middle of a hand-off, and a rejection path is where tenants "
        "have been given each other's pages. One figure for many ranks is a trap: the smallest rank decides.",
        "Give every rank the pool that the context needs, or lower the context.",
        "I8",
        (_INCIDENT,),
        pools,
    ),
    Rule(
        "context",
        "All nodes serve one context length, and each tells it itself.",
        "Where one leg accepts what the other refuses, every request between the two lengths runs into a rejection.",
        "Start every node with the same context length.",
        "I8",
        ("https://github.com/sgl-project/sglang/issues/30325",),
        contexts,
    ),
    Rule(
        "advertised",
        "Clients are promised no more tokens than the smallest node holds.",
        "A model list tells the configured length, also where the pool that was left is smaller: honest clients then "
        "send what cannot be served.",
        "Advertise the real limit, or refuse at the edge what is over it.",
        "I8",
        (_INCIDENT,),
        advertised,
    ),
)

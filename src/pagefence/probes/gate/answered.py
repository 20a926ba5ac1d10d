"""The rules that need requests: topology fields are refused, and a declared edge limit is kept."""

from __future__ import annotations

from collections.abc import Iterator

from pagefence.probes.evidence import Kind
from pagefence.probes.gate.asked import FIELDS, edge_judged, edge_shown, judge_field
from pagefence.probes.gate.rule import Case, Finding, Rule


def topology(case: Case) -> Iterator[Finding]:
    """One row for each field. Nothing unless it was asked for."""
    if not case.policy.active:
        return
    url, active = case.facts.url, case.active
    if active is None or active.obstacle is not None:
        why = "nothing was asked" if active is None else active.obstacle
        yield Finding(url, f"not shown: {why}", Kind.INCONCLUSIVE, "Give the router's URL and a key (PAGEFENCE_KEY_A).")
        return
    asked = {entry.field: entry for entry in active.fields}
    for name in FIELDS:
        if name not in asked:
            yield Finding(url, f"{name}: was not asked", Kind.INCONCLUSIVE)
            continue
        kind, text = judge_field(asked[name])
        yield Finding(url, text, kind)


def enforced(case: Case) -> Iterator[Finding]:
    """Nothing unless an edge limit was declared; a declared one that nobody saw kept is no limit."""
    limit, active, url = case.policy.edge_limit, case.active, case.facts.url
    if limit is None:
        return
    if active is None or not case.policy.active:
        what = f"an edge limit of {limit:,} tokens was declared, and nobody saw it kept"
        yield Finding(url, what, Kind.INCONCLUSIVE, "Let the gate send a prompt over it, and one within (--active).")
        return
    if active.obstacle is not None:
        yield Finding(url, f"not shown: {active.obstacle}", Kind.INCONCLUSIVE)
        return
    judged = edge_judged(active, limit)
    for kind, text in judged:
        yield Finding(url, text, kind)
    if not edge_shown(active, limit) and all(kind is None for kind, _ in judged):
        what = "not every form was asked: one prompt over the limit, plain and as a stream, and one within"
        yield Finding(url, what, Kind.INCONCLUSIVE)


RULES = (
    Rule(
        "topology",
        f"A request in which a client sets {', '.join(FIELDS[:-1])} or {FIELDS[-1]} is refused by the router with a "
        "4xx that names the field.",
        "Whoever names a room, a remote block or another's request id is served what belongs to it. A field that is "
        "dropped in silence cannot be told from one that is believed.",
        "Refuse at the router, by name, what a client must not set.",
        "I9",
        ("https://github.com/sgl-project/sglang/issues/40125", "https://github.com/vllm-project/vllm/issues/47843"),
        topology,
        active=True,
    ),
    Rule(
        "enforced",
        "Where an edge limit is declared, a prompt just over it gets the original error about the length, plain and as "
        "a stream, with nothing generated; one within it is answered.",
        "A limit that is only declared keeps nothing out of a pool that is too small.",
        "Refuse at the edge, before any worker learns of the prompt; then let the gate see it (--active).",
        "I8",
        ("https://github.com/sgl-project/sglang/issues/30233",),
        enforced,
        active=True,
    ),
)

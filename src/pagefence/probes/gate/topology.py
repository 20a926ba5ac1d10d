"""Who is there, can be read, is ready, and can be reached past the router."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pagefence.fleet import Figure, NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL, UNKNOWN
from pagefence.probes.evidence import Kind
from pagefence.probes.gate.rule import Case, Finding, Rule, known, label, several, unknown

# Names of what was asked for, trained for or configured. None of them tells what a running process has.
NOT_LIVE = {
    "/server_info max_total_tokens": "the cap that was asked for",
    "n_ctx_train": "the length that the model was trained for",
    "max_position_embeddings": "the model's configuration",
    "num_gpu_blocks_override": "a launch flag",
    "/get_server_info": "a deprecated alias",
    "labels": "the router's configuration",
}


def problems(case: Case) -> Iterator[Finding]:
    """What kept the facts of the fleet as a whole from being read."""
    yield from (Finding(case.facts.url, problem, Kind.INCONCLUSIVE) for problem in case.facts.problems)


def roles(case: Case) -> Iterator[Finding]:
    """Both sides of a hand-off, each by name. A single server needs no role."""
    facts = case.facts
    if not facts.nodes:
        if case.router_silent:
            return
        what = "no worker was named, and the fleet lists none whose pool could be read"
        yield Finding(facts.url, what, Kind.INCONCLUSIVE, "Name the workers with --prefill and --decode.")
        return
    found = {n.role for n in facts.nodes}
    missing = [role for role in (PREFILL, DECODE) if case.disaggregated and role not in found]
    for node in facts.nodes:
        if node.role == UNKNOWN:
            what = "does not say whether it is prefill or decode"
            remedy = "Declare it: --prefill or --decode, or a [[worker]] of fleet.toml where it does both."
            yield Finding(label(node), what, Kind.INCONCLUSIVE, remedy)
    for role in missing:
        what = f"the fleet is disaggregated but no {role} node was found"
        yield Finding(facts.url, what, Kind.INCONCLUSIVE, f"Name it with --{role} URL.")
    if not missing and UNKNOWN not in found:
        yield Finding(facts.url, ", ".join(f"{sum(n.role == r for n in facts.nodes)} {r}" for r in sorted(found)))


def figures(case: Case) -> Iterator[Finding]:
    """The other figures of the declared topology are told, and none of them is a configured one."""
    doubtful = 0
    for node in case.readable:
        handed_over = node.role in (PREFILL, DECODE)
        if handed_over and known(node.page_size) is None:
            doubtful += 1
            what = f"the page size is unknown: {unknown(node.page_size)}"
            remedy = "Both sides of a hand-off count in pages: let the live process tell the size, or declare it."
            yield Finding(label(node), what, Kind.INCONCLUSIVE, remedy)
        for name, figure in _used(node):
            not_live = _not_live(figure)
            if not_live is not None:
                doubtful += 1
                what = f"the {name} was read at {figure.source}, which is {not_live}, not a live figure"
                yield Finding(label(node), what, Kind.INCONCLUSIVE)
    if case.readable and not doubtful:
        count = len(case.readable)
        several = "1 node" if count == 1 else f"{count} nodes"
        yield Finding(case.facts.url, f"every known figure of {several} is live or declared")


def _used(node: NodeFacts) -> Iterator[tuple[str, Figure]]:
    yield from (("pool", node.pool), ("context", node.context), ("page size", node.page_size))
    yield from (("pool of a rank", rank) for rank in node.ranks if rank != node.pool)


def _not_live(figure: Figure) -> str | None:
    """Why the place of a figure is none to read a live figure at. What a person declared, a person answers for."""
    if figure.value is None or figure.source.startswith("declared"):
        return None
    words = set(re.findall(r"[\w/]+", figure.source))
    return next((why for name, why in NOT_LIVE.items() if name in words or name == figure.source), None)


def ready(case: Case) -> Iterator[Finding]:
    """A fleet that says of itself that it is not ready is believed."""
    facts = case.facts
    if facts.ready is False:
        why = "; ".join(facts.reasons) or "no reason given"
        yield Finding(facts.url, f"the fleet itself says that it is not ready: {why}", Kind.INCONCLUSIVE)
    elif facts.ready is True:
        yield Finding(facts.url, "the fleet says that it is ready")
    for node in facts.nodes:
        if node.ready is False and facts.ready is not False:
            why = "; ".join(node.reasons) or "no reason given"
            yield Finding(label(node), f"says of itself that it is not ready: {why}", Kind.INCONCLUSIVE)


def exposed(case: Case) -> Iterator[Finding]:
    """From where the gate runs, no worker serves clients past the router."""
    behind = [n for n in case.readable if case.facts.router is not None or n.role in (PREFILL, DECODE)]
    if not behind:
        return
    if case.policy.inside:
        what = "not judged: the gate was said to stand inside the trusted network (--inside)"
        yield Finding(case.facts.url, what)
        return
    remedy = "Let only the router reach the workers, or say --inside if the gate stands where the router does."
    for node in behind:
        if node.open_api:
            what = "serves its client API here: who reaches it needs no router, so none of its limits and no tenant"
            yield Finding(label(node), what, Kind.FAIL, remedy)
    unasked = [n for n in behind if n.open_api is None]
    if unasked:
        what = "whether its client API answers here is not known"
        yield Finding(several(unasked), what, Kind.INCONCLUSIVE, remedy)
    if not any(n.open_api is not False for n in behind):
        yield Finding(case.facts.url, f"no client API of {len(behind)} workers answers here")


_INCIDENT = "https://github.com/sgl-project/sglang/issues/30233"

RULES = (
    Rule(
        "facts",
        "The fleet as a whole can be read: its router answers, and names no worker that nobody asked.",
        "What was not asked was not checked.",
        "Let the gate reach this address (is it the right one, and the right key?), and name every worker.",
        "I8",
        (_INCIDENT,),
        problems,
    ),
    Rule(
        "roles",
        "A prefill/decode fleet has both roles, and every worker tells or is told its own. A single server needs none.",
        "A leg that is not named is a leg whose pool nobody looked at.",
        "Name the workers with --prefill and --decode.",
        "I8",
        (_INCIDENT,),
        roles,
    ),
    Rule(
        "figures",
        "Every figure that the topology needs is told by a live process: not missing, not zero, not the word None, not "
        "stale, and not a deprecated or configured field.",
        "The pool is a consequence of the memory that was left. What was configured says what somebody wished.",
        "Read the live field of this engine, or declare the figure and answer for it.",
        "I8",
        ("https://docs.vllm.ai/en/latest/usage/metrics/",),
        figures,
    ),
    Rule(
        "ready",
        "The fleet does not say of itself that it is not ready.",
        "It knows why.",
        "Remove the reason, then ask again.",
        "I8",
        ("https://kubernetes.io/docs/reference/using-api/health-checks/",),
        ready,
    ),
    Rule(
        "exposed",
        "From where the gate runs, no worker behind a router answers clients past it.",
        "On a prefill or decode worker a client may name rooms and remote blocks: one that named another tenant's was "
        "given that tenant's words.",
        "Let only the router reach the workers.",
        "I9",
        ("https://github.com/vllm-project/vllm/issues/47843", "https://docs.vllm.ai/en/latest/usage/security/"),
        exposed,
    ),
)

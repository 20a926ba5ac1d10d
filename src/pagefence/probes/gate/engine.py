"""What the engines are set to: truncation, checksums of a transfer, and versions under a known advisory."""

from __future__ import annotations

from collections.abc import Iterator

from pagefence.fleet import NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, Flag
from pagefence.probes.evidence import Kind
from pagefence.probes.gate.rule import Case, Finding, Rule, known, label, several

SGLANG = "sglang"
# Names that stand for no engine in particular, so no list of versions can be meant.
_NO_ENGINE = (None, "openai-compatible")


def _off(flag: Flag | None) -> bool | None:
    """Whether a switch is off; None when that is not known."""
    said = None if flag is None or flag.problem is not None else flag.value
    words = {"false": True, "off": True, "true": False, "on": False}
    return words.get(str(said).lower())


def truncation(case: Case) -> Iterator[Finding]:
    """Only engines that have such a switch are asked."""
    has_one = [n for n in case.readable if "auto_truncate" in n.flags or n.engine == SGLANG]
    off = []
    for node in has_one:
        flag = node.flags.get("auto_truncate")
        state = _off(flag)
        if state is None:
            what = f"whether prompts are shortened is unknown: {_why(flag)}"
            yield Finding(label(node), what, Kind.INCONCLUSIVE, "Let the live process tell the switch.")
        elif state:
            off.append(node)
        else:
            what = f"shortens prompts that are too long and answers as if they were whole ({_source(flag)})"
            yield Finding(label(node), what, Kind.FAIL)
    if off and len(off) == len(has_one):
        yield Finding(several(off), "no prompt is shortened")


def _why(flag: Flag | None) -> str:
    return "the engine has the switch, and it was not read" if flag is None else f"{flag.source} {flag.problem or ''}"


def _source(flag: Flag | None) -> str:
    return "" if flag is None else f"{flag.source} is {flag.value}"


def checksum(case: Case) -> Iterator[Finding]:
    """SGLang's own checksum of a hand-off: on, on both sides, and over the same bytes."""
    legs = [n for n in case.readable if n.engine == SGLANG and n.role in (PREFILL, DECODE)]
    on = []
    for node in legs:
        flag = node.flags.get("kv_checksum")
        state = _off(flag)
        if state is None:
            what = f"whether the transfer has a checksum is unknown: {_why(flag)}"
            yield Finding(label(node), what, Kind.INCONCLUSIVE, "Let the live process tell the switch.")
        elif state:
            yield Finding(label(node), f"the transfer has no checksum ({_source(flag)})", Kind.FAIL)
        else:
            on.append(node)
    if not legs or len(on) < len(legs):
        return
    differing = False
    for name, values in _compared(legs):
        silent = [node for node, value in zip(legs, values, strict=True) if value is None]
        told = sorted({value for value in values if value is not None})
        if len(told) > 1:
            differing = True
            what = f"checksums cannot agree: {name} is {' here and '.join(told)} there"
            yield Finding(several(legs), what, Kind.FAIL, "Start both sides with the same settings.")
        elif silent:
            differing = True
            what = f"whether checksums can agree is unknown: {name} is not told"
            yield Finding(several(silent), what, Kind.INCONCLUSIVE, "Let the live process tell the setting.")
    if not differing:
        yield Finding(several(legs), "every transfer has a checksum, over the same bytes on both sides")


def _compared(legs: list[NodeFacts]) -> Iterator[tuple[str, list[str | None]]]:
    """What has to be equal for two sides to sum up the same bytes, with each node's value."""
    transfer = [node.flags.get("kv_transfer") for node in legs]
    yield "the transfer back-end", [None if f is None or f.value is None else str(f.value) for f in transfer]
    pages = [known(node.page_size) for node in legs]
    yield "the page size", [None if size is None else str(size) for size in pages]
    types = [node.settings.get("kv_cache_dtype") for node in legs]
    yield "kv_cache_dtype", [None if kind in ("", "None") else kind for kind in types]


def advisory(case: Case) -> Iterator[Finding]:
    """Each engine and version of the fleet against the bundled list, which says how old it is."""
    listed = case.advisories
    groups: dict[tuple[str | None, str | None], list[NodeFacts]] = {}
    for node in case.facts.everyone():
        if node.problem is None:
            groups.setdefault((node.engine, node.version), []).append(node)
    for (engine, version), nodes in groups.items():
        where, name = several(nodes), f"{engine} {version or ''}".strip()
        if engine in _NO_ENGINE:
            what = "the engine is unknown, so no advisory can be looked up"
            yield Finding(where, what, Kind.INCONCLUSIVE, _name_it(nodes))
            continue
        entries = listed.of(str(engine))
        if not entries:
            yield Finding(
                where, f"{name}: no advisory of this class is listed for this engine; {listed.age(case.today)}"
            )
            continue
        readings = [(entry, entry.affects(version)) for entry in entries]
        doubtful = [entry for entry, affected in readings if affected is None]
        for entry in (entry for entry, affected in readings if affected):
            fixed = f"Upgrade to {entry.fixed} or newer" if entry.fixed else "Upgrade to a newer version"
            what = f"{name} is under {entry.id}: {entry.title} (affected {entry.affected})"
            details = {"advisory": entry.id, "reference": entry.reference}
            yield Finding(where, what, Kind.FAIL, f"{fixed}: {entry.reference}", details, entry.rule)
        if doubtful:
            said = (
                f"the version is {'unknown' if version is None else f'{version!r}, which no list can be held against'}"
            )
            yield Finding(
                where, f"{engine}: {said}, and {len(doubtful)} advisories may apply", Kind.INCONCLUSIVE,
                "Let the live process tell a released version, or declare it (--declare version=V).",
            )  # fmt: skip
        if not any(affected is not False for _, affected in readings):
            yield Finding(where, f"{name}: none of {len(entries)} advisories applies; {listed.age(case.today)}")


def _name_it(nodes: list[NodeFacts]) -> str:
    """A flag is for all nodes, so what stands before workers that tell their engine is named in the file."""
    if any(node.role == ROUTER for node in nodes):
        return 'Say what it is: engine = "NAME" and version = "V" beside its url in the [router] table of fleet.toml.'
    return "Say what it is: --declare engine=NAME --declare version=V."


RULES = (
    Rule(
        "truncation",
        "Automatic truncation is off, on engines that have it.",
        "A shortened prompt is answered as if it were whole: what was cut may be the instruction that kept an answer "
        "safe, and the count that would show it is gone.",
        "Turn it off (SGLang: start without --allow-auto-truncate) and refuse what is too long.",
        "I6",
        ("https://docs.sglang.ai/advanced_features/server_arguments.html",),
        truncation,
    ),
    Rule(
        "checksum",
        "On SGLang, a transfer between prefill and decode has its checksum on, on both sides, and both sides sum up "
        "the same bytes: same back-end, page size and KV data type.",
        "Without it decode has nothing but a signal that says that all has arrived, and reads whatever lies there.",
        "Start both sides with --disaggregation-enable-kv-checksum.",
        "I4",
        ("https://github.com/sgl-project/sglang/issues/38704", "https://github.com/sgl-project/sglang/issues/30233"),
        checksum,
    ),
    Rule(
        "advisory",
        "No engine of the fleet runs a version that is under a known advisory of this class.",
        "Somebody has already shown how tenants are confused in it.",
        "Upgrade the engine.",
        "I1",
        ("https://github.com/vllm-project/vllm/security/advisories", "https://osv.dev/list?q=vllm&ecosystem=PyPI"),
        advisory,
    ),
)

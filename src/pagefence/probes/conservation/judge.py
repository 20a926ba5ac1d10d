"""Tokens are conserved: sent = reported = computed + cached on prefill = taken over by decode.

The incident's plainest mark was here, for anyone who looked: prefill says 1, decode says 284,937. Every answer of every
probe is held against its own counts; where the engine's nodes count too, prefill is held against decode, wave by wave,
as long as nobody else used the fleet meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pagefence.fleet import Answer
from pagefence.probes.conservation.counts import Slip, slips
from pagefence.probes.details import details
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Purpose
from pagefence.probes.traffic import Traffic, traffic

NAME = "conservation"
_COUNTS = ("prompt", "cached", "total", "completion", "text")


def judge(seen: Seen) -> ProbeResult:
    """One row per count, and one for the hand-off; a finding for each that does not add up."""
    answers = [(o, a, p) for o in seen.outcomes for a, p in _tries(o) if a.answered]
    found: dict[str, list[tuple[Outcome, Slip]]] = defaultdict(list)
    for outcome, answer, prompt in answers:
        for slip in slips(answer, prompt, outcome.shot.max_tokens, seen.limits):
            found[slip[0]].append((outcome, slip))
    checks = [_row(count, found[count], answers) for count in _COUNTS]
    evidence = [e for count in _COUNTS for e in _findings(count, found[count], seen)]
    for check, finding in (_forms(answers, seen), _hand_off(seen)):
        checks.append(check)
        evidence += finding
    silent = sum(a.prompt_tokens is None or a.completion_tokens is None for _, a, _ in answers)
    if silent or not answers:
        what = f"{silent} of {len(answers)} answers do not tell their tokens" if answers else "nothing was answered"
        remedy = "Have the fleet report usage, in streams too (stream_options.include_usage)."
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "usage", "", what, "I6", remedy=remedy))
    finished = len(seen.outcomes) == len(seen.plan.shots)
    return ProbeResult(NAME, tuple(checks), tuple(evidence), finished=finished)


def _tries(outcome: Outcome) -> list[tuple[Answer, Prompt]]:
    tries = [(outcome.answer, outcome.prompt)]
    if outcome.first is not None:
        tries.append((outcome.first, outcome.first_prompt or outcome.prompt))
    return tries


def _row(count: str, found: Sequence[tuple[Outcome, Slip]], answers: Sequence[tuple[Outcome, Answer, Prompt]]) -> Check:
    if found:
        return Check(count, "answers", f"{len(found)} of {len(answers)} do not add up: {found[0][1][1]}", Kind.CORRUPT)
    told = sum(_tells(count, answer, prompt) for _, answer, prompt in answers)
    if not told:
        return Check(count, "answers", f"none of {len(answers)} tells it", undecided=True)
    return Check(count, "answers", f"{told} of {len(answers)} tell it, and it adds up")


def _tells(count: str, answer: Answer, prompt: Prompt) -> bool:
    if count == "prompt":
        return prompt.counted and answer.prompt_tokens is not None
    if count == "cached":
        return answer.cached_tokens is not None
    return (answer.total_tokens if count == "total" else answer.completion_tokens) is not None


def _findings(count: str, found: Sequence[tuple[Outcome, Slip]], seen: Seen) -> list[Evidence]:
    """One finding per count: the first, with all requests that it concerns."""
    mine = [(o, slip) for o, slip in found if not (count == "prompt" and _told_elsewhere(o, seen))]
    if not mine:
        return []
    outcome, (_, what, rule) = mine[0]
    more = f" (and {len(mine) - 1} more answers)" if len(mine) > 1 else ""
    told = details(outcome, seen.limits) | {"requests": [o.shot.id for o, _ in mine]}
    remedy = "The answer was not made from its prompt, or its bill is wrong. Compare the counts of both legs."
    return [Evidence(Kind.CORRUPT, NAME, count, outcome.shot.id, what + more, rule, remedy=remedy, details=told)]


def _told_elsewhere(outcome: Outcome, seen: Seen) -> bool:
    """Boundary and canary compare the prompt tokens of some of their own answers, as a part of what they say."""
    shot = outcome.shot
    if shot.probe == "boundary":
        return shot.within and shot.purpose is not Purpose.ALIVE
    return shot.probe == "canary" and (shot.reads or shot.plants)


def _forms(answers: Sequence[tuple[Outcome, Answer, Prompt]], seen: Seen) -> tuple[Check, list[Evidence]]:
    """The same prompt, asked plainly and as a stream, has one length."""
    by_text: dict[str, dict[bool, tuple[Outcome, int]]] = defaultdict(dict)
    for outcome, answer, prompt in answers:
        if answer.prompt_tokens is not None:
            by_text[prompt.text][answer.stream] = (outcome, answer.prompt_tokens)
    pairs = [told for told in by_text.values() if len(told) == 2]
    unequal = [told for told in pairs if told[False][1] != told[True][1]]
    if not pairs:
        return Check("forms", "plain and stream", "no prompt was asked in both forms", undecided=True), []
    if not unequal:
        return Check("forms", "plain and stream", f"{len(pairs)} prompts asked in both forms, the same tokens"), []
    (outcome, plain), (_, stream) = unequal[0][False], unequal[0][True]
    what = f"the same prompt is reported as {plain:,} tokens plainly and as {stream:,} as a stream"
    remedy = "One of the two paths answers from something else than the prompt."
    told = details(outcome, seen.limits)
    finding = Evidence(Kind.CORRUPT, NAME, "forms", outcome.shot.id, what, "I6", remedy=remedy, details=told)
    return Check("forms", "plain and stream", what, Kind.CORRUPT), [finding]


def _hand_off(seen: Seen) -> tuple[Check, list[Evidence]]:
    """Prefill's computed + cached tokens against decode's prompt tokens, or a single node's against ours."""
    about = [traffic(window, seen.outcomes) for window in seen.windows]
    usable = [t for t in about if t.doubt is None and t.window.moved(t.window.entry, "prompt") is not None]
    if not usable:
        why = next((t.doubt for t in about if t.doubt), None) or "no node tells what it counts"
        return Check("hand-off", "every node", f"not compared: {why}", undecided=True), []
    broken = [(t, what) for t in usable if (what := _broken(t)) is not None]
    if broken:
        told = [_mismatch(t, what) for t, what in broken]
        return Check("hand-off", "every node", f"{broken[0][1]} ({broken[0][0].window.title})", Kind.CORRUPT), told
    tokens = sum(t.window.moved(t.window.entry, "prompt") or 0 for t in usable)
    both = any(t.window.moved(t.window.exit, "prompt") is not None for t in usable)
    text = "prefill's computed + cached = decode's prompt tokens" if both else "the nodes' prompt tokens = those sent"
    text += f": {tokens:,} in {len(usable)} of {len(about)} waves"
    return Check("hand-off", "every node", text), []


def _broken(t: Traffic) -> str | None:
    entry, exit_ = (t.window.moved(side, "prompt") for side in (t.window.entry, t.window.exit))
    if exit_ is not None and entry != exit_:
        return f"prefill says {entry:,}, decode says {exit_:,} prompt tokens"
    if t.tokens is not None and entry != t.tokens:
        return f"{t.tokens:,} prompt tokens were sent and answered, the nodes counted {entry:,}"
    return None


def _mismatch(t: Traffic, what: str) -> Evidence:
    window = t.window
    answered = [o for o in t.outcomes if o.answer.answered]
    more: dict[str, object] = {
        "wave": window.title,
        "request": max(answered, key=lambda o: o.prompt.tokens).shot.id if answered else None,
        "requests": [o.shot.id for o in answered],
        "prefill_tokens": window.moved(window.entry, "prompt"),
        "decode_tokens": window.moved(window.exit, "prompt"),
        "sent_tokens": t.tokens,
    }
    said = f"{what} for {t.answered} answers ({window.title})"
    remedy = "Decode attends over pages that prefill never wrote. Refuse a hand-off whose tokens differ."
    return Evidence(Kind.CORRUPT, NAME, "hand-off", window.title, said, "I6", None, remedy, more)

"""A rejection that is not one: there is no answer at all."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Send
from pagefence.protocol.messages import Rejected, Start
from pagefence.protocol.prefill import Phase, PrefillState, Step, start_arrives


def nobody_is_told(d: Decisions, s: PrefillState, m: Start) -> Step:
    """A prompt that does not fit is worth a line in the log, and then the loop goes on with the next one.

    Nobody is told: decode keeps what it reserved, and the client waits until some deadline takes pity on it.
    """
    after, effects = start_arrives(d, s, m)
    refused = any(isinstance(effect, Send) and isinstance(effect.body, Rejected) for effect in effects)
    return (s, ()) if refused else (after, effects)


FAULT = Fault(
    name="silent-drop",
    summary="an over-length request gets a log line and no answer",
    mechanism=nobody_is_told.__doc__ or "",
    reference="seen in small engines",
    rules=("I3",),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.NEW, Start): nobody_is_told}),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    outside=("readiness", "router-limit"),
)

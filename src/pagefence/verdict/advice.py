"""What to do about a verdict, in the same words in every report."""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.verdict.decide import CLEAN

_ADVICE: Mapping[str, str] = {
    "LEAK": "Stop the fleet: one tenant can read another's text.",
    "CORRUPT": "Do not deploy: answers are not made from their prompts.",
    "FAIL": "Do not deploy: a rule is broken. Each finding says what to do.",
    "INCONCLUSIVE": "Nothing is proven, so do not deploy on it. Do what each INCONCLUSIVE says, then ask again.",
    CLEAN: "Nothing stands in the way. Ask again when the pool, the model, the engine or a flag has changed.",
}


def advice(verdict: str, command: str) -> str:
    """One or two sentences. A replay that shows nothing has looked at what was found before, and at nothing else."""
    if command == "replay" and verdict == CLEAN:
        return "What was found does not show again. Whether anything else does is for `pagefence verify` to say."
    return _ADVICE[verdict]

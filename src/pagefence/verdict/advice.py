"""What to do about a verdict, in the same words in every report."""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.verdict.decide import CLEAN

ADVICE: Mapping[str, str] = {
    "LEAK": "Stop the fleet: one tenant can read another's text.",
    "CORRUPT": "Do not deploy: answers are not made from their prompts.",
    "FAIL": "Do not deploy: a rule is broken. Each finding says what to do.",
    "INCONCLUSIVE": "Nothing is proven, so do not deploy on it. Do what each INCONCLUSIVE says, then ask again.",
    CLEAN: "Nothing stands in the way. Ask again when the pool, the model, the engine or a flag has changed.",
}

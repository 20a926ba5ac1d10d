"""The facts of one answer that a report gives beside every finding."""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.run import Outcome


def of_answer(outcome: Outcome) -> dict[str, object]:
    """What was asked, and what came back."""
    answer = outcome.answer
    return {
        "request": outcome.shot.id,
        "prompt_tokens_sent": outcome.prompt.tokens,
        "prompt_tokens_reported": answer.prompt_tokens,
        "status": answer.status,
        "stream": outcome.shot.stream,
        "error": answer.error.message if answer.error else None,
        "seconds": round(answer.total_s, 3),
    }


def details(outcome: Outcome, limits: Limits) -> dict[str, object]:
    """The facts of one answer, and the limits that it was asked at."""
    return of_answer(outcome) | {"limit": limits.longest, "smallest_pool": None if limits.asked else limits.pool}

"""Who pays for a run has a say before it: what it costs, a question where somebody can answer, a refusal where not."""

from __future__ import annotations

from pagefence.mistakes import Usage
from pagefence.probes.estimate import Estimate, in_words

# Three default runs against a fleet with a context of 2,048, or two minutes of one CPU core: what a pipeline may spend
# without anybody having said so. A context of 131,072 is over it with its first prompt.
ASK_ABOVE = 100_000


def affordable(cost: Estimate, above: int | None, said_yes: bool, can_be_asked: bool) -> None:
    """Refuse a run that costs more prompt tokens than `above`, when nobody said yes and nobody is there to be asked.

    Raises Usage, which names the flags, before anything was sent.
    """
    if above is None or cost.prompt_tokens <= above or said_yes or can_be_asked:
        return
    what = in_words(cost) if cost.requests else f"up to {cost.prompt_tokens:,} prompt tokens to find unknown limits"
    raise Usage(
        f"this would send {what}: more than {above:,} prompt tokens without a question. Nothing was sent. "
        "--yes sends it, --ask-above N moves the limit, --dry-run shows the plan"
    )

"""What a model answers when nobody else is there: one sequence, one page, the prompt in one pass. And what is a tie.

Chunks, batches and pages of another size add the same numbers in another order, so logits differ in their last digits.
Where that could decide a token, position and company may show: such a position is a tie. Everywhere else, a token that
differs is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.sampling import nucleus, sample, uniform
from pagefence.engine.model.sampling_params import SamplingParams

# Two logits closer than this are a tie, in float32. Measured with SmolLM2, whose logits reach 27: up to 4e-5 between
# one pass and chunks, batches and pages of any size.
EPSILON = 2e-4

GREEDY = SamplingParams()
Verdict = Literal["same", "tie", "wrong"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a client asks."""

    prompt: tuple[int, ...]
    new_tokens: int
    sampling: SamplingParams = GREEDY


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer to an ask, and the positions in it that are ties."""

    ids: tuple[int, ...]
    ties: tuple[int, ...]

    def judge(self, ids: Sequence[int], whole: bool = True) -> Verdict:
        """Of an answer, or of what a client got before it left. After a tie that was taken, nothing is compared."""
        for at, (made, right) in enumerate(zip(ids, self.ids, strict=False)):
            if made != right:
                return "tie" if at in self.ties else "wrong"
        if len(ids) > len(self.ids) or (whole and len(ids) < len(self.ids)):
            return "wrong"
        return "same"


def answer_alone(model: Decoder, ask: Ask) -> Expected:
    """As prefill and decode would draw it, without either."""
    config = model.config
    shape = (1, config.layers, 2, len(ask.prompt) + ask.new_tokens, config.kv_heads, config.head_dim)
    kv = torch.zeros(shape, dtype=model.dtype, device=model.device)
    ids: list[int] = []
    ties: list[int] = []
    start, tokens = 0, ask.prompt
    while len(ids) < ask.new_tokens:
        logits = model.forward([Span((0,), start, tokens)], kv)[0]
        if is_tie(logits, ask.sampling, len(ids)):
            ties.append(len(ids))
        ids.append(sample(logits, ask.sampling, len(ids)))
        if ids[-1] in config.eos_ids:
            break
        start, tokens = start + len(tokens), (ids[-1],)
    return Expected(tuple(ids), tuple(ties))


def is_tie(logits: Tensor, params: SamplingParams, position: int, epsilon: float = EPSILON) -> bool:
    """True when errors below `epsilon` between two logits could draw another token."""
    assert not params.logit_bias
    if params.greedy:
        best = logits.topk(2).values
        return bool(best[0] - best[1] < epsilon)
    assert params.seed is not None
    _, ends = nucleus(logits, params.temperature, 1.0)
    near = epsilon / params.temperature  # by so much of itself may a sum of shares be wrong
    kept = int((ends < params.top_p).sum()) + 1 if params.top_p < 1.0 else len(ends)
    # Top-p may keep one token less or more, and then the same draw falls elsewhere.
    sizes = [kept]
    if params.top_p < 1.0:
        doubtful = [abs(float(ends[i]) - params.top_p) < near * params.top_p for i in (max(kept - 2, 0), kept - 1)]
        sizes += [
            size for size, doubt in zip((max(kept - 1, 1), min(kept + 1, len(ends))), doubtful, strict=True) if doubt
        ]
    points = [uniform(params.seed, position) * float(ends[size - 1]) for size in sizes]
    drawn = [
        min(int(torch.searchsorted(ends, point, right=True)), size - 1)
        for point, size in zip(points, sizes, strict=True)
    ]
    return len(set(drawn)) > 1 or any(
        _at_a_border(ends, *draw, near) for draw in zip(points, drawn, sizes, strict=True)
    )


def _at_a_border(ends: Tensor, point: float, at: int, size: int, near: float) -> bool:
    """The draw, the token at `at` of `size`, falls beside a neighbour's share, or a neighbour's share is as large."""
    border = [float(ends[i]) if i >= 0 else 0.0 for i in range(at - 2, min(at + 2, len(ends)))]
    low, high = border[1], border[2]
    shares = [end - begin for begin, end in pairwise(border)]
    swapped = any(other > 0 and abs(other - shares[1]) < near * shares[1] for other in (shares[0], *shares[2:]))
    return swapped or (at > 0 and point - low < near * low) or (at < size - 1 and high - point < near * high)

"""How a request wants its tokens drawn. No torch: routers and state machines carry these too."""

from __future__ import annotations

import math

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Temperature 0 is greedy. `top_p` keeps the fewest likeliest tokens whose probabilities reach it.

    `seed` None asks the engine to choose one (`msgspec.structs.replace(params, seed=...)`) before the first draw.
    `logit_bias` holds (token id, added logit) pairs. `logprobs` asks for the log-probability of each token, with those
    of so many of the likeliest; None asks for nothing. Raises ValueError for a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 100.0:  # NaN fails too
            raise ValueError(f"temperature must lie between 0 and 100, not be {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"logprobs must be at least 0, not {self.logprobs}")
        for token, bias in self.logit_bias:
            if token < 0 or not math.isfinite(bias):
                raise ValueError(f"logit_bias needs token ids from 0 on and finite numbers, not {token}: {bias}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def check_vocab(self, vocab: int) -> None:
        """Raise ValueError when a biased token is not in a vocabulary of `vocab`: to be asked at the front door."""
        if wrong := [token for token, _ in self.logit_bias if token >= vocab]:
            raise ValueError(f"logit_bias names token {wrong[0]}, and the vocabulary has {vocab}")

"""Logits to a token.

A draw depends on the logits, the seed and the position alone: a request gives the same tokens by itself, in a batch,
and after a restart on another worker.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.protocol.messages import Logprob


class SamplingError(ValueError):
    """The logits are not finite: the computation that made them read something it should not have, or overflowed."""


def draw(logits: Tensor, params: SamplingParams, position: int) -> tuple[int, tuple[Logprob, ...]]:
    """The token for `position` and, if `params` asks, its log-probability. Arguments and errors as for `sample`."""
    token = sample(logits, params, position)
    return token, () if params.logprobs is None else (Logprob(*logprobs(logits, token, params.logprobs)),)


def sample(logits: Tensor, params: SamplingParams, position: int) -> int:
    """The token for `position` (the number of tokens before it) from logits [vocab] float32.

    Ties go to the lowest id. Raises SamplingError for NaN or infinity, ValueError for a draw without a seed or a
    bias outside the vocabulary.
    """
    if not torch.isfinite(logits).all():
        raise SamplingError(f"the logits at position {position} are not finite")
    params.check_vocab(len(logits))
    logits = _biased(logits, params)
    if params.greedy:
        return int(logits.argmax())
    if params.seed is None:
        raise ValueError("sampling with a temperature needs a seed: the engine chooses one when the client does not")
    ids, cumulative = nucleus(logits, params.temperature, params.top_p)
    # The draw falls in [0, total), so `right` finds the first token whose share reaches past it, never one of none.
    point = uniform(params.seed, position) * cumulative[-1]
    return int(ids[min(int(torch.searchsorted(cumulative, point, right=True)), len(ids) - 1)])


def nucleus(logits: Tensor, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """The token ids that top-p keeps, likeliest first, and their running sum of probabilities (float64, not rescaled).

    It is the shortest such list whose sum reaches `top_p`; never empty.
    """
    logits = logits.double()
    shares = torch.softmax((logits - logits.max()) / max(temperature, 1e-6), 0)  # below that it is greedy anyway
    ordered, ids = shares.sort(descending=True, stable=True)
    cumulative = ordered.cumsum(0)
    keep = int((cumulative < top_p).sum()) + 1 if top_p < 1.0 else len(ids)
    return ids[:keep], cumulative[:keep]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing else: the same on every machine and for every library version."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def logprobs(logits: Tensor, token: int, top: int = 0) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Natural log-probability of `token` and the `top` likeliest (id, log-probability), before bias and temperature."""
    logs = torch.log_softmax(logits.float(), 0)
    best = torch.topk(logs, min(top, len(logs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return float(logs[token]), tuple((int(i), float(value)) for i, value in pairs)


def _biased(logits: Tensor, params: SamplingParams) -> Tensor:
    if not params.logit_bias:
        return logits
    ids, biases = zip(*params.logit_bias, strict=True)
    return logits.index_add(0, torch.tensor(ids, device=logits.device), torch.tensor(biases, device=logits.device))

"""Draws: greedy, reproducible, within the nucleus, and as likely as they should be."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.model.sampling import SamplingError, draw, logprobs, nucleus, sample, uniform
from pagefence.engine.model.sampling_params import SamplingParams

LOGITS = torch.tensor([0.1, 2.0, -1.0, 2.0, 1.5])

vectors = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40).map(torch.tensor)


def test_greedy_takes_the_first_of_the_best() -> None:
    assert sample(LOGITS, SamplingParams(), 7) == 1


def test_bias_comes_first() -> None:
    before = LOGITS.clone()
    assert sample(LOGITS, SamplingParams(logit_bias=((2, 100.0),)), 0) == 2
    assert sample(LOGITS, SamplingParams(logit_bias=((1, -100.0), (3, -100.0))), 0) == 4
    assert sample(LOGITS, SamplingParams(temperature=1.0, seed=3, logit_bias=((0, 100.0),)), 0) == 0
    assert torch.equal(before, LOGITS)


def test_the_draw_depends_on_seed_and_position_only() -> None:
    logits = torch.zeros(1000)
    one = [sample(logits, SamplingParams(temperature=1.0, seed=5), at) for at in range(20)]
    assert one == [sample(logits, SamplingParams(temperature=1.0, seed=5), at) for at in range(20)]
    assert one != [sample(logits, SamplingParams(temperature=1.0, seed=6), at) for at in range(20)]
    assert len(set(one)) > 15


def test_uniform_is_pinned() -> None:
    """A recorded run must repeat on another machine and in a later version."""
    assert uniform(1, 2) == 0.7612170620886086
    assert abs(sum(uniform(9, at) for at in range(2000)) / 2000 - 0.5) < 0.03


def test_frequencies() -> None:
    params = [SamplingParams(temperature=0.7, seed=seed) for seed in range(3000)]
    draws = torch.tensor([sample(LOGITS, one, 0) for one in params])
    shares = draws.bincount(minlength=5) / len(draws)
    torch.testing.assert_close(shares, torch.softmax(LOGITS / 0.7, 0), rtol=0, atol=0.04)


@given(vectors, st.floats(0.05, 5), st.floats(0.001, 1.0), st.integers(), st.integers(0, 10_000))
def test_top_p_law(logits: torch.Tensor, temperature: float, top_p: float, seed: int, position: int) -> None:
    """The kept set is the shortest of the likeliest that reaches top_p, and every draw lies in it."""
    ids, cumulative = nucleus(logits, temperature, top_p)
    shares = torch.softmax(logits.double() / temperature, 0)
    kept = set(ids.tolist())
    assert len(kept) == len(ids) >= 1
    dropped = [shares[i] for i in range(len(logits)) if i not in kept]
    assert not dropped or min(shares[i] for i in kept) >= max(dropped) - 1e-12
    assert len(ids) == 1 or cumulative[-2] < top_p or top_p == 1.0
    assert cumulative[-1] >= min(top_p, 1.0) - 1e-9
    drawn = sample(logits, SamplingParams(temperature=temperature, top_p=top_p, seed=seed), position)
    assert drawn in kept


@given(vectors, st.integers())
def test_a_tiny_temperature_or_nucleus_is_greedy(logits: torch.Tensor, seed: int) -> None:
    best = logits[sample(logits, SamplingParams(), 0)]
    # Logits that differ by less than float64 can tell apart after the exponential are equally likely.
    assert logits[sample(logits, SamplingParams(temperature=1.0, top_p=1e-9, seed=seed), 0)] >= best - 1e-12
    cold = logits[sample(logits, SamplingParams(temperature=5e-324, seed=seed), 0)]
    assert cold >= best - 1e-3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_must_be_finite(bad: float) -> None:
    with pytest.raises(SamplingError, match="position 12 are not finite"):
        sample(torch.tensor([1.0, bad]), SamplingParams(), 12)


def test_wrong_parameters() -> None:
    for temperature, top_p in ((-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, 1.5), (1.0, math.nan)):
        with pytest.raises(ValueError, match="must"):
            SamplingParams(temperature=temperature, top_p=top_p)
    for bias in ((-1, 0.0), (1, math.nan)):
        with pytest.raises(ValueError, match="logit_bias"):
            SamplingParams(logit_bias=(bias,))
    with pytest.raises(ValueError, match="names token 5"):
        sample(LOGITS, SamplingParams(logit_bias=((5, 1.0),)), 0)
    with pytest.raises(ValueError, match="needs a seed"):
        sample(LOGITS, SamplingParams(temperature=1.0), 0)


def test_params_travel() -> None:
    params = SamplingParams(temperature=0.5, top_p=0.9, seed=2**40, logit_bias=((3, -1.5),))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
    assert hash(params) == hash(msgspec.structs.replace(params))
    with pytest.raises(msgspec.ValidationError, match="temperature"):
        msgspec.json.decode(b'{"temperature": -1}', type=SamplingParams)


def test_a_draw_tells_the_log_probability_only_when_asked_and_before_bias_and_temperature() -> None:
    assert draw(LOGITS, SamplingParams(), 0) == (1, ())
    hot = SamplingParams(temperature=2.0, seed=1, logit_bias=((4, 100.0),), logprobs=2)
    token, (likely,) = draw(LOGITS, hot, 0)
    assert token == 4
    assert likely.value == pytest.approx(float(torch.log_softmax(LOGITS, 0)[4]))
    assert {best for best, _ in likely.top} == {1, 3}
    with pytest.raises(ValueError, match="logprobs"):
        SamplingParams(logprobs=-1)


def test_logprobs() -> None:
    own, best = logprobs(LOGITS, 4, top=2)
    logs = torch.log_softmax(LOGITS, 0)
    assert own == pytest.approx(float(logs[4]))
    assert {token for token, _ in best} == {1, 3}
    assert best[0][1] == pytest.approx(float(logs[1]))

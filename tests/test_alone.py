"""What counts as a tie: every position where small errors could draw another token, and hardly any other."""

from __future__ import annotations

import pytest
import torch

from pagefence.engine.model.sampling import sample
from pagefence.engine.model.sampling_params import SamplingParams
from tests.alone import EPSILON, GREEDY, Expected, is_tie

DRAWS = (GREEDY, *(SamplingParams(temperature=0.8, top_p=top_p, seed=1) for top_p in (0.5, 0.9, 1.0)))


@pytest.mark.parametrize("params", DRAWS, ids=str)
def test_where_an_error_draws_another_token_there_is_a_tie_and_ties_are_few(params: SamplingParams) -> None:
    random = torch.Generator().manual_seed(3)
    # Rougher than in use, so that errors decide often enough to be seen.
    epsilon, turned, ties = 50 * EPSILON, 0, 0
    for position in range(200):
        logits = 3 * torch.randn(30, generator=random)
        error = epsilon * (torch.rand(30, generator=random) - 0.5)
        tied = is_tie(logits, params, position, epsilon)
        ties += tied
        if sample(logits + error, params, position) != sample(logits, params, position):
            turned += 1
            assert tied
    assert 0 < turned <= ties < 30


def test_an_answer_that_differs_is_wrong_unless_it_parts_at_a_tie() -> None:
    expected = Expected((5, 6, 7), ties=(1,))
    assert expected.judge((5, 6, 7)) == "same"
    assert expected.judge((5, 8, 9, 9)) == "tie"
    assert expected.judge((5, 6, 8)) == "wrong"
    assert expected.judge((5, 6)) == expected.judge((5,)) == expected.judge((5, 6, 7, 7)) == "wrong"
    assert expected.judge((5, 6), whole=False) == "same"

"""The same forward pass on a GPU, its pages there too: the logits of the CPU. Skipped where there is none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pagefence.engine.model.decoder import Decoder, Span

from . import tiny_models
from .test_decoder import store, table

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# Float32 with another order of summation, over three layers; logits are of order 10.
CLOSE = 1e-4
PROMPTS = [random.Random(seed).choices(range(97), k=41) for seed in range(3)]


@dataclass(frozen=True)
class Twins:
    cpu: Decoder
    gpu: Decoder


@pytest.fixture(scope="module", params=tiny_models.FAMILIES)
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    folder = tmp_path_factory.mktemp(request.param)
    tiny_models.make(request.param).save_pretrained(folder)
    return Twins(Decoder.load(folder), Decoder.load(folder, device="cuda"))


@pytest.fixture(scope="module", autouse=True)
def _whole_float32() -> Iterator[None]:
    """TF32 would round products to ten bits."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def close(gpu: Tensor, cpu: Tensor) -> None:
    assert gpu.is_cuda
    torch.testing.assert_close(gpu.cpu(), cpu, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("chunk", [1, 7, 41])
def test_chunks_through_scrambled_pages_give_the_logits_of_the_cpu(twins: Twins, chunk: int) -> None:
    pages, here = table(41, 30, seed=chunk), store(twins.cpu.config, 30)
    there = here.cuda()
    for start in range(0, 41, chunk):
        span = Span(pages, start, PROMPTS[0][start : start + chunk])
        close(twins.gpu.forward([span], there), twins.cpu.forward([span], here))


def test_a_batch_gives_them_too_and_a_poisoned_neighbour_does_not_show(twins: Twins) -> None:
    here = store(twins.cpu.config, 40)
    there = here.cuda()
    pages = (list(range(0, 11)), list(range(11, 22)))
    for starts, lengths in (((0, 0), (30, 20)), ((30, 20), (1, 21)), ((31, 41), (1, 0))):
        spans = [
            Span(pages[n], starts[n], PROMPTS[n][starts[n] : starts[n] + lengths[n]]) for n in (0, 1) if lengths[n]
        ]
        poisoned = Span(list(range(22, 33)), 5, PROMPTS[2][5:7])  # nobody wrote what it looks back at
        ours, theirs = twins.gpu.forward([*spans, poisoned], there), twins.cpu.forward([*spans, poisoned], here)
        close(ours[:-1], theirs[:-1])
        assert ours[-1].isnan().all()


def test_what_lies_in_the_pages_is_what_the_cpu_would_have_put_there(twins: Twins) -> None:
    here = store(twins.cpu.config, 12, fill=0.0)
    there = here.cuda()
    span = Span(table(41, 12), 0, PROMPTS[0])
    twins.gpu.forward([span], there)
    twins.cpu.forward([span], here)
    close(there, here)

"""Prompts that share a forward pass of the prefill worker get what they would get alone, and fail alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.prefill import PrefillWork
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PageRef
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Compute
from pagefence.protocol.messages import ChunkComputed, ComputeFailed, Reservation, Room
from tests.engine.test_work import DECODE, GREEDY, PREFILL, Ear

from .test_decoder import CLOSE, PAGE, PROMPT, expected, store, table

PROMPTS = [PROMPT[start : start + length] for start, length in ((0, 3), (3, 9), (12, 1), (13, 8), (21, 16))]
ROOMS = [Room(1, number, "n") for number in range(len(PROMPTS))]


class Watched:
    """The model; what it was asked and what it answered."""

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self.passes: list[tuple[list[Span], Tensor]] = []

    def forward(self, spans: list[Span], kv: Tensor) -> Tensor:
        logits = self.model.forward(spans, kv)
        self.passes.append((spans, logits))
        return logits


@contextmanager
def prefill(model: Decoder, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[PrefillWork, Ear]]:
    """A worker with these prompts before it. Decode can be reached."""
    config = model.config
    sizes = [-(-len(prompt) // PAGE) for prompt in prompts]
    with Segment.create(Layout(sum(sizes), PAGE, config.layers, config.kv_heads, config.head_dim, "float32")) as made:
        ear = Ear()
        work = PrefillWork(ear, Watched(model), made, Decisions())  # type: ignore[arg-type]
        work._transfers[DECODE] = SimpleNamespace()
        free = iter(range(sum(sizes)))
        for room, prompt, size in zip(ROOMS, prompts, sizes, strict=True):
            pages = tuple(PageRef(next(free), 1) for _ in range(size))
            reservation = Reservation(room, PREFILL, DECODE, len(prompt), 4, 1, pages)
            work.perform(Compute(Admitted(room, "t", len(prompt), tuple(prompt)), pages, reservation, GREEDY))
        yield work, ear


def alone(model: Decoder, prompt: list[int]) -> Tensor:
    return model.forward([Span(table(len(prompt), 20), 0, prompt)], store(model.config, 20))[0]


def first_tokens(ear: Ear) -> dict[Room, int | None]:
    return {heard.room: heard.first_token for heard in ear.heard if isinstance(heard, ChunkComputed)}


def test_short_prompts_are_computed_in_one_pass_with_the_logits_and_tokens_that_they_have_alone(
    tiny: tuple[Decoder, Any],
) -> None:
    model, reference = tiny
    with prefill(model, PROMPTS) as (work, ear):
        work.do_one()
        ((spans, logits),) = work._model.passes  # type: ignore[attr-defined]
    assert [list(span.tokens) for span in spans] == PROMPTS
    for row, prompt in zip(logits, PROMPTS, strict=True):
        torch.testing.assert_close(row, alone(model, prompt), rtol=CLOSE, atol=CLOSE)
        torch.testing.assert_close(row, expected(reference, prompt), rtol=CLOSE, atol=CLOSE)
    assert [(heard.room, heard.computed) for heard in ear.heard if isinstance(heard, ChunkComputed)] == [
        (room, len(prompt)) for room, prompt in zip(ROOMS, PROMPTS, strict=True)
    ]
    assert first_tokens(ear) == {
        room: int(alone(model, prompt).argmax()) for room, prompt in zip(ROOMS, PROMPTS, strict=True)
    }
    assert work.computed_tokens == sum(map(len, PROMPTS))


@pytest.mark.parametrize("bad", range(len(PROMPTS)))
def test_a_prompt_that_the_model_cannot_compute_fails_alone(tiny: tuple[Decoder, Any], bad: int) -> None:
    model, _ = tiny
    prompts = [[*prompt[:-1], model.config.vocab] if at == bad else prompt for at, prompt in enumerate(PROMPTS)]
    with prefill(model, prompts) as (work, ear):
        work.do_one()
    failed = [heard for heard in ear.heard if isinstance(heard, ComputeFailed)]
    assert [heard.room for heard in failed] == [ROOMS[bad]]
    assert "vocabulary" in failed[0].message
    assert first_tokens(ear) == {
        room: int(alone(model, prompt).argmax())
        for at, (room, prompt) in enumerate(zip(ROOMS, PROMPTS, strict=True))
        if at != bad
    }

"""Greedy generation by `transformers` on the same weights: what our token ids are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pagefence.models import resolve

PROSE = """the river bends north where old mills stand quiet and the clerk writes down every boat that passes with its
cargo of salt timber wool and glass while children count gulls on the wall and a dog sleeps in the sun"""
WORDS = PROSE.split()


def load_reference(dtype: torch.dtype) -> Any:
    """The embedded model in `transformers`, dequantised from the same file."""
    from transformers import AutoModelForCausalLM, GgufConfig

    # One thread: two OpenMP pools on the same cores, ours and the fleet's, would wait for each other.
    torch.set_num_threads(1)
    path: Path = resolve("smollm2-135m-instruct")
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
    ).eval()


@torch.inference_mode()
def greedy(model: Any, prompt: Sequence[int], new_tokens: int) -> tuple[list[int], list[float]]:
    """Token ids, and at each step by how much the best logit beats the second."""
    cache: Any = None
    ids = torch.tensor([list(prompt)])
    made: list[int] = []
    margins: list[float] = []
    for _ in range(new_tokens):
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        best = out.logits[0, -1].float().topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        made.append(int(best.indices[0]))
        if made[-1] in (0, 2):
            break
        ids = best.indices[:1].view(1, 1)
    return made, margins


def text_of(words: int, seed: int) -> str:
    """Different, deterministic prose of about this many tokens."""
    return f"Report {seed}: " + " ".join(WORDS[(seed * 7 + i * (seed % 5 + 1)) % len(WORDS)] for i in range(words))

"""Our forward pass against transformers', and what a page table lets a request see."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pagefence.engine.model.config import Dtype, ModelConfig, kv_bytes_per_token
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.tokenizer import Tokenizer

from .conftest import SaveTiny

PAGE = 4
# Float32 with another order of summation; logits are of order 10.
CLOSE = 1e-4
PROMPT = random.Random(1).choices(range(97), k=41)


def store(config: ModelConfig, pages: int, dtype: torch.dtype = torch.float32, fill: float = float("nan")) -> Tensor:
    """Pages with 24 bytes of something else between them, as in the shared segment."""
    per_page = config.layers * 2 * PAGE * config.kv_heads * config.head_dim
    rows = torch.full((pages, per_page + 24 // dtype.itemsize), fill, dtype=dtype)
    shape = (config.layers, 2, PAGE, config.kv_heads, config.head_dim)
    return torch.unflatten(rows[:, 24 // dtype.itemsize :], 1, shape)


def table(tokens: int, of: int, seed: int = 0) -> list[int]:
    return random.Random(seed).sample(range(of), -(-tokens // PAGE))


def expected_all(reference: Any, tokens: list[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = reference(torch.tensor([tokens])).logits[0].float()
    return logits


def expected(reference: Any, tokens: list[int]) -> Tensor:
    return expected_all(reference, tokens)[-1]


def test_one_chunk(tiny: tuple[Decoder, Any]) -> None:
    model, reference = tiny
    logits = model.forward([Span(table(41, 20), 0, PROMPT)], store(model.config, 20))
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits[0], expected(reference, PROMPT), rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("chunk", [1, 3, PAGE, 7, 16])
def test_chunks_through_shuffled_pages(tiny: tuple[Decoder, Any], chunk: int) -> None:
    model, reference = tiny
    kv, pages = store(model.config, 30), table(41, 30, seed=chunk)
    whole = expected_all(reference, PROMPT)
    for start in range(0, len(PROMPT), chunk):
        logits = model.forward([Span(pages, start, PROMPT[start : start + chunk])], kv)
        torch.testing.assert_close(logits[0], whole[min(start + chunk, 41) - 1], rtol=CLOSE, atol=CLOSE)


def test_mixed_batch_equals_each_alone(tiny: tuple[Decoder, Any]) -> None:
    """A fresh prompt, a later chunk and two decoding sequences in one pass, with pages of all dealt from one pack."""
    model, reference = tiny
    kv, pack = store(model.config, 60), random.Random(3).sample(range(60), 60)
    sequences = [[(token * (n + 2)) % 97 for token in PROMPT[: 9 + 8 * n]] for n in range(4)]
    pages = [pack[12 * n : 12 * n + 12] for n in range(4)]
    starts = [0, 10, len(sequences[2]) - 1, len(sequences[3]) - 1]
    for n in (1, 2, 3):
        model.forward([Span(pages[n], 0, sequences[n][: starts[n]])], kv)
    logits = model.forward([Span(pages[n], starts[n], sequences[n][starts[n] :]) for n in range(4)], kv)
    for n in range(4):
        torch.testing.assert_close(logits[n], expected(reference, sequences[n]), rtol=CLOSE, atol=CLOSE)


def test_steps_of_unlike_lengths_read_at_once_see_what_each_sees_alone(tiny: tuple[Decoder, Any]) -> None:
    """Sequences of five to eight pages share one read, shorter and longer ones have their own; the rest is NaN."""
    model, reference = tiny
    lengths = (17, 20, 21, 25, 32, 1, 3, 9, 41)
    kv, pack = store(model.config, 99), random.Random(4).sample(range(99), 99)
    spans = []
    for n, length in enumerate(lengths):
        pages = pack[11 * n : 11 * n + 11]
        if length > 1:
            model.forward([Span(pages, 0, PROMPT[: length - 1])], kv)
        spans.append(Span(pages, length - 1, [PROMPT[length - 1]]))
    logits = model.forward(spans, kv)
    for n, length in enumerate(lengths):
        torch.testing.assert_close(logits[n], expected(reference, PROMPT[:length]), rtol=CLOSE, atol=CLOSE)


def test_nothing_outside_the_page_table_is_read(tiny: tuple[Decoder, Any]) -> None:
    """The same bits come out whatever strangers left: other pages, later slots of its own last page, later pages."""
    model, _ = tiny
    seen = []
    for fill in (0.0, 1e30, float("nan"), float("inf")):
        kv, pages = store(model.config, 16, fill=fill), [11, 2, 14, 5, 9]  # 9 is reserved, and not reached
        model.forward([Span(pages, 0, PROMPT[:6])], kv)
        many = model.forward([Span(pages, 6, PROMPT[6:9])], kv)
        one = model.forward([Span(pages, 9, PROMPT[9:10])], kv)
        seen.append(torch.cat([many, one]))
        untouched = [page for page in range(16) if page not in pages[:3]]
        left = torch.full_like(kv[untouched], fill)
        torch.testing.assert_close(kv[untouched], left, rtol=0, atol=0, equal_nan=True)
    assert torch.isfinite(seen[0]).all()
    assert all(torch.equal(seen[0], other) for other in seen[1:])


def test_a_wrong_page_table_shows_a_stranger(tiny: tuple[Decoder, Any]) -> None:
    """The counterpart: what the incident did is possible here, so the tests above would notice."""
    model, _ = tiny
    kv = store(model.config, 16)
    model.forward([Span([0, 1, 2], 0, PROMPT[:12])], kv)
    model.forward([Span([3, 4, 5], 0, PROMPT[12:24])], kv)
    own = model.forward([Span([0, 1, 2, 6], 12, [5])], kv)
    foreign = model.forward([Span([0, 4, 2, 7], 12, [5])], kv)
    assert (own - foreign).abs().max() > 100 * CLOSE


def test_a_poisoned_page_in_the_table_shows(tiny: tuple[Decoder, Any]) -> None:
    model, _ = tiny
    kv = store(model.config, 8)
    assert model.forward([Span([3], 3, [5])], kv).isnan().all()


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 6, "rope_theta": 500.0},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ],
)
def test_other_shapes(save_tiny: SaveTiny, changes: dict[str, Any]) -> None:
    folder, reference = save_tiny(**changes)
    model = Decoder.load(folder)
    kv, pages = store(model.config, 20), table(41, 20)
    model.forward([Span(pages, 0, PROMPT[:20])], kv)
    logits = model.forward([Span(pages, 20, PROMPT[20:])], kv)
    torch.testing.assert_close(logits[0], expected(reference, PROMPT), rtol=CLOSE, atol=CLOSE)


def test_bfloat16(save_tiny: SaveTiny) -> None:
    """Rounded where transformers rounds. What remains is the order of summation in a product: a few steps of 8 bits."""
    folder, reference = save_tiny(initializer_range=0.1)
    model = Decoder.load(folder, "bfloat16")
    assert model.dtype == torch.bfloat16
    logits = model.forward([Span(table(41, 20), 0, PROMPT)], store(model.config, 20, torch.bfloat16))
    rounded = expected(reference.to(torch.bfloat16), PROMPT)
    torch.testing.assert_close(logits[0], rounded, rtol=0.03, atol=0.03)


def test_a_span_that_does_not_fit_writes_nothing(tiny: tuple[Decoder, Any]) -> None:
    model, _ = tiny
    kv = store(model.config, 8, fill=0.0)
    fine = Span([0], 0, [1, 2])
    for span, message in [
        (Span([0, 1], 6, [1, 2, 3]), "do not fit"),
        (Span(list(range(8)) * 9, 256, [1]), "do not fit"),
        (Span([0, -1], 5, [1]), "outside the store"),
        (Span([0, 8], 5, [1]), "outside the store"),
        (Span([0], 0, []), "needs a token"),
        (Span([0], -1, [1]), "needs a token"),
        (Span([0], 0, [97]), "outside the vocabulary"),
        (Span([0], 0, [-1]), "outside the vocabulary"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.forward([fine, span], kv)
    with pytest.raises(ValueError, match="does not fit"):
        model.forward([fine], kv.bfloat16())
    with pytest.raises(ValueError, match="does not fit"):
        model.forward([fine], kv[:, :2])
    with pytest.raises(ValueError, match="at least one"):
        model.forward([], kv)
    assert not kv.any()


def test_kv_bytes(smollm: Decoder) -> None:
    assert kv_bytes_per_token(smollm.config, "float32") == 2 * kv_bytes_per_token(smollm.config, "bfloat16") == 46_080


def test_embedded_model(smollm: Decoder, tokenizer: Tokenizer) -> None:
    """Numbers from transformers 5.24 with the weights it dequantises itself, in float32."""
    prompt = tokenizer.encode("The capital of France is")
    logits = smollm.forward([Span([3, 1], 0, prompt)], store(smollm.config, 4))
    best = logits[0].topk(5)
    assert best.indices.tolist() == [7042, 260, 4528, 2250, 1315]
    numbers = torch.tensor([17.3713, 14.8886, 13.2450, 13.0095, 12.9515])
    torch.testing.assert_close(best.values, numbers, rtol=0, atol=2e-3)
    assert tokenizer.decode(greedy(smollm, prompt, 3)) == " Paris.\n"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_embedded_model_against_transformers(gguf_path: Path, tokenizer: Tokenizer, dtype: Dtype) -> None:
    from transformers import AutoConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model, prompt = Decoder.load(gguf_path, dtype), tokenizer.encode("The capital of France is")
    reference = LlamaForCausalLM(AutoConfig.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name))
    theirs = load_gguf_checkpoint(str(gguf_path), return_tensors=True, model_to_load=reference)["tensors"]
    reference.load_state_dict(theirs, strict=False)
    reference = reference.to(model.dtype).eval()
    logits = model.forward([Span(table(len(prompt), 8), 0, prompt)], store(model.config, 8, model.dtype))
    # In bfloat16 transformers' own two attentions (eager, sdpa) differ by 0.4 here, and each from float32 by as much.
    rtol, atol = (1e-3, 1e-3) if dtype == "float32" else (0.05, 0.75)
    torch.testing.assert_close(logits[0], expected(reference, prompt), rtol=rtol, atol=atol)
    with torch.inference_mode():
        continuation = reference.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :]
    assert greedy(model, prompt, 12) == continuation.tolist()


def greedy(model: Decoder, prompt: list[int], count: int) -> list[int]:
    kv, pages = store(model.config, 64, model.dtype), table(len(prompt) + count, 64)
    tokens, start, out = prompt, 0, list[int]()
    for _ in range(count):
        logits = model.forward([Span(pages, start, tokens)], kv)
        start += len(tokens)
        tokens = [int(logits[0].argmax())]
        out += tokens
    return out

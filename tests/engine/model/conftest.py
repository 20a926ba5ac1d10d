"""The models that the tests compute with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pagefence import models
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.tokenizer import Tokenizer

SaveTiny = Callable[..., tuple[Path, Any]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors here are tiny: two threads on a busy machine only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    try:
        return models.fetch()
    except models.ModelError as error:
        pytest.skip(f"the embedded model is not here: {error}")


@pytest.fixture(scope="session")
def tokenizer(gguf_path: Path) -> Tokenizer:
    return Tokenizer.load(gguf_path)


@pytest.fixture(scope="session")
def smollm(gguf_path: Path) -> Decoder:
    return Decoder.load(gguf_path, "float32")


@pytest.fixture(scope="session")
def save_tiny(tmp_path_factory: pytest.TempPathFactory) -> SaveTiny:
    """Make a small random model with transformers; its folder, and the model itself in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    def save(**changes: Any) -> tuple[Path, Any]:
        torch.manual_seed(7)
        settings: dict[str, Any] = {
            "vocab_size": 97,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 256,
            "initializer_range": 0.3,
            "tie_word_embeddings": True,
        }
        model = LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()
        folder = tmp_path_factory.mktemp("tiny")
        model.save_pretrained(folder)
        return folder, model

    return save


@pytest.fixture(scope="session")
def tiny(save_tiny: SaveTiny) -> tuple[Decoder, Any]:
    folder, reference = save_tiny()
    return Decoder.load(folder), reference

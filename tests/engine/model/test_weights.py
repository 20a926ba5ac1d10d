"""Files that cannot be served say so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from pagefence.engine.model import dtype as dtypes
from pagefence.engine.model.config import config_from_gguf, load_config
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.dtype import choose_dtype
from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.engine.model.weights import load_weights
from pagefence.models import ModelError

from .conftest import SaveTiny


def write_gguf(path: Path, architecture: str = "llama", **changes: Any) -> Path:
    """A file with the metadata of a tiny model and one tensor."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(32)
    writer.add_head_count(2)
    writer.add_feed_forward_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    if not changes.get("no_context"):
        writer.add_context_length(64)
    writer.add_token_list(["a", "b", "<|im_end|>"])
    writer.add_token_types([1, 1, 3])
    writer.add_eos_token_id(1)
    embedding = np.arange(3 * 32, dtype=np.float32).reshape(3, 32)
    writer.add_tensor(
        "token_embd.weight",
        gguf.quants.quantize(embedding, gguf.GGMLQuantizationType.Q8_0),
        raw_dtype=gguf.GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_config_of_the_embedded_model(gguf_path: Path) -> None:
    config = load_config(gguf_path)
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim) == (30, 576, 9, 3, 64)
    assert (config.mlp, config.vocab, config.rope_theta, config.context) == (1536, 49_152, 100_000.0, 8192)
    assert (config.norm_eps, config.tied, config.bos_id, config.eos_ids) == (1e-5, True, 1, (0, 2))


def test_small_gguf(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    file = GGUFFile(path)
    config = config_from_gguf(file)
    assert (config.kv_heads, config.head_dim, config.vocab, config.eos_ids, config.bos_id) == (2, 16, 3, (1, 2), None)
    assert np.allclose(file.tensor("token_embd.weight"), np.arange(96).reshape(3, 32), atol=0.5)
    with pytest.raises(ModelError, match=r"no tensor 'blk.0.attn_norm.weight'"):
        load_weights(path, torch.float32)


def test_wrong_gguf(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'gpt2' is not supported"):
        load_config(write_gguf(tmp_path / "q.gguf", "gpt2"))
    with pytest.raises(ModelError, match=r"no metadata 'llama.context_length'"):
        load_config(write_gguf(tmp_path / "c.gguf", no_context=True))
    with pytest.raises(ModelError, match="cannot read"):
        load_config(tmp_path / "none.gguf")


def test_truncated_gguf(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    for length in [0, 3, 8, 20, *range(24, len(whole) - 32, 61), len(whole) - 33]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(ModelError, match="not a complete GGUF file"):
            GGUFFile(tmp_path / "cut.gguf")


def test_wrong_folders(save_tiny: SaveTiny, tmp_path: Path) -> None:
    folder, _ = save_tiny()
    config = json.loads((folder / "config.json").read_text())
    for changes, message in [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2}}, "yarn"),
        ({"hidden_size": None}, "wrong"),
        ({"num_hidden_layers": 0}, "below 1"),
        ({"num_attention_heads": 5}, "evenly"),
        ({"num_hidden_layers": 4}, "no tensor 'blk.3.attn_norm"),
        ({"intermediate_size": 81}, "has shape"),
    ]:
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ModelError, match=message):
            Decoder.load(folder)
    (folder / "config.json").write_text(json.dumps(config))
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="not a complete safetensors file"):
        Decoder.load(broken)


def test_choose_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype("float32") == "float32"
    assert choose_dtype("bfloat16") == "bfloat16"
    for flags, expected in [({"avx2"}, "float32"), ({"amx_bf16"}, "bfloat16"), (set[str](), "float32")]:
        monkeypatch.setattr(dtypes, "cpu_flags", lambda flags=flags: flags)
        assert choose_dtype("auto") == expected

"""A model that is read in no time, for tests that ask it nothing: of a fleet's start, loading is the longest part."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.engine.model.test_tokenizer import small_vocabulary

HIDDEN, HEADS, MLP, CONTEXT = 64, 2, 128, 8192


def write_small_model(path: Path) -> Path:
    """One random layer of Llama and a byte-level vocabulary, as a GGUF file."""
    vocab, merges = small_vocabulary()
    tokens = [*sorted(vocab, key=vocab.__getitem__), "<|endoftext|>"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_eos_token_id(len(tokens) - 1)
    random = np.random.default_rng(7)
    for name, shape in _shapes(len(tokens)).items():
        writer.add_tensor(name, random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(vocab: int) -> dict[str, tuple[int, ...]]:
    block = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (HIDDEN, HIDDEN),
        "attn_v": (HIDDEN, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (MLP, HIDDEN),
        "ffn_up": (MLP, HIDDEN),
        "ffn_down": (HIDDEN, MLP),
    }
    inside = {f"blk.0.{name}.weight": shape for name, shape in block.items()}
    return {"token_embd.weight": (vocab, HIDDEN), "output_norm.weight": (HIDDEN,), **inside}

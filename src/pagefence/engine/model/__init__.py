"""The model: weights, tokenizer, forward pass over a paged KV store, sampling.

`config`, `gguf_file`, `tokenizer`, `chat` and `sampling_params` import no torch, so that a router can count tokens.
"""

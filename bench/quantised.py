"""How far quantised mode is from the weights that it stands for: the same tokens through both, position by position.

    python -m bench.quantised [--model FILE] [--streams N] [--tokens N]

Each stream begins with tokens of its own and goes on as the dequantised model says.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pagefence.engine.model.decoder import Decoder, Span
from pagefence.models import resolve

PAGE_SIZE, PROMPT = 64, 24


def main() -> None:
    """Load both, walk, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="known name or GGUF file")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    path = Path(resolve(options.model))
    exact, quantised = Decoder.load(path, forms="dense"), Decoder.load(path, forms="panels")
    config = exact.config
    each = -(-(PROMPT + options.tokens) // PAGE_SIZE)
    stores = [
        torch.zeros(options.streams * each, config.layers, 2, PAGE_SIZE, config.kv_heads, config.head_dim)
        for _ in range(2)
    ]
    draws = torch.Generator().manual_seed(1)
    starts = torch.randint(0, config.vocab, (options.streams, PROMPT), generator=draws).tolist()
    pages = [tuple(range(stream * each, (stream + 1) * each)) for stream in range(options.streams)]
    spans = [Span(pages[i], 0, start) for i, start in enumerate(starts)]
    # As in a fleet: prefill is the dequantised model's in both modes.
    following = exact.forward(spans, stores[0]).argmax(-1).tolist()
    stores[1].copy_(stores[0])
    differences, agreed, divergences = [], [], []
    for position in range(PROMPT, PROMPT + options.tokens):
        spans = [Span(pages[i], position, (token,)) for i, token in enumerate(following)]
        wanted, made = exact.forward(spans, stores[0]), quantised.forward(spans, stores[1])
        differences.append((made - wanted).abs().mean() / wanted.std())
        agreed.append((made.argmax(-1) == wanted.argmax(-1)).float().mean())
        right = wanted.log_softmax(-1)
        divergences.append((right.exp() * (right - made.log_softmax(-1))).sum(-1).mean())
        following = wanted.argmax(-1).tolist()
    print(
        f"{path.name}, {options.streams} streams of {options.tokens} tokens, against the dequantised weights in float32"
    )
    print(f"mean difference of a logit   {torch.stack(differences).mean():.4f} of their standard deviation")
    print(f"same most likely token       {torch.stack(agreed).mean():.2%}")
    print(f"Kullback-Leibler divergence  {torch.stack(divergences).mean():.5f} nats a token")


if __name__ == "__main__":
    main()

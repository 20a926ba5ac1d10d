"""This machine: what it is, and what it can do at most, measured in the run whose figures are held against it."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch

ARRAY_BYTES = 512 * 2**20
SIDE = 768
SECONDS = 1.0
TOLD = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per second that all cores read, and floating-point operations per second of a product of matrices."""

    read: float
    float32: float
    bfloat16: float

    def best(self, other: Limits) -> Limits:
        """The better of two measurements, figure by figure."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Limits(*(max(pair) for pair in pairs))

    @property
    def product(self) -> float:
        """The faster product: weights of any format can be widened on the way to it."""
        return max(self.float32, self.bfloat16)


def measure(threads: int, seconds: float = SECONDS) -> Limits:
    """The best of many short trials of each: a limit is what the machine can do, not what it did on average."""
    torch.set_num_threads(threads)
    array = torch.ones(ARRAY_BYTES // 4)
    rates = [ARRAY_BYTES / _best(call, seconds / 2) for call in (array.sum, array.max, lambda: torch.dot(array, array))]
    flops = 2.0 * SIDE**3
    products = {}
    for name in ("float32", "bfloat16"):
        left = torch.randn(SIDE, SIDE, dtype=getattr(torch, name))
        right = torch.randn(SIDE, SIDE, dtype=getattr(torch, name))
        out = torch.empty_like(left)
        products[name] = flops / _best(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), seconds)  # type: ignore[misc]
    return Limits(max(rates), products["float32"], products["bfloat16"])


def _best(call: Callable[[], object], seconds: float) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or best == float("inf"):
        call()
        best = min(best, time.perf_counter() - start)
    return best


Format = Literal["float32", "bfloat16", "Q4_1"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pass over the model costs at least.

    `body`: weights that every token meets; `head`: those of the output, met once for a sampled token. `weight_bytes`:
    all that a decode step reads, by format.
    """

    body: int
    head: int
    layers: int
    width: int
    weight_bytes: dict[str, int]

    @classmethod
    def of(cls, folder: Path, gguf: Path) -> Shape:
        """From a Hugging Face folder of a Llama and its GGUF file."""
        said: dict[str, Any] = json.loads((folder / "config.json").read_text())
        hidden, inner, heads = said["hidden_size"], said["intermediate_size"], said["num_attention_heads"]
        size = said.get("head_dim") or hidden // heads
        queries, keys = heads * size, said["num_key_value_heads"] * size
        layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
        layers = int(said["num_hidden_layers"])
        body, head = layer * layers, hidden * said["vocab_size"]
        weights = {"float32": 4 * (body + head), "bfloat16": 2 * (body + head), "Q4_1": gguf.stat().st_size}
        return cls(body, head, layers, queries, weights)

    def decode_limit(self, limits: Limits, form: str, streams: int) -> float:
        """Tokens/s at most: a step reads every weight once, and multiplies it once for each stream.

        Keys and values, which are short here, are left out, so that the true limit is a little lower.
        """
        read = self.weight_bytes[form] / limits.read
        multiplied = 2 * (self.body + self.head) * streams / limits.product
        return streams / max(read, multiplied)

    def first_limit(self, limits: Limits, tokens: int) -> float:
        """Seconds to the first token at least: every weight of the body times every token, and causal attention."""
        attention = 2 * tokens**2 * self.width * self.layers
        return (2 * (self.body * tokens + self.head) + attention) / limits.product


@dataclass(frozen=True, slots=True)
class Description:
    """The machine in words, without its name."""

    cpu: str
    cores: int
    flags: str
    memory_gib: float
    kernel: str
    python: str
    load: float

    @classmethod
    def here(cls) -> Description:
        """Of this one, now."""
        fields: dict[str, str] = {}
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
        present = set(fields.get("flags", "").split())
        family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
        return cls(
            f"{fields.get('model name', platform.machine())} ({family})",
            len(os.sched_getaffinity(0)),
            " ".join(flag for flag in TOLD if flag in present) or "none of those asked for",
            psutil.virtual_memory().total / 2**30,
            platform.release().split("-")[0],
            platform.python_version(),
            os.getloadavg()[0],
        )

    def as_json(self) -> dict[str, Any]:
        """For the file of samples."""
        return asdict(self)


def versions() -> dict[str, str]:
    """Of what computes in this environment."""
    return {"torch": torch.__version__, "numpy": np.__version__}

"""Which number format to compute in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from pagefence.engine.model.config import Dtype

_NATIVE = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one is Arm's name


def choose_dtype(wanted: Dtype | Literal["auto"] = "auto", device: str = "cpu") -> Dtype:
    """`wanted`, or for "auto" the faster one on this hardware.

    bfloat16 on a GPU and on a CPU that multiplies it in hardware. Elsewhere bfloat16 is emulated, which makes a
    prefill several times slower than float32.
    """
    if wanted != "auto":
        return wanted
    return "bfloat16" if _has_native_bfloat16(device) else "float32"


def _has_native_bfloat16(device: str) -> bool:
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device != "cpu":
        return False
    return not _NATIVE.isdisjoint(cpu_flags())


def cpu_flags() -> set[str]:
    """What the processor can do, by the names that Linux gives it; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux: float32 is right everywhere
        return set()
    return next((set(line.split()) for line in lines if line.startswith(("flags", "Features"))), set())

"""Worlds that several faults share: settings of the real engine, and small ones for the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagefence.lab.fault import SMALL
from pagefence.sim.bounds import Ask

# The incident's: prefill holds half of what is advertised, decode twice as much.
INCIDENT: Mapping[str, Any] = {"context": 2048, "prefill_pool_tokens": 1024, "decode_pool_tokens": 4096}
SHORT_PREFILL = replace(SMALL, name="short prefill", asks=(Ask("a", 2), Ask("b", 4)), prefill_pages=1)

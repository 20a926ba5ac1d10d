"""Capacity: the fleet came up with less than it advertises."""

from __future__ import annotations

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL

FAULT = Fault(
    name="pool-below-context",
    summary="the pool that memory left is smaller than the advertised context",
    mechanism="Nothing is decided wrongly here: the fleet simply came up with less memory than it advertises.",
    reference="the incident of August 2026: a pool of 681,280 tokens under a context of 1,048,576",
    rules=("I8",),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    hidden_by=("readiness",),
)

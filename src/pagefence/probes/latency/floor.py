"""The physical floor: no prompt is computed faster than its arithmetic takes, nor moved faster than the link is.

    compute   (2 N (T - C) + 2 L d (T^2 - C^2)) / (devices x peak)
    transfer  (T - C) x KV bytes per token / link speed

for T tokens of which C were cached. The larger of both: an engine overlaps them. Of a transfer only what was not cached
counts, because the other side may hold the rest. Every doubt lowers the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pagefence.fleet.facts import DECODE, SPEED, FleetFacts


@dataclass(frozen=True, slots=True)
class Physics:
    """The work of a prompt token, and the most that the hardware of one prompt can do. Zero: not known, left out.

    work_flop   2 N: operations of one token in the matrices
    attend_flop 2 L d: of one token with each pair of positions; 0 for sparse attention
    peak        operations a second of all devices that one prompt is spread over
    kv_bytes    keys and values of one token
    link        bytes a second between prefill and decode
    """

    work_flop: float = 0.0
    attend_flop: float = 0.0
    peak: float = 0.0
    kv_bytes: float = 0.0
    link: float = 0.0

    def floor_s(self, uncached: int, cached: int = 0) -> float:
        """Seconds that a prompt takes at the very least; 0 when nothing is known."""
        tokens = uncached + cached
        compute = self.work_flop * uncached + self.attend_flop * (tokens**2 - cached**2)
        return max(
            compute / self.peak if self.peak else 0.0, uncached * self.kv_bytes / self.link if self.link else 0.0
        )


def physics(said: Mapping[str, int]) -> Physics | str:
    """From figures by the names in `SPEED`, or what is missing of them."""
    compute = [name for name in ("active_parameters", "devices", "peak_flop_per_s") if name not in said]
    transfer = [name for name in ("kv_bytes_per_token", "link_bytes_per_s") if name not in said]
    if compute and transfer:
        return f"nobody told {', '.join(compute)}, nor {' and '.join(transfer)}: the physical floor is unknown"
    wide = said.get("layers", 0) * said.get("attention_width", 0)
    return Physics(
        work_flop=0.0 if compute else 2.0 * said["active_parameters"],
        attend_flop=0.0 if compute else 2.0 * wide,
        peak=0.0 if compute else float(said["devices"]) * said["peak_flop_per_s"],
        kv_bytes=0.0 if transfer else float(said["kv_bytes_per_token"]),
        link=0.0 if transfer else float(said["link_bytes_per_s"]),
    )


def of_fleet(facts: FleetFacts) -> Physics | str:
    """The lowest floor over the nodes that compute prompts: any of them may have answered.

    A figure that one of them does not tell is not known of the fleet.
    """
    nodes = [node for node in facts.nodes if node.role != DECODE]
    if not nodes:
        return "no node that computes prompts is known: the physical floor is unknown"
    read = [{name: node.speed[name].value for name in SPEED if name in node.speed} for node in nodes]
    said: dict[str, int] = {}
    for name in SPEED:
        values = [figures.get(name) for figures in read]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            said[name] = max(known) if name in ("devices", "peak_flop_per_s", "link_bytes_per_s") else min(known)
    return physics(said)

"""What sharing counts. Only an edge that shares shows it."""

from __future__ import annotations

from pagefence.edge.metrics import OTHER, Family

UP = "pagefence_edge_shared_up"
BATCHES = "pagefence_edge_shared_batches_total"
DROPPED = "pagefence_edge_shared_dropped_total"

FAMILIES = (
    Family(UP, "gauge", "Workers that hear and tell through Redis."),
    Family(
        BATCHES, "counter", "Batches told to other edges (sent), and what became of theirs.",
        (("fate", ("sent", "heard", "missed", "unreadable", "old", OTHER)),),
    ),
    Family(DROPPED, "counter", "Parts of prompts and answers that waited too long for Redis and are never told."),
)  # fmt: skip

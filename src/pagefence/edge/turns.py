"""How many requests may be in progress: of all, and of each tenant, so that one cannot take the place of the others."""

from __future__ import annotations

from pagefence.edge.call import Tenant
from pagefence.edge.refusal import Refusal


class Turns:
    """`take` before the work, `give` after it. No queue: whoever waits here would wait without being counted."""

    def __init__(self, most: int, most_of_tenant: int) -> None:
        self._most, self._most_of_tenant = most, most_of_tenant
        self._now = 0
        self._of: dict[str, int] = {}

    def take(self, tenant: Tenant) -> Refusal | None:
        """None: it may go on, and has to `give` its turn back."""
        own = self._of.get(tenant.name, 0)
        if own >= self._most_of_tenant:
            message = f"{own:,} requests of yours are in progress; wait until one has ended."
            return Refusal(429, "too_many_requests", message, retry_after_s=1)
        if self._now >= self._most:
            return Refusal(503, "overloaded", "too many requests are in progress; try again.", retry_after_s=1)
        self._now += 1
        self._of[tenant.name] = own + 1
        return None

    def give(self, tenant: Tenant) -> None:
        """Its request has ended."""
        self._now -= 1
        left = self._of[tenant.name] - 1
        if left:
            self._of[tenant.name] = left
        else:
            del self._of[tenant.name]

"""What all answers of a process are held against, and how watching one begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pagefence.edge.demand import Admitted
from pagefence.edge.watching.expected import Expected, of_admitted, prompt_texts
from pagefence.edge.watching.memory import Memory
from pagefence.edge.watching.order import ResponseIds
from pagefence.edge.watching.prefixes import Prefixes
from pagefence.edge.watching.sentinels import Sentinels
from pagefence.probes.latency.tally import Floors


@dataclass(frozen=True, slots=True)
class Book:
    """
    memory     of prompts, for the scan; None: answers are not scanned for other tenants' text
    prefixes   None: cached tokens are not judged
    floors     None, or without figures: times are not judged
    """

    memory: Memory | None = None
    sentinels: Sentinels = field(default_factory=Sentinels)
    prefixes: Prefixes | None = None
    floors: Floors | None = None
    ids: ResponseIds = field(default_factory=ResponseIds)

    def opened(self, admitted: Admitted, now: float, at_least: int = 0) -> Expected:
        """Remember a prompt, before it is sent on; what its answer is held against.

        A long prompt takes milliseconds (a megabyte about ten): call it in a thread for those. `now`: seconds of any
        clock that does not go back, the same for all of the book.
        """
        call, known = admitted.call, dict[str, Any]()
        if self.memory is not None or len(self.sentinels):
            theirs, said = prompt_texts(call)
            if self.memory is not None:
                known["own"] = self.memory.sent(theirs, said, call.tenant.tag, now)
            known["own_sentinels"] = self.sentinels.of_prompt([*theirs, *said], call.tenant.name)
        if self.prefixes is not None:
            history = self.prefixes.sent(call)
            known |= {"cached_at_most": history.cached_at_most, "history_complete": history.complete}
        return of_admitted(admitted, at_least, **known)

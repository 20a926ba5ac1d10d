"""Is an upstream to be asked? Pure: what happened comes in with its moment, what follows comes out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """When an upstream is left out, and when it is asked again.

    path              of the active question; an upstream that does not know it (404, 405) is well if it answers
    every_s           from one active question to the next, 0: none
    timeout_s         for its answer
    failures          so many in a row, of requests or of questions, and it is out
    out_s, longest_s  for how long at first; doubled each time, up to the longest
    """

    path: str = "/health"
    every_s: float = 5.0
    timeout_s: float = 2.0
    failures: int = 3
    out_s: float = 2.0
    longest_s: float = 60.0


@dataclass(slots=True)
class Health:
    """What is known of one upstream. Until something fails it is well."""

    policy: HealthPolicy = field(default_factory=HealthPolicy)
    in_a_row: int = 0
    times_out: int = 0
    out_until: float = 0.0
    sick: bool = False  # by its own answers to active questions

    def well(self, now: float) -> bool:
        """Whether requests may go there. After its time out one request is enough to find out."""
        return not self.sick and now >= self.out_until

    def succeeded(self) -> None:
        """A request was answered."""
        self.in_a_row = self.times_out = 0

    def failed(self, now: float) -> bool:
        """A request was not answered; true when this puts it out."""
        self.in_a_row += 1
        if self.in_a_row < self.policy.failures and not self.times_out:
            return False
        self.out_until = now + min(self.policy.out_s * 2**self.times_out, self.policy.longest_s)
        self.times_out = min(self.times_out + 1, 16)
        self.in_a_row = 0
        return True

    def answered_question(self, good: bool) -> None:
        """The active question was answered, well or not. A good answer brings it back at once."""
        if good:
            self.in_a_row, self.times_out, self.out_until, self.sick = 0, 0, 0.0, False
            return
        self.in_a_row += 1
        self.sick = self.sick or self.in_a_row >= self.policy.failures

"""How an upstream can fail, and what may be done about it.

Failure
  Unreachable   no connection: nothing was sent, somebody else may be asked
  Died          the connection broke; `heard`: after a byte of the answer
  Lied          what came is no HTTP answer, or larger than allowed
  TooSlow       a time-out; `what` says which
"""

from __future__ import annotations


class Failure(Exception):
    """An upstream did not do its part. The message quotes nothing that it sent."""

    code = "upstream_failed"
    status = 502


class Unreachable(Failure):
    """No connection could be made. `busy`: because ours are all in use."""

    code, status = "upstream_unreachable", 503

    def __init__(self, message: str, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class Died(Failure):
    """The connection broke before the answer was whole."""

    code = "upstream_died"

    def __init__(self, heard: bool) -> None:
        super().__init__(
            "the upstream closed the connection " + ("within its answer" if heard else "without an answer")
        )
        self.heard = heard


class Lied(Failure):
    """The answer is not framed as HTTP/1.1 has it."""

    code = "upstream_malformed"


class TooSlow(Failure):
    """A time-out."""

    code, status = "upstream_timeout", 504

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"the upstream took longer than {seconds:g} s {what}")
        self.what = what

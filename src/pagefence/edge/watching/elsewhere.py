"""Response ids that requests of other processes got (I10)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_REMEMBERED = 16_384
_RESPONSE = 12  # bytes of a name; the rest is the request's


class Elsewhere:
    """
    named  names a response id and the request that got it, so that equal ones have equal names in all processes
    told   gets the name of what a request here got
    """

    def __init__(
        self, named: Callable[[str, str], bytes], told: Callable[[bytes], None], remembered: int = _REMEMBERED
    ) -> None:
        self._named, self._told, self._remembered = named, told, remembered
        self._live: dict[bytes, bytes] = {}
        self._others: OrderedDict[bytes, bytes] = OrderedDict()
        self._clashed: set[bytes] = set()

    def claim(self, response_id: str, request_id: str) -> bool:
        """Tell the others; whether none of them got it before, as far as it is known here by now."""
        name = self._named(response_id, request_id)
        response, request = name[:_RESPONSE], name[_RESPONSE:]
        if self._live.setdefault(response, request) == request:
            self._told(name)
        return self._others.get(response, request) == request

    def release(self, response_id: str, request_id: str) -> bool:
        """The request has ended; whether none of the others got it meanwhile."""
        response = self._named(response_id, request_id)[:_RESPONSE]
        self._live.pop(response, None)
        clashed = response in self._clashed
        self._clashed.discard(response)
        return not clashed

    def heard(self, name: bytes) -> None:
        """What another process told. A request has one name, so what comes back of our own clashes with nothing."""
        response, request = name[:_RESPONSE], name[_RESPONSE:]
        if self._live.get(response, request) != request:
            self._clashed.add(response)
        self._others[response] = request
        self._others.move_to_end(response)
        if len(self._others) > self._remembered:
            self._others.popitem(last=False)

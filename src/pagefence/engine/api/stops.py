"""Stop strings, across token borders: no character that may belong to one goes out early."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes text on, up to the first stop string.

    The first stop string is the one that is complete first; of several complete at once, the longest. Text is read
    one character at a time (Knuth, Morris, Pratt), so the result cannot depend on how it was split into tokens, and a
    long stop string costs no more than a short one.
    """

    __slots__ = ("_borders", "_held", "_matched", "_stops", "stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._matched = [0] * len(self._stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that may go out now. After `stopped`, nothing."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        pending = self._held + text
        for seen, char in enumerate(text, len(self._held) + 1):
            complete = self._advance(char)
            if complete:
                self.stopped, self._held = True, ""
                return pending[: seen - complete]
        out = len(pending) - max(self._matched)
        self._held = pending[out:]
        return pending[:out]

    def finish(self) -> str:
        """The held text: the answer ended before a stop string did."""
        held, self._held = self._held, ""
        return held

    def _advance(self, char: str) -> int:
        """Take one character; the length of the longest stop string that it completes, or 0."""
        complete = 0
        for index, (stop, borders) in enumerate(zip(self._stops, self._borders, strict=True)):
            matched = self._matched[index]
            while matched and stop[matched] != char:
                matched = borders[matched - 1]
            matched += stop[matched] == char
            self._matched[index] = matched
            if matched == len(stop):
                complete = max(complete, matched)
        return complete


def _borders(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = borders[length - 1]
        length += stop[index] == stop[length]
        borders[index] = length
    return borders

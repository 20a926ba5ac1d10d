"""Log lines: one event each, as text or as JSON. No key, prompt, tenant or answer is ever in one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from pagefence.fleet import Keys

_LONGEST = 500


class Say(Protocol):
    """One event with its fields."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def lines(
    keys: Iterable[Keys], clock: Callable[[], float], as_json: bool, write: Callable[[str], None] | None = None
) -> Say:
    """What writes log lines, by default to standard error. Keys that an error message may quote are taken out."""
    every = tuple(keys)
    write = _to_stderr if write is None else write

    def clean(value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        text = str(value)
        for each in every:
            text = each.redact(text)
        text = text[:_LONGEST]
        # A line end in a value would let a fleet write log lines of its own.
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

    def say(event: str, /, **fields: object) -> None:
        shown = {name: clean(value) for name, value in fields.items()}
        moment = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="milliseconds")
        if as_json:
            write(msgspec.json.encode({"time": moment, "event": event, **shown}).decode())
            return
        said = " ".join(f"{name}={_plain(value)}" for name, value in shown.items() if value is not None)
        write(f"{moment} {event} {said}".rstrip())

    return say


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return f'"{text}"' if " " in text or not text else text


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

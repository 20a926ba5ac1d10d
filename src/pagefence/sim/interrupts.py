"""Ctrl-C between two batches of a search and never inside one: what was taken and not yet merged would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def put_off() -> Iterator[Callable[[], bool]]:
    """Inside, a SIGINT is only noted, and the function given tells so; at the end it is raised as KeyboardInterrupt.

    A second one is not put off. Where signals cannot be heard, outside the main thread, nothing is changed.
    """
    heard = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: heard
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt

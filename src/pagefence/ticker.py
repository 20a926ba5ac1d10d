"""The line that moves while a command works, on standard error. On a terminal it is transient; elsewhere lines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_EVERY_S = 5.0


class Ticker:
    """Call it with (what, done, total); `say` prints a line that stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._last = ("starting", 0, 0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Ticker:
        if self._bar is not None:
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._lines, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join(1.0)

    def __call__(self, what: str, done: int = 0, total: int = 0) -> None:
        self._last = (what, done, total)
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total or None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the line still, for a question on the terminal."""
        if self._bar is not None:
            self._bar.stop()
        yield
        if self._bar is not None:
            self._bar.start()

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _lines(self) -> None:
        while not self._stop.wait(_EVERY_S):
            what, done, total = self._last
            count = f" {done}/{total}" if total else ""
            print(f"[{time.monotonic() - self._started:5.0f} s]{count} {what}", file=sys.stderr, flush=True)

"""Run a command line and turn whatever it ends with into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from pagefence.mistakes import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_USAGE, Mistake


def run(application: typer.Typer, arguments: Sequence[str], obj: object = None) -> int:
    """Run a command and return its exit code. A mistake of the user is one line; an internal error is 3, never 1."""
    try:
        code = application(args=list(arguments), obj=obj, standalone_mode=False, prog_name="pagefence")
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", EXIT_INTERRUPTED)
    except Mistake as error:
        return _say(str(error), error.exit_code)
    except Exception as error:
        shown = getattr(error, "format_message", None)  # what the parser raises, wherever its classes live
        if callable(shown):
            if not shown():
                return EXIT_USAGE  # a group without a command has printed its help
            return _say(f"{shown()} (--help shows the flags)", EXIT_USAGE)
        if os.environ.get("PAGEFENCE_DEBUG"):
            traceback.print_exc()
        return _say(
            f"internal error: {type(error).__name__}: {error} (PAGEFENCE_DEBUG=1 shows where)", EXIT_INCONCLUSIVE
        )


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """Inside, SIGTERM ends a run as Ctrl-C does: what is done is kept, and no process or fleet stays behind.

    Where signals cannot be heard, outside the main thread, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(message: str, code: int) -> int:
    # A message may quote a file, a flag or a fleet, none of which is to steer the terminal.
    plain = "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)
    print(f"pagefence: {plain}", file=sys.stderr)
    return code

"""Run a command line and turn whatever it ends with into one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

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


def _say(message: str, code: int) -> int:
    print(f"pagefence: {message}", file=sys.stderr)
    return code

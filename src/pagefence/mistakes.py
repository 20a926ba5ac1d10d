"""What a user can mend: every such exception carries its own words and the exit code of the command that it ends.

Codes 0 (clean) and 1 (violation) are verdicts, not mistakes, and live with them.
"""

from __future__ import annotations

EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERRUPTED = 130


class Mistake(Exception):
    """Shown to the user as one line, without a traceback."""

    exit_code = EXIT_USAGE


class Usage(Mistake):
    """Flags that do not go together, or name what is not there; the message says what and what instead."""


class CouldNotAsk(Mistake):
    """Nothing is wrong with the command, but nothing could be found out either."""

    exit_code = EXIT_INCONCLUSIVE

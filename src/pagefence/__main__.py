"""`python -m pagefence`, and the `pagefence` command."""

from __future__ import annotations

import io
import signal
import sys
import traceback


def main() -> None:
    """Run the command line. A Ctrl-C while it is still being imported ends as quietly as a later one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts a background job. SIGTERM ends a run as SIGINT does, and an ignored one would end nothing.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an arrow that a terminal cannot show must not cost the verdict
    try:
        from pagefence.cli import app
        from pagefence.run import run
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # such as a fault's file that does not load; Python's own exit code would say "violation"
        traceback.print_exc()
        sys.exit(3)
    sys.exit(run(app, sys.argv[1:]))


if __name__ == "__main__":
    main()

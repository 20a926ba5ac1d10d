"""`python -m pagefence`, and the `pagefence` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. A Ctrl-C while it is still being imported ends as quietly as a later one."""
    try:
        from pagefence.cli import app
        from pagefence.run import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(app, sys.argv[1:]))


if __name__ == "__main__":
    main()

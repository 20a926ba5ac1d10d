"""A child process that does not outlive its parent, however the parent ends.

`python -m pagefence.process PID MODULE [ARGUMENT ...]` runs a module as such a child of PID.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux
# Loaded here, not in the child: between fork and exec nothing should be imported or opened.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def die_with_parent(parent: int | None = None, sign: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `sign` to this process when the thread that started it ends.

    Call it in the child, first thing. With `parent` (the pid that is expected to be our parent) a parent that died
    before this call is noticed too. On systems without prctl this does nothing; a normal stop must not rely on it.
    """
    if _LIBC is None or _LIBC.prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0) != 0:
        return
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), sign)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

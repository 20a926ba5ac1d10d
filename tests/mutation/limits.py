"""What a mutant may use up: it is wrong code, and wrong code loops and allocates without end."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable

from pagefence.process import die_with_parent

MEMORY = 1 << 30
# On a busy machine a process may wait much longer than it works.
WALL_S = 1800.0


def confine() -> None:
    """Bound this process for good: memory, time on the clock, no core file, no word on the terminal."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def allow_cpu(seconds: float) -> None:
    """The process may burn this many seconds from now on, not counting what it burned before."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, hard))


def in_a_child(work: Callable[[int], None]) -> tuple[int, bytes]:
    """Do `work(file descriptor)` in a forked process; its wait status and what it wrote to the descriptor."""
    read, write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(parent)
            os.close(read)
            work(write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    said = bytearray()
    try:
        while chunk := os.read(read, 1 << 16):
            said += chunk
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(read)
        _, status = os.waitpid(pid, 0)
    return status, bytes(said)

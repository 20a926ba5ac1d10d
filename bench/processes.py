"""An engine as a tree of processes: started in a session of its own, stopped and continued, weighed, ended whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

GRACE_S = 20.0
TAIL_LINES = 12


class Tree:
    """A process and all that it started, in whatever session they are. `end` leaves none of them."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        pipes: bool = False,
    ) -> None:
        """`pipes`: standard input and output stay ours; the log then gets standard error alone."""
        self.log = log
        self._stopped = False
        with log.open("wb") as out:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else out,
                stderr=out,
                env=dict(environment),
                start_new_session=True,
            )
        self._seen: dict[int, psutil.Process] = {}
        self.members()

    @property
    def alive(self) -> bool:
        """True while the first process runs."""
        return self.process.poll() is None

    def members(self) -> list[psutil.Process]:
        """The first process and its descendants, parents first; those that lost their parent stay known."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for member in (root, *root.children(recursive=True)):
                self._seen.setdefault(member.pid, member)
        return [member for member in self._seen.values() if _lives(member)]

    def stop(self) -> None:
        """Take the cores from it. The parent first: it must not see children that stand still."""
        for member in self.members():
            _send(member, signal.SIGSTOP)
        self._stopped = True

    def go_on(self) -> None:
        """Give them back, children first."""
        if not self._stopped:
            return
        for member in reversed(self.members()):
            _send(member, signal.SIGCONT)
        self._stopped = False

    def cpu_seconds(self) -> float:
        """What all of it has used so far."""
        used = 0.0
        for member in self.members():
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                used += times.user + times.system
        return used

    def pss_bytes(self) -> int:
        """Memory, shared pages divided by those who share them (PSS), of the whole tree."""
        return sum(_pss(member.pid) for member in self.members())

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def end(self) -> None:
        """SIGTERM to the first, which ends its own; SIGKILL to whatever is left after a while."""
        self.go_on()
        everyone = self.members()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        deadline = time.monotonic() + GRACE_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        while (left := [member for member in everyone if _lives(member)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for member in left:
            _send(member, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def running(tree: Tree) -> Iterator[Tree]:
    """A tree that is ended afterwards, whatever happens."""
    try:
        yield tree
    finally:
        tree.end()


def lines_of(stream: IO[bytes] | None) -> Iterator[bytes]:
    """The lines of a child's standard output."""
    assert stream is not None
    return iter(stream.readline, b"")


def _lives(member: psutil.Process) -> bool:
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _send(member: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        member.send_signal(number)


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without proxies, which must not stand between client and server, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **more}

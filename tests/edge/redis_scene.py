"""A real redis-server on a Unix socket, that can be stopped, started again and hung; what a meter of an edge counts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

SERVER = shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
needs_redis = pytest.mark.skipif(SERVER is None, reason="redis-server is missing (apt-get install redis-server)")


class Redis:
    """`with Redis(...) as server`; `options`: as redis-server takes them, without the two hyphens."""

    def __init__(self, **options: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pf-redis-"))  # a Unix socket's path has to be short
        self.path = self._folder / "s"
        self.url = f"unix://{self.path}"
        self._options = {"port": "0", "unixsocket": str(self.path), "save": "", "dir": str(self._folder)} | options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Redis:
        self.start()
        return self

    def __exit__(self, *given: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        assert SERVER is not None
        flags = [word for name, value in self._options.items() for word in (f"--{name.replace('_', '-')}", value)]
        self._process = subprocess.Popen([SERVER, *flags], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                with socket.socket(socket.AF_UNIX) as asked:
                    asked.connect(str(self.path))
                    return
            except OSError:
                time.sleep(0.01)
        pytest.fail("redis-server did not begin")

    def kill(self) -> None:
        """With all that it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def goes_on(self) -> None:
        self._signal(signal.SIGCONT)

    def client(self, **given: Any) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.path), **given)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class Meter:
    """What was counted, by name and values; gauges as they stand."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def add(self, name: str, *values: str, by: float = 1.0) -> None:
        self.counted["/".join((name, *values))] += int(by)

    def set(self, name: str, *values: str, to: float) -> None:
        self.counted["/".join((name, *values))] = int(to)

    def __getitem__(self, name: str) -> int:
        """Without what all names of this room begin with."""
        return self.counted[f"pagefence_edge_shared_{name}"]

"""A real redis-server on a Unix socket, that can be stopped, started again and hung; what sharing tells."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from pagefence.edge.steps import Tells

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


class Told:
    """What sharing told: counters and gauges by what of their names is its own, and log lines."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.lines: list[tuple[str, str]] = []
        self.tells = Tells(self._log, self._count, self._gauge)

    def __getitem__(self, name: str) -> int:
        return self.counted[f"pagefence_edge_shared_{name}"]

    def _log(self, event: str, fields: Mapping[str, object]) -> None:
        self.lines.append((event, str(fields.get("why", ""))))

    def _count(self, *name: str, by: float = 1.0) -> None:
        self.counted["/".join(name)] += int(by)

    def _gauge(self, name: str, to: float) -> None:
        self.counted[name] = int(to)

"""Two hosts, as far as a network is concerned: two network namespaces with a wire between them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from typing import Final

HERE: Final = "10.77.0.1"
THERE: Final = "10.77.0.2"
_CLONE_NEWNET: Final = 0x40000000  # setns(2)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """The names of two new namespaces: the first has the address HERE, the second THERE.

    Raises OSError or CalledProcessError where they cannot be made: it takes root and iproute2.
    """
    names = (f"pf-{os.getpid()}-a", f"pf-{os.getpid()}-b")
    commands: list[tuple[str, ...]] = [("netns", "add", name) for name in names]
    commands.append(("link", "add", "wire", "netns", names[0], "type", "veth", "peer", "wire", "netns", names[1]))
    for name, address in zip(names, (HERE, THERE), strict=True):
        commands.append(("-n", name, "address", "add", f"{address}/24", "dev", "wire"))
        commands += [("-n", name, "link", "set", device, "up") for device in ("wire", "lo")]
    try:
        for command in commands:
            subprocess.run(("ip", *command), check=True, capture_output=True)
        yield names
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and threads that it starts, open their sockets in that namespace. They keep them afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    away = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(away, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            if libc.setns(home, _CLONE_NEWNET):
                os.abort()
    finally:
        os.close(home)
        os.close(away)

"""What the edge is measured beside and with, set up once: sglang-router, LiteLLM's proxy, tokenizers, nginx, wrk.

    python -m bench.edge_peers [--check]

Each proxy in an environment of its own, in the folder of `bench.peers`, tokenizers in a folder that can be put into
`sys.path`; nginx and wrk are Debian's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from bench.peers import CannotSetUp
from pagefence.models import cache_dir

ROUTER = "sglang-router==0.3.2"
LITELLM = "litellm[proxy]==1.106.4"  # 1.107.0 was reported compromised
COUNTERS = "counters"
TOKENIZERS = ("tiktoken==0.14.0", "kitoken==0.11.1")
_PIP = ("-m", "pip", "--disable-pip-version-check", "install")
TOOLS = {"nginx": "nginx-light", "wrk": "wrk"}


def home() -> Path:
    """Where they are."""
    named = os.environ.get("PAGEFENCE_PEERS")
    return (Path(named).expanduser() if named else cache_dir() / "peers") / "edge"


def router() -> Path:
    """The Python of sglang-router."""
    return home() / "router" / "bin" / "python"


def litellm() -> Path:
    """LiteLLM's command."""
    return home() / "litellm" / "bin" / "litellm"


def counters() -> Path:
    """A folder with other tokenizers; it may not be there."""
    return home() / COUNTERS


def tool(name: str) -> Path | None:
    """nginx or wrk, in /usr/sbin too, which is not everybody's PATH."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def missing() -> list[str]:
    """Names of what is not there."""
    made = [name for name in ("router", "litellm", COUNTERS) if not (home() / f"{name}.ready").exists()]
    return made + [name for name in TOOLS if tool(name) is None]


def set_up(say: Callable[[str], None], needed: Collection[str] | None = None) -> None:
    """Do what is missing, of what is needed (None: of all). Raises CannotSetUp."""
    for name in missing():
        if needed is not None and name not in needed:
            continue
        if name in TOOLS:
            _apt(name)
            continue
        if name == COUNTERS:
            say(f"{name}: {', '.join(TOKENIZERS)}")
            into = ("--upgrade", "--target", counters())
            _step(name, sys.executable, *_PIP, *into, *TOKENIZERS)
        else:
            package = ROUTER if name == "router" else LITELLM
            say(f"{name}: an environment with {package}")
            _step(name, sys.executable, "-m", "venv", "--clear", home() / name)
            _step(name, home() / name / "bin" / "python", *_PIP, package)
        (home() / f"{name}.ready").touch()


def _apt(name: str) -> None:
    package = TOOLS[name]
    if os.getuid() != 0:
        raise CannotSetUp(f"{name} is missing. As root: apt-get install {package}")
    _step(name, "apt-get", "install", "-y", "-q", "--no-install-recommends", package)


def _step(name: str, *command: str | Path) -> None:
    log = home() / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        code = subprocess.run([str(word) for word in command], stdout=out, stderr=out, check=False).returncode
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise CannotSetUp(f"{name} failed with exit code {code}; {log} ends with:\n{last}")


def main() -> int:
    """Parse, set up, say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what is missing, set up nothing")
    try:
        if not parser.parse_args().check:
            set_up(lambda text: print(text, file=sys.stderr, flush=True))
    except CannotSetUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"missing: {', '.join(missing()) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

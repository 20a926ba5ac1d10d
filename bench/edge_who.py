"""Who is measured by `bench.edge`, and how each is started in front of an upstream.

    python -m bench.edge_who URL PORT      the proxy alone: an edge whose steps let everything pass

edge    everything on: keys, policy, admission, watching with its scan
noscan  the same without the scan for other tenants' text
proxy   the edge's proxy alone: steps that let everything pass
router, litellm
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench import edge_peers
from bench.load import free_port
from pagefence.edge.passing import passing
from pagefence.edge.serve import Build, serve
from pagefence.edge.settings import Settings
from pagefence.edge.upstream.address import parse
from pagefence.models import DEFAULT_MODEL

EVERYBODY = ("edge", "noscan", "proxy", "router", "litellm")
MODEL = "m"
KEY = "sk-bench-0123456789abcdef"
ENVIRONMENT = {
    "PAGEFENCE_API_KEYS": f"bench={KEY}",
    "PAGEFENCE_EDGE_SECRET": "a secret that is as long as one has to be",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on loopback, for minutes
}
PLENTY = 1 << 26  # tokens: so many that a bound decides every prompt


def command(who: str, port: int, upstream: int, folder: Path, config: Path | None = None) -> list[str]:
    """The command line. `config`: an edge.toml instead of our own, for "edge" and "noscan"."""
    url = f"http://127.0.0.1:{upstream}"
    if who in ("edge", "noscan"):
        return edge(url, port, config or edge_toml(folder / f"{who}.toml", PLENTY, scan=who == "edge"))
    if who == "proxy":
        return [sys.executable, "-m", "bench.edge_who", url, str(port)]
    if who == "router":
        return [
            str(edge_peers.router()), "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", url, "--policy", "round_robin", "--log-level", "error",
            "--prometheus-port", str(free_port()),
        ]  # fmt: skip
    file = folder / f"litellm-{upstream}.yaml"
    parameters = f"{{model: openai/{MODEL}, api_base: {url}/v1, api_key: none}}"
    file.write_text(f"model_list:\n  - {{model_name: {MODEL}, litellm_params: {parameters}}}\n")
    return [str(edge_peers.litellm()), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


def edge(url: str, port: int, config: Path) -> list[str]:
    """An edge as a user starts it."""
    here = ["--upstream", url, "--port", str(port), "--model", DEFAULT_MODEL]
    return [sys.executable, "-m", "pagefence", "edge", *here, "--config", str(config)]


def edge_toml(path: Path, limit: int, *, scan: bool) -> Path:
    """Settings with everything on. `limit`: tokens that the engines are said to hold; the upstream here tells none."""
    path.write_text(
        'upstream.urls = ["http://127.0.0.1:1"]\n'  # --upstream wins
        'policy.engine = "vllm"\n'
        f"capacity.limit = {limit}\n"
        f"watching.scan = {str(scan).lower()}\n"
    )
    return path


def main() -> int:
    """Serve, with steps that let everything pass."""
    settings = Settings((parse(sys.argv[1]),), port=int(sys.argv[2]))
    return serve(settings, Build(lambda: settings, lambda found, tells: passing()))


if __name__ == "__main__":
    sys.exit(main())

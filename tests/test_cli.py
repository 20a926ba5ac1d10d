"""The command: its exit codes, its one clear line for each mistake, its reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pagefence.cli import app
from pagefence.files import CannotWrite
from pagefence.options import build
from pagefence.probes import PROBES
from pagefence.probes.sentinel_file import read_sentinels
from pagefence.run import run
from tests.probes.toy import KEYS, Toy, running, served


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", KEYS[0])
    monkeypatch.setenv("PAGEFENCE_KEY_B", KEYS[1])
    monkeypatch.setenv("COLUMNS", "160")


Captured = pytest.CaptureFixture[str]


def test_verify_of_a_sound_fleet_is_clean_and_writes_its_report(tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "report.json"
    with running(Toy()) as toy:
        assert run(app, ["verify", toy.url, "--yes", "--json", str(report)]) == 0
    out = capsys.readouterr().out
    document = json.loads(report.read_text())
    assert "CLEAN" in out
    assert "no leak in" in out
    assert (document["verdict"], document["exit_code"]) == ("CLEAN", 0)
    assert [p["name"] for p in document["probes"]] == list(PROBES)
    assert document["cost"]["prompt_tokens"] > 0
    assert KEYS[0] not in report.read_text()
    assert list(tmp_path.iterdir()) == [report]


def test_a_leak_is_shown_with_its_words_and_a_curl_line_that_repeats_it(tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "report.json"
    with running(Toy("stub", context=512, prefill_pool=256, decode_pool=1024)) as toy:
        assert run(app, ["canary", toy.url, "--seed", "5", "--json", str(report)]) == 1
        out = capsys.readouterr().out
        document = json.loads(report.read_text())
        leak = next(e for e in document["evidence"] if e["kind"] == "LEAK")
        assert " ".join(leak["details"]["planted_words"]) in out
        assert leak["repeat"]["read"] in out
        for line in (leak["repeat"]["plant"], leak["repeat"]["read"]):
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        assert leak["details"]["planted_words"][0] in done.stdout
    assert not any(key in out for key in KEYS)
    assert "--seed 5" in out


def test_the_same_seed_asks_the_same(tmp_path: Path) -> None:
    lengths = []
    for _ in range(2):
        with running(Toy()) as toy:
            assert run(app, ["canary", toy.url, "--seed", "9"]) == 0
            lengths.append(sorted(toy.calls))
    assert lengths[0] == lengths[1]


def test_the_gate_alone_sends_no_prompt_and_blocks(capsys: Captured) -> None:
    with running(Toy(context=512, prefill_pool=256, decode_pool=1024)) as toy:
        assert run(app, ["gate", toy.url]) == 1
        assert toy.calls == []
    assert "tokens short" in capsys.readouterr().out


def test_json_to_standard_output_leaves_it_to_json(capsys: Captured) -> None:
    with running(Toy()) as toy:
        assert run(app, ["gate", toy.url, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "CLEAN"
    assert "CLEAN" in captured.err


def test_one_key_makes_the_canary_inconclusive(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.delenv("PAGEFENCE_KEY_B")
    with running(Toy()) as toy:
        assert run(app, ["canary", toy.url]) == 3
    assert "two tenants" in capsys.readouterr().out


def test_keys_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEFENCE_KEY_A")
    monkeypatch.delenv("PAGEFENCE_KEY_B")
    path = tmp_path / "keys.env"
    path.write_text(f"export PAGEFENCE_KEY_A='{KEYS[0]}'\nPAGEFENCE_KEY_B={KEYS[1]}\n")
    with running(Toy()) as toy:
        assert run(app, ["canary", toy.url, "--keys-file", str(path)]) == 0


def test_planted_words_are_written_down_under_the_edges_names(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefence.probes.asking.SEEN_S", 0.0)
    path = tmp_path / "live.json"
    with running(Toy()) as toy:
        names = ["--tenant-a", "acme", "--tenant-b", "globex"]
        line = [toy.url, "--yes", "--sentinels", str(path), *names]
        assert run(app, ["canary", *line]) == 0
        first = read_sentinels(path)
        assert run(app, ["verify", *line]) == 0
    both = read_sentinels(path)
    assert {s.tenant for s in both} == {"acme", "globex"}
    assert len(both) > 2 * len(first)
    assert [s.words for s in both[: len(first)]] == [s.words for s in first]  # those of the first run stay live
    assert f"--sentinels {path} --tenant-a acme --tenant-b globex" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["http://127.0.0.1:9", "--tenant-a", "acme"], "give --sentinels FILE with it"),
        (["--sentinels", "FILE"], "--sentinels is for a fleet that is there already"),
        (["http://127.0.0.1:9", "--sentinels", "FILE", "--tenant-b", "canary-a"], "both tenants"),
        (["http://127.0.0.1:9", "--sentinels", "FILE", "--tenant-b", ""], "no name of a tenant"),
        (["http://127.0.0.1:9", "--sentinels", "FILE", "--json", "FILE"], "which is the file of --sentinels"),
        (["http://127.0.0.1:9", "--sentinels", "."], "is no file"),
        (["http://127.0.0.1:9", "--sentinels", __file__], "holds no sentinels"),
    ],
)
def test_a_place_for_planted_words_that_cannot_be_is_told_before_the_run(
    flags: list[str], said: str, tmp_path: Path, capsys: Captured
) -> None:
    path = str(tmp_path / "live.json")
    assert run(app, ["canary", *(path if flag == "FILE" else flag for flag in flags)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_report_is_written_and_one_may_go_to_standard_output(tmp_path: Path, capsys: Captured) -> None:
    junit, sarif = tmp_path / "gate.xml", tmp_path / "gate.sarif"
    with running(Toy(context=512, prefill_pool=256, decode_pool=1024)) as toy:
        flags = ["--json", "-", "--junit", str(junit), "--sarif", str(sarif)]
        assert run(app, ["gate", toy.url, *flags]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "FAIL"
    assert "FAIL" in captured.err
    assert "<failure" in junit.read_text()
    assert json.loads(sarif.read_text())["runs"][0]["invocations"][0]["exitCode"] == 1
    assert {path.name for path in tmp_path.iterdir()} == {"gate.xml", "gate.sarif"}


def test_a_fleet_may_be_written_down_and_flags_win_over_the_file(tmp_path: Path, capsys: Captured) -> None:
    with running(Toy(prefill_pool=640, decode_pool=640)) as toy:
        file = tmp_path / "fleet.toml"
        workers = "".join(f'[[{role}]]\nurl = "{toy.url}/{role}"\n' for role in ("prefill", "decode"))
        file.write_text(f'headroom = 2.0\n[router]\nurl = "{toy.url}"\n{workers}')
        assert run(app, ["gate", "--fleet", str(file)]) == 1
        assert "x 2" in capsys.readouterr().out
        assert run(app, ["gate", "--fleet", str(file), "--headroom", "1.25"]) == 0


def test_an_unknown_engine_gets_one_screen_with_what_to_declare(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "m", "max_model_len": 512}]})

    with served(Starlette(routes=[Route("/v1/models", models)])) as url:
        assert run(app, ["gate", url]) == 3
        out = capsys.readouterr().out
        for part in (
            "/server_info, ", ": answered HTTP 404", "/v1/models: HTTP 200", "/v1/models is a model list",
            "context 512 (/v1/models max_model_len)", "not found",
            f"pagefence gate {url} --declare pool=N --declare engine=NAME", 'pool = N, engine = "NAME"',
        ):  # fmt: skip
            assert part in out
        assert len(out.splitlines()) <= 50
        assert "no engine that PageFence knows" not in out
        assert run(app, ["gate", url, "--declare", "engine=mlc-llm", "--declare", "pool=1024"]) == 0
        assert "declared" in capsys.readouterr().out


def test_a_server_of_another_kind_is_told_apart_from_an_engine(capsys: Captured) -> None:
    with served(Starlette()) as url:
        assert run(app, ["gate", url]) == 3
    out = capsys.readouterr().out
    assert "no engine that PageFence knows" in out
    assert "base of the engine's API" in out
    assert "--declare" not in out


def test_a_fleet_that_is_not_there_is_inconclusive(capsys: Captured) -> None:
    assert run(app, ["verify", "http://127.0.0.1:9", "--timeout", "1"]) == 3
    assert "could not be reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "--no-such-flag"], "no-such-flag"),
        (["nonsense"], "nonsense"),
        (["verify", "localhost:8000"], "http://HOST:PORT"),
        (["verify", "ftp://x"], "http://HOST:PORT"),
        (["verify", "http://user:pw@host"], "password"),
        (["verify", "http://a", "http://b"], "more than one router"),
        (["verify", "http://a", "--fault", "stub-transfer"], "--fault is for the embedded fleet"),
        (["verify", "http://a", "--keep"], "--keep is for the embedded fleet"),
        (["verify", "--prefill", "http://a"], "needs the router"),
        (["verify", "--fault", "no-such-fault"], "stub-transfer"),
        (["verify", "--fault", "stub-transfer", "--guards", "bogus"], "handoff-check"),
        (["verify", "--guards", "off"], "--fault"),
        (["verify", "--fault", "stub-transfer", "--thorough"], "--thorough"),
        (["verify", "http://a", "--json", "/no/such/folder/r.json"], "cannot write"),
        (["verify", "http://a", "--timeout", "0"], "timeout"),
        (["gate", "http://a", "--headroom", "0.5"], "headroom"),
        (["canary", "http://a", "--keys-file", "/no/such/file"], "keys"),
        (["gate", "--fleet", "/no/such/fleet.toml"], "/no/such/fleet.toml"),
        (["gate", "http://a", "--fleet", "f.toml"], "a URL cannot go with --fleet"),
        (["gate", "--decode", "http://a", "--fleet", "f.toml"], "--decode cannot go with --fleet"),
        (["gate", "http://a", "--declare", "pages=5"], "names none of pool"),
        (["gate", "http://a", "--declare", "pool"], "no number of tokens"),
        (["gate", "http://a", "--declare", "pool=0"], "no number of tokens"),
        (["gate", "http://a", "--declare", "pool=1e9"], "no number of tokens"),
        (["gate", "http://a", "--declare", "pool=" + "9" * 5000], "no number of tokens"),
        (["gate", "http://a", "--declare", "pool=5", "--declare", "pool=6"], "two things about pool"),
        (["gate", "--declare", "pool=5"], "--declare is for a fleet that is there"),
        (["gate", "--ca", "ca.pem"], "--ca is for a fleet that is there"),
        (["gate", "https://a", "--ca", "/no/such/ca.pem"], "/no/such/ca.pem"),
        (["gate", "https://a", "--ca", "pyproject.toml"], "pyproject.toml"),
        (["gate", "https://a", "--client-cert", "/no/such.pem"], "/no/such.pem"),
        (["gate", "https://a", "--client-key", "my.key"], "my.key"),
        (["gate", "http://a", "--retries", "-1"], "retries"),
        (["gate", "http://a", "--edge-limit", "0"], "edge-limit"),
        (["gate", "http://a", "--timeout", "inf"], "finite"),
        (["gate", "http://a", "--approve"], "--lock"),
        (["gate", "--prefill", "http://a", "--active"], "--active sends prompts"),
        (["gate", "http://a", "--json", "-", "--junit", "-"], "standard output"),
        (["gate", "http://a", "--json", "r", "--sarif", "r"], "both go to r"),
        (["gate", "http://a", "--junit", "/no/such/folder/r.xml"], "cannot write"),
        (["verify", "http://a", "--lock", "f"], "lock"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_mistake_gets_one_clear_line_and_exit_2(arguments: list[str], said: str, capsys: Captured) -> None:
    assert run(app, arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("pagefence: ")
    assert len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""


def test_an_internal_error_is_3_and_never_1(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = typer.Typer()

    @broken.command()
    def fails() -> None:
        raise RuntimeError("a bug of ours")

    assert run(broken, []) == 3
    said = capsys.readouterr().err
    assert "a bug of ours" in said
    assert "Traceback" not in said
    monkeypatch.setenv("PAGEFENCE_DEBUG", "1")
    assert run(broken, []) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "gate", "canary", "hash-key"])
def test_help_teaches_with_an_example(command: str, capsys: Captured) -> None:
    assert run(app, [command, "--help"]) == 0
    assert "Example" in capsys.readouterr().out


IGNORING_SIGINT = ("sh", "-c", 'trap \'\' INT; exec "$0" "$@"')


@pytest.mark.parametrize(
    ("sent", "background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_interrupted_it_says_what_it_saw_and_ends_with_130(sent: signal.Signals, background: bool) -> None:
    """`background`: as a shell starts a job with `&`, with SIGINT ignored."""
    with running(Toy("hangs")) as toy:
        child = subprocess.Popen(
            [*(IGNORING_SIGINT if background else ()), sys.executable, "-m", "pagefence", "verify", toy.url, "--yes"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        while len(toy.calls) < 7:  # the preflight and the controls, then it hangs at the first border
            time.sleep(0.02)
        child.send_signal(sent)
        out, err = child.communicate(timeout=10)
    assert child.returncode == 130
    assert "Interrupted" in out
    assert "Traceback" not in err


@pytest.mark.parametrize(("pool", "code"), [(256, 1), (640, 3)])
def test_a_report_that_cannot_be_written_at_the_end_hides_no_violation_and_is_never_0(
    pool: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise CannotWrite("no space left")

    monkeypatch.setattr("pagefence.session.write_atomically", full)
    with running(Toy(context=512, prefill_pool=pool, decode_pool=1024)) as toy:
        assert run(app, ["gate", toy.url, "--json", str(tmp_path / "r.json")]) == code
    captured = capsys.readouterr()
    assert ("FAIL" if code == 1 else "CLEAN") in captured.out
    assert "no space left" in captured.err


def test_a_key_that_no_header_can_carry_is_one_clear_line_without_the_key(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", "geheimniß\n")
    assert run(app, ["canary", "http://a"]) == 2
    said = capsys.readouterr().err
    assert "PAGEFENCE_KEY_A" in said
    assert "geheim" not in said


def test_the_command_that_repeats_a_run_keeps_what_was_asked_for() -> None:
    given = {"url": ["http://a"], "headroom": 1.5, "timeout": 30.0}
    line = build("verify", ("gate",), given, {}).line
    assert line == "pagefence verify http://a --headroom 1.5 --timeout 30"


def test_the_line_that_repeats_a_run_has_its_budget() -> None:
    assert "--budget 5000" in build("canary", ("canary",), {"url": ["http://x"], "budget": 5000}, {}).line

"""curl in front of a real edge, in the ways in which people use it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.edge.served import KEY, Served
from tests.edge.soak.words import Wish

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")

WISH = Wish("nonce-000000000000000000000002", parts=4)
BODY = {"model": "toy", "messages": [{"role": "user", "content": WISH.text}]}
HEADERS = ["-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json"]
PATH = "/v1/chat/completions"


@pytest.fixture
def edge(served_edge: Served) -> Served:
    return served_edge


def curl(edge: Served, *arguments: str, path: str = PATH, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = ["curl", "-sS", "--max-time", "30", f"{edge.url}{path}", *HEADERS, *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=False)


def words(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["choices"][0]["message"]["content"])


def test_a_question(edge: Served) -> None:
    assert words(curl(edge, "-d", json.dumps(BODY))) == WISH.answer
    assert words(curl(edge, "--compressed", "-d", json.dumps(BODY))) == WISH.answer
    assert json.loads(curl(edge, path="/v1/models").stdout)["data"][0]["id"] == "toy"


@pytest.mark.parametrize("version", ["--http1.1", "--http1.0"])
def test_a_stream_comes_as_it_is_made(edge: Served, version: str) -> None:
    slow = Wish(WISH.nonce, parts=8, pause_ms=100)
    body = {"model": "toy", "stream": True, "messages": [{"role": "user", "content": slow.text}]}
    command = ["curl", "-sSN", version, "--max-time", "30", f"{edge.url}{PATH}", *HEADERS, "-d", json.dumps(body)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"data: ")
        first = time.monotonic()
        rest = running.stdout.read().decode()
        took = time.monotonic() - first
    assert running.returncode == 0
    assert rest.endswith("data: [DONE]\n\n")
    assert took > 0.4, "all of it came at once"
    events = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == slow.answer


def test_http_1_0(edge: Served) -> None:
    done = curl(edge, "--http1.0", "-i", "-d", json.dumps(BODY))
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert json.loads(body)["choices"][0]["message"]["content"] == WISH.answer


@pytest.mark.parametrize("how", ["length", "chunks"])
def test_a_large_body_waits_until_it_is_told_to_go_on(edge: Served, tmp_path: Path, how: str) -> None:
    """curl asks for that by itself from 1 MiB on."""
    file = tmp_path / "body.json"
    file.write_text(json.dumps(BODY) + " " * 3_000_000)
    more = ["-H", "Transfer-Encoding: chunked"] if how == "chunks" else []
    done = curl(edge, "-v", *more, "--data-binary", f"@{file}")
    assert words(done) == WISH.answer
    assert b"> Expect: 100-continue" in done.stderr
    assert b"< HTTP/1.1 100 Continue" in done.stderr


def test_a_refusal_spares_the_upload(edge: Served, tmp_path: Path) -> None:
    """Whose key is wrong is told so instead of to go on."""
    file = tmp_path / "body.json"
    file.write_text(" " * 3_000_000)
    nobody = ["-H", "Authorization: Bearer nobodys-key-0123456789", "-H", "Content-Type: application/json"]
    command = ["curl", "-sSv", f"{edge.url}{PATH}", *nobody, "--data-binary", f"@{file}"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert json.loads(done.stdout)["error"]["code"] == "invalid_api_key"
    assert b"100 Continue" not in done.stderr


def test_standard_input_and_several_questions_on_one_connection(edge: Served) -> None:
    assert words(curl(edge, "--data-binary", "@-", given=json.dumps(BODY).encode())) == WISH.answer
    done = curl(edge, f"{edge.url}{PATH}", "-v", "-d", json.dumps(BODY))
    assert done.stdout.count(WISH.nonce.encode()) == 2 * WISH.parts
    assert b"Re-using existing connection" in done.stderr


def test_an_error_is_one_for_scripts_too(edge: Served) -> None:
    long = json.dumps({**BODY, "messages": [{"role": "user", "content": " and" * 9000}]})
    assert json.loads(curl(edge, "-d", long).stdout)["error"]["code"] == "context_length_exceeded"
    assert curl(edge, "-f", "-d", long).returncode == 22
    assert json.loads(curl(edge, "-d", "{").stdout)["error"]["code"] == "invalid_json"
    form = ["-H", "Content-Type: application/x-www-form-urlencoded"]
    command = ["curl", "-sS", f"{edge.url}{PATH}", "-H", f"Authorization: Bearer {KEY}", *form, "-d", "a=b"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert json.loads(done.stdout)["error"]["code"] == "unsupported_media_type"


def test_a_stream_that_breaks_off_is_no_success(edge: Served) -> None:
    body = {"model": "toy", "prompt": "please break off parts=9 pause=50", "stream": True}
    done = curl(edge, "-N", "-d", json.dumps(body), path="/v1/completions")
    assert done.returncode == 18, "curl's word for an answer without its end"
    assert b'"code":"upstream_died"' in done.stdout

"""What a fleet, a file or an environment may do, on purpose or not, and that it is neither believed nor fatal."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagefence.fleet import Figure, Fleet, FleetFacts, Keys, NodeFacts, Target
from pagefence.fleet.answer import Answer
from pagefence.fleet.engines.adapter import Asked, settings
from pagefence.fleet.facts import text
from pagefence.fleet.fleet_file import address, different, read_fleet_file
from pagefence.fleet.http import Reply
from pagefence.mistakes import Usage
from pagefence.options import build
from pagefence.probes.evidence import Kind
from pagefence.probes.gate import Policy, gate
from pagefence.probes.gate.advisories import bundled
from pagefence.probes.gate.asked import EdgeAnswer, judge_edge
from pagefence.probes.gate.lock import read_lock, write_lock
from tests.fleet.test_reach import ask
from tests.probes.toy import served

KEY = "sk-a-very-secret-key-of-a-tenant"
SGLANG = {
    "version": "0.5.23",
    "disaggregation_mode": "null",
    "disaggregation_transfer_backend": "mooncake",
    "allow_auto_truncate": False,
    "max_req_input_len": 8186,
    "page_size": 64,
    "dp_size": 1,
    "internal_states": [{"memory_usage": {"token_capacity": 10_240}}],
}


def app(documents: dict[str, Any], headers: dict[str, str] | None = None) -> Starlette:
    def route(path: str, body: Any) -> Route:
        async def endpoint(request: Request) -> Response:
            said = body if isinstance(body, bytes) else json.dumps(body).encode()
            return Response(said, headers=headers, media_type="application/json")

        return Route(path, endpoint)

    return Starlette(routes=[route(path, body) for path, body in documents.items()])


def models(owner: str) -> dict[str, Any]:
    return {"data": [{"id": "m", "owned_by": owner, "max_model_len": 8192}]}


@pytest.mark.parametrize("cut", [len(KEY), len(KEY) - 1, 20, 9])
def test_a_key_that_was_cut_or_quoted_is_redacted_as_well(cut: int) -> None:
    assert "sk-a-ver" not in Keys(KEY, None, None).redact(f"answered ('Bearer {KEY[:cut]}')")


def test_a_key_with_a_quotation_mark_is_redacted_where_it_is_quoted() -> None:
    key = "ab'cd\\ef\"gh"
    for said in (repr(key), json.dumps(key)):
        assert Keys(key).redact(said)[1:-1] == "$PAGEFENCE_KEY_A"


@pytest.mark.parametrize("url", ["http://u:sekret@h:port", "ftp://u:sekret@h", "http://u:sekret@[::1"])
def test_a_password_in_what_is_no_url_is_not_quoted(url: str) -> None:
    with pytest.raises(Usage) as told:
        address(url)
    assert "sekret" not in str(told.value)


@pytest.mark.parametrize("url", ["http://h:1?x=1", "http://h:1/#f"])
def test_an_address_has_no_query(url: str) -> None:
    with pytest.raises(Usage, match="has a query"):
        address(url)


@pytest.mark.parametrize(
    "other", ["http://H:80", "http://h/", "http://h.:80"], ids=["capitals", "usual port", "dot at the end"]
)
def test_one_worker_in_two_spellings_is_one(other: str) -> None:
    with pytest.raises(Usage, match="named twice"):
        different((address("http://h"), address(other)))
    with pytest.raises(Usage, match="named twice"):
        different(("http://localhost:1", "http://127.0.0.1:1"))
    different(("http://h:1", "http://h:2", "https://h:1", "http://h:1/a"))


@pytest.mark.parametrize(
    "content",
    ["a=" + "[" * 20_000, "a." * 3000 + "b=1", "headroom=" + "9" * 5000, '[tls]\nca="~nobody-here/x"',
     '[tls]\nca="a\\u0000b"', "#" + "x" * (17 << 20)],
    ids=["nested", "dotted", "digits", "home", "nul", "large"],
)  # fmt: skip
def test_a_file_that_no_parser_likes_is_a_mistake_of_the_user(content: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(('[router]\nurl="http://h"\n' if content.startswith("[tls]") else "") + content)
    with pytest.raises(Usage):
        read_fleet_file(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "garbage::"),
        ("ALL_PROXY", "socks5://u:sekret@h:1"),
        ("ALL_PROXY", "ftp://h"),
        ("NO_PROXY", "[::x"),
    ],
)
def test_a_proxy_of_the_environment_that_is_none(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Usage, match="ALL_PROXY") as told:
        Fleet(Target("http://far.example"), Keys())
    assert "sekret" not in str(told.value)


def test_a_document_that_was_cut_is_none() -> None:
    line = b'vllm:cache_config_info{engine="0"} 1\n'
    metrics = line + b"#" * ((4 << 20) - len(line) - 1) + b"\n" + line * 100_000
    with served(app({"/v1/models": models("vllm"), "/metrics": metrics})) as url:
        pool = ask(Target(url)).nodes[0].pool
    assert pool.problem is not None and "more than 4 MiB" in pool.problem


def test_what_was_compressed_unasked_is_not_unfolded() -> None:
    with served(app({"/workers": gzip.compress(gzip.compress(b"{}"))}, {"content-encoding": "gzip, gzip"})) as url:
        node = ask(Target(None, prefill=(url,))).nodes[0]
    assert node.problem is not None and dict(node.asked)["/workers"].startswith("answered in the coding 'gzip, gzip'")


def test_two_engines_behind_one_address_are_no_known_one() -> None:
    with served(app({"/server_info": SGLANG, "/v1/models": models("vllm")})) as url:
        assert "who answers there is unknown" in (ask(Target(url)).everyone()[0].problem or "")
    with served(app({"/server_info": SGLANG, "/v1/models": models("sglang")})) as url:
        assert ask(Target(url)).nodes[0].problem is None


def test_a_router_named_as_a_worker_is_none() -> None:
    router = {"engine": "pagefence", "workers": [], "max_total_num_tokens": 99_999, "context_length": 2048}
    with served(app({"/server_info": router})) as url:
        facts = ask(Target(None, prefill=(url,)))
    assert "is a router" in (facts.nodes[0].problem or "")


def test_a_listed_worker_with_a_password_in_its_address_is_not_asked_nor_quoted() -> None:
    listed = [{"url": "http://u:sekret@127.0.0.1:1", "role": "prefill"}, {"url": "http://[::1", "role": "decode"}]
    with served(app({"/server_info": {"engine": "pagefence", "workers": listed}})) as url:
        facts = ask(Target(url))
    assert all(node.problem is not None for node in facts.nodes) and "sekret" not in repr(facts)


@pytest.mark.parametrize("line", [' m{a="2"} 2', 'm\t{a="2"} 2', '{"m",a="2"} 2', 'm {a="2"} 2'])
def test_a_sample_in_another_spelling_is_a_sample(line: str) -> None:
    asked = Asked("", {"/metrics": Reply(200, {}, None, f'm{{a="1"}} 1\n{line}\n')})
    assert [value for _, value in asked.metrics("/metrics", "m")[0]] == [1, 2]


def test_a_setting_that_differs_in_its_end_alone_is_another() -> None:
    one, two = (settings({"x": [*range(200), last]}, ("x",)) for last in (1, 2))
    assert one != two and len(one["x"]) <= 300


def test_words_of_a_fleet_are_one_line() -> None:
    assert text({"version": "1\n::error::x\x1b[0m"}, "version") == "1\ufffd::error::x\ufffd[0m"


def node(**said: Any) -> NodeFacts:
    known = Figure(10_240, "/server_info pool")
    facts: dict[str, Any] = {"pool": known, "ranks": (known,), "context": Figure(8192, "c"), **said}
    return NodeFacts("single", "http://h", "pagefence", "1", **facts)


def fleet(of: NodeFacts) -> FleetFacts:
    return FleetFacts("http://h", "m", Figure(8192, "a"), (of,))


def test_findings_are_one_line_and_an_unready_worker_is_one() -> None:
    result = gate(fleet(node(ready=False, reasons=("x\n::error::y",))))
    assert [(e.check, e.kind) for e in result.evidence] == [("ready", Kind.INCONCLUSIVE)]
    assert "\n" not in result.evidence[0].what and "x ::error::y" in result.evidence[0].what


def test_an_engine_is_known_however_its_name_is_written_and_an_epoch_is_not_compared() -> None:
    assert bundled().of("vLLM") == bundled().of("vllm") != ()
    assert {entry.affects("1!0.5.5") for entry in bundled().of("vllm")} == {None}


def test_a_control_that_was_shorter_than_it_was_counted_shows_no_limit() -> None:
    def judged(told: int | None) -> Kind | None:
        answer = Answer(200, "x", "length", prompt_tokens=told, begun=True)
        return judge_edge(EdgeAnswer(1000, False, True, answer), 1000)[0]

    assert (judged(20), judged(1000), judged(None)) == (Kind.INCONCLUSIVE, None, None)


def test_a_limit_that_no_prompt_can_be_written_for() -> None:
    Policy(edge_limit=10**15)
    with pytest.raises(Usage, match="too many"):
        Policy(edge_limit=10**15, active=True)


def test_a_lock_that_is_a_pipe_is_not_waited_for_and_of_a_link_its_end_is_written(tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "pipe")
    assert read_lock(tmp_path / "pipe").problem == "it is no file"
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    write_lock(tmp_path / "link", fleet(node()))
    assert (tmp_path / "link").is_symlink() and read_lock(tmp_path / "lock").approved is not None


def test_a_report_goes_over_no_file_that_is_needed(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    for given in (
        {"json": str(tmp_path / "link"), "lock": tmp_path / "lock"},
        {"json": str(tmp_path / "a"), "junit": f"{tmp_path}/./a"},
        {"json": "-", "sarif": "/dev/stdout"},
    ):
        with pytest.raises(Usage, match=r"would write over|cannot both"):
            build("gate", ("gate",), {"url": ["http://h"], **given}, {})
    assert build("gate", ("gate",), {"url": ["http://h"], "json": "/dev/stdout"}, {}).json == "-"


def gated(shell: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = shell.replace("GATE", f"{sys.executable} -m pagefence gate {url} --timeout 5")
    keys = {"PAGEFENCE_KEY_A": KEY, "PYTHONPATH": os.pathsep.join(sys.path)}
    given: dict[str, Any] = {"cwd": folder, "env": os.environ | keys, "capture_output": True, "timeout": 120}
    return subprocess.run(["bash", "-c", command], check=False, text=True, **given)


@pytest.mark.slow
def test_a_report_that_nobody_reads_costs_neither_the_verdict_nor_the_file(tmp_path: Path) -> None:
    """Rich ends a program whose pipe is closed with 1, which would be a violation."""
    with served(app({"/server_info": SGLANG, "/v1/models": models("sglang")})) as url:
        for shell, code in (
            ("GATE --json a.json | true; exit ${PIPESTATUS[0]}", 0),
            ("GATE --json b.json >/dev/full", 0),
            ("GATE --json c.json >&-", 0),
            ("GATE --json - >/dev/full", 3),
            ("GATE --json - >&-", 3),
            ("GATE --json - | true; exit ${PIPESTATUS[0]}", 3),
        ):
            ended = gated(shell, url, tmp_path)
            assert ended.returncode == code, (shell, ended.stderr)
            assert "internal error" not in ended.stderr and "Traceback" not in ended.stderr, shell
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "b.json", "c.json"}


def test_a_fleet_that_echoes_a_key_brings_it_into_no_report(tmp_path: Path) -> None:
    with served(app({"/server_info": SGLANG | {"version": f"1 {KEY}"}, "/v1/models": models("sglang")})) as url:
        ended = gated("GATE --json a.json --junit a.xml --sarif a.sarif", url, tmp_path)
    said = ended.stdout + ended.stderr + "".join(path.read_text() for path in tmp_path.iterdir())
    assert ended.returncode == 3 and "PAGEFENCE_KEY_A" in said
    assert KEY[:10] not in "".join(said.split())


def test_a_fleet_that_echoes_a_key_is_not_approved(tmp_path: Path) -> None:
    echo = models("sglang")
    echo["data"][0]["id"] = f"m {KEY}"
    with served(app({"/server_info": SGLANG, "/v1/models": echo})) as url:
        ended = gated("GATE --lock lock --approve", url, tmp_path)
    assert ended.returncode == 3 and not (tmp_path / "lock").exists()

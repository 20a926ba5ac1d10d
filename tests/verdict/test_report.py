"""The JSON report holds what it promises, and no key."""

from __future__ import annotations

import io
import json

from rich.console import Console

from pagefence.fleet import Keys
from pagefence.probes import Check, Config, Evidence, Examination, Kind, ProbeResult
from pagefence.verdict import decide
from pagefence.verdict.report import Repeat, Run, as_json
from pagefence.verdict.terminal import show

LEAK = Evidence(
    Kind.LEAK,
    "canary",
    "foreign-words",
    "shot-1",
    "tenant B read secret-key-b",
    "I1",
    details={
        "request": "shot-1",
        "planted_words": ["amber", "river"],
        "planted_by": "tenant a",
        "read_by": "tenant b",
        "status": 200,
        "prompt_tokens_sent": 1025,
        "marked": "so «amber» «river» it is",
    },
)


def a_run() -> Run:
    results = (ProbeResult("canary", (Check("readers", "over", "1 leaked", Kind.LEAK),), (LEAK,), shown=3),)
    return Run(
        "verify",
        Examination(Config(seed=7)),
        decide(results),
        results,
        1.5,
        Keys("secret-key-a", "secret-key-b"),
        again="pagefence verify --seed 7",
        repeats={"shot-1": Repeat("curl read", "curl plant")},
    )


def test_the_json_report_has_what_it_promises() -> None:
    document = json.loads(as_json(a_run()))
    assert document["schema_version"] == 1
    assert (document["verdict"], document["exit_code"], document["seed"]) == ("LEAK", 1, 7)
    assert [p["name"] for p in document["probes"]] == ["canary"]
    assert document["evidence"][0]["repeat"] == {"plant": "curl plant", "read": "curl read"}
    assert document["evidence"][0]["details"]["planted_words"] == ["amber", "river"]
    assert document["cost"]["prompt_tokens"] == 0


def test_no_key_is_in_the_report() -> None:
    text = as_json(a_run()).decode()
    assert "secret-key" not in text
    assert "$PAGEFENCE_KEY_B" in text
    assert "secret-key" not in repr(a_run().keys)


def test_the_terminal_report_names_verdict_words_length_and_how_to_repeat() -> None:
    out = io.StringIO()
    show(a_run(), Console(file=out, width=100))
    text = out.getvalue()
    for part in ("LEAK", "amber river", "«amber»", "1025 prompt tokens", "curl read", "curl plant", "--seed 7"):
        assert part in text


def test_what_a_fleet_says_is_neither_markup_nor_steers_the_terminal() -> None:
    hostile = "http://[fe80::1]/[/red] \x1b[2Jall is CLEAN"
    checks = (Check("pool", hostile, hostile, Kind.FAIL),)
    evidence = Evidence(Kind.FAIL, "gate", "pool", hostile, hostile, "I8", remedy=hostile)
    results = (ProbeResult("gate", checks, (evidence,)),)
    run = Run("gate", Examination(Config()), decide(results), results, 1.0, Keys())
    out = io.StringIO()
    show(run, Console(file=out, width=200, force_terminal=True, color_system=None))
    assert "http://[fe80::1]/[/red]" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()

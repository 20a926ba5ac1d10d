"""The edge in front of the embedded fleet with the incident in it, guards off: nothing gets where it would happen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.models import DEFAULT_MODEL
from tests.edge.processes import running_edge

ACME, GLOBEX = "acme-key-0123456789abcdef", "globex-key-0123456789abcdef"
FOREIGN = ("foreign-text", "sentinel")
LIMIT = 819  # of prompt and answer: what the pool of 1,024 holds with the headroom of the gate
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Running]:
    recipe = Recipe(fault="stub-transfer", guards="off", start_timeout_s=300, ready_timeout_s=120)
    with embedded(recipe, lambda said: None) as running:
        yield running


def pagefence(
    folder: Path, probe: str, keys: tuple[str, str], url: str, *flags: str
) -> tuple[int, dict[str, Any], str]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "pagefence", probe, url, "--yes", "--seed", "1", "--json", str(report), *flags]
    environment = os.environ | {"PAGEFENCE_KEY_A": keys[0], "PAGEFENCE_KEY_B": keys[1]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(report.read_text()), done.stdout + done.stderr


def theirs(fleet: Running) -> tuple[str, str]:
    assert fleet.keys.a is not None
    assert fleet.keys.b is not None
    return fleet.keys.a, fleet.keys.b


def in_front_of(fleet: Running) -> dict[str, str]:
    a, b = theirs(fleet)
    return {"PAGEFENCE_API_KEYS": f"acme={ACME},globex={GLOBEX}", "THEIRS": f"acme={a},globex={b}"}


def test_through_the_edge_it_is_clean_and_past_it_leaks(fleet: Running, tmp_path: Path) -> None:
    target = fleet.target
    assert target.router is not None
    flags = ("--upstream", target.router, "--engine", "pagefence", "--model", DEFAULT_MODEL)
    config = f'[tenants]\nupstream_keys_env = "THEIRS"\n[capacity]\nlimit = {LIMIT}\n'
    workers = [f"--prefill={url}" for url in target.prefill] + [f"--decode={url}" for url in target.decode]
    with running_edge(tmp_path, *flags, config=config, **in_front_of(fleet)) as edge:
        code, report, said = pagefence(
            tmp_path, "verify", (ACME, GLOBEX), edge.url, *workers, f"--edge-limit={LIMIT - 1}"
        )
        assert (code, report["verdict"]) == (0, "CLEAN"), said
        assert report["controls"]["held"] == report["controls"]["asked"] > 0
        assert edge.counted('pagefence_edge_refusals_total{code="context_length_exceeded"}') > 0
    code, report, said = pagefence(tmp_path, "verify", theirs(fleet), target.router)
    assert (code, report["verdict"]) == (1, "LEAK"), said


@pytest.mark.parametrize("buffered", [False, True])
def test_with_admission_off_the_leak_is_caught_at_the_answer(buffered: bool, fleet: Running, tmp_path: Path) -> None:
    """Told in any case; from a buffer it never reaches the client, but for what is too little to be proof."""
    target = fleet.target
    assert target.router is not None
    flags = ["--upstream", target.router, "--engine", "pagefence", "--model", DEFAULT_MODEL, "--watch-only"]
    flags += ["--buffered"] if buffered else []
    live = tmp_path / "live.json"
    config = f'[tenants]\nupstream_keys_env = "THEIRS"\n[watching]\nsentinels = "{live}"\n'
    workers = [f"--prefill={url}" for url in target.prefill] + [f"--decode={url}" for url in target.decode]
    with running_edge(tmp_path, *flags, config=config, **in_front_of(fleet)) as edge:
        _, report, said = pagefence(tmp_path, "canary", (ACME, GLOBEX), edge.url, *workers, f"--sentinels={live}")
        told = sum(edge.counted(f'pagefence_edge_findings_total{{kind="{kind}",sure="true"}}') for kind in FOREIGN)
        withheld = edge.counted('pagefence_edge_refusals_total{code="answer_withheld"}')
    assert told > 0, said
    leaks = [each["details"]["shards"] for each in report["evidence"] if each["kind"] == "LEAK"]
    assert any(map(apart, leaks)) == (not buffered), said
    assert withheld > 0 or not buffered


def apart(shards: list[str]) -> bool:
    """Whether two of them share no word: the edge's proof (docs/concepts/edge-scan.md)."""
    return any(set(one.split()).isdisjoint(two.split()) for one, two in combinations(shards, 2))

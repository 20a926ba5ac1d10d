"""What a watch answers over HTTP: about configured targets only, without secrets, no later than asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagefence.watch.app import create_app
from pagefence.watch.metrics import METRICS, PROBE_METRICS
from pagefence.watch.reference import render
from pagefence.watch.watcher import Watcher
from tests.watch.meters import names, values
from tests.watch.scene import CLEAN, Scene, watched

Ask = Callable[..., Coroutine[Any, Any, httpx.Response]]


def told(scene: Scene, story: Callable[[Watcher, Ask], Awaitable[None]]) -> None:
    async def within() -> None:
        watcher = scene.opened()
        transport = httpx.ASGITransport(create_app(watcher))
        async with httpx.AsyncClient(transport=transport, base_url="http://watch") as client:

            async def ask(path: str, **headers: str) -> httpx.Response:
                return await client.get(path, headers={k.replace("_", "-"): v for k, v in headers.items()})

            await story(watcher, ask)

    asyncio.run(within())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(
        tmp_path / "watch.db", (watched(tokens=100_000, burst=2000), watched("us", tokens=100_000, burst=2000))
    )


def test_a_probe_runs_now_and_answers_as_blackbox_does(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        answer = await ask("/probe?target=eu&module=verify")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert values(answer.content, "probe_success") == {"": 1}
        assert values(answer.content, "pagefence_probe_verdict", "verdict")["CLEAN"] == 1
        assert values(answer.content, "pagefence_probe_tokens", "kind") == {"prompt": 90, "completion": 10}
        assert scene.asked[0][:2] == ("eu", "verify")

    told(scene, story)


@pytest.mark.parametrize("verdict", ["LEAK", "CORRUPT", "FAIL", "INCONCLUSIVE"])
def test_only_clean_is_success(scene: Scene, verdict: str) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.answers = [replace(CLEAN, verdict=verdict, findings={verdict: 2})]
        text = (await ask("/probe?target=eu&module=verify")).content
        assert values(text, "probe_success") == {"": 0}
        assert values(text, "pagefence_probe_verdict", "verdict")[verdict] == 1
        assert values(text, "pagefence_probe_findings", "kind")[verdict] == 2

    told(scene, story)


def test_requests_at_once_are_one_run(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.gate = asyncio.Event()
        asking = [asyncio.create_task(ask("/probe?target=eu&module=verify")) for _ in range(3)]
        while not scene.asked:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        scene.gate.set()
        answers = await asyncio.gather(*asking)
        assert [values(a.content, "probe_success")[""] for a in answers] == [1, 1, 1]
        assert scene.runs_of("verify") == 1

    told(scene, story)


def test_a_run_that_takes_longer_than_the_scrape_goes_on_and_its_answer_is_no_success(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.gate = asyncio.Event()
        text = (await ask("/probe?target=eu&module=verify", x_prometheus_scrape_timeout_seconds="0.51")).content
        assert values(text, "probe_success") == {"": 0}
        assert values(text, "pagefence_probe_finished") == {"": 0}
        assert values(text, "pagefence_probe_verdict", "verdict")["INCONCLUSIVE"] == 1
        again = asyncio.create_task(ask("/probe?target=eu&module=verify"))
        for _ in range(20):
            await asyncio.sleep(0)
        scene.gate.set()
        assert values((await again).content, "probe_success") == {"": 1}
        assert scene.runs_of("verify") == 1

    told(scene, story)


def test_a_run_that_the_budget_does_not_allow_is_not_asked_and_says_how_long(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.answers = [replace(CLEAN, charged=1500)]
        await ask("/probe?target=eu&module=verify")
        text = (await ask("/probe?target=eu&module=verify")).content
        assert values(text, "probe_success") == {"": 0}
        assert values(text, "pagefence_probe_wait_seconds", "reason") == {"budget": pytest.approx(18.0)}
        assert scene.runs_of("verify") == 1

    told(scene, story)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "watched are eu, us"),
        ("?target=nowhere&module=verify", "watched are eu, us"),
        ("?target=http://169.254.169.254/latest&module=verify", "watched are eu, us"),
        ("?target=http://eu.example/&module=verify", "watched are eu, us"),
        ("?target=eu", "eu has gate, verify"),
        ("?target=eu&module=rm", "eu has gate, verify"),
        ("?target=http://eu.example&module=rm", "eu has gate, verify"),
    ],
)
def test_what_is_not_configured_is_never_asked_and_the_answer_names_what_is(
    scene: Scene, query: str, names: str
) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        answer = await ask(f"/probe{query}")
        assert answer.status_code == 400
        assert names in answer.text
        assert scene.asked == []

    told(scene, story)


def test_every_metric_of_the_reference_is_exported_and_no_other(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.answers = [CLEAN, CLEAN, replace(CLEAN, counts={"canary": (20, 1)})]
        await scene.look(watcher)
        text = (await ask("/metrics")).content
        assert names(text) == {metric.name for metric in METRICS}
        scene.answers = [replace(CLEAN, charged=1500)]
        probe = names((await ask("/probe?target=eu&module=verify")).content)
        probe |= names((await ask("/probe?target=eu&module=verify")).content)
        assert probe == {metric.name for metric in PROBE_METRICS}

    told(scene, story)


def test_labels_and_pages_hold_no_key(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        await scene.look(watcher)
        paths = ("/", "/metrics", "/history", "/runs/1/log", "/readyz", "/livez", "/probe?target=eu&module=gate")
        for path in paths:
            text = (await ask(path)).text
            assert "authorization" not in text.lower()
            assert all(key not in text.replace("token", "") for key in ('"ka"', '"kb"', ">ka<", " ka ", " kb "))

    told(scene, story)


def test_the_history_has_the_last_runs_with_verdict_cost_log_and_report(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        scene.answers = [replace(CLEAN, report=b'{"verdict": "CLEAN"}', log="   0.00 s  began")] * 2
        await scene.look(watcher)
        document = (await ask("/history?target=eu&limit=1")).json()
        (run,) = document["runs"]
        assert document["schema_version"] == 1
        assert (run["verdict"], run["sentence"], run["prompt_tokens"]) == ("CLEAN", "no leak", 90)
        report = await ask((await ask("/history")).json()["runs"][-1]["report"])
        assert report.json() == {"verdict": "CLEAN"}
        assert "began" in (await ask("/runs/1/log")).text
        assert (await ask("/runs/99")).status_code == 404
        assert (await ask("/runs/99/log")).status_code == 404
        for number in (2**63, 10**30):
            assert (await ask(f"/runs/{number}")).status_code == 404
            assert (await ask(f"/runs/{number}/log")).status_code == 404
        for limit in ("0", "x", "-1", "9999", "²"):
            assert (await ask(f"/history?limit={limit}")).status_code == 400

    told(scene, story)


def test_the_page_shows_what_a_fleet_said_as_text_and_runs_no_script(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        evil = "<script>alert(1)</script>"
        scene.answers = [replace(CLEAN, sentence=evil, model=evil)] * 9
        await scene.look(watcher)
        answer = await ask("/")
        assert "<script" not in answer.text
        assert "&lt;script&gt;" in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")

    told(scene, story)


def test_live_and_ready_are_two_questions(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        assert (await ask("/readyz")).status_code == 503  # it has not looked at its schedule yet
        assert (await ask("/livez")).status_code == 200
        scene.answers = [replace(CLEAN, verdict="LEAK")] * 9
        await scene.look(watcher)
        assert (await ask("/readyz")).json() == {"ready": True, "reasons": []}  # a fleet that leaks is what it is for
        watcher.trouble = "the state cannot be written: disk is full"
        answer = await ask("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, [watcher.trouble])
        assert (await ask("/livez")).status_code == 200
        scene.now += 31
        assert (await ask("/livez")).status_code == 503

    told(scene, story)


def test_it_takes_nothing_but_get(scene: Scene) -> None:
    async def story(watcher: Watcher, ask: Ask) -> None:
        transport: Any = httpx.ASGITransport(create_app(watcher))
        async with httpx.AsyncClient(transport=transport, base_url="http://watch") as client:
            assert (await client.post("/probe?target=eu&module=verify")).status_code == 405
        assert scene.asked == []

    told(scene, story)


def test_the_reference_page_is_what_the_code_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "watch-metrics.md"
    assert page.read_text(encoding="utf-8") == render(), "make docs writes it anew"

"""Rules, dashboard and scrape configuration fit a watch that really runs, and their own tools take them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagefence.watch.config_file import read_watch_file
from pagefence.watch.meters import probe_text, watch_text
from tests.deploy.commands import DEPLOY
from tests.watch.meters import names, samples
from tests.watch.scene import CLEAN, DEAR, Scene, watched

PROMETHEUS = DEPLOY / "prometheus"
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing (apt-get install prometheus)"
)
METRIC = re.compile(r"\bpagefence_\w+|\bprobe_\w+")
# In expressions of alerts and panels, which labels are asked of which metric.
SELECTOR = re.compile(r"\b(pagefence_\w+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a watch exports that has run every module of its targets, and has been asked by `/probe`."""
    scene = Scene(tmp_path_factory.mktemp("watch") / "watch.db", (watched(tokens=10**6, burst=10**6),))
    scene.answers = [CLEAN, replace(CLEAN, counts={"canary": (20, 1)})]

    async def story() -> bytes:
        watcher = scene.opened()
        await scene.look(watcher)
        seen = await watcher.probe(scene.targets[0], DEAR)
        return watch_text(watcher) + probe_text(scene.targets[0], DEAR, "m", seen, 0.1)

    return asyncio.run(story())


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "pagefence.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (v["definition"] for v in dashboard()["templating"]["list"] if v["type"] == "query")


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_metric_and_label_that_is_asked_for_is_exported(exported: bytes, expression: str) -> None:
    asked = set(METRIC.findall(expression))
    assert asked
    assert asked <= names(exported)
    for metric, labels in SELECTOR.findall(expression):
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', labels):
            values = {sample.get(label) for sample in samples(exported, metric)}
            assert None not in values, f"{metric} has no label {label}"
            assert "$" in value or value in values, f"{metric} is never {label}={value}"


def test_legends_and_annotations_use_labels_that_are_there(exported: bytes) -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            metric = METRIC.findall(target["expr"])[0]
            known = {label for sample in samples(exported, metric) for label in sample} | {"instance"}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, target["expr"]
    for rule in rules():
        metric = METRIC.findall(rule["expr"])[0]
        known = {label for sample in samples(exported, metric) for label in sample} | {"instance"}
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert used <= known, rule["alert"]


def test_grafana_has_what_it_needs_of_a_dashboard() -> None:
    board = dashboard()
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= set(board)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & places, f"{panel['title']} lies over another panel"
        places |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_every_alert_says_what_is_wrong_and_has_a_test() -> None:
    tested = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    fired = {c["alertname"] for test in tested for c in test["alert_rule_test"] if c["exp_alerts"]}
    quiet = {c["alertname"] for test in tested for c in test["alert_rule_test"] if not c["exp_alerts"]}
    for rule in rules():
        assert {"summary", "description"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["alert"] in fired
    assert {"PageFenceLeak", "PageFenceCorrupt", "PageFenceFail", "PageFenceStale", "PageFenceWatchAbsent"} <= quiet


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "words",
    [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml"), ("check", "config", "prometheus.yml")],
)
def test_promtool_takes_the_rules_and_runs_their_tests(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_PROMTOOL
def test_promtool_finds_nothing_to_mend_in_what_a_watch_exports(exported: bytes) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=exported, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode(), done.stdout.decode()) == (0, "", "")


def test_the_ready_watch_file_is_one() -> None:
    settings = read_watch_file(DEPLOY / "watch.toml", {"EU_KEY_A": "a", "EU_KEY_B": "b"})
    assert settings.targets[0].keys.two
    assert settings.targets[0].allowance.rate > settings.targets[0].asked_for


def test_systemd_gives_the_watch_a_place_for_its_state_and_no_privileges() -> None:
    unit = (DEPLOY / "systemd" / "pagefence-watch.service").read_text()
    assert "--state /var/lib/pagefence-watch/" in unit
    assert {"StateDirectory=pagefence-watch", "DynamicUser=yes", "Restart=always"} <= set(unit.splitlines())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_watch(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "pagefence-watch.service").read_text()
    program = "/opt/pagefence/bin/pagefence"
    assert unit.count(program) == 1
    path = tmp_path / "pagefence-watch.service"
    path.write_text(unit.replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    about = [line for line in (done.stdout + done.stderr).splitlines() if "pagefence" in line]
    assert (done.returncode, about) == (0, [])

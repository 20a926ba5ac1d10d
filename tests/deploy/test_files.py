"""Ready files are what their platforms take: they parse, and hold to the public schemas."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.commands import DEPLOY

YAML = sorted([*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.yaml")])
KUBERNETES = "1.34"
IMAGE = "registry.example/pagefence:"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def template() -> dict[str, Any]:
    (document,) = documents(DEPLOY / "argo" / "analysis-template.yaml")
    return document


def manifests() -> Iterator[dict[str, Any]]:
    """What Kubernetes itself is given: also the job that Argo Rollouts makes."""
    for path in sorted((DEPLOY / "kubernetes").iterdir()):
        yield from documents(path)
    for metric in template()["spec"]["metrics"]:
        name = {"name": metric["name"]}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": name, "spec": metric["provider"]["job"]["spec"]}


def pods() -> Iterator[dict[str, Any]]:
    for manifest in manifests():
        yield manifest["spec"]["template"]["spec"]


def gates() -> Iterator[dict[str, Any]]:
    """Containers that run the gate's image."""
    for pod in pods():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if container["image"].startswith(IMAGE):
                yield container


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_parses(path: Path) -> None:
    assert all(isinstance(document, dict) for document in documents(path))


@pytest.mark.parametrize(("schema", "name"), [("github-workflows", "gate.yml"), ("github-actions", "action.yml")])
def test_github_takes_the_workflow_and_the_action(schema: str, name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, str(DEPLOY / "github" / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("manifest", list(manifests()), ids=lambda manifest: manifest["kind"])
def test_kubernetes_takes_every_manifest(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_a_job_of_argo_decides_once_and_only_exit_code_0_passes() -> None:
    """A job that is tried again, or a metric that may fail or be inconclusive once, would let a violation through."""
    document = template()
    assert (document["apiVersion"], document["kind"]) == ("argoproj.io/v1alpha1", "AnalysisTemplate")
    for metric in document["spec"]["metrics"]:
        assert (metric["count"], metric["failureLimit"], metric["inconclusiveLimit"]) == (1, 0, 0)
        assert not {"successCondition", "failureCondition"} & set(metric)  # these judge a value, and a job has none
        job = metric["provider"]["job"]["spec"]
        assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
        assert job["activeDeadlineSeconds"] > 0


def test_a_readiness_probe_leaves_the_gate_time_and_one_no_is_enough() -> None:
    (probe,) = [c["readinessProbe"] for c in gates() if "readinessProbe" in c]
    words = probe["exec"]["command"]
    patience = float(words[words.index("--timeout") + 1])
    assert probe["timeoutSeconds"] > patience + 5
    assert probe["failureThreshold"] == 1


def test_the_gate_runs_without_privileges_and_its_keys_come_from_secrets() -> None:
    found = list(gates())
    assert len(found) == 3
    for container in found:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert all("secretKeyRef" in variable["valueFrom"] for variable in container["env"])


def test_what_containers_mount_is_what_their_pod_has() -> None:
    for pod in pods():
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        mounted = {
            mount["name"]
            for container in (*pod.get("initContainers", ()), *pod["containers"])
            for mount in container.get("volumeMounts", ())
        }
        assert mounted == volumes


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_units_together(tmp_path: Path) -> None:
    """With an engine and a traffic unit beside them, and a program where the unit expects one."""
    unit = (DEPLOY / "systemd" / "pagefence-gate.service").read_text()
    wrapper = "/usr/local/lib/pagefence/gate-until-decided.sh"
    assert unit.count(wrapper) == 1
    (tmp_path / "pagefence-gate.service").write_text(unit.replace(wrapper, str(DEPLOY / "gate-until-decided.sh")))
    for name in ("llm-engine", "llm-traffic"):
        (tmp_path / f"{name}.service").write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "llm-traffic.service.d"
    drop_in.mkdir()
    shutil.copy(DEPLOY / "systemd" / "traffic.conf", drop_in / "pagefence.conf")
    units = [str(path) for path in sorted(tmp_path.glob("*.service"))]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    about = [line for line in (done.stdout + done.stderr).splitlines() if "pagefence" in line or str(tmp_path) in line]
    assert (done.returncode, about) == (0, [])


def test_what_takes_traffic_is_bound_to_the_gate_and_not_only_ordered_after_it() -> None:
    said = (DEPLOY / "systemd" / "traffic.conf").read_text().splitlines()
    assert {"BindsTo=pagefence-gate.service", "After=pagefence-gate.service"} <= set(said)

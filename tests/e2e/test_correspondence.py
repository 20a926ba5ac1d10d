"""A real fleet, recorded through everything that happens to fleets, is a run of the model, step by step."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagefence.lab import faults
from pagefence.sim.correspondence import Correspondence, check_recordings, describe
from tests.e2e.fleets import MODEL, Fleet, complete, serving
from tests.e2e.test_crash import wait_for_next_epoch, wait_until_busy
from tests.e2e.test_incident import lab, plant, read

CONTEXT = 256
FLAGS = ("--context", str(CONTEXT), "--kv-pool-tokens", "1024", "--page-size", "16", "--chunk-tokens", "32")
LONG = list(range(1000, 1000 + CONTEXT + 1))


def stream(fleet: Fleet, prompt: str, lines: int | None = None) -> int:
    """Read a stream to its end, or hang up after some lines; the status."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 120, "temperature": 0, "stream": True}
    with fleet.client(timeout=60.0) as client, client.stream("POST", "/v1/completions", json=body) as response:
        for count, _ in enumerate(response.iter_lines()):
            if count == lines:
                break
        return response.status_code


def kill_in_the_middle(fleet: Fleet, role: str) -> None:
    """kill -9 while four streams run; the worker comes back."""
    before = fleet.worker_info(role)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(stream, fleet, f"Item {i}{i}{i}. " * 20) for i in range(4)]
        wait_until_busy(fleet, role)
        os.kill(before["pid"], signal.SIGKILL)
        for each in streams:
            each.result(60)
    wait_for_next_epoch(fleet, role, before["epoch"])


def recorded(folder: Path) -> Correspondence:
    with serving(folder, *FLAGS, "--record", str(folder / "record")) as fleet:
        with fleet.client() as client:
            assert complete(client, "Once upon a time", 12).status_code == 200
            assert complete(client, LONG).status_code == 400
        assert stream(fleet, "The quick brown fox", lines=6) == 200
        kill_in_the_middle(fleet, "decode")
        with fleet.client() as client:
            assert complete(client, "Once upon a time", 12).status_code == 200
        fleet.at_rest()
        time.sleep(0.5)  # the last words between workers, which nobody waits for
    return check_recordings(folder / "record")


@pytest.mark.slow
def test_every_step_of_a_real_fleet_is_one_of_the_model(tmp_path: Path) -> None:
    seen = recorded(tmp_path)

    assert seen.legal, describe(seen)
    assert seen.at_rest, describe(seen)
    # Each kind really occurred: a replay of nothing would be legal too.
    assert seen.outcomes["finished"] >= 2
    assert seen.outcomes["aborted"] == 1
    assert seen.outcomes["refused: context_length_exceeded"] == 1
    lost = sum(count for outcome, count in seen.outcomes.items() if outcome.endswith("worker_lost"))
    assert lost >= 1
    assert seen.crashes == 1
    assert {"prefill-0#1", "decode-0#1", "decode-0#2"} < seen.steps.keys()
    assert all(seen.steps.values())
    assert {"Offer", "Start", "ChunkComputed", "Landed", "Receipt", "PagesDigested", "Generated", "Abort", "Reaped"} < (
        seen.inputs.keys()
    )


@pytest.mark.slow
def test_the_incident_in_the_real_engine_is_no_run_of_the_model(tmp_path: Path) -> None:
    """By the product's decisions it is no run at all; by its own, a rule is broken at the very step."""
    with serving(tmp_path, "--record", str(tmp_path / "record"), command=lab("off")) as fleet:
        plant(fleet)
        assert read(fleet).status_code == 200
        fleet.at_rest()
    assert not check_recordings(tmp_path / "record").legal
    seen = check_recordings(tmp_path / "record", faults.find("stub-transfer").decisions("off"))
    assert seen.illegal is not None
    assert (seen.illegal.file, seen.illegal.what) == ("decode-0.1.trace", "rule I4 is broken")

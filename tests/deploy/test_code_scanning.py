"""What the action uploads is what GitHub's code scanning takes.

It refuses a whole SARIF file when one result has no place in a file: "locationFromSarifResult: expected artifact
location" (github/codeql-action#1738). A logical location alone, which the standard allows, is not enough.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_every_finding_has_a_place_in_a_file(tmp_path: Path) -> None:
    report = tmp_path / "gate.sarif"
    command = [sys.executable, "-m", "pagefence", "gate", "http://127.0.0.1:9", "--timeout", "1"]
    subprocess.run([*command, "--sarif", str(report)], capture_output=True, timeout=200, check=False)
    results = json.loads(report.read_text())["runs"][0]["results"]
    assert results
    for result in results:
        places = [location.get("physicalLocation", {}) for location in result["locations"]]
        uris = [place.get("artifactLocation", {}).get("uri") for place in places]
        assert uris, result["message"]
        assert all(uri and ":" not in uri for uri in uris), result["message"]

"""The gate runs with what a base install brings: a CI image needs no torch."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata

from tests.deploy.commands import PROJECT

_WITHOUT = """
import sys
allowed = set(sys.argv[1].split(","))
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if not (top in allowed or top in sys.stdlib_module_names or top.startswith("_sysconfigdata")):
            raise ModuleNotFoundError(f"{top} is no dependency of a base install", name=top)
sys.meta_path.insert(0, Refuse())
sys.argv = ["pagefence", "gate", "http://127.0.0.1:9", "--timeout", "1"]
from pagefence.__main__ import main
main()
"""


def brought() -> set[str]:
    """What pip installs for the base dependencies, by the names that are imported."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    left, seen, importable = [*project["dependencies"]], set(), set()
    while left:
        requirement = left.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
        if name in seen or "extra ==" in requirement:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform or version of Python
            continue
        left += found.requires or []
        importable |= {file.parts[0].partition(".")[0] for file in found.files or ()}
    return importable


def test_the_gate_needs_base_dependencies_only() -> None:
    allowed = {*brought(), "pagefence"}
    assert "httpx" in allowed
    assert "torch" not in allowed
    command = [sys.executable, "-c", _WITHOUT, ",".join(allowed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "no dependency of a base install" not in done.stderr
    assert done.returncode == 3, done.stderr
    assert "INCONCLUSIVE" in done.stdout

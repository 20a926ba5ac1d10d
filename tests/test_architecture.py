"""The house stands as its documentation says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pagefence

SOURCE = Path(pagefence.__file__).parent
PROJECT = SOURCE.parent.parent
# Ground floor first; a room imports only from the floors below it.
FLOORS = ("pool", "protocol", "sim", "engine", "fleet", "probes", "verdict", "watch", "edge", "lab")
# What every floor may use.
GROUND = {"process", "models", "mistakes", "files", "run", "stopping", "ticker"}
# The roof: what may use everything.
ROOF = {"cli", "flags", "options", "session", "consent", "replaying", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Rooms of pagefence that a file imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module or ""]
            if node.module == "pagefence":
                names += [f"pagefence.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("pagefence.")}


@pytest.mark.parametrize("floor", FLOORS)
def test_a_room_imports_only_from_the_floors_below(floor: str) -> None:
    allowed = {*FLOORS[: FLOORS.index(floor) + 1], *GROUND, "__version__"}
    for path in (SOURCE / floor).rglob("*.py"):
        assert imports_of(path) <= allowed, f"{path.relative_to(SOURCE)} imports from above"


def test_every_module_has_its_floor() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms <= {*FLOORS, *GROUND, *ROOF}


def test_only_admission_decisions_make_an_admitted() -> None:
    """I3 by type: what allocates or enqueues takes an Admitted, so whoever can make one can admit."""
    makers = {
        str(path.relative_to(SOURCE).parent if "faults" in path.parts else path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Admitted"
    }
    # `edge/passing.py` lets everything pass: for the bench and the tests of the proxy, no product path.
    makers_of_edge = {"edge/admission.py", "edge/passing.py"}
    assert makers == {"protocol/admission.py", "lab/faults", "lab/guards.py", *makers_of_edge}


def test_the_protocol_knows_no_clock_no_socket_and_no_tensor() -> None:
    forbidden = {"time", "asyncio", "socket", "threading", "random", "secrets", "os", "zmq", "torch", "numpy"}
    for room in ("pool", "protocol"):
        for path in (SOURCE / room).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found = {module.split(".")[0] for module in modules} & forbidden
                assert not found, f"{path.name} imports {found}"


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)", text))
    assert len(named) > 20
    for name in named:
        here = [SOURCE / name, SOURCE / "engine" / name, PROJECT / name]
        assert any(path.exists() for path in here) or list((SOURCE / "engine").rglob(name)), f"{name} is not there"


def test_links_between_documents_lead_somewhere() -> None:
    for page in (PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""The catalogue as a whole: every fault is one small file, found for its own reason, and does harm where it says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagefence.lab import faults
from pagefence.lab.fault import Fault
from pagefence.lab.faults import FAULTS
from pagefence.lab.hunt import hunt
from pagefence.lab.matrix import GUARDED, Mark, _guarded
from pagefence.protocol.invariants import RULES
from pagefence.sim.explorer import Search

# Other requests' bytes or tokens reach a client when no guard is in force: the small world is large enough to show it.
HARMFUL = (
    "client-topology", "double-free", "early-send", "failed-load-as-done", "free-while-writing",
    "hash-collision", "metadata-race", "salt-dropped", "shared-without-key", "short-source", "source-freed",
    "stream-swap", "stub-transfer", "timeout-releases",
)  # fmt: skip
QUICK = Search(cores=1)


def test_the_table_of_public_bugs_is_covered() -> None:
    assert len(FAULTS) == 25


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_for_its_own_reason(name: str) -> None:
    found = hunt(FAULTS[name]).found
    assert found is not None
    assert found.rule in FAULTS[name].rules


@pytest.mark.parametrize("name", HARMFUL)
def test_without_guards_it_reaches_a_client(name: str) -> None:
    assert _guarded(FAULTS[name], GUARDED["no guard"], QUICK).mark is Mark.LEAKS


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_fault_says_what_it_is(fault: Fault) -> None:
    assert fault.summary
    assert len(fault.mechanism.split()) > 12
    assert fault.reference
    assert fault.rules
    assert set(fault.rules) <= set(RULES)


def test_two_faults_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Path(str(faults.__file__)).with_name("page_leak.py")
    (tmp_path / "page_leak_again.py").write_text(first.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(faults, "__path__", [*faults.__path__, str(tmp_path)])
    try:
        with pytest.raises(ValueError, match=r"page_leak_again: there is a fault 'page-leak' already"):
            faults._catalogue()
    finally:
        sys.modules.pop(f"{faults.__name__}.page_leak_again")


def test_a_fault_is_one_file_of_under_forty_lines() -> None:
    for path in Path(str(faults.__file__)).parent.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 40, path.name

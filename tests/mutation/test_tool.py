"""The mutation tool by itself: what it tries, what it leaves alone, and what it remembers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .ledger import Entry, Ledger
from .mutants import SOURCE, Mutant, SourceFile
from .operators import alternatives
from .session import Known


def possible(text: str) -> set[str]:
    """What could stand in the place of one expression or statement."""
    node: ast.AST = ast.parse(text).body[0]
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
        node = node.value
    return {ast.unparse(ast.fix_missing_locations(new)) for new in alternatives(node)}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("0 <= a < b", {"0 < a < b", "0 > a < b", "0 <= a <= b", "0 <= a >= b"}),
        ("a and b", {"a or b", "a", "b"}),
        ("not a", {"a"}),
        ("a - 1", {"a + 1", "a"}),
        ("a | b", {"a", "b"}),
        ("7", {"8"}),
        ("True", {"False"}),
        ("'code'", {"'code?'"}),
        ("a if b else c", {"a", "c"}),
        ("(a, b)", {"(a,)", "(b,)"}),
        ("return a", {"return None"}),
        ("if a and b: c()", {"pass", "if not (a and b):\n    c()"}),
        ("a = 1", {"pass"}),
    ],
)
def test_an_operator_makes_a_plausible_slip(text: str, changes: set[str]) -> None:
    assert possible(text) == changes


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.mutation.mutants.SOURCE", tmp_path)
    return tmp_path / "some.py"


SOME = '''
"""A text with 1 number."""
class E(Enum):
    A = "a"
def f(a: int = 1) -> int:
    """More text."""
    if a > 1:
        raise ValueError("no" + "t", 5)
    assert a is not None
    return a
TABLE: T = {P.A: {M: act, N: "text"}, P.B: {M: _OVER, N: other}}
'''


def test_text_for_people_names_and_narrowing_assertions_are_left_alone(product: Path) -> None:
    product.write_text(SOME)
    changes = {(mutant.scope, mutant.change, mutant.whole) for mutant in SourceFile("some.py").places}
    assert changes == {
        ("f", "1 -> 2", True),
        ("f", "removed: if a > 1:", False),
        ("f", "a > 1 -> a >= 1", False),
        ("f", "a > 1 -> a <= 1", False),
        ("f", "1 -> 2 in a > 1", False),
        ("f", "removed: raise ValueError('no' + 't', 5)", False),
        ("f", "return a -> return None", False),
        ("TABLE[P.A][M]", "act -> 'left out'", False),
        ("TABLE[P.A][N]", "'text' -> other", False),
        ("TABLE[P.B][M]", "_OVER -> act", False),
        ("TABLE[P.B][N]", "other -> 'left out'", False),
    }


def test_a_mutant_is_the_same_one_while_the_code_of_its_function_is(product: Path) -> None:
    product.write_text(SOME)
    before = set(SourceFile("some.py").places)
    product.write_text("x = 0\n" + SOME.replace("More text", "Other text"))
    assert before < set(SourceFile("some.py").places)
    product.write_text(SOME.replace("a > 1", "a > 2"))
    after = SourceFile("some.py").places
    assert not [mutant for mutant in after if mutant.scope == "f" and mutant in before]


def test_a_change_is_made_once_and_compiles(product: Path) -> None:
    product.write_text(SOME)
    for i in range(len(SourceFile("some.py").places)):
        source = SourceFile("some.py")
        mutant = list(source.places)[i]
        sound = ast.unparse(source.tree)
        source.mutated(mutant)
        assert ast.unparse(source.tree) != sound, mutant


def test_the_ledger_forgets_a_kill_whose_test_or_function_changed_and_a_survivor_when_any_test_did(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "results.jsonl")
    survey = {"t": Known(0.1, "as it was", frozenset())}
    killed, survived = Mutant("f.py", "f", "a", "source", False), Mutant("f.py", "f", "b", "source", False)
    ledger.add(Entry(*killed.key, "source", "killed", "t", "as it was"))
    ledger.add(Entry(*survived.key, "source", "survived", tests="none of these"))
    with ledger.path.open("ab") as file:
        file.write(b'\n{"file": "f.py", "sco')  # the run was stopped here
    again = Ledger(ledger.path)
    assert again.verdict(killed, survey) is not None
    assert again.verdict(killed, {"t": Known(0.1, "rewritten", frozenset())}) is None
    assert again.verdict(Mutant("f.py", "f", "a", "other source", False), survey) is None
    assert again.verdict(survived, survey) is None


def test_the_files_under_test_have_mutants() -> None:
    assert (SOURCE / "pool" / "slots.py").exists()
    assert len(SourceFile("pool/slots.py").places) > 50

"""`pagefence hash-key` prints what the tenant file takes, and shows a key to nobody but the one who gets it."""

from __future__ import annotations

import getpass
import io
import re
import sys
from pathlib import Path

import pytest

from pagefence.cli import app
from pagefence.edge.call import Tenant
from pagefence.edge.tenant_file import load_tenants
from pagefence.edge.tenants import Identity
from pagefence.run import run

KEY = "pf-a-key-of-these-tests-0123456789"
Captured = pytest.CaptureFixture[str]


def give(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def owner(folder: Path, text: str, key: str) -> str | None:
    """Whose key it is at an edge with this tenant file."""
    file = folder / "tenants.toml"
    file.write_text(text, encoding="utf-8")
    found = load_tenants(Identity(b"s" * 32), {}, file).identify([(b"authorization", b"Bearer " + key.encode())])
    return found.name if isinstance(found, Tenant) else None


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_line_is_one_of_a_tenant_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, end: bytes
) -> None:
    give(monkeypatch, KEY.encode() + end)
    assert run(app, ["hash-key"]) == 0
    said = capsys.readouterr()
    assert KEY not in said.out + said.err
    assert said.out.count("\n") == 1
    assert owner(tmp_path, "[tenant.acme]\n" + said.out, KEY) == "acme"
    assert owner(tmp_path, "[tenant.acme]\n" + said.out, KEY + "x") is None


@pytest.mark.parametrize("name", ["acme", "acme.eu", "7", "a:b@c+d-e_f"])
def test_a_new_key_is_told_apart_from_the_line_and_is_another_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, name: str
) -> None:
    give(monkeypatch, b"never read")
    keys = set()
    for _ in range(2):
        assert run(app, ["hash-key", "--new", "--tenant", name]) == 0
        said = capsys.readouterr()
        found = re.fullmatch(r"the key, for the tenant, shown once: (pf-[\w-]{43})\n", said.err)
        assert found is not None
        assert found[1] not in said.out
        assert owner(tmp_path, said.out, found[1]) == name
        keys.add(found[1])
    assert len(keys) == 2
    assert sys.stdin.read() == "never read"


def test_tables_of_several_tenants_go_into_one_file(tmp_path: Path, capsys: Captured) -> None:
    for name in ("acme", "globex"):
        assert run(app, ["hash-key", "--new", "--tenant", name]) == 0
    said = capsys.readouterr()
    keys = re.findall(r"pf-\S+", said.err)
    assert [owner(tmp_path, said.out, key) for key in keys] == ["acme", "globex"]


def test_on_a_terminal_the_key_is_asked_for_and_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return KEY

    monkeypatch.setattr(sys, "stdin", Terminal(KEY))
    monkeypatch.setattr(getpass, "getpass", ask)
    assert run(app, ["hash-key"]) == 0
    assert len(asked) == 1
    assert KEY not in "".join(capsys.readouterr())


@pytest.mark.parametrize("given", [[KEY], ["--new", KEY], ["a", KEY]])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, given: list[str]
) -> None:
    give(monkeypatch, KEY.encode())
    assert run(app, ["hash-key", *given]) == 2
    said = capsys.readouterr()
    assert "on standard input" in said.err
    assert KEY not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "holds no key"),
        (b"\n", "holds no key"),
        (b"short", "at least 16 characters; `pagefence hash-key --new` makes one"),
        (b"two keys-of-a-file", "without blanks"),
        (b"one-key-0123456789\nand-another-0123456789\n", "without blanks"),
        (b"x" * 513, "without blanks"),
        (b"x" * 100_000, "without blanks"),
        ("schlüssel-0123456789".encode(), "ASCII"),
        (b"sha256:" + b"0" * 64, "the hash of a key already"),
    ],
)
def test_what_is_no_key_is_said_in_one_line_that_does_not_quote_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, raw: bytes, said: str
) -> None:
    give(monkeypatch, raw)
    assert run(app, ["hash-key"]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert len(raw) < 5 or raw[:12].decode(errors="ignore") not in told.err


def test_a_closed_standard_input_and_a_name_that_is_none_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(app, ["hash-key"]) == 2
    assert "is closed" in capsys.readouterr().err
    assert run(app, ["hash-key", "--new", "--tenant", 'a"]\n']) == 2
    said = capsys.readouterr()
    assert "--tenant" in said.err
    assert "pf-" not in said.err
    assert said.out == ""

"""Keys from a file or the environment; never from the command line or a fleet's file, where others can see them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pagefence.fleet.target import Keys
from pagefence.mistakes import Usage


def read_keys(path: Path | None, environment: Mapping[str, str], prefix: str = "PAGEFENCE_KEY") -> Keys:
    """The two tenants' keys and the administrator's: PREFIX_A, _B and _ADMIN. Raises Usage; quotes no key."""
    found: Mapping[str, str] = environment
    if path is not None:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"cannot read the keys from {path}: {error}") from None
        pairs = [line.strip().removeprefix("export ").split("=", 1) for line in lines if "=" in line]
        found = {name.strip(): value.strip().strip("'\"") for name, value in pairs}
        if not found:
            raise Usage(f"{path} holds no {prefix}_A=... line")
    return Keys(*(_key(f"{prefix}_{who}", found) for who in ("A", "B", "ADMIN")))


def _key(name: str, found: Mapping[str, str]) -> str | None:
    """A key as it can stand in a header. What is wrong with one is said without quoting it."""
    key = found.get(name) or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise Usage(f"{name} holds a space, a line end or a character that no HTTP header can carry")
    return key

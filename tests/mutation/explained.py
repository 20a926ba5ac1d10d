"""The survivors that change nothing that anybody could see, each with its reason: `survivors.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

PATH = Path(__file__).with_name("survivors.toml")


def reasons() -> dict[tuple[str, str, str], str]:
    """By the key of the mutant."""
    table = tomllib.loads(PATH.read_text(encoding="utf-8"))
    found: dict[tuple[str, str, str], str] = {}
    for group in table["equivalent"]:
        for change in group["changes"]:
            found[group["file"], group["scope"], change] = group["reason"]
    return found

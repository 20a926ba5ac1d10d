"""The command lines of `pagefence` in files of any kind, and whether the real command line takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from pagefence.cli import app

PROJECT = Path(__file__).parent.parent.parent
DEPLOY = PROJECT / "deploy"
_PROGRAM = re.compile(r"(?:^|/)pagefence$")


def lines_of(path: Path) -> list[list[str]]:
    """Every `pagefence SUBCOMMAND ...` in a file: words after the program's name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yml", ".yaml"):
        return [line for document in yaml.safe_load_all(text) for line in _in_value(document)]
    if path.suffix == ".md":
        return [line for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S) for line in _in_shell(block)]
    if path.suffix == ".service":
        text = "\n".join(re.findall(r"^Exec\w+=((?:.*\\\n)*.*)", text, re.M))
    return list(_in_shell(text))


def _in_value(value: Any) -> Iterator[list[str]]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _in_value(inner)
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        yield from _in_words(value)
    elif isinstance(value, list):
        for inner in value:
            yield from _in_value(inner)
    elif isinstance(value, str) and "\n" in value:
        yield from _in_shell(value)


def _in_shell(script: str) -> Iterator[list[str]]:
    # ${LOCK:+--lock "$LOCK"} is what stands there when LOCK is set.
    flat = re.sub(r"\$\{\w+:\+(.*?)\}", r"\1", script.replace("\\\n", " "))
    for line in flat.splitlines():
        if "pagefence" in line:
            try:
                yield from _in_words(shlex.split(line, comments=True))
            except ValueError:  # a line of prose or of output, with a quote that never ends
                continue


def _in_words(words: list[str]) -> Iterator[list[str]]:
    for i, word in enumerate(words[:-1]):
        if _PROGRAM.search(word) and words[i + 1] in SUBCOMMANDS:
            rest = words[i + 1 :]
            end = next((n for n, w in enumerate(rest) if w in ("|", ";", "&&", "||", "&", ">", "2>")), len(rest))
            yield rest[:end]


_GROUP: Any = typer.main.get_command(app)
SUBCOMMANDS: frozenset[str] = frozenset(_GROUP.commands)


def refusal(line: list[str]) -> str | None:
    """What the real command line says against it, without carrying it out. None: it takes it."""
    name, *rest = line
    try:
        _GROUP.commands[name].make_context(name, list(rest))
    except Exception as error:  # the parser's own classes live in another place in each version of typer
        said = getattr(error, "format_message", None)
        return str(said()) if callable(said) else repr(error)
    return None

"""From flags to `Options`: what fits together, what does not, and one clear line for each thing that does not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pagefence.fleet import Keys, Target
from pagefence.fleet.embedded import Recipe
from pagefence.lab import faults
from pagefence.mistakes import Usage
from pagefence.session import Options

_THOROUGH = 8192
_EMBEDDED_ONLY = ("fault", "guards", "model", "thorough", "keep")


def build(command: str, probes: tuple[str, ...], given: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
    """Check the flags together. Raises Usage."""
    urls = [*(given.get("url") or []), *([given["router"]] if given.get("router") else [])]
    if len(set(urls)) > 1:
        raise Usage("more than one router was given; name workers with --prefill and --decode")
    router = _url(urls[0]) if urls else None
    prefill = tuple(_url(u) for u in given.get("prefill") or ())
    decode = tuple(_url(u) for u in given.get("decode") or ())
    if len({*prefill, *decode}) < len(prefill) + len(decode):
        raise Usage("one worker was named twice: every --prefill and --decode needs an address of its own")
    target = Target(router, prefill, decode) if router or prefill or decode else None
    if target is not None:
        for name in _EMBEDDED_ONLY:
            if given.get(name):
                raise Usage(f"--{name} is for the embedded fleet, so it cannot go with a URL")
        if router is None and command != "gate":
            raise Usage(f"{command} sends prompts, so it needs the router's URL besides the workers'")
    fault, guards = given.get("fault"), given.get("guards")
    _known(fault, guards)
    if fault and given.get("thorough"):
        raise Usage("--thorough sets the context, but the world of a fault is its own")
    recipe = Recipe(model=given.get("model"), fault=fault, guards=guards)
    if given.get("thorough"):
        recipe = recipe.scaled(_THOROUGH)
    return Options(
        command=command,
        probes=probes,
        target=target,
        keys=_keys(given.get("keys_file"), environment),
        recipe=recipe,
        timeout_s=float(given["timeout"]),
        seed=given.get("seed"),
        headroom=float(given.get("headroom") or 1.25),
        json=given.get("json"),
        yes=bool(given.get("yes")),
        keep=bool(given.get("keep")),
        again=_again(command, target, given) if command != "gate" else None,
    )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise Usage(f"{text[:80]!r} is no URL of a fleet; write http://HOST:PORT")
    if parts.username or parts.password:
        raise Usage("a URL must hold no password; set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B")
    return text.rstrip("/").removesuffix("/v1")


def _known(fault: str | None, guards: str | None) -> None:
    if guards and not fault:
        raise Usage("--guards goes with --fault: without a fault every guard is on")
    if fault is None:
        return
    faults.find(fault).decisions(guards or "on")


def _keys(path: Path | None, environment: Mapping[str, str]) -> Keys:
    """The two tenants' keys, from a file or the environment; never from the command line, where others can see them."""
    found: Mapping[str, str] = environment
    if path is not None:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"cannot read the keys from {path}: {error}") from None
        pairs = [line.strip().removeprefix("export ").split("=", 1) for line in lines if "=" in line]
        found = {name.strip(): value.strip().strip("'\"") for name, value in pairs}
        if not found:
            raise Usage(f"{path} holds no PAGEFENCE_KEY_A=... line")
    return Keys(_key("PAGEFENCE_KEY_A", found), _key("PAGEFENCE_KEY_B", found))


def _key(name: str, found: Mapping[str, str]) -> str | None:
    """A key as it can stand in a header. What is wrong with one is said without quoting it."""
    key = found.get(name) or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise Usage(f"{name} holds a space, a line end or a character that no HTTP header can carry")
    return key


def _again(command: str, target: Target | None, given: Mapping[str, Any]) -> str:
    """The command that repeats the run, but for the seed."""
    words: list[str] = ["pagefence", command]
    if target is not None:
        words += [target.router] if target.router else []
        words += [w for url in target.prefill for w in ("--prefill", url)]
        words += [w for url in target.decode for w in ("--decode", url)]
    for name in ("fault", "guards", "model"):
        words += [f"--{name}", str(given[name])] if given.get(name) else []
    words += ["--thorough"] if given.get("thorough") else []
    for name, default in (("headroom", 1.25), ("timeout", 120.0)):
        words += [f"--{name}", f"{given[name]:g}"] if given.get(name) not in (None, default) else []
    return _join(words)


def _join(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)

"""`pagefence watch`: flags and `watch.toml` to settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pagefence.files import check_writable
from pagefence.fleet import Keys, Target
from pagefence.mistakes import Usage
from pagefence.probes.gate import Policy
from pagefence.probes.sentinel_file import SentinelFile
from pagefence.watch.config import GATE, HOUR_S, VERIFY, Settings, Watched, allowance
from pagefence.watch.config_file import read_watch_file
from pagefence.watch.service import watch

_HERE = "pagefence-watch.db"
_NAME = "fleet"
# What says which fleet, or how it is asked: with --config the file says it.
_FLEET = ("url", "router", "prefill", "decode", "fleet", "declare", "keys_file", "timeout", "retries", "ca")
_ON_THE_LINE = (
    *_FLEET,
    "sentinels",
    "tenant_a",
    "tenant_b",
    "client_cert",
    "client_key",
    "every",
    "hourly_tokens",
    "run_tokens",
    "inside",
    "headroom",
    "edge_limit",
)


class Options(Protocol):
    """What is taken from the flags that every command has."""

    @property
    def target(self) -> Target | None: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def headroom(self) -> float: ...
    @property
    def edge_limit(self) -> int | None: ...
    @property
    def sentinels(self) -> SentinelFile | None: ...


Build = Callable[[str, tuple[str, ...], Mapping[str, Any], Mapping[str, str]], Options]


def conduct_watch(given: Mapping[str, Any], environment: Mapping[str, str], build: Build) -> int:
    """Watch, and return the exit code. `build` reads the flags that all commands have. Raises Usage, CannotWrite."""
    settings = _settings(given, environment, build)
    known = [watched.name for watched in settings.targets]
    forget = tuple(given.get("forget_evidence") or ())
    unknown = next((name for name in forget if name not in known), None)
    if unknown is not None:
        raise Usage(f"--forget-evidence {unknown[:60]!r} names no target; there are {', '.join(known)}")
    for watched in settings.targets:
        if watched.sentinels is not None:
            watched.sentinels.check()
    if given.get("announce"):
        check_writable(given["announce"])
    return watch(settings, bool(given.get("log_json")), forget, given.get("announce"))


def _settings(given: Mapping[str, Any], environment: Mapping[str, str], build: Build) -> Settings:
    config: Path | None = given.get("config")
    if config is not None:
        said = next((name for name in _ON_THE_LINE if given.get(name)), None)
        if said is not None:
            flag = "a URL" if said == "url" else "--" + said.replace("_", "-")
            raise Usage(f"{flag} cannot go with --config: {config} says what is watched")
        settings = read_watch_file(config, environment, given.get("seed"))
    else:
        settings = _single(given, build("watch", VERIFY.probes, given, environment))
    return replace(
        settings,
        **{name: given[name] for name in ("state", "host", "port") if given.get(name) is not None},
    )


def _single(given: Mapping[str, Any], options: Options) -> Settings:
    """The fleet of the command line, under the name `fleet`."""
    if options.target is None:
        raise Usage("which fleet is to be watched? give its URL, --fleet FILE or --config FILE")
    verify = VERIFY
    if given.get("every"):
        verify = replace(verify, every_s=float(given["every"]))
    if given.get("run_tokens"):
        verify = replace(verify, tokens=int(given["run_tokens"]))
    modules = (GATE, verify)
    watched = Watched(
        _NAME,
        options.target,
        modules,
        allowance(modules, given.get("hourly_tokens"), HOUR_S, None),
        options.keys,
        options.timeout_s,
        Policy(options.headroom, options.edge_limit, bool(given.get("inside"))),
        options.sentinels,
    )
    return Settings((watched,), Path(_HERE), seed=given.get("seed"))

"""From flags and `fleet.toml` to `Options`: what fits together, what does not, and one clear line for what does not."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagefence.consent import ASK_ABOVE
from pagefence.fleet import Target
from pagefence.fleet.embedded import Recipe
from pagefence.fleet.facts import SPEED
from pagefence.fleet.fleet_file import FIGURES, SOFTWARE, FleetFile, address, different, read_fleet_file
from pagefence.fleet.keys import read_keys
from pagefence.fleet.target import Tls
from pagefence.lab import faults
from pagefence.mistakes import Usage
from pagefence.probes.latency.calibration import read as read_calibration
from pagefence.probes.latency.offline import Source, source
from pagefence.probes.latency.policy import ROUNDS, Timing
from pagefence.probes.race.plan import NAME as RACE
from pagefence.probes.race.plan import Profile
from pagefence.probes.sentinel_file import TENANTS, SentinelFile
from pagefence.session import Options
from pagefence.verdict.power import LEAK_RATE

_THOROUGH = 8192
_EMBEDDED_ONLY = ("fault", "guards", "model", "thorough", "keep")
_FLEET_ONLY = ("declare", "retries", "ca", "client_cert", "client_key", "sentinels")
_REPORTS = ("json", "junit", "sarif", "html")
_NO_FIGURE = ("no number of tokens; write --declare {}=8192", "no whole number above 0; write --declare {}=989e12")
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_RACE = {"probes": "probes", "max_tokens_total": "tokens", "seconds": "seconds", "at_once": "at_once"}
_TIMEOUT_S, _HEADROOM = 120.0, 1.25


def build(command: str, probes: tuple[str, ...], given: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
    """Check the flags together. Raises Usage."""
    file = _file(given)
    target = _target(given, file)
    if target is not None:
        for name in _EMBEDDED_ONLY:
            if given.get(name):
                raise Usage(f"{_flag(name)} is for the embedded fleet, so it cannot go with a URL")
        if target.router is None and (command != "gate" or given.get("active")):
            what = command if command != "gate" else "--active"
            raise Usage(f"{what} sends prompts, so it needs the router's URL besides the workers'")
        if target.tls != Tls():
            target.tls.context()
    planned = target is None and bool(given.get("dry_run"))
    if given.get("race"):
        probes = (*probes, RACE)
    for name in _FLEET_ONLY:
        if target is None and given.get(name) is not None and not (planned and name == "declare"):
            raise Usage(f"{_flag(name)} is for a fleet that is there already, so it needs a URL or --fleet")
    if given.get("approve") and not given.get("lock"):
        raise Usage("--approve writes what is approved to a file: name it with --lock FILE")
    _apart(given)
    fault, guards = given.get("fault"), given.get("guards")
    _known(fault, guards)
    if planned and fault:
        raise Usage("--dry-run starts nothing, and only a fault's own world tells its figures: leave --fault out")
    if fault and given.get("thorough"):
        raise Usage("--thorough sets the context, but the world of a fault is its own")
    edge_limit = given.get("edge_limit") or file.edge_limit
    planned_only = bool(given.get("dry_run"))
    recipe = Recipe(model=given.get("model"), fault=fault, guards=guards)
    if given.get("thorough"):
        recipe = recipe.scaled(_THOROUGH)
    return Options(
        command=command,
        probes=probes,
        target=target,
        keys=read_keys(given.get("keys_file"), environment),
        recipe=recipe,
        timeout_s=_number("timeout", given, file.timeout_s, _TIMEOUT_S),
        seed=given.get("seed"),
        leak_rate=_rate(given),
        headroom=_number("headroom", given, file.headroom, _HEADROOM),
        edge_limit=edge_limit,
        active=bool(given.get("active")) or (command == "verify" and edge_limit is not None and not planned_only),
        inside=bool(given.get("inside")),
        budget=given.get("budget"),
        dry_run=bool(given.get("dry_run")),
        ask_above=_ask_above(given, target),
        declared=_declared(given.get("declare") or ())[0] if planned else None,
        lock=given.get("lock"),
        approve=bool(given.get("approve")),
        json=_place(given.get("json")),
        junit=_place(given.get("junit")),
        sarif=_place(given.get("sarif")),
        html=_place(given.get("html")),
        unredacted=bool(given.get("unredacted")),
        salt_field=_salt_field(given.get("salt_field")),
        salt_timing=bool(given.get("timing")),
        yes=bool(given.get("yes")),
        keep=bool(given.get("keep")),
        timing=_timing(command, given),
        calibrate=given.get("calibrate"),
        race=_race(given, RACE in probes),
        sentinels=_sentinels(given),
        line=_line(command, given),
    )


def _ask_above(given: Mapping[str, Any], target: Target | None) -> int | None:
    """Prompt tokens from which on somebody must have said yes; an embedded fleet is our own."""
    asked: int | None = given.get("ask_above")
    return asked if asked is not None or target is None else ASK_ABOVE


def offline(given: Mapping[str, Any]) -> tuple[Options, Source] | None:
    """`latency` over a log or a Prometheus server: no fleet is asked. None where one is. Raises Usage."""
    if not (given.get("log") or given.get("prometheus")):
        source({**given, "log": None}, {}, {})  # flags that only such a source has
        return None
    target = _file(given).target
    said, software = _declared(given.get("declare") or ())
    declared = {**target.declared.get("", {}), **said}
    found = source(given, declared, {**target.software.get("", {}), **software})
    if found is None:
        return None
    _apart(given)
    options = Options(
        command="latency",
        probes=("latency",),
        target=None,
        timing=Timing(True),
        line=_line("latency", given),
        json=given.get("json"),
        junit=given.get("junit"),
        sarif=given.get("sarif"),
        html=_place(given.get("html")),
    )
    return options, found


def _timing(command: str, given: Mapping[str, Any]) -> Timing:
    path, rounds = given.get("calibration"), given.get("rounds")
    if path is not None and given.get("calibrate") is not None:
        raise Usage("--calibrate measures a floor and --calibration uses one: give one of them")
    return Timing(
        asked=command == "latency",
        rounds=ROUNDS if rounds is None else rounds,
        calibration=None if path is None else read_calibration(path),
        calibrating=given.get("calibrate") is not None,
    )


def _file(given: Mapping[str, Any]) -> FleetFile:
    path = given.get("fleet")
    if path is None:
        return FleetFile(Target(None))
    for name in ("url", "router", "prefill", "decode"):
        if given.get(name):
            said = "a URL" if name == "url" else f"--{name}"
            raise Usage(f"{said} cannot go with --fleet: {path} names the nodes")
    return read_fleet_file(path)


def _target(given: Mapping[str, Any], file: FleetFile) -> Target | None:
    """The fleet that is meant, from the file or from URLs; None for the embedded one. Flags win over the file."""
    if given.get("fleet") is None:
        urls = [*(given.get("url") or []), *([given["router"]] if given.get("router") else [])]
        if len(set(urls)) > 1:
            raise Usage("more than one router was given; name workers with --prefill and --decode")
        prefill = tuple(address(url) for url in given.get("prefill") or ())
        decode = tuple(address(url) for url in given.get("decode") or ())
        different((*prefill, *decode))
        if not (urls or prefill or decode):
            return None
        target = Target(address(urls[0]) if urls else None, prefill, decode, disaggregated=bool(prefill or decode))
    else:
        target = file.target
    said, software = _declared(given.get("declare") or ())
    retries = given.get("retries")
    written: dict[str, Mapping[str, int]] = {"": {}, **target.declared}
    return replace(
        target,
        declared={url: {**figures, **said} for url, figures in written.items()},
        software={url: {**words, **software} for url, words in {"": {}, **target.software}.items()},
        tls=Tls(
            given.get("ca") or target.tls.ca,
            given.get("client_cert") or target.tls.certificate,
            given.get("client_key") or target.tls.key,
        ),
        retries=target.retries if retries is None else retries,
    )


def _declared(pairs: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Figures, and the names of engine and version."""
    said: dict[str, int] = {}
    software: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name in SOFTWARE:
            if not re.fullmatch(r"[\w.+-]{1,60}", value):
                raise Usage(f"--declare {pair[:60]!r} holds no name; write --declare engine=vllm, version=0.33.0")
            if software.setdefault(name, value) != value:
                raise Usage(f"--declare says two things about {name}")
            continue
        if name not in FIGURES:
            known = ", ".join((*FIGURES, *SOFTWARE))
            raise Usage(f"--declare {pair[:60]!r} names none of {known}; write --declare pool=8192")
        value = _whole(value) if name in SPEED else value
        if not (value.isascii() and value.isdigit() and 0 < int(value[:17]) <= 2**53) or len(value) > 16:
            raise Usage(f"--declare {pair[:60]!r} holds {_NO_FIGURE[name in SPEED].format(name)}")
        if said.setdefault(name, int(value)) != int(value):
            raise Usage(f"--declare says two things about {name}")
    return said, software


def _salt_field(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", name):
        raise Usage(f"--salt-field {name[:60]!r} is no name of a field; write --salt-field cache_salt, or none")
    return name


def _whole(value: str) -> str:
    """989e12 as digits, for figures that have many; anything else as it is."""
    found = re.fullmatch(r"(\d{1,6})(?:\.(\d{1,6}))?[eE]\+?(\d{1,2})", value)
    if found is None or len(found[2] or "") > int(found[3]):
        return value
    return found[1] + (found[2] or "").ljust(int(found[3]), "0")


def _apart(given: Mapping[str, Any]) -> None:
    """Each report goes to a place of its own. Raises Usage."""
    seen: dict[str, str] = {}
    for name in ("fleet", "keys_file", "lock", "log", "calibration", "calibrate", "sentinels", *_REPORTS):
        if not given.get(name):
            continue
        place = _place(given[name]) if name in _REPORTS else str(given[name])
        if place == "-" and name in _REPORTS:
            file = place
        elif Path(str(place)).exists() and not Path(str(place)).is_file():
            continue  # a device or a pipe may take several, and what is wrong with a folder is said elsewhere
        else:
            file = os.path.realpath(str(place))
        other = seen.setdefault(file, name)
        if other == name:
            continue
        what = "standard output" if file == "-" else place
        if other in _REPORTS:
            raise Usage(f"two reports cannot both go to {what}; give each a file of its own")
        raise Usage(f"{_flag(name)} would write over {what}, which is the file of {_flag(other)}")


def _place(given: object) -> str | None:
    """Where a report goes. Standard output has more names than one."""
    return "-" if given in _STANDARD_OUTPUT else None if given is None else str(given)


def _number(name: str, given: Mapping[str, Any], written: float | None, default: float) -> float:
    asked = given.get(name)
    value = float(asked if asked is not None else written if written is not None else default)
    if not math.isfinite(value):
        raise Usage(f"--{name} must be a finite number")
    return value


def _rate(given: Mapping[str, Any]) -> float:
    rate = given.get("leak_rate")
    if rate is None:
        return LEAK_RATE
    if not 0 < rate <= 1:
        raise Usage("--leak-rate is a share of requests: more than 0, at most 1")
    return float(rate)


def _race(given: Mapping[str, Any], races: bool) -> Profile:
    """How much a race may cost. Raises Usage for a cap of a race that is not asked for."""
    said = {field: given[flag] for flag, field in _RACE.items() if given.get(flag) is not None}
    if said and not races:
        flag = next(flag for flag in _RACE if given.get(flag) is not None)
        raise Usage(f"{_flag(flag)} is for a race: give --race with it")
    return replace(Profile(), **said)


def _sentinels(given: Mapping[str, Any]) -> SentinelFile | None:
    """Where planted words are written down. Raises Usage."""
    path = given.get("sentinels")
    named = next((name for name in ("tenant_a", "tenant_b") if given.get(name) is not None), None)
    if path is None and named is not None:
        raise Usage(f"{_flag(named)} is a name in a file of sentinels: give --sentinels FILE with it")
    if path is None:
        return None
    first, second = (given.get(name) for name in ("tenant_a", "tenant_b"))
    return SentinelFile(path, (TENANTS[0] if first is None else first, TENANTS[1] if second is None else second))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _known(fault: str | None, guards: str | None) -> None:
    if guards and not fault:
        raise Usage("--guards goes with --fault: without a fault every guard is on")
    if fault is None:
        return
    faults.find(fault).decisions(guards or "on")


def _line(command: str, given: Mapping[str, Any]) -> str:
    """The command that does the run again, but for its seed and its reports."""
    words: list[str] = ["pagefence", command, *(given.get("url") or [])]
    for name in (
        "router",
        "fleet",
        "fault",
        "guards",
        "model",
        "budget",
        "edge_limit",
        "lock",
        "ca",
        "client_cert",
        "client_key",
        "salt_field",
        "sentinels",
        "tenant_a",
        "tenant_b",
        "calibration",
        "calibrate",
        "rounds",
        "log",
        "prometheus",
        "ttft_field",
        "ttft_unit",
        "tokens_field",
        "cached_field",
        "time_field",
        "only",
        "window_hours",
        "model_name",
    ):
        words += [_flag(name), str(given[name])] if given.get(name) else []
    for name in ("prefill", "decode", "declare"):
        words += [word for value in given.get(name) or () for word in (_flag(name), value)]
    words += ["--keys-file", str(given["keys_file"])] if given.get("keys_file") else []
    for name in ("thorough", "active", "inside", "timing", "no_prefix_cache", "race"):
        words += [_flag(name)] if given.get(name) else []
    for name in ("headroom", "timeout", "retries", "leak_rate", *_RACE):
        words += [_flag(name), f"{given[name]:.12g}"] if given.get(name) is not None else []
    return shlex.join(words)

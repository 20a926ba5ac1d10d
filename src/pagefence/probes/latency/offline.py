"""Times that somebody else took: a log, or a Prometheus server. No prompt is sent, and no fleet is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pagefence.mistakes import Usage
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.latency import calibration, findings, log, prometheus
from pagefence.probes.latency.fields import Fields, fields
from pagefence.probes.latency.floor import physics
from pagefence.probes.latency.shots import NAME
from pagefence.probes.latency.tally import Floors, Tally

Progress = Callable[[str, int, int], None]
_HOURS = 24.0
_FIELD_FLAGS = ("ttft_field", "ttft_unit", "tokens_field", "cached_field", "time_field", "only")
_BORDERS = ("longest", "pool", "context")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the times are, and what they are held against."""

    floors: Floors
    log: Path | None = None
    prometheus: str | None = None
    fields: Fields = field(default_factory=Fields)
    window_s: float = _HOURS * 3600
    no_cache: bool = False

    def read(self, progress: Progress) -> ProbeResult:
        """Judge it. Raises Usage for a file that cannot be opened, CouldNotAsk for a server that does not answer."""
        if self.log is not None:
            return from_log(self, self.log, progress)
        progress("asking the Prometheus server", 0, 0)
        return prometheus.ask(self.prometheus or "", self.floors, self.no_cache)


def source(given: Mapping[str, Any], declared: Mapping[str, int], software: Mapping[str, str]) -> Source | None:
    """From flags and what is declared; None when times are to be taken live. Raises Usage."""
    path, server = given.get("log"), given.get("prometheus")
    only_log = [name for name in (*_FIELD_FLAGS, "window_hours") if given.get(name) is not None]
    if path is None and only_log:
        raise Usage(f"--{only_log[0].replace('_', '-')} says how a log is read: add --log FILE")
    if path is None and server is None:
        left = [name for name in ("no_prefix_cache", "model_name") if given.get(name)]
        if left:
            raise Usage(f"--{left[0].replace('_', '-')} goes with --log or --prometheus")
        return None
    if path is not None and server is not None:
        raise Usage("--log and --prometheus are two sources; name one")
    for name in ("url", "router", "prefill", "decode", "calibrate", "fault", "guards", "model", "rounds", "keep"):
        if given.get(name):
            raise Usage(f"--{name} cannot go with --{'log' if path is not None else 'prometheus'}: no fleet is asked")
    if server is not None:
        _sound(server)
    known = calibration.read(given["calibration"]) if given.get("calibration") else None
    refused = calibration.declared(known, software, given.get("model_name")) if known is not None else None
    if refused is not None:
        raise Usage(refused)
    limits = tuple(sorted({declared[name] for name in _BORDERS if name in declared}))
    floors = Floors(physics(declared), known, limits, declared.get("longest", 0))
    hours = given.get("window_hours") or _HOURS
    return Source(floors, path, server, fields(given), hours * 3600, bool(given.get("no_prefix_cache")))


def _sound(server: str) -> None:
    if "@" in server:  # before it is quoted, here or as the line that repeats the run
        raise Usage("the URL of a Prometheus server must hold no password: reports would quote it; ask it from inside")
    try:
        parts = urlsplit(server)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not server.isprintable() or " " in server or "?" in server or "#" in server:
        raise Usage(f"{server[:80]!r} is no URL of a Prometheus server; write http://HOST:9090")


def from_log(source: Source, path: Path, progress: Progress) -> ProbeResult:
    """One pass over the file; what was read, and what was not, is a row of its own."""
    tally, read = Tally(source.floors, source.window_s), log.Read()
    for point in log.points(path, source.fields, read, lambda done, size: progress(f"reading {path.name}", done, size)):
        known = replace(point, cached_tokens=0) if point.cached_tokens is None and source.no_cache else point
        tally.add(known)
    rows, evidence = _lines(read, path)
    if not read.used:
        what = "no line has a time to first token with its prompt tokens"
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "lines", path.name, what, remedy="Name the fields by flags."))
        return ProbeResult(NAME, tuple(rows), tuple(evidence))
    result = findings.judged(tally, True)
    claim = None if evidence else result.claim
    return replace(result, checks=(*rows, *result.checks), evidence=(*evidence, *result.evidence), claim=claim)


def _lines(read: log.Read, path: Path) -> tuple[list[Check], list[Evidence]]:
    bad = sum(read.bad.values())
    text = f"{read.lines:,} lines: {read.used:,} times"
    text += f", {read.failed:,} failed requests left out" if read.failed else ""
    text += f", {read.others:,} of others left out" if read.others else ""
    why = "; ".join(f"{n:,} {reason} (first: line {read.first[reason]:,})" for reason, n in read.bad.most_common(4))
    text += f", {bad:,} not usable: {why}" if bad else ""
    evidence = []
    if read.broke is not None:
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "lines", path.name, read.broke, remedy="Mend the file."))
    if read.too_many_bad:
        what = f"{bad:,} of {read.lines:,} lines are not usable: {why}"
        remedy = "Name the fields by flags (--tokens-field, --ttft-field with --ttft-unit, --cached-field)."
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "lines", path.name, what, remedy=remedy))
    return [Check("lines", path.name, text, Kind.INCONCLUSIVE if evidence else None)], evidence

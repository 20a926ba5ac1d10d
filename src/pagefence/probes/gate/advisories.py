"""Public advisories of this class, bundled and dated: `advisories.toml` beside this file.

An entry is there only if its range of versions was found in a public record. A list gets old, so its age is shown with
every use; one older than 180 days says so.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

OLD_AFTER_DAYS = 180


@dataclass(frozen=True, slots=True)
class Advisory:
    """One advisory. `affected` is a PEP 440 specifier; `fixed` is None where the record names no fixed release."""

    id: str
    engine: str
    affected: str
    title: str
    reference: str
    rule: str
    fixed: str | None = None
    aliases: tuple[str, ...] = ()

    def affects(self, version: str | None) -> bool | None:
        """Whether a version is affected; None where that cannot be told.

        Not told: no version, none that can be compared, a build from a source tree without tags (its version begins
        with 0.0 or 0.1 and ends in dev), a version of another epoch than the record's, and a pre-release of the release
        that brought the fix. Where no such release is named, not told either: a post-release of the last that is
        affected, and a pre-release of any that may be the next one.
        """
        try:
            it = Version(version or "")
        except InvalidVersion:
            return None
        if it.epoch:
            return None
        if it.is_devrelease and it.release[:2] in ((0,), (0, 0), (0, 1)):
            return None
        if _specifier(self.affected).contains(it, prereleases=True):
            return True
        if it.is_prerelease and _padded(it) in self._first_without():
            return None
        if self.fixed is None and it.is_postrelease and _specifier(self.affected).contains(it.base_version):
            return None
        return False

    def _first_without(self) -> tuple[tuple[int, ...], ...]:
        """The release that brought the fix, or all that may follow the last one that is affected."""
        if self.fixed is not None:
            return (_padded(Version(self.fixed)),)
        major, minor, micro = max(_padded(Version(part.version)) for part in _specifier(self.affected))
        return (major, minor, micro + 1), (major, minor + 1, 0), (major + 1, 0, 0)


@dataclass(frozen=True, slots=True)
class Advisories:
    """The list and the day on which it was last looked through."""

    updated: date
    entries: tuple[Advisory, ...]

    def of(self, engine: str) -> tuple[Advisory, ...]:
        """Those of an engine, however somebody wrote its name."""
        return tuple(entry for entry in self.entries if entry.engine == engine.casefold())

    def age(self, today: date) -> str:
        """One phrase about how old the list is."""
        days = (today - self.updated).days
        said = f"list of {self.updated}, {days} days old"
        return said if days <= OLD_AFTER_DAYS else f"{said}: too old to rely on, update PageFence"


def _padded(version: Version) -> tuple[int, ...]:
    return (*version.release, 0, 0)[:3]


@functools.cache
def _specifier(text: str) -> SpecifierSet:
    return SpecifierSet(text)


def parse(text: str) -> Advisories:
    """Raises ValueError, KeyError or TypeError for a list that is not one: a mistake of ours, never of a user."""
    document = tomllib.loads(text)
    entries = tuple(
        Advisory(**(entry | {"aliases": tuple(entry.get("aliases", ()))})) for entry in document["advisory"]
    )
    for entry in entries:
        _specifier(entry.affected)
        Version(entry.fixed or "0")
    updated = document["updated"]
    if not isinstance(updated, date):
        raise TypeError("`updated` is a date")
    return Advisories(updated, entries)


@functools.cache
def bundled() -> Advisories:
    """The list that comes with this version of PageFence."""
    return parse(files(__package__).joinpath("advisories.toml").read_text(encoding="utf-8"))

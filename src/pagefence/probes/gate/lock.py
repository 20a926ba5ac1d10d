"""What was approved, in a file: every figure, setting and switch on which isolation rests, for each node."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pagefence.files import READABLE, write_atomically
from pagefence.fleet import Figure, FleetFacts, NodeFacts

SCHEMA_VERSION = 1


class NodeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node had when it was approved. None: it was not told, then either."""

    role: str
    engine: str | None
    version: str | None
    model: str | None
    pool: int | None
    ranks: tuple[int | None, ...]
    context: int | None
    page_size: int | None
    settings: dict[str, str]
    flags: dict[str, str | bool | None]


class Approved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    schema_version: int
    nodes: dict[str, NodeRecord]


@dataclass(frozen=True, slots=True)
class LockState:
    """What is known of the lock file. `written` and `refused` are the outcome of an approval.

    `problem`: why there is nothing to compare with. `absent`: there is no file, which an approval may mend; any other
    problem it may not, so that nothing is ever written over unread.
    """

    path: str
    approved: Approved | None = None
    problem: str | None = None
    absent: bool = False
    written: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `told` is False where a value is not told any more, so that nothing can be compared."""

    url: str
    what: str
    told: bool = True


@dataclass(slots=True)
class _Changes:
    url: str
    found: list[Change] = field(default_factory=list)

    def compare(self, name: str, old: object, new: object) -> None:
        if old == new:
            return
        if new is None:
            self.found.append(Change(self.url, f"{name} was {_said(old)}, and is not told any more", told=False))
        else:
            self.found.append(Change(self.url, f"{name} was {_said(old)}, is {_said(new)}"))


def read_lock(path: Path) -> LockState:
    """Never raises: what is wrong with the file is in the answer."""
    try:
        if path.exists() and not path.is_file():
            return LockState(str(path), problem="it is no file")  # and reading a pipe might never end
        raw = path.read_bytes()
    except FileNotFoundError:
        return LockState(str(path), problem="there is no such file", absent=True)
    except OSError as error:
        return LockState(str(path), problem=f"it cannot be read: {error.strerror or error}")
    try:
        approved = msgspec.json.decode(raw, type=Approved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return LockState(str(path), problem=f"it is no lock file of PageFence ({str(error)[:120]})")
    if approved.schema_version != SCHEMA_VERSION:
        return LockState(
            str(path), problem=f"it has schema_version {approved.schema_version}, this is {SCHEMA_VERSION}"
        )
    return LockState(str(path), approved)


def write_lock(path: Path, facts: FleetFacts) -> None:
    """The whole file or none; of a link, where it leads. Raises CannotWrite."""
    path = Path(os.path.realpath(path))
    document = Approved(SCHEMA_VERSION, {node.url: record(node) for node in facts.everyone()})
    write_atomically(
        path, msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n", READABLE
    )


def record(node: NodeFacts) -> NodeRecord:
    """What of a node is approved: everything that changes how much fits or who can reach whose memory."""
    return NodeRecord(
        role=node.role,
        engine=node.engine,
        version=node.version,
        model=node.model,
        pool=_value(node.pool),
        ranks=tuple(map(_value, node.ranks)),
        context=_value(node.context),
        page_size=_value(node.page_size),
        settings=dict(node.settings),
        flags={name: None if flag.problem is not None else flag.value for name, flag in node.flags.items()},
    )


def _value(figure: Figure) -> int | None:
    return None if figure.problem is not None else figure.value


def changes(approved: Approved, facts: FleetFacts) -> list[Change]:
    """Every difference between what was approved and what is there. A node that cannot be read is not compared."""
    now = {node.url: node for node in facts.everyone()}
    found = [
        Change(url, f"{r.role} {url} was approved, and is not there")
        for url, r in approved.nodes.items()
        if url not in now
    ]
    for url, node in now.items():
        if node.problem is not None:
            found.append(Change(url, "cannot be compared: it could not be read", told=False))
        elif url not in approved.nodes:
            found.append(Change(url, f"{node.role} {url} is new, and was not approved"))
        else:
            found += _differences(url, approved.nodes[url], record(node))
    return found


def _differences(url: str, old: NodeRecord, new: NodeRecord) -> list[Change]:
    changes = _Changes(url)
    for name in ("role", "engine", "version", "model", "pool", "context", "page_size"):
        changes.compare(name, getattr(old, name), getattr(new, name))
    changes.compare("number of ranks", len(old.ranks), len(new.ranks))
    # Of one rank the pool is said already.
    for i, (was, now) in enumerate(zip(old.ranks, new.ranks, strict=False) if len(old.ranks) > 1 else ()):
        changes.compare(f"pool of rank {i}", was, now)
    for kind, was_all, now_all in (("setting", old.settings, new.settings), ("flag", old.flags, new.flags)):
        for name in sorted({*was_all, *now_all}):
            changes.compare(f"{kind} {name}", was_all.get(name), now_all.get(name))
    return changes.found


def _said(value: object) -> str:
    if value is None:
        return "not told"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)[:120]

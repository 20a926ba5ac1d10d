"""What a watch remembers, in one SQLite file: results, schedule, budgets, evidence, seeds. It survives kill -9.

Each step is one transaction: a run is begun (its tokens held, its next start fixed) or ended (recorded, counted,
settled, its evidence added), all of it or nothing. A run that was begun and never ended is found at the next start,
recorded as interrupted and charged with all that it held. One process writes: a second one is refused by a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pagefence.mistakes import Usage
from pagefence.probes.evidence import Kind
from pagefence.verdict.sequential import EProcess, fields, restored
from pagefence.watch.budget import Bucket
from pagefence.watch.records import Phase, Ran, Record
from pagefence.watch.schedule import Slot
from pagefence.watch.schema import migrate

_INTERRUPTED = "the watch ended before this run did"
_COLUMNS = (
    "id, target, module, reason, seed, started, ended, phase, verdict, sentence, model, requests, prompt_tokens, "
    "new_tokens, charged, findings, log"
)


class State:
    """One open file. Not for several threads. Methods raise sqlite3.Error when the disk does not do its part."""

    def __init__(self, path: Path, now: float, seed: int | None = None) -> None:
        """Open or make it, and record what a crash left half done. Raises Usage with what is wrong and where."""
        self._lock = _locked(path)
        self.interrupted: tuple[Record, ...] = ()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a budget that a power cut forgot would be spent twice
            migrate(self._db, secrets.randbits(48) if seed is None else seed)
            if seed is not None:
                self._db.execute("UPDATE base SET seed = ?", (seed,))
            self.interrupted = self._interrupt(now)
        # The last two: rows that hold what none of ours does, and a seed that no column can hold.
        except (OSError, sqlite3.Error, Usage, ValueError, OverflowError) as error:
            self._lock.close()
            raise Usage(f"cannot keep the state of the watch in {path}: {error}") from None

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    # Schedule and budgets

    def known(self, target: str) -> tuple[Bucket, int, float, str] | None:
        """Bucket, runs in a row without room, left alone until when, model; None for a target never seen."""
        row = self._one("SELECT level, at, held, saturated, resume, model FROM target WHERE name = ?", target)
        return None if row is None else (Bucket(*row[:3]), row[3], row[4], row[5])

    def slot(self, target: str, module: str) -> Slot | None:
        row = self._one(
            "SELECT due, idle_since, inconclusive FROM slot WHERE target = ? AND module = ?", target, module
        )
        return None if row is None else Slot(*row)

    def place(self, target: str, bucket: Bucket, slots: dict[str, Slot]) -> None:
        """Write down where a target stands at the start of the watch; what is known of its past stays."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO target (name, level, held, at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET level = excluded.level, held = excluded.held, at = excluded.at",
                (target, bucket.level, bucket.held, bucket.at),
            )
            for module, slot in slots.items():
                self._db.execute(
                    "INSERT OR REPLACE INTO slot VALUES (?, ?, ?, ?, ?)",
                    (target, module, slot.due, slot.idle_since, slot.inconclusive),
                )

    # Runs

    def begin(
        self, target: str, module: str, reason: str, now: float, bucket: Bucket, reserved: int, due: float | None
    ) -> tuple[int, int]:
        """A run begins. Its id, and its seed: drawn from the file's own and the id, so never used before."""
        with self._transaction():
            (base,) = self._db.execute("SELECT seed FROM base").fetchone()
            row = self._db.execute(
                "INSERT INTO run (target, module, reason, seed, started, phase, reserved) VALUES (?, ?, ?, 0, ?, ?, ?)",
                (target, module, reason, now, Phase.RUNNING, reserved),
            )
            number = int(row.lastrowid or 0)
            seed = int.from_bytes(hashlib.blake2b(f"{base} {number}".encode(), digest_size=4).digest(), "big") >> 1
            self._db.execute("UPDATE run SET seed = ? WHERE id = ?", (seed, number))
            self._settle(target, bucket)
            self._db.execute("UPDATE slot SET due = ? WHERE target = ? AND module = ?", (due, target, module))
        return number, seed

    def end(
        self,
        run: int,
        ran: Ran,
        now: float,
        bucket: Bucket,
        saturated: tuple[int, float],
        evidence: dict[str, tuple[EProcess, float | None]],
        keep: int,
    ) -> Record | None:
        """A run ends: recorded, counted and settled once. None when it had ended before."""
        with self._transaction():
            done = self._db.execute(
                "UPDATE run SET ended = ?, phase = ?, verdict = ?, sentence = ?, model = ?, requests = ?, "
                "prompt_tokens = ?, new_tokens = ?, charged = ?, findings = ?, report = ?, log = ? "
                "WHERE id = ? AND phase = ?",
                (
                    now,
                    ran.phase,
                    ran.verdict,
                    ran.sentence,
                    ran.model or "unknown",
                    ran.requests,
                    ran.prompt_tokens,
                    ran.new_tokens,
                    ran.charged,
                    msgspec.json.encode(ran.findings).decode(),
                    zlib.compress(ran.report) if ran.report else b"",
                    ran.log,
                    run,
                    Phase.RUNNING,
                ),
            )
            if done.rowcount != 1:
                return None
            record = self._records("WHERE id = ?", run)[0]
            self._count(record)
            self._settle(record.target, bucket)
            self._db.execute(
                "UPDATE target SET saturated = ?, resume = ?, model = coalesce(?, model), "
                "prompt_tokens = prompt_tokens + ?, new_tokens = new_tokens + ? WHERE name = ?",
                (*saturated, ran.model, ran.prompt_tokens, ran.new_tokens, record.target),
            )
            for probe, (process, alarmed) in evidence.items():
                self._db.execute(
                    "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?)",
                    (record.target, probe, msgspec.json.encode(fields(process)).decode(), alarmed),
                )
            self._db.execute(
                "DELETE FROM run WHERE target = ? AND module = ? AND phase != ? AND id NOT IN "
                "(SELECT id FROM run WHERE target = ? AND module = ? ORDER BY id DESC LIMIT ?)",
                (record.target, record.module, Phase.RUNNING, record.target, record.module, keep),
            )
        return record

    # Reading

    def history(self, limit: int, target: str | None = None, module: str | None = None) -> tuple[Record, ...]:
        """The last runs, newest first."""
        where, what = [], []
        for column, value in (("target", target), ("module", module)):
            if value is not None:
                where.append(f"{column} = ?")
                what.append(value)
        clause = f"WHERE {' AND '.join(where)}" if where else ""
        return self._records(f"{clause} ORDER BY id DESC LIMIT ?", *what, limit)

    def last(self, target: str, module: str) -> Record | None:
        """The last run that says something: that went to its end, or found a violation before it was stopped."""
        found = self._records(
            "WHERE target = ? AND module = ? AND (phase = ? OR phase = ? AND verdict != ?) ORDER BY id DESC LIMIT 1",
            target,
            module,
            Phase.FINISHED,
            Phase.INTERRUPTED,
            Kind.INCONCLUSIVE,
        )
        return found[0] if found else None

    def record(self, run: int) -> Record | None:
        found = self._records("WHERE id = ?", run)
        return found[0] if found else None

    def report(self, run: int) -> bytes | None:
        row = self._one("SELECT report FROM run WHERE id = ?", run)
        return zlib.decompress(row[0]) if row is not None and row[0] else None

    def totals(self) -> tuple[tuple[str, str, Phase, str, int], ...]:
        """Target, module, phase, verdict, and how many runs ended so since the file was made."""
        rows = self._db.execute("SELECT target, module, phase, verdict, runs FROM total ORDER BY 1, 2, 3, 4")
        return tuple((target, module, Phase(phase), verdict, runs) for target, module, phase, verdict, runs in rows)

    def tokens(self, target: str) -> tuple[int, int]:
        """Prompt tokens and new tokens that its answers have reported."""
        row = self._one("SELECT prompt_tokens, new_tokens FROM target WHERE name = ?", target)
        return (0, 0) if row is None else (row[0], row[1])

    def evidence(self, target: str) -> dict[str, tuple[EProcess, float | None]]:
        """Its e-processes by probe, and since when each has been in alarm.

        What another version of PageFence wrote and this one cannot read begins anew.
        """
        wanted = "SELECT probe, process, alarmed FROM evidence WHERE target = ? ORDER BY probe"
        rows = self._db.execute(wanted, (target,))
        found: dict[str, tuple[EProcess, float | None]] = {}
        for probe, process, alarmed in rows:
            with suppress(KeyError, TypeError, ValueError):
                found[probe] = (restored(msgspec.json.decode(process)), alarmed)
        return found

    def forget_evidence(self, target: str) -> None:
        """Begin its e-processes anew: the cause of an alarm was found and mended."""
        with self._transaction():
            self._db.execute("DELETE FROM evidence WHERE target = ?", (target,))

    # Inside

    def _interrupt(self, now: float) -> tuple[Record, ...]:
        with self._transaction():
            left = self._records("WHERE phase = ? ORDER BY id", Phase.RUNNING)
            self._db.execute(
                "UPDATE run SET phase = ?, ended = ?, verdict = ?, sentence = ?, charged = reserved WHERE phase = ?",
                (Phase.INTERRUPTED, now, Kind.INCONCLUSIVE, _INTERRUPTED, Phase.RUNNING),
            )
            # Nobody knows what they had spent: what they held is spent, and nothing is given back.
            self._db.execute("UPDATE target SET held = 0")
            done = tuple(record for one in left for record in self._records("WHERE id = ?", one.id))
            for record in done:
                self._count(record)
        return done

    def _count(self, record: Record) -> None:
        """Counted once: in the transaction that ends it. A run without an answer does not end a slot's idleness."""
        self._db.execute(
            "INSERT INTO total VALUES (?, ?, ?, ?, 1) "
            "ON CONFLICT (target, module, phase, verdict) DO UPDATE SET runs = runs + 1",
            (record.target, record.module, record.phase, record.verdict),
        )
        slot = (record.target, record.module)
        if record.verdict == Kind.INCONCLUSIVE:
            self._db.execute("UPDATE slot SET inconclusive = inconclusive + 1 WHERE target = ? AND module = ?", slot)
        else:
            self._db.execute("UPDATE slot SET inconclusive = 0 WHERE target = ? AND module = ?", slot)
        if record.phase is Phase.FINISHED:
            self._db.execute("UPDATE slot SET idle_since = ? WHERE target = ? AND module = ?", (record.ended, *slot))

    def _settle(self, target: str, bucket: Bucket) -> None:
        self._db.execute(
            "UPDATE target SET level = ?, held = ?, at = ? WHERE name = ?",
            (bucket.level, bucket.held, bucket.at, target),
        )

    def _records(self, clause: str, *values: object) -> tuple[Record, ...]:
        rows: Sequence[tuple[Any, ...]] = self._db.execute(f"SELECT {_COLUMNS} FROM run {clause}", values).fetchall()
        return tuple(_record(row) for row in rows)

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        return row

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has rolled it back already
                self._db.execute("ROLLBACK")
            raise


def _record(row: tuple[Any, ...]) -> Record:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Record(**values | {"phase": Phase(values["phase"]), "findings": msgspec.json.decode(values["findings"])})


def _locked(path: Path) -> Any:
    """Beside the database, since SQLite's own locks are let go between transactions. The kernel ends it with us."""
    try:
        lock = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise Usage(f"cannot keep the state of the watch in {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise Usage(f"another watch keeps its state in {path}; give this one a file of its own") from None
    return lock

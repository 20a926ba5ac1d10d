"""The tables of a watch, in SQLite, and how an older file gets to be a newer one."""

from __future__ import annotations

import sqlite3

from pagefence.mistakes import Usage

VERSION = 1

_TABLES = """
CREATE TABLE target (          -- one row for each target that was ever watched
  name TEXT PRIMARY KEY,
  level REAL NOT NULL,         -- the token bucket: free, held by the run in progress, as of
  held REAL NOT NULL,
  at REAL NOT NULL,
  saturated INTEGER NOT NULL DEFAULT 0,   -- runs in a row that it had no room for
  resume REAL NOT NULL DEFAULT 0,         -- left alone until then
  model TEXT NOT NULL DEFAULT 'unknown',
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  new_tokens INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE slot (            -- one row for each module of each target
  target TEXT NOT NULL,
  module TEXT NOT NULL,
  due REAL,
  idle_since REAL NOT NULL,
  inconclusive INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (target, module)
) STRICT;

CREATE TABLE run (
  id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice, so no seed is either
  target TEXT NOT NULL,
  module TEXT NOT NULL,
  reason TEXT NOT NULL,        -- scheduled, asked
  seed INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  phase TEXT NOT NULL,
  verdict TEXT NOT NULL DEFAULT '',
  sentence TEXT NOT NULL DEFAULT '',
  model TEXT NOT NULL DEFAULT 'unknown',
  requests INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  new_tokens INTEGER NOT NULL DEFAULT 0,
  reserved INTEGER NOT NULL,
  charged INTEGER NOT NULL DEFAULT 0,
  findings TEXT NOT NULL DEFAULT '{}',
  report BLOB NOT NULL DEFAULT x'',       -- JSON, zlib
  log TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX run_slot ON run (target, module, id);

CREATE TABLE total (           -- counts of runs, which go on when old runs are forgotten
  target TEXT NOT NULL,
  module TEXT NOT NULL,
  phase TEXT NOT NULL,
  verdict TEXT NOT NULL,
  runs INTEGER NOT NULL,
  PRIMARY KEY (target, module, phase, verdict)
) STRICT;

CREATE TABLE evidence (        -- one e-process for each probe of each target
  target TEXT NOT NULL,
  probe TEXT NOT NULL,
  process TEXT NOT NULL,       -- its fields, JSON
  alarmed REAL,                -- since when
  PRIMARY KEY (target, probe)
) STRICT;

CREATE TABLE base (seed INTEGER NOT NULL) STRICT;
"""


def migrate(connection: sqlite3.Connection, seed: int) -> None:
    """Make the tables, or check them. Raises Usage for a file of a newer PageFence, or of something else."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        _check(connection, seed)
        return
    if version > VERSION:
        raise Usage(f"it was written by a newer PageFence (schema {version}, this one knows {VERSION})")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Usage("it is a database of something else")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} INSERT INTO base VALUES ({seed:d}); PRAGMA user_version = {VERSION}; COMMIT;"
    )


def _check(connection: sqlite3.Connection, seed: int) -> None:
    """What is damaged shows now, and not in the middle of a run. A file of which a kill took the seed gets another."""
    (found,) = connection.execute("PRAGMA quick_check (1)").fetchone()
    if found != "ok":
        raise Usage(f"the file is damaged ({found}); move it away, or give another one with --state")
    if connection.execute("SELECT count(*) FROM base").fetchone()[0] == 0:
        connection.execute("INSERT INTO base VALUES (?)", (seed,))

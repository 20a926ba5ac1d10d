"""What a driver may tell its machine: an answer to an effect that asked for it, as the world of the model gives it.

What was asked lies in the explorer's own processes (`processes`). Only what the model cannot know, which token and
which digest, is taken from the answer.
"""

from __future__ import annotations

from dataclasses import replace

from pagefence.protocol.messages import (
    ChunkComputed,
    ComputeFailed,
    FrameBroken,
    Generated,
    Landed,
    PagesDigested,
    WriteFailed,
)
from pagefence.sim import processes as proc
from pagefence.sim.memory import Write
from pagefence.sim.processes import DecodeProcess, PrefillProcess


class NotLegal(Exception):
    """A step that the model does not have."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        super().__init__(f"{what}: expected {expected}, found {found}")
        self.what, self.expected, self.found = what, str(expected), str(found)


def _require(truth: bool, what: str, expected: object, found: object) -> None:
    if not truth:
        raise NotLegal(what, expected, found)


# --- prefill ------------------------------------------------------------------------------------------------------


def prefill_answers(p: PrefillProcess, m: object) -> PrefillProcess:
    """The process after its driver has said this. Raises NotLegal, and Violation for a write whose source was let."""
    if isinstance(m, ChunkComputed):
        return _computed(p, m)
    if isinstance(m, Landed):
        return _landed(p, m)
    if isinstance(m, WriteFailed):
        return _without(p, _answered(p, m, m.stop))
    if isinstance(m, ComputeFailed):
        _require(m.room in p.jobs, "ComputeFailed without Compute", "a prompt being computed", m.room)
        return replace(p, jobs=p.jobs.delete(m.room))
    raise NotLegal("no input of prefill", "an answer of its driver", type(m).__name__)


def _computed(p: PrefillProcess, m: ChunkComputed) -> PrefillProcess:
    job = p.jobs.get(m.room)
    if job is None:
        raise NotLegal("ChunkComputed without Compute", "a prompt being computed", m.room)
    total = job.order.admitted.tokens
    grown = f"more than {job.done} and at most {total} tokens"
    _require(job.done < m.computed <= total, "a chunk that does not grow", grown, m.computed)
    is_last = m.computed == total
    first = "a first token" if is_last else "no first token"
    _require((m.first_token is not None) == is_last, "the last chunk alone brings the first token", first, m)
    return replace(p, jobs=p.jobs.set(m.room, replace(job, done=m.computed)))


def _landed(p: PrefillProcess, m: Landed) -> PrefillProcess:
    write = _answered(p, m, m.tokens)
    pages = len(write.complete())
    _require(len(m.digests) == pages, "digests of the pages that the write completed", pages, len(m.digests))
    proc.require_source(p, write)
    return _without(p, write)


def _answered(p: PrefillProcess, m: Landed | WriteFailed, stop: int) -> Write:
    """The write that the driver speaks of: the oldest of its room."""
    what = type(m).__name__
    write = next((write for write in p.writes if write.room == m.room), None)
    if write is None:
        raise NotLegal(f"{what} without WriteChunk", "a write in flight", m.room)
    _require(stop == write.stop, f"{what} at another mark than was launched", write.stop, stop)
    return write


def _without(p: PrefillProcess, write: Write) -> PrefillProcess:
    return replace(p, writes=tuple(other for other in p.writes if other is not write))


# --- decode -------------------------------------------------------------------------------------------------------


def decode_answers(p: DecodeProcess, m: object) -> DecodeProcess:
    """The process after its driver has said this. Raises NotLegal."""
    if isinstance(m, PagesDigested):
        pages = p.verifying.get(m.room)
        if pages is None:
            raise NotLegal("PagesDigested without Verify", "pages being verified", m.room)
        _require(len(m.digests) == len(pages), "digests of the pages to verify", len(pages), len(m.digests))
        return replace(p, verifying=p.verifying.delete(m.room))
    if isinstance(m, FrameBroken):
        return _frame_broken(p, m)
    if isinstance(m, Generated):
        return _generated(p, m)
    if isinstance(m, ComputeFailed):
        _require(m.room in p.rows, "ComputeFailed without Run", "a row of the batch", m.room)
        return replace(p, rows=p.rows.delete(m.room))
    raise NotLegal("no input of decode", "an answer of its driver", type(m).__name__)


def _frame_broken(p: DecodeProcess, m: FrameBroken) -> DecodeProcess:
    row, verified = p.rows.get(m.room), p.verifying.get(m.room)
    pages = verified or (row.run.pages if row else None)
    if pages is None:
        raise NotLegal("FrameBroken without Verify or Run", "pages being verified or read", m.room)
    looked_at = 0 <= m.position < len(pages) and pages[m.position] == m.page
    _require(looked_at, "a broken frame of a page that nobody looks at", pages, (m.position, m.page))
    if verified is not None:
        return replace(p, verifying=p.verifying.delete(m.room))
    return replace(p, rows=p.rows.delete(m.room))


def _generated(p: DecodeProcess, m: Generated) -> DecodeProcess:
    row = p.rows.get(m.room)
    if row is None:
        raise NotLegal("Generated without Run", "a row of the batch", m.room)
    _require(len(m.token_ids) == 1, "a decode step gives one token", 1, len(m.token_ids))
    first = row.run.first_token
    _require(row.made > 0 or m.token_ids[0] == first, "the first token is the receipt's", first, m.token_ids[0])
    likely = row.run.first_logprobs
    _require(row.made > 0 or m.logprobs == likely, "the first log-probability is the receipt's", likely, m.logprobs)
    made, most = row.made + 1, row.run.max_new_tokens
    _require(made <= most, "more tokens than were asked for", most, made)
    # An answer may stop before its end; the model of the explorer always goes to the end.
    fits = m.finish == "stop" or (m.finish == "length") == (made == most)
    _require(fits, "the end of an answer", f"length exactly at {most} tokens", f"{m.finish} at {made}")
    return replace(p, rows=p.rows.delete(m.room) if m.finish else p.rows.set(m.room, replace(row, made=made)))

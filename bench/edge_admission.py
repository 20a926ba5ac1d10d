"""What a decision about a long prompt costs the edge, beside what other tokenizers take to count it.

python -m bench.edge_admission [--tokens N] [--rounds N] [--text FILE] [--peers FOLDER] [--slow]

Times are of this thread's processor (and of the wall clock beside it): on a busy machine only those can be compared.
Peers are used where they can be imported, from FOLDER too (`pip install --target FOLDER tiktoken kitoken`); a peer
whose count differs is shown with the difference. `--slow` adds the library's plain `encode` of the whole text.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import table
from pagefence import models
from pagefence.edge.admission import AdmissionSettings, Counted, decide
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.capacity import Capacity, Room
from pagefence.edge.counting import PromptCounter
from pagefence.edge.demand import Prompt
from pagefence.engine.model.tokenizer import Tokenizer

_SETTINGS = AdmissionSettings()
_HUGE = 10**9
_SMOLLM = r"\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class Timed:
    """Medians, in seconds, and what came out."""

    processor: float
    wall: float
    result: object


def timed(work: Callable[[], object], rounds: int) -> Timed:
    """Of all rounds."""
    processor, wall, result = [], [], None
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        result = work()
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return Timed(statistics.median(processor), statistics.median(wall), result)


def prose(tokens: int, tokenizer: Tokenizer) -> str:
    """Words of this project's documents in random order, with its punctuation: many words, most of them seen before."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path("docs").rglob("*.md")))
    words, rng = source.split(" "), random.Random(7)
    each = max(1.0, tokenizer.count(source[:50_000]) / len(source[:50_000].split(" ")))
    return " ".join(rng.choices(words, k=int(tokens / each)))


def decisions(text: str, tokenizer: Tokenizer, counter: PromptCounter, rounds: int) -> list[tuple[str, Timed]]:
    """What the edge does with this text, by the room that there is."""
    bounds = counter.bounds
    call = Call(Operation.CHAT, Tenant("", "", ""), "", {"messages": [{"role": "user", "content": text}]}, None, False)

    def decided(total: int) -> Callable[[], str]:
        capacity = Capacity(Room(total, total, "bench"), None, 0.0)
        return lambda: type(decide(call, capacity, bounds, _SETTINGS)).__name__

    exact = counter.count(Prompt(texts=(text,)), _HUGE, 0, lambda: False)

    def counted(limit: int) -> Callable[[], Counted]:
        return lambda: counter.count(Prompt(texts=(text,)), limit, 0, lambda: False)

    return [
        ("decided by the upper bound", timed(decided(5 * len(text)), rounds)),
        ("decided by the lower bound", timed(decided(2_000), rounds)),
        ("counted exactly", timed(counted(_HUGE), rounds)),
        ("refused at half of it", timed(counted((exact.exact or 0) // 2), rounds)),
    ]


def peers(text: str, tokenizer: Tokenizer, rounds: int, slow: bool) -> list[tuple[str, Timed]]:
    """The same count by others."""
    found = [("tokenizers, 64 k characters at a time", timed(lambda: _slices(tokenizer, text), max(1, rounds // 2)))]
    if slow:
        backend = tokenizer._backend
        found.append(("tokenizers, encode", timed(lambda: len(backend.encode(text, add_special_tokens=False)), 1)))
    for name, load in (("tiktoken", _tiktoken), ("kitoken", _kitoken)):
        try:
            encode = load(tokenizer)
            found.append((name, timed(lambda e=encode: len(e(text)), rounds)))  # type: ignore[misc]  # mypy: lambda default
        except ImportError:
            print(f"{name}: not installed")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}")
    return found


def _slices(tokenizer: Tokenizer, text: str) -> int:
    """What anybody can do with the library alone; not exact where a slice cuts a token."""
    return sum(tokenizer.count(text[at : at + 65_536]) for at in range(0, len(text), 65_536))


def _tiktoken(tokenizer: Tokenizer) -> Callable[[str], Any]:
    import tiktoken  # type: ignore[import-not-found, unused-ignore]

    control = set(tokenizer.control.values())
    ranks = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab) if i not in control}
    encoding = tiktoken.Encoding("here", pat_str=_SMOLLM, mergeable_ranks=ranks, special_tokens={})
    return encoding.encode_ordinary  # type: ignore[no-any-return, unused-ignore]


def _kitoken(tokenizer: Tokenizer) -> Callable[[str], Any]:
    from kitoken import Kitoken  # type: ignore[import-not-found, unused-ignore]

    path = models.cache_dir() / "bench-tokenizer.json"
    tokenizer._backend.save(str(path))
    loaded = Kitoken.from_file(str(path))
    path.unlink()
    return loaded.encode  # type: ignore[no-any-return, unused-ignore]


async def stalls(work: Callable[[], object]) -> tuple[float, float]:
    """The longest and the 99th of a hundred pauses of an event loop of 1 ms while a thread does the work; seconds."""
    done, pauses = threading.Event(), []

    def run() -> None:
        work()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        pauses.append(time.perf_counter() - before - 0.001)
    thread.join()
    pauses.sort()
    return pauses[-1], pauses[int(len(pauses) * 0.99)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", type=Path, help="count this file instead of words from docs/")
    parser.add_argument("--peers", type=Path, help="a folder with more tokenizers")
    parser.add_argument("--slow", action="store_true", help="also the library's encode of the whole text: minutes")
    given = parser.parse_args()
    if given.peers:
        sys.path.append(str(given.peers))
    tokenizer = Tokenizer.load(models.fetch())
    counter = PromptCounter(tokenizer)
    text = given.text.read_text(encoding="utf-8") if given.text else prose(given.tokens, tokenizer)
    rows = decisions(text, tokenizer, counter, given.rounds)
    exact = rows[2][1].result
    assert isinstance(exact, Counted)
    rows += peers(text, tokenizer, given.rounds, given.slow)
    print(f"{len(text):,} characters, {exact.exact:,} tokens, vocabulary of {tokenizer.vocab:,}\n")
    cells = [(name, f"{t.processor * 1e3:,.2f}", f"{t.wall * 1e3:,.2f}", _said(t.result, exact)) for name, t in rows]
    print(table.markdown(("", "processor ms", "wall ms", "result"), cells))
    idle = asyncio.run(stalls(lambda: time.sleep(1.0)))
    busy = asyncio.run(stalls(lambda: counter.count(Prompt(texts=(text,)), _HUGE, 0, lambda: False)))
    for name, (worst, usual) in (("idle", idle), ("counting in a thread", busy)):
        print(f"\nevent loop, {name}: late by {usual * 1e3:.1f} ms in 1 of 100, {worst * 1e3:.1f} ms at most", end="")
    print()


def _said(result: object, exact: Counted) -> str:
    if isinstance(result, Counted):
        return f"{result.exact:,}" if result.exact is not None else f"at least {result.least:,}"
    return f"{result:,} ({result - (exact.exact or 0):+,})" if isinstance(result, int) else str(result)


if __name__ == "__main__":
    main()

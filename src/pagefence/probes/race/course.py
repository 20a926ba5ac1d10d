"""What an answer must say, word for word: the prompt is one line again and again, and breaks off in the next one.

So the right answer is known without asking the model, and also of a stream that its client left after three tokens it
can be said whether what came was right: it is how the line goes on, or it is not.
"""

from __future__ import annotations

import re
from enum import StrEnum

from pagefence.probes.sentinel import Sentinel, recalled, spoken

_LEAST_SHIFT = 4  # letters after a slip that show how the text goes on
LEAST_LINES = 4  # fewer, and a small model does not take the line for a rule


class Course(StrEnum):
    """How an answer goes. ORDER: its own words and nothing else, but doubled, left out or in another order."""

    RIGHT = "right"
    ORDER = "own words out of order"
    OTHER = "own words, then others"
    LOST = "own words lost"


def lay_out(nonce: str, sentinel: Sentinel, lines: int) -> str:
    """The prompt. Its first token is the nonce's, so nothing of it can be in a cache; its next one is an own word."""
    return f"{nonce}\n" + f"- {sentinel}\n" * lines + "-"


def expected(sentinel: Sentinel, letters: int) -> str:
    """How the prompt goes on, for at least so many letters."""
    line = f"{sentinel} - "
    return line * (letters // len(line) + 4)


def plainly(text: str) -> str:
    """Without the white space that engines treat each in their own way."""
    return re.sub(r"\s+", " ", text).strip()


def course(text: str, own: Sentinel) -> Course:
    """Hold an answer, whole or left early, against the one that it must be. Nothing said is nothing wrong."""
    said = plainly(text)
    right = expected(own, len(said))
    if right.startswith(said):
        return Course.RIGHT
    at = next(i for i, (a, b) in enumerate(zip(said, right, strict=False)) if a != b)
    rest = said[at:]
    period = len(f"{own} - ")
    shifted = any(right[k : k + len(rest)] == rest for k in range(at % period, at % period + period))
    if (shifted and len(rest) >= _LEAST_SHIFT) or _only_own(said, own):
        return Course.ORDER
    return Course.OTHER if recalled(text, own) else Course.LOST


def parting(text: str, own: Sentinel) -> str | None:
    """The first word that does not belong into an answer: where it leaves its course; None when it has none."""
    return next((word for word in spoken(text)[:-1] if word not in own.words), None)


def _only_own(said: str, own: Sentinel) -> bool:
    """Whole own words (the last one may be cut), at least three of them."""
    words = spoken(said)
    if len(words) < 3:
        return False
    return all(w in own.words for w in words[:-1]) and any(w.startswith(words[-1]) for w in own.words)

"""Words of a fleet on a terminal or a page."""

from __future__ import annotations

import unicodedata

from rich.text import Text

from pagefence.fleet import Figure


def number(figure: Figure) -> str:
    """A figure as a table shows it."""
    return "?" if figure.value is None else f"{figure.value:,}"


def harmless(text: str) -> str:
    """What a fleet said, without control characters: none that steers a terminal, hides, or turns the direction of what
    follows (bidirectional controls), and no half of a surrogate pair. Each is a replacement character instead."""
    return "".join(c if c == "\n" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain(text: str, style: str = "") -> Text:
    """What a fleet said, as text for a terminal: no markup, no control character."""
    return Text(harmless(text), style)

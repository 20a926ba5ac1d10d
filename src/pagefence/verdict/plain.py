"""Words of a fleet on a terminal."""

from __future__ import annotations

import unicodedata

from rich.text import Text


def plain(text: str, style: str = "") -> Text:
    """What a fleet said, as text: no markup, and no control character that would steer the terminal."""
    harmless = (c if c == "\n" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return Text("".join(harmless), style)

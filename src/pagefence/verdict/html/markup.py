"""Markup that cannot be injected into: a string that is put into an element is text, and only an element is markup.

Escaping is a matter of type. `el` makes markup; what else is put into it is escaped, and control characters that could
hide or turn text are replaced. There is no way in but `el`, and the style sheet, which is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from pagefence.verdict.plain import harmless

_VOID = frozenset({"meta", "br", "link", "line", "path", "polyline", "polygon"})


@dataclass(frozen=True, slots=True)
class Html:
    """A piece of a document, already safe."""

    markup: str


Child = Html | str | int | None


def el(name: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """An element. `class_` is `class`, other underscores are hyphens; an attribute of None is left out.

    Names come from the code, never from a fleet.
    """
    said = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{_escaped(_number(value))}"'
        for attribute, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{said}/>")
    return Html(f"<{name}{said}>{together(*children).markup}</{name}>")


def together(*children: Child) -> Html:
    """Pieces side by side."""
    return Html("".join(_piece(child) for child in children if child is not None))


def _piece(child: Html | str | int) -> str:
    return child.markup if isinstance(child, Html) else _escaped(str(child))


def _escaped(text: str) -> str:
    return escape(harmless(text), quote=True)


def _number(value: str | float) -> str:
    """Coordinates need one digit after the point."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)

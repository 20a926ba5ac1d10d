"""The pen of the sequence diagram: each mark as a piece of SVG, at a place, in a colour."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

INK, GREY, FAINT, PAPER, RED = "#1f2328", "#59636e", "#d1d9e0", "#ffffff", "#c4171f"
# Far apart for colour-blind eyes too, dark enough for a line on white, and none near the red of a violation.
_PALETTE = ("#0969a8", "#c77700", "#1a7f4b", "#8250df", "#0d8f96", "#8a5a2b", "#b0418f", "#5b6b00")
_SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
STYLE = (
    f"text{{font:12px {_SANS};fill:{INK}}}.mono{{font-family:{_MONO}}}"
    ".small{font-size:11px}.b{font-weight:600}.title{font-size:16px}"
)
HATCH = (
    '<defs><pattern id="pf-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="2" height="5" fill="{PAPER}" fill-opacity="0.75"/></pattern></defs>'
)
CELL = 20


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


def colour_of(rank: int) -> str:
    """The colour of the rank-th request. Past the palette by the golden angle, which never comes back to a hue."""
    if rank < len(_PALETTE):
        return _PALETTE[rank]
    # Hues 30 to 330: the rest is red.
    return f"hsl({30 + (rank * 137.508) % 300:.1f}, 55%, {32 + rank % 3 * 6}%)"


def text(at: Point, words: str, style: str = "", anchor: str = "start", fill: str = INK, turn: float = 0) -> str:
    """A line of text, with a halo of paper so that lines may pass behind it."""
    turned = f' transform="rotate({turn:.1f} {at.x:.1f} {at.y:.1f})"' if turn else ""
    halo = f'stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
    return (
        f'<text x="{at.x:.1f}" y="{at.y:.1f}" class={quoteattr(style)} text-anchor="{anchor}" {halo} '
        f'style="fill:{fill}"{turned}>{legal(words)}</text>'
    )


def paragraph(at: Point, lines: list[str], style: str = "", fill: str = INK, leading: float = 15) -> str:
    """Lines of text under each other."""
    return "".join(text(Point(at.x, at.y + i * leading), line, style, fill=fill) for i, line in enumerate(lines))


def wrapped(words: str, width: float, per_letter: float = 6.3) -> list[str]:
    """Text broken to a width in pixels. Nothing here can measure a font, so letters count as a bit over their mean."""
    return textwrap.wrap(words, max(8, int(width / per_letter))) or [""]


def rect(at: Point, width: float, height: float, fill: str, stroke: str = "none", extra: str = "") -> str:
    return (
        f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="{stroke}"{" " if extra else ""}{extra}/>'
    )


def line(a: Point, b: Point, stroke: str, width: float = 1, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{a.x:.1f}" y1="{a.y:.1f}" x2="{b.x:.1f}" y2="{b.y:.1f}"'
    return f'<line {ends} stroke="{stroke}" stroke-width="{width}"{dashed}/>'


def head(a: Point, b: Point, fill: str) -> str:
    """The head of an arrow from `a` that points at `b`."""
    angle = math.atan2(b.y - a.y, b.x - a.x)
    wings = [Point(b.x - 9 * math.cos(angle + s), b.y - 9 * math.sin(angle + s)) for s in (0.4, -0.4)]
    corners = " ".join(f"{p.x:.1f},{p.y:.1f}" for p in (b, *wings))
    return f'<polygon points="{corners}" fill="{fill}"/>'


def cross(at: Point, size: float, stroke: str, width: float = 2) -> str:
    arms = f"M{at.x - size:.1f} {at.y - size:.1f}l{2 * size} {2 * size}m{-2 * size} 0l{2 * size} {-2 * size}"
    return f'<path d="{arms}" stroke="{stroke}" stroke-width="{width}" stroke-linecap="round" fill="none"/>'


def clock(at: Point, stroke: str) -> str:
    face = f'<circle cx="{at.x:.1f}" cy="{at.y:.1f}" r="8" fill="{PAPER}" stroke="{stroke}" stroke-width="1.6"/>'
    hands = f"M{at.x:.1f} {at.y - 5:.1f}v5l3.5 2.5"
    return f'{face}<path d="{hands}" stroke="{stroke}" stroke-width="1.4" stroke-linecap="round" fill="none"/>'


def dot(at: Point, radius: float, fill: str, stroke: str = PAPER) -> str:
    return f'<circle cx="{at.x:.1f}" cy="{at.y:.1f}" r="{radius}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'


def page(at: Point, owner: str | None, holder: str | None, colours: dict[str, str], quarantined: bool) -> str:
    """A page: in its owner's colour once its bytes lie in it, pale before; a red square for another request's bytes."""
    centre = Point(at.x + CELL / 2, at.y + CELL / 2)
    inset, side = Point(at.x + 1, at.y + 1), CELL - 2
    corners = 'rx="2.5"'
    if owner is None:
        rest = "" if holder is None else dot(centre, 3, colours[holder])
        return rect(inset, side, side, PAPER, FAINT, corners) + rest
    colour = colours[owner]
    filled = holder == owner
    cell = rect(inset, side, side, colour, colour, corners if filled else f'{corners} fill-opacity="0.18"')
    if quarantined:
        # The hatch is white; what lies under it is opaque, or it would not show.
        cell = rect(inset, side, side, colour, colour, corners)
        cell += rect(inset, side, side, "url(#pf-hatch)", colour, corners)
    if holder is not None and holder != owner:
        inner = rect(Point(at.x + 4, at.y + 4), CELL - 8, CELL - 8, RED, PAPER, 'class="foreign" stroke-width="1.5"')
        return cell + inner + _letter(centre, holder, PAPER, 9)
    if quarantined:
        return cell + dot(centre, 6.5, colour, colour) + _letter(centre, owner, PAPER, 9)
    return cell + _letter(centre, owner, PAPER if filled else INK, 11)


def _letter(centre: Point, letter: str, fill: str, size: int) -> str:
    place = f'x="{centre.x:.1f}" y="{centre.y + size * 0.36:.1f}"'
    return f'<text {place} text-anchor="middle" style="font-size:{size}px;font-weight:600;fill:{fill}">{letter}</text>'


def legal(words: str) -> str:
    """XML text: escaped, and without the control characters that XML cannot hold at all."""
    return escape("".join(c if c >= " " and c not in "\x7f\ufffe\uffff" else " " for c in words))

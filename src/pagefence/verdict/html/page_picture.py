"""The picture of a leak: the pages that attention read for one request, coloured by who wrote them."""

from __future__ import annotations

from pagefence.probes import Evidence, Examination
from pagefence.verdict.html.axes import WIDTH, drawing
from pagefence.verdict.html.markup import Html, el, together
from pagefence.verdict.html.page_map import Owner, Read, Stretch, cells, page_map

_COLUMNS, _ROWS = 16, 6
_CELL = WIDTH / _COLUMNS
_NAMES = {
    Owner.READER: "written for this request",
    Owner.PLANTER: "the planted prompt, still there",
    Owner.MIXED: "this request's or another's",
    Owner.NOBODY: "whoever was there before",
    Owner.ANSWER: "kept for the answer",
}


def read_of(evidence: Evidence, examination: Examination) -> Read | None:
    """What the evidence of a leak tells of its request; None when that is too little to draw."""
    details, limits = evidence.details, examination.limits
    sent = _count(details.get("prompt_tokens_sent"))
    if not sent or limits is None:
        return None
    request = details.get("request")
    new = next((o.shot.max_tokens for o in examination.log.outcomes if o.shot.id == request), 0)
    nodes = examination.facts.nodes if examination.facts is not None else ()
    return Read(
        sent=sent,
        new=new,
        page=limits.page,
        page_told=any(node.page_size.value for node in nodes),
        limit=limits.longest,
        planted=_count(details.get("planted_prompt_tokens")),
    )


def page_picture(read: Read, name: str, reader: str, planter: str) -> Html:
    """The picture and its words. `name` is unique on the page; the tenants by their names."""
    stretches = page_map(read)
    drawn = cells(stretches, _COLUMNS * _ROWS)
    told = "; ".join(_said(stretch) for stretch in stretches)
    parts = [together(*(_cell(i, first, stretch, name) for i, (first, _, stretch) in enumerate(drawn)))]
    height = -(-len(drawn) // _COLUMNS) * _CELL
    hatch = el(
        "pattern", el("path", d="M0 0V6", class_="stripe"),
        id=f"{name}-hatch", width=5, height=5, patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip
    drawing_ = drawing(name, f"Pages that were read for {reader}", told, el("defs", hatch), *parts, height=height)
    each = max(last - first + 1 for first, last, _ in drawn)
    size = f"pages of {read.page:,} tokens" + ("" if read.page_told else " (assumed: no node tells)")
    scale = f"One square is one of the {size}." if each == 1 else f"One square is up to {each:,} {size}."
    caption = el("figcaption", scale, " Striped: inferred, not seen.", _list(stretches, planter))
    return el("figure", drawing_, caption, class_="pages")


def _list(stretches: tuple[Stretch, ...], planter: str) -> Html:
    rows = []
    for stretch in stretches:
        name = f"{planter}'s planted prompt, still there" if stretch.owner is Owner.PLANTER else _NAMES[stretch.owner]
        rows.append(el("li", el("i", class_=f"key {stretch.owner}"), el("b", _range(stretch)), " ",
                       f"{name}: {stretch.why}", *_inferred(stretch)))  # fmt: skip
    return el("ul", *rows)


def _inferred(stretch: Stretch) -> tuple[str, ...]:
    return () if stretch.known else (" (inferred)",)


def _said(stretch: Stretch) -> str:
    return f"{_range(stretch)}: {_NAMES[stretch.owner]}{'' if stretch.known else ', inferred'}"


def _range(stretch: Stretch) -> str:
    if stretch.first == stretch.last:
        return f"page {stretch.first:,}"
    return f"pages {stretch.first:,} to {stretch.last:,}"


def _cell(number: int, first: int, stretch: Stretch, name: str) -> Html:
    x, y = number % _COLUMNS * _CELL, number // _COLUMNS * _CELL
    box = {"x": x + 1, "y": y + 1, "width": _CELL - 2, "height": _CELL - 2, "rx": 3}
    parts = [el("rect", el("title", _said(stretch)), class_=f"cell {stretch.owner}", **box)]
    if not stretch.known:
        parts.append(el("rect", fill=f"url(#{name}-hatch)", class_="over", **box))
    words = f"{first:,}" if first < 10000 else f"{first // 1000}k"
    parts.append(
        el(
            "text",
            words,
            x=x + _CELL / 2,
            y=y + _CELL / 2 + 3,
            class_="count known" if stretch.known else "count",
            text_anchor="middle",
        )
    )
    return together(*parts)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

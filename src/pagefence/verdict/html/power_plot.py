"""The chance that this run would have found a leak, against how often a probe shows one."""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.verdict.html.axes import across, curve, drawing, edges, frame, line, marks, upwards
from pagefence.verdict.html.markup import Html, el, together
from pagefence.verdict.power import Claim
from pagefence.verdict.statistics import chance_found, probes_needed, upper_bound

_STYLES = ("line a", "line b", "line c", "line d")
_RATES = (0.5, 0.1, 0.01, 0.001)


def power_plot(claims: Sequence[Claim]) -> Html:
    """A curve for each probe that counts its answers, and the same as a table."""
    least = min(1e-3, *(upper_bound(claim.n) / 20 for claim in claims))
    x, y = across(least, 1.0), upwards(0.0, 1.0, log=False)
    written = [f"{value:g}" for value in marks(x)], [f"{value:.0%}" for value in marks(y)]
    left, _, right, _ = edges()
    parts = [frame(x, y, ("share of probes that a leak shows in", "chance to find it"), written)]
    parts.append(line(left, y.place(0.95), right, y.place(0.95), "level"))
    parts.append(el("text", "95 %", x=left + 4, y=y.place(0.95) + 13, class_="tick"))
    for claim, style in zip(claims[: len(_STYLES)], _STYLES, strict=False):
        rates = [least * (1 / least) ** (i / 120) for i in range(121)]
        parts.append(curve([(x.place(p), y.place(chance_found(p, claim.n))) for p in rates], style))
        bound = x.place(upper_bound(claim.n))
        parts.append(line(bound, y.place(0), bound, y.place(0.95), f"{style} thin"))
    told = "; ".join(
        f"{c.probe}, n = {c.n:,}: a leak that shows in {upper_bound(c.n):.3g} of its probes is found with 95 %"
        for c in claims
    )
    return together(
        el(
            "figure",
            drawing("power", "Detection power", told, *parts),
            el("figcaption", *_legend(claims), "Where a curve meets 95 % is the bound: a rarer leak may be there."),
        ),
        _table(claims),
    )


def _legend(claims: Sequence[Claim]) -> list[Html]:
    return [
        el("span", el("i", class_=f"key {style.split()[-1]}"), f"{claim.probe}, n = {claim.n:,}", class_="legend")
        for claim, style in zip(claims, _STYLES, strict=False)
    ]


def _table(claims: Sequence[Claim]) -> Html:
    names = ["a leak shows in", *(claim.probe for claim in claims), "95 % needs"]
    numbers = [el("th", name, scope="col", class_="number") for name in names[1:]]
    head = el("tr", el("th", names[0], scope="col"), *numbers)
    rows = [
        el(
            "tr",
            el("th", f"1 of {round(1 / rate):,} probes", scope="row"),
            *(el("td", _percent(chance_found(rate, claim.n)), class_="number") for claim in claims),
            el("td", f"{probes_needed(rate):,}", class_="number"),
        )
        for rate in _RATES
    ]
    table = el("table", el("caption", "Chance to have found it"), el("thead", head), el("tbody", *rows))
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label="Chance to have found it")


def _percent(chance: float) -> str:
    """Never rounded up: nothing is found for certain."""
    return "> 99.9 %" if chance > 0.999 else f"{int(chance * 1000) / 10:.1f} %"

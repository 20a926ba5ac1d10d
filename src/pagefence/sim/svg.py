"""A trace as a picture: who said what to whom, and what that did to the pages. One SVG that needs nothing else."""

from __future__ import annotations

from pagefence.sim import svg_marks as draw
from pagefence.sim.svg_arrows import arrows
from pagefence.sim.svg_marks import FAINT, GREY, INK, PAPER, RED, Point
from pagefence.sim.svg_plan import LEADING, MARGIN, Plan, planned
from pagefence.sim.svg_steps import arrow, legend, mark, pages
from pagefence.sim.trace import Trace
from pagefence.sim.wording import in_words, named


def trace_svg(trace: Trace) -> str:
    """The sequence diagram of a trace, as an SVG document."""
    plan = planned(trace)
    bottom = plan.tops[-1]
    band = 24 + LEADING * len(plan.verdict)
    key, key_height = legend(plan, bottom + band + 16)
    height = bottom + band + 16 + key_height + 8
    title = f"PageFence: {trace.world}, {trace.fault or 'no fault'}"
    told = [f"{step.number}. {in_words(step, plan.names)}" for step in trace.steps]
    ending = f"{trace.rule or 'A rule'} is broken: {trace.violation or ''}" if plan.broken else "No rule was broken."
    desc = "; ".join([*told, ending])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plan.width:.0f} {height:.0f}" '
        f'width="{plan.width:.0f}" height="{height:.0f}" role="img" aria-labelledby="pf-title pf-desc">',
        f'<title id="pf-title">{draw.legal(title)}</title><desc id="pf-desc">{draw.legal(desc)}</desc>',
        f"<style>{draw.STYLE}</style>{draw.HATCH}",
        draw.rect(Point(0.5, 0.5), plan.width - 1, height - 1, PAPER, FAINT, 'rx="8"'),
        _header(plan),
        _rows(plan),
        *(_lifeline(plan, name) for name in plan.lines),
        *(arrow(plan, its) for its in arrows(trace)),
        *(mark(plan, row, step) for row, step in enumerate(trace.steps)),
        *(_pool_name(plan, name) for name in plan.pools),
        *(pages(plan, row, step) for row, step in enumerate(trace.steps)),
        _verdict(plan, bottom, band),
        key,
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def _header(plan: Plan) -> str:
    parts = [draw.paragraph(Point(MARGIN, 34), plan.title, "b title", leading=22)]
    y: float = 12 + 22 * len(plan.title)
    for word, lines in plan.head:
        y += LEADING * 1.3
        parts.append(draw.text(Point(MARGIN, y), word, fill=GREY))
        parts.append(draw.paragraph(Point(MARGIN + 62, y), lines, "mono" if word == "replay" else ""))
        y += LEADING * (len(lines) - 1)
    return "".join(parts)


def _rows(plan: Plan) -> str:
    """The tale at the left, with hairlines; the step that broke the rule stands on red."""
    parts = []
    last = len(plan.tales) - 1
    for row, (told, caused) in enumerate(plan.tales):
        top, y = plan.tops[row], plan.level(row)
        if row == last and plan.broken:
            parts.append(
                draw.rect(Point(1, top), plan.width - 2, plan.tops[row + 1] - top, RED, extra='fill-opacity="0.1"')
            )
        parts.append(draw.line(Point(MARGIN, top), Point(plan.width - MARGIN, top), FAINT, 0.6))
        number = str(plan.trace.steps[row].number)
        parts.append(draw.text(Point(MARGIN + 14, y + 4), number, "small", "end", GREY))
        parts.append(draw.paragraph(Point(MARGIN + 24, y + 4), told))
        parts.append(draw.paragraph(Point(MARGIN + 24, y + 4 + LEADING * len(told)), caused, "small", GREY))
    return "".join(parts)


def _lifeline(plan: Plan, name: str) -> str:
    """A line from the start, or a restart, to the crash or the end; dotted while crashed and not yet reaped."""
    x, since = plan.lines[name], plan.tops[0] - 12
    lines, marks = [], [_name(Point(x, since - 12), name)]
    dash: str | None = ""
    was_there = False
    for row, step in enumerate(plan.trace.steps):
        here = Point(x, plan.level(row))
        kind = step.move.kind if named(step.move.who) == name else ""
        there = name in [named(worker) for worker, _ in step.pages]
        # A worker that the router has recycled is gone without a move of its own.
        ends = kind in ("crash", "reap") or (was_there and not there)
        was_there = there
        if ends and dash is not None:
            lines.append(draw.line(Point(x, since), here, GREY, 1.2, dash))
            marks += [draw.cross(here, 8, RED, 3)] if dash == "" else []
            dash, since = ("1.5 4" if kind == "crash" else None), here.y
        if kind == "restart":
            marks.append(_name(here, name))
            dash, since = "", here.y
    if dash is not None:
        lines.append(draw.line(Point(x, since), Point(x, plan.tops[-1]), GREY, 1.2, dash))
    # Marks last: a name's box hides the line behind it.
    return "".join(lines + marks)


def _pool_name(plan: Plan, name: str) -> str:
    y = plan.tops[0] - 24
    return draw.text(Point(plan.pools[name] + 1, y), "pages of", "small", fill=GREY) + draw.text(
        Point(plan.pools[name] + 1, y + 15), name, "b"
    )


def _name(at: Point, name: str) -> str:
    width = max(64, 8 * len(name) + 16)
    box = draw.rect(Point(at.x - width / 2, at.y - 12), width, 24, PAPER, INK, 'rx="4"')
    return box + draw.text(Point(at.x, at.y + 4), name, "b", "middle")


def _verdict(plan: Plan, top: float, height: float) -> str:
    """The red band: the rule and what broke it."""
    colour = RED if plan.broken else INK
    parts = [draw.rect(Point(1, top), plan.width - 2, height, colour, extra='fill-opacity="0.1"')]
    parts.append(draw.rect(Point(1, top), 6, height, colour))
    parts.append(draw.text(Point(MARGIN, top + 21), plan.trace.rule or "held", "b", fill=colour))
    parts.append(draw.paragraph(Point(MARGIN + 62, top + 21), plan.verdict, "b" if plan.broken else ""))
    return "".join(parts)

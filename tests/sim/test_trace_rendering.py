"""Traces as tables and pictures, from small traces made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from pagefence.sim.moves import Kind, Move
from pagefence.sim.svg import trace_svg
from pagefence.sim.svg_arrows import arrows
from pagefence.sim.svg_marks import RED, colour_of
from pagefence.sim.table import trace_markdown, trace_table
from pagefence.sim.trace import Message, PageView, Trace, TraceStep
from pagefence.sim.wording import letters, lifelines

KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
Pages = tuple[tuple[str, tuple[PageView, ...]], ...]
SUBMIT, OFFER = Message("client", "router", "Submit", 1), Message("router", "d1", "Offer", 1)
RESERVED, START = Message("d1", "router", "Reservation", 1), Message("router", "p1", "Start", 1)
ABORT, AGAIN = Message("router", "p1", "Abort", 1), Message("client", "router", "Submit", 2)
OFFER_2, REFUSE = Message("router", "d1", "Offer", 2), Message("router", "client", "Refuse", 1)


def pool(*cells: str) -> Pages:
    """Pages of d1 from short words: owner, holder, "q" when quarantined; "-" is nobody. p1 has two free ones."""
    ticket = {"-": None, "1": 1, "2": 2}
    views = tuple(
        PageView(i, ticket[cell[0]], ticket[cell[1]], quarantined=cell.endswith("q")) for i, cell in enumerate(cells)
    )
    return (("p1", (PageView(0, None, None), PageView(1, None, None))), ("d1", views))


def step(
    number: int,
    move: Move,
    pages: Pages,
    delivered: Message | None = None,
    sent: tuple[Message, ...] = (),
    did: tuple[str, ...] = (),
) -> TraceStep:
    return TraceStep(number, move, delivered, sent, did, pages)


def deliver(kind: Kind, message: Message) -> Move:
    return Move(kind, f"{message.sender}>{message.receiver}", message.name, message.ticket)


FREE, HELD = ("--", "--", "--"), ("1-", "1-", "--")
STEPS = (
    step(1, Move("submit", ticket=1), pool(*FREE), SUBMIT, (OFFER,), ("minted room 7-1",)),
    step(2, deliver("deliver", OFFER), pool(*HELD), OFFER, (RESERVED,), ("leased 2 pages",)),
    step(3, deliver("deliver", RESERVED), pool(*HELD), RESERVED, (START,)),
    step(4, deliver("deliver", START), pool(*HELD), START, (), ("leased 2 pages",)),
    step(5, Move("compute", "p1", ticket=1), pool(*HELD), did=("launched 2 writes",)),
    step(6, Move("land", "p1", ticket=1), pool("11", "1-", "--")),
    step(7, Move("timer", "router#77", "hand-off", 1), pool("11", "1-", "--"), None, (ABORT, REFUSE)),
    step(8, Move("lose", "router#77>p1#1", "Abort", 1), pool("11q", "1-q", "--")),
    step(9, Move("submit", ticket=2), pool("11q", "1-q", "--"), AGAIN, (OFFER_2,)),
    step(10, deliver("deliver", OFFER_2), pool("2-", "2-", "--"), OFFER_2, (), ("let pages of #1 go, by a timer",)),
    step(11, Move("land", "p1", ticket=1), pool("2-", "21", "-1")),
)
TRACE = Trace(
    world="one prefill, one decode",
    fault="release-on-timer",
    guards="on",
    steps=STEPS,
    rule="I2",
    violation="p1 wrote for #1 into page 1 of d1, which is let to #2",
    replay="pagefence explore --fault release-on-timer --seed 7",
)
EMPTY = Trace("nothing", None, "on", (), None, None, "pagefence explore")
CRASH = replace(
    TRACE,
    steps=(
        *STEPS[:4],
        step(5, Move("crash", "d1"), STEPS[0].pages[:1]),
        step(6, Move("reap", "d1"), STEPS[0].pages[:1]),
        step(7, Move("restart", "d1"), STEPS[0].pages),
    ),
    rule=None,
    violation=None,
)


def words_of(svg: str) -> str:
    return " | ".join("".join(node.itertext()) for node in ElementTree.fromstring(svg).iter())


def plain(trace: Trace, width: int = 160) -> str:
    console = Console(width=width, file=StringIO())
    with console.capture() as shown:
        console.print(trace_table(trace))
    return shown.get()


@pytest.mark.parametrize("trace", [TRACE, EMPTY, CRASH], ids=["violation", "empty", "crash"])
def test_the_picture_is_xml_with_a_title_and_needs_nothing_from_outside(trace: Trace) -> None:
    svg = trace_svg(trace)
    root = ElementTree.fromstring(svg)
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names[:2] == ["title", "desc"]
    assert "script" not in svg and "href" not in svg and "@import" not in svg
    assert re.findall(r"url\((?!#pf-hatch)", svg) == []
    assert root.find("{*}rect") is not None, "an own background, or dark pages swallow the text"
    assert "nan" not in svg


def test_every_delivered_message_is_an_arrow_with_its_name() -> None:
    drawn = arrows(TRACE)
    words = words_of(trace_svg(TRACE))
    for at, one in enumerate(STEPS):
        if one.delivered is None:
            continue
        assert [a.message for a in drawn if a.arrived == at and a.slot == 0] == [one.delivered]
        assert f"{one.delivered.name} {letters(TRACE)[one.delivered.ticket or 0]}" in words


def test_an_arrow_starts_where_its_message_was_sent() -> None:
    sent = {a.message: (a.sent, a.arrived, a.shape) for a in arrows(TRACE)}
    assert sent[OFFER] == (0, 1, "message")
    assert sent[ABORT] == (6, 7, "lost")
    assert sent[REFUSE] == (6, 6, "message"), "what the router says to the client arrives with it"
    assert sent[Message("p1", "d1", "write", 1)] == (10, 10, "write")


def test_copies_start_where_the_first_was_sent_and_what_never_came_is_under_way() -> None:
    steps = (
        step(1, Move("submit", ticket=1), (), SUBMIT, (OFFER, ABORT)),
        step(2, deliver("repeat", OFFER), (), OFFER),
        step(3, deliver("echo", OFFER), (), OFFER),
    )
    found = [(a.message.name, a.sent, a.arrived, a.shape) for a in arrows(replace(TRACE, steps=steps))]
    assert found == [
        ("Submit", 0, 0, "message"),
        ("Offer", 0, 1, "message"),
        ("Offer", 0, 2, "message"),
        ("Abort", 0, 0, "under way"),
    ]


def test_a_write_that_names_one_end_finds_the_other_by_the_pages_that_changed() -> None:
    before = (("d1", (PageView(0, 1, None),)), ("d2", (PageView(0, 1, None),)))
    after = (before[0], ("d2", (PageView(0, 1, 1),)))
    steps = (step(1, Move("compute", "p1", ticket=1), before), step(2, Move("land", "p1", ticket=1), after))
    (write,) = arrows(replace(TRACE, steps=steps))
    assert (write.message.sender, write.message.receiver) == ("p1", "d2")


def test_lifelines_stand_in_the_order_of_the_hand_off_and_only_those_that_occur() -> None:
    assert lifelines(TRACE) == ("client", "router", "p1", "d1")
    assert lifelines(EMPTY) == ()


def test_owners_have_colours_of_their_own() -> None:
    colours = [colour_of(rank) for rank in range(30)]
    assert len(set(colours)) == len(colours)
    svg = trace_svg(TRACE)
    assert colour_of(0) in svg and colour_of(1) in svg and colour_of(2) not in svg


def test_another_requests_bytes_and_quarantine_show_in_the_page() -> None:
    quiet, loud = trace_svg(replace(TRACE, steps=STEPS[:6])), trace_svg(TRACE)
    # One of each is in the legend.
    assert quiet.count('class="foreign"') == 1 and loud.count('class="foreign"') == 2
    assert quiet.count("url(#pf-hatch)") == 1 and loud.count("url(#pf-hatch)") == 1 + 4


def test_a_crash_ends_a_lifeline_and_a_restart_begins_one() -> None:
    words = [node.text for node in ElementTree.fromstring(trace_svg(CRASH)).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("d1") == 2 + 1, "two lives and the pool"
    assert words.count("p1") == 1 + 1
    assert "reaped" in words


def test_the_violation_is_in_every_rendering() -> None:
    for shown in (trace_svg(TRACE), plain(TRACE), trace_markdown(TRACE)):
        assert "I2" in shown and "pagefence explore --fault release-on-timer --seed 7" in shown
    assert TRACE.violation is not None
    assert TRACE.violation in words_of(trace_svg(TRACE)) and TRACE.violation in trace_markdown(TRACE)
    assert "which is let to" in plain(TRACE)


def test_a_run_that_broke_nothing_says_so() -> None:
    for shown in (trace_svg(EMPTY), plain(EMPTY), trace_markdown(EMPTY), plain(CRASH)):
        assert "no rule was broken" in shown.lower()


def test_hostile_words_stay_words() -> None:
    bad = "</text><script>alert('x')</script> & [red]|`a` **b** \x00"
    steps = (step(1, Move("timer", "router", bad, 1), (), None, (Message("router", "p1", bad, 1),), (bad,)),)
    trace = replace(TRACE, world=bad, fault=bad, guards=bad, replay=bad, rule=bad, violation=bad, steps=steps)
    svg = trace_svg(trace)
    assert "<script" not in svg
    assert "<script>alert('x')</script>" in words_of(svg)
    markdown = trace_markdown(trace)
    assert "<script" not in markdown and "**b**" not in markdown
    assert {line.count("|") for line in markdown.splitlines() if line.startswith("|")} == {4}
    assert "[red]" in plain(trace)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_move_has_words_with_and_without_details(kind: Kind) -> None:
    for move in (Move(kind), Move(kind, "router>d1", "Offer", 1), Move(kind, "d1#2", "drain", 1)):
        trace = replace(TRACE, steps=(step(1, move, pool(*HELD)),))
        ElementTree.fromstring(trace_svg(trace))
        assert "| 1 | " in trace_markdown(trace)


def test_the_table_shows_the_pages_of_decode_as_strips() -> None:
    rows = [line for line in trace_markdown(TRACE).splitlines() if line.startswith("| ")]
    strips = [row.split(" | ")[-1].rstrip(" |").strip("`") for row in rows[2:-1]]
    assert strips[0] == ". . ." and strips[5] == "A A ." and strips[8] == "a a ." and strips[10] == "B B!."
    table = plain(TRACE)
    assert "B B!." in table and "the hand-off timer of A fires at router" in table
    assert "dead" in plain(CRASH)
    assert "B B!." in plain(TRACE, width=80), "a narrow terminal keeps the strip whole"


def test_what_is_sent_again_while_the_first_travels_is_there_once() -> None:
    again = (
        step(1, Move("submit", ticket=1), (), SUBMIT, (OFFER,)),
        step(2, Move("timer", "router"), (), sent=(OFFER,)),
    )
    assert [a.message for a in arrows(replace(TRACE, steps=again))] == [SUBMIT, OFFER]


def test_a_worker_that_was_recycled_without_a_move_of_its_own_is_crossed_out_too() -> None:
    gone = (*STEPS[:4], step(5, Move("timer", "router", "drain", 1), STEPS[0].pages[:1]))
    with_it, without = (trace_svg(replace(TRACE, steps=steps)) for steps in (STEPS[:5], gone))
    crossed = f'stroke="{RED}" stroke-width="3"'
    # One is in the legend.
    assert (with_it.count(crossed), without.count(crossed)) == (1, 2)

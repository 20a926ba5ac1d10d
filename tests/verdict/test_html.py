"""The HTML report: whatever a fleet says is text in it, it asks nobody for anything, and it says the verdict first."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import Figure, FleetFacts, Keys, NodeFacts
from pagefence.probes import Check, Config, Evidence, Examination, Kind, ProbeResult
from pagefence.verdict import decide
from pagefence.verdict.html import as_html
from pagefence.verdict.html.markup import el
from pagefence.verdict.report import Repeat, Run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\x1b[2J\u202egnp.exe\u2066 \ud800 key-of-a"
texts = st.text(max_size=40) | st.just(HOSTILE)


class Page(HTMLParser):
    """What a browser would make of it: elements, attributes and text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said = ""
        self.feed(page.decode())
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += attrs

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "title", "desc"):
            self.said += data


def a_run(said: str, kind: Kind = Kind.LEAK) -> Run:
    details = {
        "request": "r", "planted_words": [said, "river"], "planted_by": said, "read_by": said, "status": 200,
        "prompt_tokens_sent": 1025, "marked": f"«{said}»", "error": said, said: said,
    }  # fmt: skip
    found = Evidence(kind, "canary", said, said, said, "I1", said, said, details)
    results = (ProbeResult("canary", (Check(said, said, said, kind),), (found,), shown=3, controls=(3, 3)),)
    node = NodeFacts("single", said, said, said, Figure(None, said, said), problem=said)
    facts = FleetFacts(said, said, Figure(512, said), (node,), problems=(said,))
    return Run("verify", Examination(Config(seed=7), facts), decide(results), results, 1.5, Keys("key-of-a"),
               line=said, again=said, repeats={"r": Repeat(said, said)})  # fmt: skip


@settings(deadline=None)
@given(texts, st.sampled_from(list(Kind)))
def test_whatever_a_fleet_says_is_text_and_never_markup(said: str, kind: Kind) -> None:
    quiet = Page(as_html(a_run("amber", kind)))
    loud = Page(as_html(a_run(said or "x", kind)))
    assert set(loud.tags) <= set(quiet.tags)
    assert not {"script", "iframe", "object", "img", "form", "base"} & set(loud.tags)
    assert not [name for name, _ in loud.attributes if name.startswith("on")]


def test_nothing_hides_turns_or_steers_and_no_key_is_there() -> None:
    page = as_html(a_run(HOSTILE)).decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert "key-of-a" not in page
    assert "<script>alert" not in Page(page.encode()).tags


def test_no_address_but_its_own_is_in_a_place_that_a_browser_asks() -> None:
    asks = {"src", "href", "action", "data", "poster", "srcset", "xlink:href"}
    page = Page(as_html(a_run("http://evil.example/x.js")))
    assert {value for name, value in page.attributes if name in asks} == {"data:,"}
    policy = next(value for name, value in page.attributes if name == "content" and value and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_verdict_and_its_sentence_come_first() -> None:
    run = a_run("amber")
    run = replace(run, verdict=replace(run.verdict, sentence="It leaked."))
    said = Page(as_html(run)).said
    assert said.index("LEAK") < said.index(run.verdict.sentence) < said.index("Found") < said.index("Checks of")
    assert said.index("Stop the fleet") < said.index("Found")


def test_a_finding_has_its_words_rule_remedy_and_the_line_that_repeats_it() -> None:
    said = Page(as_html(a_run("amber"))).said
    for part in ("amber river", "Rule I1 ownership", "To do:", "See it again", "HTTP 200 answer"):
        assert part in said


def test_twenty_of_a_kind_are_shown_once_and_counted() -> None:
    run = a_run("amber")
    many = (replace(run.results[0], evidence=run.results[0].evidence * 20),)
    said = Page(as_html(replace(run, results=many))).said
    assert "Found: 20" in said
    assert "19 more like it" in said


def test_silence_is_said_to_be_silence() -> None:
    run = Run("verify", Examination(Config()), decide(()), (), 0.1, Keys())
    said = Page(as_html(run)).said
    assert "n = 0" in said
    assert "INCONCLUSIVE" in said


def test_an_interrupted_run_says_so_before_anything_else() -> None:
    run = a_run("amber")
    run = replace(run, verdict=replace(run.verdict, sentence="It leaked."), interrupted=True)
    said = Page(as_html(run)).said
    assert said.index("Interrupted") < said.index(run.verdict.sentence)


@pytest.mark.parametrize("name", ["p", "td", "title"])
def test_an_element_escapes_what_is_put_into_it(name: str) -> None:
    assert el(name, "<b>&'\"", title="\"'>").markup.count("<") == 2
    assert el(name, el("b", "x")).markup == f"<{name}><b>x</b></{name}>"

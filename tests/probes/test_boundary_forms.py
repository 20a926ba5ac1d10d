"""What a late error to a prompt over the limit is called: how long the client waited belongs to it."""

from __future__ import annotations

import pytest

from pagefence.fleet import Answer, ErrorBody, Limits
from pagefence.probes import Kind
from pagefence.probes.boundary.classify import finding
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.shot import Maker, Purpose

LIMITS = Limits(longest=506, pool=640, context=512, cover=640, advertised=512, pools=(640, 640), page=16)
FAILED = ErrorBody("Decode transfer failed", code="internal")


def told(answer: Answer) -> str:
    shot = Maker(1).shot("boundary", Purpose.OVER, "b", 507, 8)
    found = finding(Outcome(shot, Prompt("one two", 507, True), answer, {}), LIMITS, alive=True)
    assert found is not None
    kind, what, rule, _ = found
    assert (kind, rule) == (Kind.FAIL, "I3")
    return what


@pytest.mark.parametrize(("waited_s", "said"), [(0.02, "HTTP 500 instead"), (46.1, "HTTP 500 after 46 s instead")])
def test_another_error_tells_how_long_it_took_where_that_is_no_refusals_time(waited_s: float, said: str) -> None:
    assert said in told(Answer(500, error=FAILED, total_s=waited_s))


def test_an_error_in_an_empty_stream_is_not_called_an_answer() -> None:
    what = told(Answer(200, error=FAILED, total_s=46.1))
    assert what == "a stream had begun with HTTP 200 before the error after 46 s: Decode transfer failed"
    assert told(Answer(200, text="Hello", error=FAILED)).startswith("5 characters of an answer came with HTTP 200")

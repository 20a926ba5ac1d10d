"""The benchmark's arithmetic: what it reads off a stream, medians, intervals, targets, the page."""

from __future__ import annotations

import json

import pytest
from bench.isolation import inside
from bench.load import Answer, AskFailed
from bench.machine import Limits, Shape
from bench.rows import ROWS, Samples, targets, title
from bench.stats import Target, paired_ratio, quantile, ratio_interval, verdict

from bench import load, report, table


def test_ratios_are_of_rounds_that_both_have() -> None:
    # The machine was twice as slow in round 1, for both.
    assert paired_ratio({0: 20.0, 1: 10.0, 2: 99.0}, {0: 10.0, 1: 5.0}) == 2.0
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert quantile([], 0.5) is None


def test_an_interval_of_equal_ratios_is_a_point_and_a_wide_one_holds_its_mean() -> None:
    point = ratio_interval([(2.0, 1.0), (4.0, 2.0)])
    assert (point.ratio, point.low, point.high) == pytest.approx((2.0, 2.0, 2.0))
    wide = ratio_interval([(1.0, 1.0), (1.1, 1.0), (0.9, 1.0)])
    assert wide.low < wide.ratio < wide.high
    with pytest.raises(ValueError, match="two pairs"):
        ratio_interval([(1.0, 1.0)])


def test_a_target_is_met_on_its_own_side_and_never_by_silence() -> None:
    faster = Target("decode-1", "a", "b", "at least", 1.7)
    sooner = Target("first-1000", "a", "b", "at most", 0.6)
    assert [verdict(faster.met(ratio)) for ratio in (1.7, 1.69, None)] == ["met", "missed", "not measured"]
    assert [verdict(sooner.met(ratio)) for ratio in (0.6, 0.61, None)] == ["met", "missed", "not measured"]


def test_every_target_is_about_a_row_that_is_measured() -> None:
    assert {target.row for target in targets()} <= set(ROWS)
    assert len({title(row) for row in ROWS.values()}) == len(ROWS)


def test_a_table_lines_up_and_figures_have_three_digits() -> None:
    assert table.text(["a", "b"], [["long", "1"], ["x", "22"]]).splitlines() == ["a      b", "long   1", "x     22"]
    assert table.markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | --: |\n| x | 1 |"
    values = (None, 0, 1234.5, 12.345, 0.01234)
    assert [table.figure(value) for value in values] == [
        "-",
        "0",
        "1,234",
        "12.3",
        "0.0123",
    ]


def stream(*events: object) -> list[tuple[float, bytes]]:
    body = [b"HTTP/1.1 200 OK\r\n", b"\r\n", *(b"data: " + json.dumps(event).encode() for event in events)]
    return [(float(at), line) for at, line in enumerate([*body, b"data: [DONE]"])]


def text(said: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"text": said, "finish_reason": finish}]}


def test_tokens_come_from_usage_and_moments_from_events() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 6}}
    answer = load.read(1.0, stream(text("a"), text(""), text("b"), text("", "length"), usage))
    assert answer == Answer(1.0, (2.0, 3.0, 4.0), 6)
    assert (answer.first_s, answer.per_event) == (1.0, 2.0)


def test_what_is_no_answer_says_what_it_was() -> None:
    with pytest.raises(AskFailed, match=r"(?s)HTTP 503: .*busy"):
        load.read(0.0, [(1.0, b"HTTP/1.1 503 No\r\n"), (1.0, b"busy")])
    with pytest.raises(AskFailed, match="error in the stream"):
        load.read(0.0, stream(text("a"), {"error": {"message": "gone"}}))
    with pytest.raises(AskFailed, match="0 events"):
        load.read(0.0, stream())


def test_the_rate_leaves_out_first_tokens_and_counts_from_the_first_of_all() -> None:
    early, late = Answer(0.0, (1.0, 2.0, 3.0), 3), Answer(0.0, (2.0, 3.0, 5.0), 3)
    assert load.decode_rate([early]) == 1.0
    assert load.decode_rate([early, late]) == 1.0
    with pytest.raises(AskFailed):
        load.decode_rate([Answer(0.0, (1.0,), 1)])


def test_a_mixed_load_is_the_same_for_everybody() -> None:
    plan = load.arrivals(1, 8, 2.0)
    assert plan == load.arrivals(1, 8, 2.0) != load.arrivals(2, 8, 2.0)
    assert [arrival.prompt >= 800 for arrival in plan] == [False, False, False, True] * 2
    assert load.Prompts("x").of(4) == load.Prompts("x").of(4) != load.Prompts("y").of(4)


def test_limits_are_the_tighter_of_reading_and_multiplying() -> None:
    shape = Shape(body=80, head=20, layers=1, width=1, weight_bytes={"float32": 400})
    limits = Limits(read=4000.0, float32=1000.0, bfloat16=10.0)
    assert shape.decode_limit(limits, "float32", 1) == pytest.approx(5.0)  # 200 operations take 0.2 s, reading 0.1 s
    assert shape.decode_limit(limits, "float32", 100) == pytest.approx(5.0)
    assert shape.decode_limit(Limits(400.0, 1000.0, 10.0), "float32", 2) == pytest.approx(2.0)
    assert shape.first_limit(limits, 10) == pytest.approx((2 * 820 + 200) / 1000)
    assert limits.best(Limits(1.0, 2000.0, 1.0)) == Limits(4000.0, 2000.0, 10.0)


def test_clocks_count_calls_that_began_inside() -> None:
    spans = {"zero": [(0.5, 1.0), (1.5, 2.0), (9.0, 4.0)]}
    assert inside(spans, "zero", [(1.0, 2.0), (8.0, 10.0)]) == 6.0
    assert inside(spans, "drain", [(0.0, 10.0)]) == 0.0


def test_what_is_by_hand_survives() -> None:
    assert report.by_hand(f"# Old\n{report.BEGIN}\n\nBecause.\n\n{report.END}\nmore") == "Because."
    assert report.by_hand("") == report.by_hand(f"{report.BEGIN}\n{report.END}") == report.NOTHING


def test_samples_that_are_missing_say_why() -> None:
    samples = Samples()
    samples.add("decode-1", "a", 0, 2.0)
    samples.lack("decode-1", "b", "no flag")
    assert samples.of("decode-1", "a") == {0: 2.0}
    assert samples.of("decode-1", "b") == {}
    assert samples.missing == {"decode-1": {"b": "no flag"}}

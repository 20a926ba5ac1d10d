"""Stop strings: the text that goes out is the text up to the first stop string, however it was cut into tokens."""

from __future__ import annotations

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from pagefence.engine.api.answer import Delta, Done, steps
from pagefence.engine.api.stops import StopFilter
from pagefence.protocol.effects import Emit, End

from .scripted import ByteText, ScriptedCall, begin, emit

# Few letters, so that stop strings overlap with the text, with each other and with themselves.
texts = st.text(alphabet="aé", max_size=24)
stop_lists = st.lists(st.text(alphabet="aé", min_size=1, max_size=5), max_size=4)


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """By definition: the first place where a stop string is complete; the longest one that ends there."""
    for upto in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:upto].endswith(stop)]
        if lengths:
            return text[: upto - max(lengths)], True
    return text, False


@st.composite
def split_text(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@example(("aaab", list("aaab")), ["aab"])
@example(("xabc", ["xab", "c"]), ["abc", "b", "ab"])
@given(split_text(), stop_lists)
def test_streamed_text_is_the_text_cut_at_the_first_stop(split: tuple[str, list[str]], stops: list[str]) -> None:
    text, pieces = split
    cut = StopFilter(stops)
    out = "".join(cut.push(piece) for piece in pieces) + cut.finish()
    assert (out, cut.stopped) == cut_at_first_stop(text, stops)


@given(split_text(), stop_lists)
def test_nothing_goes_out_that_could_still_be_a_stop(split: tuple[str, list[str]], stops: list[str]) -> None:
    cut = StopFilter(stops)
    sent = ""
    for piece in split[1]:
        sent += cut.push(piece)
        assert cut_at_first_stop(split[0], stops)[0].startswith(sent)
    held_back = len("".join(split[1])) - len(sent)
    if not cut.stopped:
        assert held_back < max(map(len, stops), default=1), "text is held for longer than a stop string could need"


@given(texts, st.lists(st.integers(1, 3), min_size=1, max_size=30), stop_lists)
def test_an_answer_counts_the_tokens_up_to_the_stop(text: str, sizes: list[int], stops: list[str]) -> None:
    """Tokens here are bytes: they cut characters too, and Emits carry several."""
    data = text.encode()
    emits: list[Emit] = []
    rest = data
    for size in sizes:
        emits += [emit(rest[:size])] if rest else []
        rest = rest[size:]
    call = ScriptedCall([begin(), *emits, *([emit(rest)] if rest else []), End(1, "length", 7, len(data))])

    async def collect() -> tuple[str, Done]:
        out, done = "", None
        async for step in steps(call, ByteText(), tuple(stops), 7, call.cancel):
            out += step.text if isinstance(step, Delta) else ""
            done = step if isinstance(step, Done) else done
        assert done is not None
        return out, done

    out, done = asyncio.run(collect())
    wanted, stopped = cut_at_first_stop(text, stops)
    assert out == wanted
    assert call.cancels == stopped
    used = len(data)
    if stopped:
        used = next(n for n in range(len(data) + 1) if cut_at_first_stop(data[:n].decode(errors="ignore"), stops)[1])
    assert done == Done("stop" if stopped else "length", 7, used, tuple(data[:used]))

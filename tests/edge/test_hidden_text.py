"""No shape of an answer hides from the scan what a client may show: planted words are found wherever they stand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pagefence.edge.call import Operation
from pagefence.edge.watching import Book, Expected, Kind, Sentinels, Watch
from pagefence.edge.watching.chunks import read_chunk
from pagefence.probes.sentinel import Sentinel
from pagefence.probes.wordlist import WORDS
from tests.edge.proxy_scene import STREAM, Asked, Behave, chunk, played, whole
from tests.edge.test_watched import ACME, guarded, vocabulary  # noqa: F401 (a fixture)

PLANTED = tuple(random.Random("hidden").sample(WORDS, 6))
LEAK = " ".join(PLANTED)
PARTS = [f"{word} " for word in PLANTED]


def delta(**said: Any) -> dict[str, Any]:
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "choices": [{"index": 0, "delta": said}]}


def with_choice(**said: Any) -> dict[str, Any]:
    made = delta(content="a")
    made["choices"][0] |= said
    return made


SHAPES: dict[str, list[Any]] = {
    "plain": [delta(content=LEAK)],
    "by words": [delta(content=part) for part in PARTS],
    "reasoning by both names": [delta(reasoning=part, reasoning_content=part) for part in PARTS],
    "two calls by turns": [
        delta(tool_calls=[{"index": number, "function": {"arguments": text}}])
        for part in PARTS
        for number, text in ((0, part), (1, "so it goes "))
    ],
    "an id that is a number": [{**delta(content=part), "id": 7} for part in PARTS],
    "an index that is null": [{"choices": [{"index": None, "delta": {"content": part}}]} for part in PARTS],
    "a choice that is null": [{"choices": [None, {"index": 0, "delta": {"content": part}}]} for part in PARTS],
    "a message beside the delta": [with_choice(message={"content": LEAK})],
    "a transcript": [delta(audio={"transcript": part}) for part in PARTS],
    "log probabilities": [with_choice(logprobs={"content": [{"token": part} for part in PARTS]})],
    "log probabilities, as they were": [{"choices": [{"index": 0, "text": "", "logprobs": {"tokens": PARTS}}]}],
    "parts that think": [delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": LEAK}]}])],
    "a field of nobody": [delta(content="a", reasoning_text=part) for part in PARTS],
    "an error": [{"error": {"message": f"cannot go on after: {LEAK}"}}],
    "an error of FastAPI": [{"detail": [{"msg": "too long", "input": LEAK}]}],
    "a response, whole": [{"type": "response.completed", "response": {"output": [{"content": [{"text": LEAK}]}]}}],
    "a part of a response": [{"type": "response.output_text.done", "text": LEAK}],
    "a response's text beside choices": [{"type": "response.output_text.delta", "delta": LEAK, "choices": []}],
    "a list of what are no vectors": [{"object": "list", "data": [{"index": 0, "embedding": [0.5], "text": LEAK}]}],
    "many objects before it": [{"choices": [], "x": [[] for _ in range(5000)], "y": LEAK}],
    "an array": [[delta(content=part)] for part in PARTS],
}
RAW = {
    "no number": [json.dumps(with_choice(delta={"content": part}, logprobs=float("-inf"))) for part in PARTS],
    "half a character": [json.dumps(delta(content=part + "\ud83d ")) for part in PARTS],
    "bytes that are no UTF-8": [json.dumps(delta(content=part)).replace("index", "\udcff") for part in PARTS],
    "two objects": [json.dumps({"choices": []}) + json.dumps(delta(content=part)) for part in PARTS],
    "a byte order mark": ["\ufeff" + json.dumps(delta(content=LEAK))],
    "nested too deep": [f'{{"a":{"[" * 9999}{"]" * 9999},"b":"{LEAK}"}}'],
    "escapes in what is no JSON": ["oops: " + "".join(f"\\u{ord(letter):04x}" for letter in LEAK)],
    "plain text": [LEAK],
    "thousands of values": ["0 " * 9000 + LEAK],
    "megabytes": ['{"x": "' + "so " * 2_000_000 + f'", "y": "{LEAK}"}}'],
}


def watch(choices: int | None = 1, status: int = 200) -> Watch:
    book = Book(sentinels=Sentinels([Sentinel("0", "globex", PLANTED)]))
    expected = Expected("pf-1", "tag-of-acme", Operation.CHAT, True, choices=choices)
    watching = Watch(book, expected, 0.0)
    watching.headers(status, 0.1)
    return watching


@pytest.mark.parametrize("name", [*SHAPES, *RAW])
def test_text_is_found_in_any_shape(name: str) -> None:
    said = RAW.get(name) or [json.dumps(each) for each in SHAPES[name]]
    watching = watch()
    found = [f for each in said for f in watching.event(each.encode("utf-8", "surrogateescape"), 0.2)]
    found += watching.end(0.3)
    assert [f.doubt.sure for f in found if f.doubt.kind is Kind.SENTINEL] == [True], name


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize("body", [json.dumps({"error": {"message": LEAK}}), f"<p>{LEAK}</p>", json.dumps(LEAK)])
def test_an_error_that_quotes_somebody_is_found_and_judged_by_nothing_else(status: int, body: str) -> None:
    watching = watch(status=status)
    found = [*watching.body(body.encode(), 0.2), *watching.end(0.3)]
    assert [f.doubt.kind for f in found] == [Kind.SENTINEL]


@pytest.mark.parametrize("choices", [1, 100])
def test_what_comes_after_many_texts_is_scanned_too(choices: int) -> None:
    watching = watch(choices)
    for index in range(99):
        watching.event(json.dumps({"choices": [{"index": index, "text": "so "}]}).encode(), 0.2)
    found = watching.event(json.dumps({"choices": [{"index": 99, "text": LEAK}]}).encode(), 0.3)
    found += watching.end(0.4)
    assert any(f.doubt.kind is Kind.SENTINEL and f.doubt.sure for f in found)


@pytest.mark.parametrize("name", ["by words", "two calls by turns"])
def test_a_usual_event_is_read_the_fast_way(name: str) -> None:
    assert all(not read_chunk(json.dumps(each).encode()).more for each in SHAPES[name])


def test_a_long_answer_with_a_field_of_nobody_is_an_answer() -> None:
    said = {"id": "c", "surprise": "so " * 400_000, "choices": [{"index": 0, "text": LEAK, "finish_reason": "stop"}]}
    chunk = read_chunk(json.dumps(said).encode())
    assert (chunk.id, chunk.malformed) == ("c", False)
    assert (chunk.parts[0].texts, chunk.parts[0].finish) == ((("text", LEAK),), "stop")


def test_vectors_are_not_made_into_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefence.edge.watching.chunks.values_of", lambda data: pytest.fail("they were"))
    made = [{"object": "embedding", "index": i, "embedding": [0.25] * 100} for i in range(100)]
    chunk = read_chunk(json.dumps({"object": "list", "model": "m", "data": made, "usage": {}}).encode())
    assert (chunk.model, chunk.parts, chunk.more, chunk.malformed) == ("m", (), (), False)


def stream(kind: str, *parts: bytes) -> Behave:
    async def behave(asked: Asked) -> None:
        await asked.say(STREAM.replace(b"text/event-stream", kind.encode()))
        for part in parts:
            await asked.say(chunk(part))
        await asked.say(b"0\r\n\r\n")

    return behave


EVENT = b"data: " + json.dumps({"choices": [{"index": 0, "text": f"{LEAK} " * 5}]}).encode()
OTHER = b"data: " + json.dumps({"choices": [{"index": 0, "text": "hm"}]}).encode()


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("text/event-stream", [EVENT + b"\r\r"]),
        ("text/event-stream", [EVENT + b"\r\n\n", OTHER + b"\n\n"]),
        ("text/event-stream", [b"\xef\xbb\xbf" + EVENT + b"\n\n"]),
        ("text/event-stream", [bytes([byte]) for byte in b":\n\n" + EVENT + b"\n\n"]),
        ("text/event-stream", [b"data\n: so\n" + EVENT.replace(b", ", b",\ndata:") + b"\n\n"]),
        ("text/event-stream", [EVENT]),
        ("text/event-stream", [EVENT.removeprefix(b"data: ")]),
        ("text/event-stream", [b": pause\x0b" + EVENT + b"\n\n"]),
        ("Text/Event-Stream; charset=utf-8", [EVENT + b"\n\n"]),
        ("application/json", [OTHER + b"\n\n" + EVENT + b"\n\n"]),
        ("text/plain", [EVENT + b"\n\ndata: [DONE]\n\n"]),
        ("application/x-ndjson", [OTHER[6:] + b"\n" + EVENT[6:] + b"\n"]),
    ],
)
def test_no_framing_hides_an_event(
    kind: str,
    parts: list[bytes],
    vocabulary: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "live.json").write_text(json.dumps({"sentinels": [{"tenant": "globex", "words": PLANTED}]}))

    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, stream(kind, *parts), sentinels="live.json") as edge:
            reply = await edge.ask(ACME, "Hello", stream=True)
            assert "sentinel" in edge.told.kinds or reply.code == "upstream_unfit", "what is no answer never goes out"
            assert not any(word.encode() in reply.body for word in PLANTED)

    test()


def test_an_error_of_the_upstream_that_quotes_a_planted_prompt_is_kept_back(
    vocabulary: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "live.json").write_text(json.dumps({"sentinels": [{"tenant": "globex", "words": PLANTED}]}))
    body = whole(json.dumps({"error": {"message": f"bad request: {LEAK}"}}).encode()).replace(b"200 OK", b"400 Bad")

    async def behave(asked: Asked) -> None:
        await asked.say(body)

    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, behave, sentinels="live.json") as edge:
            reply = await edge.ask(ACME, "Hello")
            assert (reply.status, reply.code) == (502, "answer_withheld")

    test()

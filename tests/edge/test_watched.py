"""Answers that pass the edge are watched: a leak is told, kept back or cut, and nothing of it is written anywhere."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pagefence.edge.admission import ModelBounds
from pagefence.edge.beside import Beside, Queue
from pagefence.edge.call import Call, Operation
from pagefence.edge.command import settings
from pagefence.edge.demand import Admitted
from pagefence.edge.joined import Joined
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Tells
from pagefence.edge.tenants import Identity
from pagefence.edge.watched import FAMILIES, Watched, Watching, book_of, plan_of
from pagefence.edge.watching.settings import WatchTable, bounds_of, public_texts
from pagefence.mistakes import Usage
from pagefence.probes.wordlist import WORDS
from tests.edge.proxy_scene import STREAM, Asked, Behave, Client, Reply, Scene, answers, chunk, played, scene, soon
from tests.engine.model.test_tokenizer import write_vocabulary
from tests.probes.toy import KEYS, Toy, running

ACME, GLOBEX = "acme-key-0123456789abcdef", "globex-key-0123456789abcdef"
SECRET = " ".join(random.Random("watched").sample(WORDS, 60))
SENTINEL = SECRET.split()[:12]
ENVIRONMENT = {"PAGEFENCE_API_KEYS": f"acme={ACME},globex={GLOBEX}", "THEIRS": f"acme={KEYS[0]},globex={KEYS[1]}"}
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocabulary(tmp_path_factory.mktemp("model") / "v.gguf", "gpt-2")


@pytest.fixture
def stub() -> Iterator[Toy]:
    """Prompts over 250 tokens are answered from what the last tenant left in their pages."""
    with running(Toy("stub", context=512, prefill_pool=256, decode_pool=1024)) as world:
        yield world


class Told:
    """What the steps told, as the log and the counters would have it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.counted: list[tuple[str, ...]] = []
        self.tells = Tells(
            lambda event, fields: self.lines.append({"event": event, **fields}), lambda *said: self.counted.append(said)
        )

    @property
    def kinds(self) -> set[str]:
        return {str(line["kind"]) for line in self.lines if line["event"] == "finding"}


class Guarded:
    """An edge with real steps in front of something."""

    def __init__(self, on: Scene, told: Told) -> None:
        self.on, self.told = on, told

    async def ask(self, key: str, prompt: str, **more: Any) -> Reply:
        body = {"model": "toy", "prompt": prompt, "max_tokens": 40, **more}
        return await self.on.ask(json.dumps(body).encode(), COMPLETIONS, authorization=f"Bearer {key}")


@asynccontextmanager
async def guarded(
    vocabulary: Path, folder: Path, *behaves: Behave, environment: dict[str, str] | None = None,
    urls: list[str] | None = None, **watching: Any,
) -> AsyncIterator[Guarded]:  # fmt: skip
    """Admission is off, so that what watching does not catch gets through."""
    tables: dict[str, dict[str, Any]] = {
        "admission": {"model": str(vocabulary), "on": False},
        "tenants": {"upstream_keys_env": "THEIRS"},
        "watching": watching,
    }
    told = Told()
    joined = Joined(Identity(b"s" * 32), ENVIRONMENT | (environment or {}), folder)
    steps = joined.steps(settings(["http://127.0.0.1:9"], None, None, None, None, None, tables), told.tells)
    async with scene(*behaves, steps=steps, urls=urls) as on:
        assert steps.start is not None
        await steps.start()
        yield Guarded(on, told)
        steps.stop()


def planted() -> str:
    """A legal prompt whose words end in every page of the pool that an over-long one is read from."""
    return "\n".join([SECRET] * 4)


OVER_LONG = "why " * 280 + "me"


async def leak(edge: Guarded, **more: Any) -> Reply:
    """What acme gets for an over-long prompt, after globex was here."""
    assert (await edge.ask(GLOBEX, planted())).status == 200
    return await edge.ask(ACME, OVER_LONG, **more)


def test_the_leak_of_the_incident_goes_out_where_nothing_watches(vocabulary: Path, tmp_path: Path, stub: Toy) -> None:
    """Or the tests below could not fail."""

    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, urls=[stub.url], on=False) as edge:
            reply = await leak(edge)
            assert reply.status == 200
            assert " ".join(SENTINEL[:6]).encode() in reply.body

    test()


@pytest.mark.parametrize("stream", [False, True])
def test_what_leaks_never_leaves_a_buffer(vocabulary: Path, tmp_path: Path, stub: Toy, stream: bool) -> None:
    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, urls=[stub.url], buffered=True) as edge:
            reply = await leak(edge, stream=stream)
            assert (reply.status, reply.code) == (502, "answer_withheld")
            assert not any(word.encode() in reply.body for word in SENTINEL if len(word) > 5)
            assert "foreign-text" in edge.told.kinds
            assert ("pagefence_edge_findings_total", "foreign-text", "true") in edge.told.counted
            assert (await edge.ask(ACME, "And a legal prompt again", stream=stream)).status == 200

    test()


def test_a_finding_names_the_tenants_by_tag_and_holds_none_of_their_words(
    vocabulary: Path, tmp_path: Path, stub: Toy
) -> None:
    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, urls=[stub.url]) as edge:
            reply = await leak(edge)
            assert reply.status == 200, "a public text could look like this: told, and let through"
            line = next(line for line in edge.told.lines if line.get("kind") == "foreign-text")
            identity = Identity(b"s" * 32)
            assert line["tenant_tag"] == identity.tenant("acme").tag
            assert line["owner_tag"] == identity.tenant("globex").tag
            assert line["request_id"] == reply.headers["x-request-id"]
            told = json.dumps(edge.told.lines)
            assert not any(word in told for word in ("acme", "globex", *(w for w in SECRET.split() if len(w) > 6)))

    test()


def events(*texts: str) -> list[bytes]:
    said = [{"id": "c", "model": "m", "choices": [{"index": 0, "text": text}]} for text in texts]
    said.append({"id": "c", "model": "m", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    return [f"data: {json.dumps(each)}\n\n".encode() for each in said] + [b"data: [DONE]\n\n"]


def streams(parts: list[bytes], pause_s: float = 0.0) -> Behave:
    """Each answer has an id of its own, as they do."""
    count = itertools.count(10)

    async def behave(asked: Asked) -> None:
        name = b'"id": "%d"' % next(count)
        await asked.say(STREAM)
        for part in parts:
            await asked.say(chunk(part.replace(b'"id": "c"', name)))
            await asyncio.sleep(pause_s)
        await asked.say(b"0\r\n\r\n")

    return behave


def test_a_stream_is_cut_at_words_that_were_planted_for_somebody_else(vocabulary: Path, tmp_path: Path) -> None:
    """The file of sentinels is read when it comes, and what was written of the answer before is all that went out."""
    said = ["It is a fine day. "] * 4 + [f"{word} " for word in SENTINEL * 3] + ["the end"]

    @played
    async def test() -> None:
        file = tmp_path / "live.json"
        async with guarded(vocabulary, tmp_path, streams(events(*said), 0.002), sentinels="live.json") as edge:
            first = await edge.ask(ACME, "Hello", stream=True)
            assert first.whole
            file.write_text(json.dumps({"sentinels": [{"tenant": "globex", "words": SENTINEL}]}))
            reply = first
            async with asyncio.timeout(5):
                while reply.whole:
                    await asyncio.sleep(0.1)
                    reply = await edge.ask(ACME, "Hello", stream=True)
            assert b"fine day" in reply.body
            assert b'"answer_withheld"' in reply.body
            assert b"the end" not in reply.body
            assert b"[DONE]" not in reply.body
            assert "sentinel" in edge.told.kinds
            whose = await edge.ask(GLOBEX, "Hello", stream=True)
            assert whose.whole, "it is globex's own sentinel"

    test()


def test_a_file_of_sentinels_that_is_broken_or_gone_is_told_and_the_last_good_ones_stay(
    vocabulary: Path, tmp_path: Path
) -> None:
    @played
    async def test() -> None:
        file = tmp_path / "live.json"
        file.write_text(json.dumps({"sentinels": [{"tenant": "globex", "words": SENTINEL}]}))
        behave = streams(events(" ".join(SENTINEL * 2)))
        async with guarded(vocabulary, tmp_path, behave, sentinels="live.json") as edge:
            for breaks in (lambda: file.write_text("{"), file.unlink):
                edge.told.lines.clear()
                breaks()
                await soon(lambda: any(line["event"] == "sentinels_refused" for line in edge.told.lines))
                reply = await edge.ask(ACME, "Hello", stream=True)
                assert (reply.status, reply.code) == (502, "answer_withheld"), "nothing of it had gone out"

    test()


def test_a_stream_is_one_however_its_type_is_spelled(vocabulary: Path, tmp_path: Path) -> None:
    """As a whole body it would be no JSON, so a doubt, and nobody would look for words in it."""

    async def shouts(asked: Asked) -> None:
        await asked.say(STREAM.replace(b"text/event-stream", b"Text/Event-Stream"))
        await asked.say(b"".join(map(chunk, events(" ".join(SENTINEL * 2)))) + b"0\r\n\r\n")

    @played
    async def test() -> None:
        file = tmp_path / "live.json"
        file.write_text(json.dumps({"sentinels": [{"tenant": "globex", "words": SENTINEL}]}))
        async with guarded(vocabulary, tmp_path, shouts, sentinels="live.json") as edge:
            reply = await edge.ask(ACME, "Hello", stream=True)
            assert (reply.status, reply.code) == (502, "answer_withheld")

    test()


def test_an_event_goes_out_whole_or_not_yet(vocabulary: Path, tmp_path: Path) -> None:
    """Half an event could hold what the other half shows to be a leak."""
    whole = b"".join(events("one", "two", "three"))
    halves = [whole[start : start + 7] for start in range(0, len(whole), 7)]

    @played
    async def test() -> None:
        async with guarded(vocabulary, tmp_path, streams(halves, 0.001)) as edge:
            client: Client = await edge.on.client()
            body = json.dumps({"model": "toy", "prompt": "x", "max_tokens": 4, "stream": True}).encode()
            client.ask(body, COMPLETIONS, authorization=f"Bearer {ACME}")
            reply = await client.reply()
            assert (reply.body, reply.whole) == (whole, True)

    test()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": None}, "no-content"),
        ({"choices": [{"index": 0, "text": "x"}]}, "no-end"),
        (
            {
                "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 4000, "completion_tokens": 1, "total_tokens": 4001},
            },
            "prompt-tokens",
        ),
        (
            {
                "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            },
            "prompt-tokens",
        ),
    ],
)
def test_counts_and_ends_are_judged(answer: dict[str, object], kind: str, vocabulary: Path, tmp_path: Path) -> None:
    """The last one is the placeholder of the incident: a long prompt, and one token of it was computed."""

    @played
    async def test() -> None:
        body = json.dumps({"id": "c", "model": "m", **answer}).encode()
        async with guarded(vocabulary, tmp_path, answers(body)) as edge:
            await edge.ask(ACME, "so many words " * 40)
            assert edge.told.kinds == {kind}

    test()


def test_an_alert_reaches_the_webhook_and_one_that_cannot_is_counted(vocabulary: Path, tmp_path: Path) -> None:
    answer = json.dumps({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}],
                         "usage": {"prompt_tokens": 9999, "completion_tokens": 1, "total_tokens": 10000}})  # fmt: skip

    @played
    async def test() -> None:
        with hook() as (url, bodies):
            async with guarded(
                vocabulary, tmp_path, answers(answer.encode()), environment={"HOOK": url}, alert_env="HOOK"
            ) as edge:
                await edge.ask(ACME, "Hello")
                await soon(lambda: ("pagefence_edge_alerts_total", "sent") in edge.told.counted)
                (finding,) = json.loads(bodies[0])["findings"]
                assert finding["kind"] == "prompt-tokens"
        async with guarded(
            vocabulary, tmp_path, answers(answer.encode()), environment={"HOOK": f"{url}refuse"}, alert_env="HOOK"
        ) as edge:
            with hook(404, int(url.rpartition(":")[2].strip("/"))):
                await edge.ask(ACME, "Hello")
                await soon(lambda: ("pagefence_edge_alerts_total", "failed") in edge.told.counted)

    test()


class hook:
    """A webhook in a thread."""

    def __init__(self, status: int = 204, port: int = 0) -> None:
        bodies: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *said: object) -> None:
                pass

        self.server, self.bodies = HTTPServer(("127.0.0.1", port), Handler), bodies

    def __enter__(self) -> tuple[str, list[bytes]]:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}/", self.bodies

    def __exit__(self, *said: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_what_was_remembered_of_prompts_lives_on_over_a_reload(vocabulary: Path, tmp_path: Path) -> None:
    joined = Joined(Identity(b"s" * 32), ENVIRONMENT, tmp_path)
    tables = {"admission": {"model": str(vocabulary)}, "tenants": {"upstream_keys_env": "THEIRS"}}
    (tmp_path / "licence.txt").write_text("Permission is hereby granted")

    def book(**watching: Any) -> Any:
        said = {**tables, "watching": watching}
        joined.steps(settings(["http://127.0.0.1:9"], None, None, None, None, None, said), Tells())
        return joined._book

    first = book()
    again = book(public=["*.txt"], buffered=True)
    assert (again.memory, again.prefixes, again.ids) == (first.memory, first.prefixes, first.ids)
    assert book(memory_mib=64).memory is not first.memory
    assert book(scan=False).memory is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"buffer": True}, "unknown field `buffer`"),
        ({"actions": {"leak": ["log"]}}, "'leak' is no kind of finding"),
        ({"actions": {"sentinel": ["shout"]}}, "watching.actions"),
        ({"alert_env": "NOBODY"}, "no http.s. address"),
        ({"public": ["nothing-*.txt"]}, "names no file"),
        ({"floor": {"speed": 3}}, "no figure of a floor"),
        ({"floor": {"layers": 3}}, "nobody told active_parameters"),
        ({"calibration": "none.json"}, "cannot read the calibration"),
        ({"sentinels": "bad.json"}, "holds no sentinels"),
    ],
)
def test_a_mistake_in_the_table_is_one_clear_line(
    table: dict[str, Any], said: str, vocabulary: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("[]")
    tables = {
        "admission": {"model": str(vocabulary)}, "tenants": {"upstream_keys_env": "THEIRS"}, "watching": table,
    }  # fmt: skip
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    with pytest.raises(Usage, match=said):
        Joined(Identity(b"s" * 32), ENVIRONMENT, tmp_path).steps(found, Tells())


def test_memory_is_no_more_than_was_said() -> None:
    for mib in (1, 32, 33, 100):
        assert mib / 2 < bounds_of(WatchTable(memory_mib=mib)).memory / 2**20 <= mib


def test_public_texts_are_found_by_pattern_and_by_full_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    assert public_texts(WatchTable(public=["*.txt"]), tmp_path) == [b"one", b"two"]
    assert public_texts(WatchTable(public=[str(tmp_path / "a.txt")]), Path("/")) == [b"one"]


def test_every_figure_of_watching_has_its_family() -> None:
    assert {family.name for family in FAMILIES} >= {
        "pagefence_edge_findings_total", "pagefence_edge_answers_watched_total", "pagefence_edge_alerts_total",
        "pagefence_edge_answers_not_judged_total", "pagefence_edge_live_sentinels",
    }  # fmt: skip


def test_a_long_prompt_that_cannot_be_remembered_in_time_is_refused() -> None:
    """Not sent on unremembered, and not kept waiting without an end."""

    @played
    async def test() -> None:
        plan = plan_of(WatchTable(), Path(), {}, book_of(WatchTable(), Path(), None), ModelBounds(None, None, 0))
        watching = Watching(plan, Tells(), Beside(Queue(amount=100_000), "test"))
        tenant = Identity(b"s" * 32).tenant("acme")
        call = Call(Operation.COMPLETION, tenant, "id", {"prompt": "x" * 200_000}, "toy", False, size=200_000)
        refused = await watching.watch(Admitted(call, 3, 3, 4))
        assert isinstance(refused, Refusal)
        assert refused.code == "overloaded"

    test()


def test_a_new_file_of_sentinels_leaves_requests_in_progress_with_the_one_they_began_with(
    vocabulary: Path, tmp_path: Path
) -> None:
    """They go by their number: with the numbers of two files acme's own words would be somebody else's."""
    own, others = SECRET.split()[:12], SECRET.split()[12:24]

    def said(*planted: tuple[str, list[str]]) -> str:
        return json.dumps({"sentinels": [{"tenant": tenant, "words": words} for tenant, words in planted]})

    @played
    async def test() -> None:
        file = tmp_path / "live.json"
        file.write_text(said(("acme", own), ("globex", others)))
        watching = Joined(Identity(b"s" * 32), ENVIRONMENT, tmp_path)._watching(
            settings(["http://127.0.0.1:9"], None, None, None, None, None, {"watching": {"sentinels": "live.json"}}),
            ModelBounds(None, None, 0),
            Beside(Queue(), "test"),
            Tells(),
        )
        assert watching is not None
        body = {"prompt": "x" * 100_000, "max_tokens": 4}
        call = Call(Operation.COMPLETION, Identity(b"s" * 32).tenant("acme"), "id", body, "toy", False, size=100_000)
        began = asyncio.create_task(watching.watch(Admitted(call, 3, 3, 4)))
        await asyncio.sleep(0)  # the prompt is read in a thread
        file.write_text(said(("globex", others), ("acme", own)))
        watching._look(file)
        watched = await began
        assert isinstance(watched, Watched)
        watched.sent(0.0)
        watched.begins(200, False, 0.1)
        answer = {"choices": [{"index": 0, "text": " ".join(own), "finish_reason": "stop"}]}
        assert watched.part(json.dumps(answer).encode(), 0.2)
        assert not isinstance(watched.ends(True, 0.3), Refusal)

    test()

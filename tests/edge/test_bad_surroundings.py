"""Files, addresses and listings that are not what they should be: the edge says so, and goes on serving."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pagefence.edge.alerts import Alerts, postable
from pagefence.edge.capacity import Room
from pagefence.edge.refusal import Refusal
from pagefence.edge.shown import Tokenizing, promised
from pagefence.edge.watching.settings import PUBLIC_BYTES, WatchTable, public_texts
from pagefence.mistakes import Usage
from pagefence.probes.sentinel_file import MOST_BYTES, read_sentinels
from tests.edge.models import tokenizer_of
from tests.edge.proxy_scene import answers, played, soon
from tests.edge.test_watched import SENTINEL, guarded, vocabulary  # noqa: F401 (a fixture)

GOOD = json.dumps({"sentinels": [{"tenant": "globex", "words": SENTINEL}]})


def pipe(path: Path) -> None:
    os.mkfifo(path)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MOST_BYTES + 1)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, huge, device, Path.mkdir])
def test_what_is_no_file_of_sentinels_is_refused_at_once(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "live.json")
    with pytest.raises(Usage, match=r"live\.json"):
        read_sentinels(tmp_path / "live.json")


def test_a_file_of_sentinels_that_was_refused_is_tried_again_and_told_once(
    vocabulary: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be unreadable for a moment, with no descriptor left or the wrong mode, and be unchanged afterwards."""
    file = tmp_path / "live.json"
    away = True

    def reading(path: Path) -> object:
        if away:
            raise Usage("not now")
        return read_sentinels(path)

    @played
    async def test() -> None:
        nonlocal away
        monkeypatch.setattr("pagefence.edge.watched._LOOK_EVERY_S", 0.02)
        monkeypatch.setattr("pagefence.edge.watched.read_sentinels", reading)
        async with guarded(vocabulary, tmp_path, answers(b"{}"), sentinels="live.json") as edge:
            file.write_text(GOOD)

            def refused() -> list[dict[str, object]]:
                return [line for line in edge.told.lines if line["event"] == "sentinels_refused"]

            await soon(lambda: bool(refused()))
            await asyncio.sleep(0.1)
            assert len(refused()) == 1
            seen: list[float] = []
            object.__setattr__(edge.told.tells, "gauge", lambda name, to: seen.append(to))
            away = False
            await soon(lambda: 1 in seen)

    test()


@pytest.mark.parametrize("pattern", ["/", "~nobody-here/x", "\0", "[", "", "..", "/dev/zero"])
def test_a_public_pattern_that_names_no_file_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"watching\.public"):
        public_texts(WatchTable(public=[pattern]), tmp_path)


def test_public_texts_are_bounded_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, PUBLIC_BYTES // 2 + 1)
    assert len(public_texts(WatchTable(public=["a"]), tmp_path)) == 1
    with pytest.raises(Usage, match="more than"):
        public_texts(WatchTable(public=["a", "b"]), tmp_path)


@pytest.mark.parametrize("url", ["http://", "ftp://x", "http://\u2028", "https://" + "a" * 70_000, "", "x"])
def test_an_address_that_cannot_be_posted_to_is_none(url: str) -> None:
    assert not postable(url)


async def alerted(webhook: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], how: str) -> None:
    """One alert to a webhook that behaves so ends in this way."""
    server = await asyncio.start_server(webhook, "127.0.0.1", 0)
    told: list[str] = []
    alerts = Alerts(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", told.append)
    alerts.put(b"{}")
    await soon(lambda: told == [how], 3)
    server.close()


def test_a_webhook_without_an_end_is_left_after_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.01)

    @played
    async def test() -> None:
        await alerted(endless, "sent")

    test()


def test_a_webhook_that_never_ends_its_head_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"H")
            await asyncio.sleep(0.05)

    @played
    async def test() -> None:
        monkeypatch.setattr("pagefence.edge.alerts._TRY_S", 0.1)
        monkeypatch.setattr("pagefence.edge.alerts._FIRST_WAIT_S", 0.01)
        await alerted(slow, "failed")

    test()


@pytest.mark.parametrize(
    "said",
    [
        b'{"data": [{"max_model_len": 1e400}]}',
        b'{"data": [{"id": "\\ud800", "max_model_len": 9999999}]}',
        b'{"data": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"data": [{"max_model_len": 9999999}], "x": NaN}',
        b'{"data": [{"id": "' + b"x" * 5_000_000 + b'"}]}',
    ],
)
def test_a_listing_that_only_clients_can_read_promises_nothing(said: bytes) -> None:
    assert promised(said, 100) is None


def test_a_promise_that_comes_twice_is_one() -> None:
    said = promised(b'{"data": [{"max_model_len": 5, "max_model_len": 9999999, "context_length": 1e30}]}', 100)
    assert said is not None
    assert json.loads(said) == {"data": [{"max_model_len": 100, "context_length": 100}]}


ROOM = Room(1000, 1000, "declared")
LONG = "So it goes, said nobody; and yet  it moves. " * 3_000


@pytest.mark.parametrize("name", ["gpt-2", "qwen2"])
def test_a_long_text_is_tokenised_as_a_short_one_and_beside_the_loop(name: str) -> None:
    tokenizer = tokenizer_of(name)
    threads: set[str] = set()
    whole = tokenizer.encode_beside

    def noting(text: str) -> list[int]:
        threads.add(threading.current_thread().name)
        return whole(text)

    tokenizer.encode_beside = noting  # type: ignore[method-assign]  # to see where it runs

    @played
    async def test() -> None:
        said = await Tokenizing(tokenizer).answer({"prompt": LONG, "add_special_tokens": True}, "tag", ROOM)
        assert isinstance(said, bytes)
        assert json.loads(said)["tokens"] == tokenizer.encode(LONG, True)
        assert all(each.startswith("pagefence-tokenize") for each in threads)

    try:
        test()
    finally:
        del tokenizer.encode_beside


def test_texts_that_are_tokenised_have_an_end_for_each_tenant() -> None:
    @played
    async def test() -> None:
        tokenizing = Tokenizing(tokenizer_of("gpt-2"))
        asked = [tokenizing.answer({"prompt": LONG}, "greedy", ROOM) for _ in range(11)]
        said = await asyncio.gather(*asked, tokenizing.answer({"prompt": LONG}, "other", ROOM))
        assert [each.status for each in said if isinstance(each, Refusal)] == [429] * 3
        assert isinstance(said[-1], bytes)
        refused = await tokenizing.answer({"prompt": "x" * 5_000_000}, "tag", ROOM)
        assert isinstance(refused, Refusal)
        assert refused.status == 413

    test()

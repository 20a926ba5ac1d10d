"""Edges side by side over a real redis-server: what one was sent the other finds, and Redis may do what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme

from pagefence.edge.sharing.batch import Batch, Sealer, part
from pagefence.edge.sharing.keys import SharedKeys
from pagefence.edge.sharing.settings import SharedSettings
from pagefence.edge.sharing.sharing import Sharing
from pagefence.edge.sharing.stream import KEPT, connected
from pagefence.edge.tenants import Identity
from pagefence.edge.watching.memory import Memory
from tests.edge.proxy_scene import played, soon
from tests.edge.redis_scene import Redis, Told, needs_redis

pytestmark = needs_redis
IDENTITY = Identity(b"a secret of the edge that is long enough")
ACME, GLOBEX = IDENTITY.tenant("acme"), IDENTITY.tenant("globex")
TEXT = b"the quarterly figures of the northern branch are to be kept from everybody until the end of May, please"


class Replica:
    def __init__(self, url: str, secret: bytes = IDENTITY.secret, required: bool = False) -> None:
        self.told = Told()
        self.said = self.told.lines
        self.sharing = Sharing(SharedSettings(url, "pagefence:shared", required), secret, self.told.tells)
        self.memory = Memory(shared=self.sharing.shared)
        self.sharing.start(self.memory)

    def sent(self, text: bytes = TEXT, tag: str = ACME.tag) -> None:
        self.memory.sent([text], [], tag, time.monotonic())

    def knows(self, text: bytes = TEXT, tag: str = ACME.tag) -> bool:
        owner, owners = self.memory.prompts.number(tag), self.memory.prompts.owners(self.memory.hashes([text]))
        return bool(owner) and bool((owners == owner).all())


@pytest.fixture(scope="module")
def running() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def server(running: Redis) -> Redis:
    running.client().flushall()
    return running


@contextlib.asynccontextmanager
async def edges(*replicas: Replica) -> AsyncIterator[None]:
    try:
        await soon(lambda: all(each.sharing.up for each in replicas))
        yield
    finally:
        for each in replicas:
            each.sharing.stop()
        await asyncio.sleep(0.02)


@played
async def test_what_one_was_sent_the_other_knows(server: Redis) -> None:
    here, there = Replica(server.url), Replica(server.url)
    async with edges(here, there):
        here.sent()
        await soon(there.knows)
        there.memory.learn(there.memory.hashes([TEXT]), GLOBEX.tag, 0.0)
        await soon(lambda: bool(here.memory.habits.owners(here.memory.hashes([TEXT])).all()))
    assert here.told["batches_total/sent"] == there.told["batches_total/heard"] == 1
    assert here.said == [("shared_up", "")]


@played
async def test_a_text_of_a_million_bytes_is_told_whole(server: Redis) -> None:
    here, there = Replica(server.url), Replica(server.url)
    async with edges(here, there):
        text = b" ".join(b"%d" % (number * 7919) for number in range(120_000))
        await asyncio.to_thread(here.sent, text)
        await soon(lambda: here.sharing._outbox._waiting == 0 and here.sharing._unsent is None)
        await soon(lambda: there.told["batches_total/heard"] == here.told["batches_total/sent"])
        assert there.knows(text)
    assert there.told["batches_total/missed"] == there.told["batches_total/unreadable"] == 0


@played
async def test_who_begins_later_hears_what_was_told_before(server: Redis) -> None:
    here = Replica(server.url)
    async with edges(here):
        here.sent()
        await soon(lambda: here.told["batches_total/sent"] == 1)
        late = Replica(server.url)
        async with edges(late):
            assert late.knows()  # ready means: caught up


@played
async def test_who_ended_and_begins_again_is_not_up_before_it_is(server: Redis) -> None:
    """A reload may turn watching off, and another on."""
    here = Replica(server.url, required=True)
    async with edges(here):
        pass
    here.sharing.start(here.memory)
    assert here.sharing.unready() is not None
    async with edges(here):
        assert here.told.counted["pagefence_edge_shared_up"] == 1
        assert here.said == [("shared_up", "")] * 2


@played
async def test_a_response_id_is_shared_over_processes(server: Redis) -> None:
    here, there = Replica(server.url), Replica(server.url)
    async with edges(here, there):
        assert here.sharing.elsewhere.claim("chatcmpl-1", "r1")
        await soon(lambda: there.told["batches_total/heard"] == 1)
        assert not there.sharing.elsewhere.claim("chatcmpl-1", "r2")
        await soon(lambda: here.told["batches_total/heard"] == 1)
        assert not here.sharing.elsewhere.release("chatcmpl-1", "r1")


@played
async def test_edges_with_another_secret_hear_nothing(server: Redis) -> None:
    here, stranger = Replica(server.url), Replica(server.url, b"another secret that is long enough, too")
    async with edges(here, stranger):
        here.sent()
        await soon(lambda: stranger.told["batches_total/unreadable"] == 1)
        assert not stranger.knows()


@played
async def test_redis_holds_nothing_that_can_be_read(server: Redis) -> None:
    here = Replica(server.url)
    async with edges(here):
        here.sent()
        here.sharing.elsewhere.claim("chatcmpl-1", "request-1")
        client = server.client()
        await soon(lambda: int(client.ttl("pagefence:shared")) > 3590)
    held = b"".join(client.dump(key) or b"" for key in client.scan_iter())
    hashes = here.memory.hashes([TEXT])
    secrets = [b"acme", b"quarterly", b"chatcmpl", b"request-1", ACME.tag.encode(), ACME.isolation_key.encode()]
    assert len(held) > 8 * len(hashes)
    assert not any(secret in held for secret in secrets)
    assert not any(value.tobytes() in held or value.byteswap().tobytes() in held for value in hashes)
    assert client.keys() == [b"pagefence:shared"]


@played
async def test_what_others_write_is_counted_and_nothing_more(server: Redis) -> None:
    client, there = server.client(), Replica(server.url)
    keys = SharedKeys.of(IDENTITY.secret)
    sealer = Sealer(keys.batches)
    hashes = there.memory.hashes([TEXT])
    forged = Sealer(b"guessed" * 5).seal(Batch(time.time(), (part(ACME.tag, False, hashes),)))
    recorded = sealer.seal(Batch(time.time() - 7200, (part(ACME.tag, False, hashes),)))
    async with edges(there):
        for raw in (b"", b"nonsense", forged, forged[:-1]):
            client.xadd("pagefence:shared", {"b": raw})
        client.xadd("pagefence:shared", {"other": "field"})
        client.xadd("pagefence:shared", {"b": recorded})
        await soon(lambda: there.told["batches_total/unreadable"] == 5 and there.told["batches_total/old"] == 1)
        assert not there.knows()
        client.xadd("pagefence:shared", {"b": sealer.seal(Batch(time.time(), (part(ACME.tag, False, hashes),)))})
        await soon(there.knows)
        assert there.sharing.up


@played
async def test_the_stream_has_a_bound(server: Redis) -> None:
    client = server.client()
    pipe = client.pipeline()
    for _ in range(KEPT + 500):
        pipe.xadd("pagefence:shared", {"b": b"x" * 40})
    pipe.execute()
    async with connected(server.url, "pagefence:shared") as stream:
        await stream.add(b"one more")
        assert client.xlen("pagefence:shared") < KEPT + 200  # trimmed by whole nodes
        client.xadd("old", {"b": b"x"}, id="1-0")
    async with connected(server.url, "old") as stream:
        await stream.add(b"y")
        await stream.tidy(3600)
        assert client.xlen("old") == 1


@played
async def test_without_redis_an_edge_goes_on_says_so_once_and_comes_back() -> None:
    with Redis() as server:
        here, there = Replica(server.url), Replica(server.url, required=True)
        async with edges(here, there):
            assert there.sharing.unready() is None
            server.kill()
            await soon(lambda: not here.sharing.up and not there.sharing.up)
            here.sent()  # as always
            assert here.knows()
            assert here.sharing.unready() is None
            assert "not known" in (there.sharing.unready() or "")
            await asyncio.sleep(0.3)  # a few more tries
            server.start()
            await soon(there.knows)
            await soon(lambda: here.sharing.up and there.sharing.up)
            assert there.sharing.unready() is None
        assert [event for event, _ in here.said] == ["shared_up", "shared_down", "shared_up"]
        assert here.said[1][1].startswith("ConnectionError")
        assert here.told["up"] == 0  # stopped


@played
async def test_what_waits_for_redis_is_bounded_and_counted() -> None:
    here = Replica("unix:///nowhere/at/all")
    here.sharing._outbox._most = 1000
    await soon(lambda: here.said != [])
    for number in range(100):
        here.sent(TEXT + b"%d" % number)
    await soon(lambda: here.told["dropped_total"] > 50)
    assert here.sharing._outbox._waiting <= 1000
    assert here.said == [("shared_down", "ConnectionError: No such file or directory")]
    here.sharing.stop()


@played
async def test_a_redis_that_hangs_holds_nothing_up(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefence.edge.sharing.stream._TIMEOUT_S", 0.3)
    monkeypatch.setattr("pagefence.edge.sharing.stream._BLOCK_MS", 100)
    here, there = Replica(server.url), Replica(server.url)
    async with edges(here, there):
        server.hang()
        try:
            began = time.perf_counter()
            here.sent()
            assert time.perf_counter() - began < 0.1
            await soon(lambda: not here.sharing.up)
            assert here.said[-1] == ("shared_down", "TimeoutError")
        finally:
            server.goes_on()
        await soon(there.knows)
    assert there.told["batches_total/missed"] == 0


@played
async def test_it_ends_at_once_wherever_it_is(server: Redis) -> None:
    """Connecting, asking, waiting: a client that loses a cancellation would keep a worker from ending."""
    for turns in range(0, 60, 3):
        each = Replica(server.url)
        for _ in range(turns):
            await asyncio.sleep(0)
        each.sharing.stop()
        assert each.sharing._task is not None
        done, _ = await asyncio.wait([each.sharing._task], timeout=2)
        assert done


@played
async def test_a_full_redis_is_no_well_one(server: Redis) -> None:
    client, here = server.client(), Replica(server.url)
    async with edges(here):
        client.config_set("maxmemory", "1")
        try:
            here.sent()
            await soon(lambda: not here.sharing.up)
            assert here.said[-1] == ("shared_down", "OutOfMemoryError")
        finally:
            client.config_set("maxmemory", "0")
        await soon(lambda: here.sharing.up)
        assert here.told["batches_total/sent"] == 1


@played
async def test_a_password_is_asked_for_and_never_said() -> None:
    with Redis(requirepass="hunter2") as server:
        wrong, right = Replica(f"unix://:wrong-one@{server.path}"), Replica(f"unix://:hunter2@{server.path}")
        async with edges(right):
            await soon(lambda: wrong.said != [])
            assert wrong.said[0][0] == "shared_down"
            assert not {"hunter2", "wrong-one"} & set(str(wrong.said).split())
            wrong.sharing.stop()


@played
async def test_a_user_who_may_do_no_more_than_it_takes(server: Redis) -> None:
    """The rights that docs/guides/edge.md names."""
    rights = ["+ping", "+time", "+xadd", "+xread", "+xtrim", "+expire"]
    server.client().acl_setuser("edge", True, passwords=["+hunter2"], keys=["pagefence:shared"], commands=rights)
    url = f"unix://edge:hunter2@{server.path}"
    here, there = Replica(url), Replica(url)
    async with edges(here, there):
        here.sent()
        await soon(there.knows)
        await soon(lambda: int(server.client().ttl("pagefence:shared")) > 0)
        assert here.told.lines == there.told.lines == [("shared_up", "")]


@played
async def test_over_tls_and_only_with_a_known_authority(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    port = str(free_port())
    options = {"tls_port": port, "tls_cert_file": str(tmp_path / "cert.pem"), "tls_key_file": str(tmp_path / "key.pem")}
    with Redis(**options, tls_ca_cert_file=str(tmp_path / "ca.pem"), tls_auth_clients="no"):
        url = f"rediss://localhost:{port}/0?ssl_ca_certs="
        right, wrong = Replica(f"{url}{tmp_path}/ca.pem"), Replica(f"{url}{tmp_path}/stranger.pem")
        async with edges(right):
            await soon(lambda: wrong.said != [])
            assert wrong.said[0][0] == "shared_down"
            assert not wrong.sharing.up
            wrong.sharing.stop()


@played
async def test_a_clock_of_redis_that_went_back_hides_nothing() -> None:
    with Redis() as server:
        here, there = Replica(server.url), Replica(server.url)
        async with edges(here, there):
            server.kill()
            await soon(lambda: not there.sharing.up)
            ahead = int(time.time() * 1000) + 3_600_000
            there.sharing._last = (ahead, 0)  # as if the one before had been an hour ahead
            server.start()
            here.sent()
            await soon(there.knows)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])

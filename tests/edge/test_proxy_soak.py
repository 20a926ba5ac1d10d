"""Many clients, some of which leave, before upstreams that die, hang, lie and drip: nobody gets another's words."""

from __future__ import annotations

import asyncio
import json
import random

from pagefence.edge.upstream.balancer import Timeouts
from pagefence.edge.upstream.health import HealthPolicy
from tests.edge.proxy_scene import STREAM, Asked, Behave, chunk, played, scene, soon, whole

CLIENTS, TIMES = 16, 25


def erratic(seed: int) -> Behave:
    """Answers with what it was asked, mostly; and in every other way that it can think of."""
    rng = random.Random(seed)

    async def behave(asked: Asked) -> None:
        event = b"data: " + asked.body + b"\n\n"
        match rng.randrange(12):
            case 0:
                asked.writer.close()
            case 1:
                await asked.say(whole(asked.body)[:-5])
                asked.writer.close()
            case 2:
                await asyncio.sleep(5)
            case 3:
                await asked.say(whole(asked.body) + whole(b'{"nonce":"planted"}'))
            case 4:
                await asked.say(STREAM + chunk(event))
                asked.writer.transport.abort()
            case 5:
                await asked.say(STREAM + chunk(event) + b"zz\r\n" + chunk(event))
            case 6:
                await asked.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 90\r\n\r\n{}" + asked.body)
            case 7 | 8:
                await asked.say(STREAM)
                for _ in range(5):
                    await asked.say(chunk(event))
                    await asyncio.sleep(0.001)
                await asked.say(b"0\r\n\r\n")
            case _:
                await asyncio.sleep(rng.random() * 0.005)
                await asked.say(whole(asked.body))

    return behave


@played
async def test_each_answer_is_its_own_clients_whatever_upstreams_do() -> None:
    policy = HealthPolicy(every_s=0, failures=10**9)
    async with scene(erratic(1), erratic(2), health=policy, timeouts=Timeouts(first_byte_s=0.3, idle_s=0.3)) as on:
        seen = {"whole": 0, "broken": 0, "refused": 0, "left": 0}

        async def ask_often(number: int) -> None:
            rng = random.Random(number)
            client = await on.client()
            for time in range(TIMES):
                nonce = f"{number}-{time}-{rng.getrandbits(64):016x}"
                client.ask(json.dumps({"nonce": nonce}, separators=(",", ":")).encode())
                if rng.random() < 0.15:
                    await asyncio.sleep(rng.random() * 0.01)
                    client.leave()
                    seen["left"] += 1
                    client = await on.client()
                    continue
                reply = await client.reply()
                nonces = set(reply.body.replace(b'\\"', b'"').split(b'"nonce":"')[1:])
                assert {each[: len(nonce)] for each in nonces} <= {nonce.encode()}, "somebody else's words"
                kind = "refused" if reply.status != 200 else "whole" if reply.whole else "broken"
                assert kind != "whole" or nonces
                seen[kind] += 1
                if not reply.whole or reply.headers.get("connection") == "close":
                    client.leave()
                    client = await on.client()
            client.leave()

        await asyncio.gather(*(ask_often(number) for number in range(CLIENTS)))
        assert min(seen.values()) > 10, seen
        await soon(lambda: on.front.connections == 0)
        assert [upstream.pool.outstanding for upstream in on.edge.balancer.upstreams] == [0, 0]
        assert on.counted("pagefence_edge_requests_in_flight") == 0

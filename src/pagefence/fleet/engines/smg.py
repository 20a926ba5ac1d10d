"""sglang-router and its successor smg: a router, which names its workers and hands most questions on to one of them.

Read in sgl-project/sglang (`sgl-model-gateway`, commit 04902695) and lightseekorg/smg (commits 785eb68e, 68306410):
- `server.rs`: `/server_info`, `/model_info` and `/v1/models` are answered by the first healthy worker
  (`routers/http/router.rs`, `proxy_get_request`). So a router is asked before any engine whose sign it hands on, or it
  would pass as that one worker.
- `worker/service.rs`: `/workers` is {"workers", "total", "stats": {"prefill_count", "decode_count", "regular_count"}}.
  `worker_type`, `labels` and `kv_block_size` of a worker are what somebody configured: each worker is asked itself.
  A data-parallel rank has the address of its engine and `@rank`. A grpc:// worker cannot be asked here.
- `/get_loads`: {"loads": [...]}, with `max_total_num_tokens` for each rank in the newest, in `details.loads` before,
  nowhere in older ones. 0 is what a back-end that does not report has. It is shown, and judged nowhere.
- `/readiness`: 503 while too few workers are healthy. No prompt is counted anywhere: there is no length limit.
No endpoint tells the version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import Adapter, Asked, advertised, model
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, Figure, NodeFacts, figure, smallest, text, unknown
from pagefence.fleet.http import Reply

ENGINE = "smg"
WORKERS = "/workers"
MODELS = "/v1/models"
LOADS = "/get_loads"
READY = "/readiness"
_POOL = "max_total_num_tokens"


def recognises(reply: Reply) -> str | None:
    """By the list of workers and how it counts them (`by_type` in an older form)."""
    stats = mapping(reply.body.get("stats"))
    counted = "regular_count" in stats or "by_type" in stats
    return f"{WORKERS} lists workers" if counted and isinstance(reply.body.get("workers"), list) else None


def read(asked: Asked) -> NodeFacts:
    """Facts of a router."""
    listed = asked.json(WORKERS).get("workers")
    workers = [mapping(worker) for worker in listed] if isinstance(listed, list) else []
    ranks = _ranks(asked)
    ready, reasons = _readiness(asked.reply(READY))
    return NodeFacts(
        role=ROUTER,
        url=asked.url,
        engine=ENGINE,
        version=None,
        pool=smallest(ranks, f"{LOADS} loads[].{_POOL}"),
        ranks=ranks,
        advertised=advertised(asked, MODELS),
        model=model(asked, MODELS),
        settings={"workers": str(len(workers))},
        workers=_workers(workers),
        ready=ready,
        reasons=reasons,
        open_api=asked.reply(MODELS).serves,
    )


def _workers(workers: list[Mapping[str, object]]) -> tuple[tuple[str, str | None], ...]:
    """Address (or "") and role of each, a data-parallel engine once."""
    found: list[tuple[str, str | None]] = []
    for worker in workers:
        url = re.sub(r"@\d+$", "", text(worker, "url") or "")
        kind = worker.get("worker_type")
        address = url if url.startswith(("http://", "https://")) else ""
        entry = (address, str(kind) if kind in (PREFILL, DECODE) else None)
        if not address or entry not in found:
            found.append(entry)
    return tuple(found)


def _ranks(asked: Asked) -> tuple[Figure, ...]:
    """What the router last heard of each rank's pool."""
    problem = asked.reply(LOADS).json_problem
    if problem is not None:
        return (unknown(f"{LOADS} loads[].{_POOL}", problem),)
    return tuple(figure(load, (_POOL,), f"{LOADS} {where}") for where, load in _loads(asked.json(LOADS)))


def _loads(body: Mapping[str, object], place: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    listed = body.get("loads")
    for i, load in enumerate(listed if isinstance(listed, list) else []):
        where, details = f"{place}loads[{i}]", mapping(mapping(load).get("details"))
        if isinstance(details.get("loads"), list) and not place:
            yield from _loads(details, f"{where}.details.")
        else:
            yield where, mapping(load)


def _readiness(reply: Reply) -> tuple[bool | None, tuple[str, ...]]:
    if reply.status == 503:
        reason = text(reply.body, "reason")
        return False, (reason,) if reason else ()
    return (True if reply.status == 200 and reply.body.get("status") == "ready" else None), ()


ADAPTER = Adapter(ENGINE, WORKERS, recognises, (MODELS, LOADS, READY), read)

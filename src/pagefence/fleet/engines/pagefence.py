"""PageFence: `/server_info` of the router names its workers, and each worker tells its own live figures."""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import (
    Adapter,
    Asked,
    Counters,
    Holding,
    advertised,
    amount,
    model,
    settings,
    total,
)
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, SPEED, NodeFacts, live_role, text
from pagefence.fleet.http import Reply

ENGINE = "pagefence"
INFO = "/server_info"
_SETTINGS = ("model_name", "dtype", "mode", "page_size", "context_length", "transfer")


def recognises(reply: Reply) -> str | None:
    """By its own name."""
    return f'{INFO} says engine = "pagefence"' if reply.body.get("engine") == ENGINE else None


def read(asked: Asked) -> NodeFacts:
    """Facts of a router or a worker."""
    body = asked.json(INFO)
    ready, reasons = _readiness(asked.reply("/readyz"), body)
    pool = asked.figure(INFO, "max_total_num_tokens")
    role = live_role(body)
    return NodeFacts(
        role=ROUTER if "workers" in body else role,
        url=asked.url,
        engine=ENGINE,
        version=text(body, "version"),
        pool=pool,
        longest=asked.figure(INFO, "max_req_input_len"),
        context=asked.figure(INFO, "context_length"),
        page_size=asked.figure(INFO, "page_size"),
        bytes_per_token=asked.figure(INFO, "kv_bytes_per_token"),
        ranks=(pool,),
        advertised=advertised(asked),
        model=model(asked) or text(body, "model_name"),
        speed={name: asked.figure(INFO, name) for name in SPEED if name in body},
        settings=settings(body, _SETTINGS),
        workers=_workers(body),
        ready=ready,
        reasons=reasons,
        guards={name: on for name, on in mapping(body.get("guards")).items() if isinstance(on, bool)},
        open_api=asked.reply("/v1/models").serves,
    )


def _workers(body: Mapping[str, object]) -> tuple[tuple[str, str | None], ...]:
    listed = body.get("workers")
    found: list[tuple[str, str | None]] = []
    for worker in listed if isinstance(listed, list) else []:
        url, role = mapping(worker).get("url"), mapping(worker).get("role")
        known = str(role) if role in (PREFILL, DECODE) else None
        reachable = isinstance(url, str) and url.startswith(("http://", "https://"))
        found.append((str(url) if reachable else "", known))
    return tuple(found)


def _readiness(readiness: Reply, body: Mapping[str, object]) -> tuple[bool | None, tuple[str, ...]]:
    """Ready or not, with reasons. A fleet without `/readyz` leaves it to `/server_info`, or unknown."""
    said = body.get("reasons") if body.get("reasons") else readiness.body.get("reasons")
    reasons = tuple(str(r)[:300] for r in said) if isinstance(said, list) else ()
    # One "no" outweighs every "yes": something in front of the fleet may answer 200 to any path.
    if readiness.status == 503 or False in (body.get("ready"), readiness.body.get("ready")):
        return False, reasons
    if True in (body.get("ready"), readiness.body.get("ready")):
        return True, ()
    return None, reasons


def counters(asked: Asked, role: str) -> Counters:
    """Of a worker. Prefill counts a prompt when it begins; decode has no cache."""
    if not _tells(asked):
        return Counters()
    if role == DECODE:
        return Counters(asked.counted("pagefence_handoffs_total"), asked.counted("pagefence_prompt_tokens_total"), 0)
    computed, cached = (asked.counted(f"pagefence_{name}_tokens_total") for name in ("computed", "cached"))
    begun = asked.counted("pagefence_prompts_total")
    return Counters(begun, None if computed is None or cached is None else computed + cached, cached)


def held(asked: Asked, role: str) -> Holding:
    """Pages of the whole pool that are neither free nor in the prefix cache alone, nor retired.

    Taken from the whole, so that a page which no list has any more counts too (I6).
    """
    body = asked.json(INFO)
    pages = mapping(body.get("pages"))
    whole, free, cached, retired = (amount(pages.get(state)) for state in ("total", "free", "cached", "retired"))
    if whole is None or free is None or cached is None or retired is None:
        return Holding()
    done = total(*(amount(body.get(name)) for name in ("prompts", "computed_tokens", "generated_tokens")))
    return Holding(amount(whole - free - cached - retired), "pages", done)


def _tells(asked: Asked) -> bool:
    return bool(asked.metrics("/metrics", "pagefence_worker_info")[0])


ADAPTER = Adapter(ENGINE, INFO, recognises, ("/v1/models", "/readyz"), read, counters=counters, held=held, held_at=INFO)

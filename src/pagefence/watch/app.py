"""The paths of a watch. It answers about configured targets only: no address that a client names is ever asked."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Mapping
from dataclasses import asdict

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pagefence.watch import page
from pagefence.watch.config import Module, Watched
from pagefence.watch.meters import CONTENT_TYPE, probe_text, watch_text
from pagefence.watch.records import Record
from pagefence.watch.watcher import Wait, Watcher

SCHEMA_VERSION = 1
SILENT_S = 30.0
_MARGIN_S = 0.5  # of a scrape's time, for the answer to get back in
_PATIENCE_S = 120.0
_LIMIT = 50
_PAGE = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}


def create_app(watcher: Watcher) -> Starlette:
    """The ASGI application over a watcher."""
    handlers = {
        "/": _index,
        "/history": _history,
        "/runs/{id:int}": _report,
        "/runs/{id:int}/log": _log,
        "/probe": _probe,
        "/metrics": _metrics,
        "/livez": _livez,
        "/readyz": _readyz,
    }
    routes = [Route(path, functools.partial(handler, watcher), methods=["GET"]) for path, handler in handlers.items()]
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    return application


async def _index(watcher: Watcher, request: Request) -> Response:
    return Response(page.html(watcher), media_type="text/html", headers=_PAGE)


async def _metrics(watcher: Watcher, request: Request) -> Response:
    return Response(watch_text(watcher), headers={"content-type": CONTENT_TYPE})


async def _probe(watcher: Watcher, request: Request) -> Response:
    """A run now, within the time that Prometheus gives its scrape. A run that takes longer goes on, and is shared with
    whoever asks for it meanwhile."""
    watched, module = _asked(watcher, request)
    started = asyncio.get_running_loop().time()
    seen: Record | Wait | None = None
    running = asyncio.ensure_future(watcher.probe(watched, module))
    done, _ = await asyncio.wait({running}, timeout=_patience(request))
    if done:
        seen = running.result()
    else:
        running.cancel()  # of the waiting alone: the run itself is shielded
    seconds = asyncio.get_running_loop().time() - started
    text = probe_text(watched, module, watcher.standings[watched.name].model, seen, seconds)
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def _history(watcher: Watcher, request: Request) -> Response:
    limit = _number(request, "limit", _LIMIT, 1, 1000)
    records = watcher.state.history(limit, request.query_params.get("target"), request.query_params.get("module"))
    return _json({"schema_version": SCHEMA_VERSION, "runs": [_row(record) for record in records]})


async def _report(watcher: Watcher, request: Request) -> Response:
    report = watcher.state.report(_run(request))
    if report is None:
        raise HTTPException(404, "there is no report of this run: it runs, it was interrupted, or it was forgotten")
    return Response(report, media_type="application/json")


async def _log(watcher: Watcher, request: Request) -> Response:
    record = watcher.state.record(_run(request))
    if record is None:
        raise HTTPException(404, "there is no such run, or it was forgotten")
    return PlainTextResponse(record.log + "\n", headers={"x-content-type-options": "nosniff"})


def _run(request: Request) -> int:
    """The number of a run; 0, which none has, for one that no column can hold."""
    number: int = request.path_params["id"]
    return number if number < 2**63 else 0


async def _livez(watcher: Watcher, request: Request) -> Response:
    silent = watcher.clock() - watcher.heartbeat
    alive = silent < SILENT_S
    return _json({"alive": alive, "heartbeat_age_seconds": round(max(0.0, silent), 3)}, 200 if alive else 503)


async def _readyz(watcher: Watcher, request: Request) -> Response:
    """Whether it can do its work: keep what it finds, begin what is due. A fleet that leaks is no reason not to be."""
    reasons = [watcher.trouble] if watcher.trouble else []
    reasons += ["it is stopping"] if watcher.stopping else []
    reasons += [] if watcher.cycles else ["the schedule has not been looked at yet"]
    return _json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)


def _asked(watcher: Watcher, request: Request) -> tuple[Watched, Module]:
    settings = watcher.settings
    name, module_name = request.query_params.get("target", ""), request.query_params.get("module", "")
    watched = settings.target(name)
    if watched is None:
        raise HTTPException(400, f"{_said('target', name)}; watched are {', '.join(t.name for t in settings.targets)}")
    module = watched.module(module_name)
    if module is None:
        known = ", ".join(m.name for m in watched.modules)
        raise HTTPException(400, f"{_said('module', module_name)}; {watched.name} has {known}")
    return watched, module


def _said(what: str, name: str) -> str:
    return f"{name[:80]!r} is no {what} that is watched" if name else f"which {what} is meant? write ?{what}=NAME"


def _patience(request: Request) -> float:
    """Prometheus says how long it waits."""
    try:
        seconds = float(request.headers.get("x-prometheus-scrape-timeout-seconds", ""))
    except ValueError:
        return _PATIENCE_S
    return max(0.1, min(seconds - _MARGIN_S, 3600.0)) if math.isfinite(seconds) else _PATIENCE_S


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    said = request.query_params.get(name)
    if said is None:
        return default
    if not (said.isascii() and said.isdigit() and len(said) < 10 and least <= int(said) <= most):
        raise HTTPException(400, f"{name} is a number from {least} to {most:,}")
    return int(said)


def _row(record: Record) -> Mapping[str, object]:
    row = asdict(record) | {"seconds": round(record.seconds, 3), "log": record.log.splitlines()}
    return row | {"report": f"/runs/{record.id}"}


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")

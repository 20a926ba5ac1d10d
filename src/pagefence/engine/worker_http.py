"""The small HTTP face of a worker: what it really has (I8), whether it lives, what it counts. It takes no requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagefence.engine.api.meters import CONTENT_TYPE
from pagefence.engine.api.problems import error_response, json_response, log_failure, on_http_error
from pagefence.engine.api.serving import ThreadedServer, listening_socket, serve_in_thread
from pagefence.protocol import errors

Snapshot = Callable[[], dict[str, object]]
Handler = Callable[[Request], Awaitable[Response]]


def serve_worker_http(snapshot: Snapshot, metrics: Callable[[], bytes], host: str, port: int) -> ThreadedServer:
    """Serve until `stop()`. Port 0 picks one; a port in use is an OSError here, in the caller's thread.

    `snapshot` and `metrics` run in another thread than the caller's, while the caller is busy with tensors: they must
    only read, and must not wait for the worker's own loop.
    """
    return serve_in_thread(worker_app(snapshot, metrics), listening_socket(host, port), "pagefence-worker-http")


def worker_app(snapshot: Snapshot, metrics: Callable[[], bytes]) -> Starlette:
    async def info(request: Request) -> Response:
        return json_response(await run_in_threadpool(snapshot))

    async def alive(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def counters(request: Request) -> Response:
        return Response(await run_in_threadpool(metrics), headers={"Content-Type": CONTENT_TYPE})

    routes = [
        Route("/server_info", _guarded(info)),
        Route("/get_server_info", _guarded(info)),
        Route("/health", alive),
        Route("/livez", alive),
        Route("/metrics", _guarded(counters)),
    ]
    application = Starlette(routes=routes, exception_handlers={HTTPException: on_http_error})
    application.router.redirect_slashes = False  # a redirect would be built from the client's Host header
    return application


def _guarded(handler: Handler) -> Handler:
    """A worker that cannot say what it has must not look as if it could: an error, never an empty answer."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            log_failure(error)
            return error_response(errors.internal("the worker cannot say"))

    return run

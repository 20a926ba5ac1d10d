"""The routes: what each path answers, who may ask, and in which order a request is refused.

Order: the key (401), headers that only the server may set (400), readiness (503), a place (429), size (413), the body
(400, 404), then the router's own limits. Everything up to there holds nothing and has sent nothing (I3).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefence.engine.api.body import MAX_BODY_BYTES, read_body, refuse_forbidden_headers
from pagefence.engine.api.description import Endpoint, describe
from pagefence.engine.api.exchange import Answer, Exchange
from pagefence.engine.api.meters import CONTENT_TYPE, Meters
from pagefence.engine.api.parameters import ChatRequest, CompletionRequest, TokenizeRequest
from pagefence.engine.api.places import Places
from pagefence.engine.api.ports import Gateway, TextStream, Tokenizer
from pagefence.engine.api.prepare import Limits, Preparer, prepare_chat, prepare_completion, prepare_tokenize
from pagefence.engine.api.problems import (
    Problem,
    error_response,
    invalid_api_key,
    json_response,
    log_failure,
    model_not_found,
    not_ready,
    on_http_error,
)
from pagefence.engine.api.shapes import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    Health,
    ModelCard,
    ModelList,
    Readiness,
    Tokenized,
)
from pagefence.engine.api.tenants import Tenants, bearer
from pagefence.engine.api.writers import ChatWriter, Form, TextWriter, Writer
from pagefence.protocol import errors

CLIENT_GONE = 499


@dataclass(frozen=True, slots=True)
class Service:
    """What every handler stands on."""

    gateway: Gateway
    tokenizer: Tokenizer
    tenants: Tenants
    new_text: Callable[[], TextStream]
    max_body_bytes: int
    meters: Meters
    places: Places
    started: int
    description: dict[str, object]

    def spell(self, token: int) -> bytes:
        """A control token by its name: it has a likelihood too."""
        return self.tokenizer.token_bytes(token, False)


def create_app(
    gateway: Gateway,
    tokenizer: Tokenizer,
    tenants: Tenants,
    new_text: Callable[[], TextStream],
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Starlette:
    """The ASGI application. `new_text` makes the incremental decoder of one answer."""
    meters = Meters(gateway.model_name)
    places = Places(gateway.max_in_flight)
    description = describe(ENDPOINTS, gateway.model_name, open_access=tenants.open_key is not None)
    started = int(time.time())
    service = Service(gateway, tokenizer, tenants, new_text, max_body_bytes, meters, places, started, description)
    routes = [Route(e.path, functools.partial(e.handler, service), methods=[e.method]) for e in ENDPOINTS]
    known = {path.path for path in routes}
    application = Starlette(
        routes=routes,
        middleware=[Middleware(_Outer, meters=meters, known=known)],
        exception_handlers={Problem: _on_problem, HTTPException: on_http_error},
    )
    application.router.redirect_slashes = False
    return application


async def _generate(
    new_writer: Callable[[Form], Writer], prepare: Preparer, service: Service, request: Request
) -> Response:
    isolation_key = _authenticate(service, request)
    refuse_forbidden_headers(request.headers)
    if reasons := service.gateway.reasons():
        raise not_ready(reasons)
    with ExitStack() as place:
        place.enter_context(service.places.one())
        body = await read_body(request.headers, request.receive, service.max_body_bytes)
        prepared = await run_in_threadpool(prepare, body, isolation_key, service.tokenizer, _limits(service))
        form = Form(service.gateway.model_name, service.spell, prepared.scored, prepared.token_ids, prepared.echo)
        exchange = Exchange(service.gateway, prepared, new_writer(form), service.new_text, service.meters)
        return Answer(exchange, place.pop_all())


async def _tokenize(service: Service, request: Request) -> Response:
    _authenticate(service, request)
    refuse_forbidden_headers(request.headers)
    body = await read_body(request.headers, request.receive, service.max_body_bytes)
    return json_response(await run_in_threadpool(prepare_tokenize, body, service.tokenizer, _limits(service)))


async def _models(service: Service, request: Request) -> Response:
    _authenticate(service, request)
    return json_response(ModelList("list", [_card(service)]))


async def _model(service: Service, request: Request) -> Response:
    _authenticate(service, request)
    name = request.path_params["name"]
    if name != service.gateway.model_name:
        raise model_not_found(name)
    return json_response(_card(service))


async def _health(service: Service, request: Request) -> Response:
    """Alive, ready or not: restarting a live router would not make the pool larger."""
    return json_response(Health("ok", not service.gateway.reasons()))


async def _readyz(service: Service, request: Request) -> Response:
    reasons = service.gateway.reasons()
    return json_response(Readiness(not reasons, reasons), 503 if reasons else 200)


async def _metrics(service: Service, request: Request) -> Response:
    return Response(service.gateway.metrics() + service.meters.text(), headers={"Content-Type": CONTENT_TYPE})


async def _server_info(service: Service, request: Request) -> Response:
    return json_response(service.gateway.server_info())


async def _description(service: Service, request: Request) -> Response:
    return json_response(service.description)


def _card(service: Service) -> ModelCard:
    model_len = _limits(service).max_model_len
    return ModelCard(service.gateway.model_name, "model", service.started, "pagefence", model_len)


def _limits(service: Service) -> Limits:
    gateway = service.gateway
    return Limits(gateway.model_name, gateway.context, min(gateway.context, gateway.max_prompt_tokens + 1))


def _authenticate(service: Service, request: Request) -> str:
    """The isolation key of whoever asks (I7)."""
    key = service.tenants.isolation_key(bearer(request.headers.raw))
    if key is None:
        raise invalid_api_key()
    return key


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error_response(error.info, error.headers)


class _Outer:
    """Counts every answer, and turns whatever went wrong inside into one plain 500 that quotes nothing."""

    def __init__(self, app: ASGIApp, meters: Meters, known: set[str]) -> None:
        self._app = app
        self._meters = meters
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = CLIENT_GONE

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except ClientDisconnect:
            pass
        except Exception as error:
            log_failure(error)
            if status == CLIENT_GONE:
                await error_response(errors.internal("the server failed"))(scope, receive, counted)
        finally:
            endpoint = scope["path"] if scope["path"] in self._known else "other"
            self._meters.answered(endpoint, status, time.monotonic() - started)


_BODY = (400, 413, 500)
_GENERATION = (*_BODY, 404, 429, 503, 504)
ENDPOINTS = (
    Endpoint(
        "/v1/completions",
        "Continue a text, a list of token ids, or a list of one text.",
        functools.partial(_generate, TextWriter, prepare_completion),
        gives={200: Completion},
        method="POST",
        takes=CompletionRequest,
        chunks=Completion,
        errors=_GENERATION,
        keyed=True,
    ),
    Endpoint(
        "/v1/chat/completions",
        "Answer a conversation.",
        functools.partial(_generate, ChatWriter, prepare_chat),
        gives={200: ChatCompletion},
        method="POST",
        takes=ChatRequest,
        chunks=ChatCompletionChunk,
        errors=_GENERATION,
        keyed=True,
    ),
    Endpoint("/v1/models", "The model, as a list.", _models, {200: ModelList}, keyed=True),
    Endpoint("/v1/models/{name:path}", "The model.", _model, {200: ModelCard}, errors=(404, 500), keyed=True),
    Endpoint(
        "/tokenize",
        "The token ids that a prompt or messages would have as a request.",
        _tokenize,
        gives={200: Tokenized},
        method="POST",
        takes=TokenizeRequest,
        errors=(*_BODY, 404),
        keyed=True,
    ),
    Endpoint("/health", "Alive, ready or not.", _health, {200: Health}),
    Endpoint("/livez", "Alive, ready or not.", _health, {200: Health}),
    Endpoint(
        "/readyz", "Whether the fleet may take traffic, and if not, why.", _readyz, {200: Readiness, 503: Readiness}
    ),
    Endpoint("/metrics", "Prometheus text.", _metrics, {200: str}),
    Endpoint("/server_info", "The fleet, from its living processes.", _server_info, {200: dict}),
    Endpoint("/get_server_info", "The fleet, under SGLang's older name.", _server_info, {200: dict}),
    Endpoint("/openapi.json", "This description.", _description, {200: dict}),
)
"""What is routed and what is described: the same."""

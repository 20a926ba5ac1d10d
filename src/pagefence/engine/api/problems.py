"""Errors of the API: made here, OpenAI-shaped, one way to a response (I3)."""

from __future__ import annotations

import logging
import traceback

import anyio
import msgspec
from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagefence.engine.api.shapes import ErrorAnswer, ErrorDetail
from pagefence.protocol.errors import RETRY_AFTER_S
from pagefence.protocol.messages import ErrorInfo

logger = logging.getLogger(__name__)

JSON = "application/json"
LINGER_S = 1.0
_ECHO = 80


class ClosingResponse(Response):
    """A response to a body that stays unread. What still comes is thrown away for a moment: closing at once would reset
    the connection, and many clients would then never see the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers["Connection"] = "close"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with anyio.move_on_after(LINGER_S):
            while (await receive()).get("more_body", False):
                pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Problem(Exception):
    """Ends a request with `info` before anything was submitted."""

    def __init__(self, info: ErrorInfo, headers: dict[str, str] | None = None) -> None:
        super().__init__(info.code)
        self.info = info
        self.headers = headers or {}


def error_answer(info: ErrorInfo) -> ErrorAnswer:
    """The body of an error; `rule` and `guard` only when a guard contained a fault."""
    rule, guard = (UNSET if name is None else name for name in (info.rule, info.guard))
    return ErrorAnswer(ErrorDetail(info.message, info.type, info.param, info.code, rule, guard))


def log_failure(error: Exception) -> None:
    """Where it happened, not what it said: a message may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    logger.error("request failed: %s at %s", type(error).__name__, where)


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, JSON)


def error_response(info: ErrorInfo, headers: dict[str, str] | None = None) -> Response:
    retry = {"Retry-After": str(info.retry_after_s)} if info.retry_after_s is not None else {}
    kind = ClosingResponse if info.status == 413 else Response
    return kind(msgspec.json.encode(error_answer(info)), info.status, retry | (headers or {}), JSON)


def shown(name: str) -> str:
    """A name that a client chose, short enough to say back."""
    return name if len(name) <= _ECHO else name[:_ECHO] + "..."


def _bad(status: int, code: str, message: str, param: str | None = None) -> ErrorInfo:
    return ErrorInfo(status, code, message, "invalid_request_error", None if param is None else shown(param))


def bad_value(message: str, param: str | None = None) -> Problem:
    return Problem(_bad(400, "invalid_value", message, param))


def bad_json(message: str) -> Problem:
    return Problem(_bad(400, "invalid_json", message))


def missing(param: str) -> Problem:
    return Problem(_bad(400, "missing_required_parameter", f"Missing required parameter: '{param}'.", param))


def unknown_parameter(param: str) -> Problem:
    return Problem(_bad(400, "unknown_parameter", f"Unrecognized request argument supplied: '{shown(param)}'.", param))


def unsupported_parameter(param: str, detail: str = "") -> Problem:
    message = f"'{shown(param)}' with this value is not supported by this server.{detail and ' ' + detail}"
    return Problem(_bad(400, "unsupported_parameter", message, param))


def forbidden_parameter(param: str) -> Problem:
    """Topology and cache identity are the server's to set (I7, I9)."""
    message = f"'{shown(param)}' is set by the server and must not be sent by a client."
    return Problem(_bad(400, "forbidden_parameter", message, param))


def model_not_found(name: str) -> Problem:
    return Problem(_bad(404, "model_not_found", f"The model '{shown(name)}' does not exist.", "model"))


def invalid_api_key() -> Problem:
    info = ErrorInfo(401, "invalid_api_key", "Missing or incorrect API key.", "invalid_request_error")
    return Problem(info, {"WWW-Authenticate": "Bearer"})


def too_large(limit: int) -> Problem:
    """The rest of the body stays unread, so the connection cannot be used again."""
    return Problem(_bad(413, "request_too_large", f"The request body is larger than {limit} bytes."))


def not_ready(reasons: tuple[str, ...]) -> Problem:
    message = f"The fleet is not ready: {reasons[0]}"
    return Problem(ErrorInfo(503, "not_ready", message, "server_error", retry_after_s=RETRY_AFTER_S))


async def on_http_error(request: Request, error: Exception) -> Response:
    """What the HTTP layer itself says: unknown path, wrong method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    message = f"{error.detail}: {request.method} {shown(request.url.path)}"
    return error_response(_bad(error.status_code, code, message), dict(error.headers or {}))

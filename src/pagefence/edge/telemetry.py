"""OpenTelemetry, where it is installed and asked for: one span a request, named by the GenAI conventions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pagefence.edge.mark import Mark
from pagefence.mistakes import Usage

# https://opentelemetry.io/docs/specs/semconv/gen-ai/ : "development", so the names stand in one place.
OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
ERROR = "error.type"
STATUS = "http.response.status_code"
REQUEST_ID = "pagefence.request_id"
TENANT = "pagefence.tenant_tag"
UPSTREAM = "pagefence.upstream"
_OPERATIONS = {"chat/completions": "chat", "completions": "text_completion", "embeddings": "embeddings"}

Spans = Callable[[Mark, float], None]


def telemetry(wanted: bool) -> Spans | None:
    """What makes a span of a request that has ended; its times are those of the request. Raises Usage."""
    if not wanted:
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        raise Usage("log.traces needs OpenTelemetry: pip install opentelemetry-sdk and an exporter") from None
    return spans(trace.get_tracer("pagefence.edge"))


def spans(tracer: Any) -> Spans:
    """`tracer`: of OpenTelemetry."""

    def span(mark: Mark, took_s: float) -> None:
        end = time.time_ns()
        name = _OPERATIONS.get(mark.operation, mark.operation)
        made = tracer.start_span(f"{name} {_short(mark.model)}".rstrip(), start_time=end - round(took_s * 1e9))
        shown = {
            OPERATION: name,
            MODEL: _short(mark.model) or None,
            STATUS: mark.status,
            REQUEST_ID: mark.request_id,
            TENANT: mark.tenant,
            UPSTREAM: mark.upstream,
            ERROR: mark.code or mark.cut,
            FIRST_CHUNK: mark.first_byte_at - mark.began if mark.first_byte_at else None,
        }
        for key, value in shown.items():
            if value is not None:
                made.set_attribute(key, value)
        made.end(end_time=end)

    return span


def _short(model: str | None) -> str:
    """A client says it, so it may be anything."""
    return (model or "")[:80]

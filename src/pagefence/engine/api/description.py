"""The API's own OpenAPI 3.1 description, from the types that requests are parsed by and answers are written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pagefence import __version__
from pagefence.engine.api.parameters import NEUTRAL
from pagefence.engine.api.problems import JSON
from pagefence.engine.api.shapes import ErrorAnswer

Schema = dict[str, Any]

_WHY = {
    400: "The request is at fault: what it says cannot be done, or not by this server. Nothing was computed.",
    401: "No API key, or one that nobody owns.",
    404: "There is no such model.",
    413: "The body is larger than this server reads.",
    429: "Too many requests are in flight.",
    500: "The fleet failed, or one of its guards stopped a fault (`rule`, `guard`).",
    503: "The fleet is not ready, or a worker that the request needed died.",
    504: "The fleet did not answer within its own deadline.",
}
_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}
_NOTHING = "Accepted with these values, which ask for nothing."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation, as it is routed and described. `path` is Starlette's.

    `gives` says which type a body has by its status (`str` is plain text); `chunks` is one event of a stream. Errors
    with these statuses have the one error shape; a `keyed` endpoint also has 401.
    """

    path: str
    summary: str
    handler: Callable[..., object]
    gives: Mapping[int, type]
    method: str = "GET"
    takes: type[msgspec.Struct] | None = None
    chunks: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = (500,)
    keyed: bool = False

    @property
    def described_path(self) -> str:
        return self.path.replace(":path}", "}")


@dataclass(slots=True)
class _Schemas:
    """References to types; the types that were asked for. `model` is the one name that a client may use."""

    model: str
    asked: dict[type, None] = field(default_factory=dict)

    def of(self, kind: type) -> Schema:
        self.asked[kind] = None
        (schema,), _ = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
        return schema

    def components(self) -> dict[str, Schema]:
        """Every object with properties has no others: unknown parameters are refused, unknown fields are not sent."""
        kinds = list(self.asked)
        _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
        for schema in components.values():
            if "properties" in schema:
                schema["additionalProperties"] = False
        for kind, neutral in NEUTRAL.items():
            for name, values in neutral.items():
                components[kind.__name__]["properties"][name] = {"enum": [*values, None], "description": _NOTHING}
        for kind in kinds:
            # A request for another model is not found, so the one name is part of what a request must look like.
            if "model" in getattr(kind, "__struct_fields__", ()) and kind.__name__.endswith("Request"):
                required = "model" in components[kind.__name__]["required"]
                components[kind.__name__]["properties"]["model"] = {
                    "enum": [self.model] if required else [self.model, None]
                }
        return components


def describe(endpoints: Sequence[Endpoint], model: str, open_access: bool) -> dict[str, object]:
    """The description of these endpoints for a server of `model`. `open_access`: it asks for no key."""
    schemas = _Schemas(model)
    paths: dict[str, dict[str, Schema]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(endpoint.described_path, {})
        operations[endpoint.method.lower()] = _operation(endpoint, schemas, endpoint.keyed and not open_access)
    components: Schema = {"schemas": schemas.components()}
    if not open_access:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    info = {"title": "PageFence", "version": __version__, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _operation(endpoint: Endpoint, schemas: _Schemas, asks_for_key: bool) -> Schema:
    errors = sorted({*endpoint.errors, *([401] if asks_for_key else [])})
    responses = {str(status): _good(endpoint, kind, schemas) for status, kind in endpoint.gives.items()}
    responses |= {str(status): _error(status, schemas) for status in errors}
    operation: Schema = {"summary": endpoint.summary, "responses": responses}
    if asks_for_key:
        operation["security"] = [{"bearer": []}]
    if "{" in endpoint.path:
        name = {"name": "name", "in": "path", "required": True, "schema": {"enum": [schemas.model]}}
        operation["parameters"] = [name]
    if endpoint.takes is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas.of(endpoint.takes)}}}
    return operation


def _good(endpoint: Endpoint, kind: type, schemas: _Schemas) -> Schema:
    content: Schema = {"text/plain" if kind is str else JSON: {"schema": schemas.of(kind)}}
    if endpoint.chunks is not None:
        content["text/event-stream"] = {"schema": _event(endpoint.chunks, schemas)}
    return {"description": endpoint.summary, "content": content}


def _event(chunk: type, schemas: _Schemas) -> Schema:
    """One event of a stream: OpenAPI 3.1 has no word for the stream itself."""
    body = {"anyOf": [schemas.of(chunk), schemas.of(ErrorAnswer)]}
    written = {"type": "string", "contentMediaType": JSON, "contentSchema": body}
    return {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, written]}}}


def _error(status: int, schemas: _Schemas) -> Schema:
    response: Schema = {"description": _WHY[status], "content": {JSON: {"schema": schemas.of(ErrorAnswer)}}}
    if status in _HEADERS:
        response["headers"] = {_HEADERS[status]: {"schema": {"type": "string"}}}
    return response

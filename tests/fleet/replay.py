"""Plays captured nodes: a folder of `captured/` is served as the engine served it, whole or broken in one place.

A folder holds `index.json`, a list of what was asked: `path`, `status` (null: no answer came), `file` beside it, and
where they matter `method` (GET), `name` and `content_type`. An entry whose file is not there was not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from pagefence.fleet import Answer, Fleet, FleetFacts, Keys, Request, Target
from pagefence.fleet.describe import describe
from pagefence.fleet.http import Reply
from tests.probes.toy import served

CAPTURED: Final = Path(__file__).parent / "captured"
_HANG_S: Final = 30.0


@dataclass(frozen=True)
class Document:
    """One answer as it came over the wire. `status` None: it never comes."""

    status: int | None
    body: bytes = b""
    content_type: str = "application/json"
    location: str | None = None

    def reply(self) -> Reply:
        """What asking for it gives, without a network."""
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        body = value if isinstance(value, dict) else {}
        problem = None if self.status == 200 else f"answered HTTP {self.status}"
        return Reply(self.status, body, problem, self.body.decode("utf-8", "replace"), None if body else "is no object")


Node = Mapping[str, Document]  # what a node answers to GET, by path
HANG: Final = Document(None)


def node(folder: str, without: Sequence[str] = ()) -> dict[str, Document]:
    """The documents of a captured node. Of one that was asked twice, the first."""
    found: dict[str, Document] = {}
    for entry in _index(folder):
        if entry.get("method", "GET") == "GET" and entry["path"] not in (*found, *without):
            _keep(found, entry["path"], folder, entry)
    return found


def answers(folder: str) -> dict[str, Document]:
    """The answers to prompts, by name; what a prefill leg answered to a router is `NAME.prefill-leg`."""
    found: dict[str, Document] = {}
    for entry in _index(folder):
        if entry.get("method") == "POST":
            _keep(found, entry["name"], folder, entry)
            if entry.get("prefill_leg"):
                _keep(found, f"{entry['name']}.prefill-leg", folder, entry["prefill_leg"])
    return found


def _index(folder: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads((CAPTURED / folder / "index.json").read_text())
    return read


def _keep(found: dict[str, Document], name: str, folder: str, entry: Mapping[str, Any]) -> None:
    if entry["status"] is None:
        found[name] = HANG
    elif (CAPTURED / folder / entry["file"]).exists():
        body = (CAPTURED / folder / entry["file"]).read_bytes()
        found[name] = Document(entry["status"], body, entry.get("content_type") or "application/json")


@dataclass(frozen=True)
class Field:
    """A place in a document: keys and indices of JSON, or the name of a Prometheus sample and of its label."""

    path: str
    keys: tuple[str | int, ...]

    def __str__(self) -> str:
        return " ".join((self.path, ".".join(map(str, self.keys))))


MISSING: Final = object()


def changed(documents: Node, field: Field, value: object) -> dict[str, Document]:
    """The node with another value there, or without it (MISSING). Raises KeyError when there is no such place."""
    document = documents[field.path]
    if "json" in document.content_type:
        whole = json.loads(document.body)
        inner = whole
        for key in field.keys[:-1]:
            inner = inner[key]
        inner[field.keys[-1]]  # a place that is not there could not be broken
        if value is MISSING:
            del inner[field.keys[-1]]
        else:
            inner[field.keys[-1]] = value
        body = json.dumps(whole).encode()
    else:
        body = _relabelled(document.body.decode(), field, value).encode()
    return {**documents, field.path: replace(document, body=body)}


def _relabelled(text: str, field: Field, value: object) -> str:
    sample, label = map(str, field.keys)
    put = "" if value is MISSING else f'{label}="{value}",'
    found, count = re.subn(rf'^({re.escape(sample)}{{.*?)\b{label}="[^"]*",?', rf"\1{put}", text, flags=re.M)
    if not count:
        raise KeyError(str(field))
    return found


class Stage:
    """Serves any number of nodes at once, each under a path of its own."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._url = ""

    @contextlib.contextmanager
    def open(self) -> Iterator[Stage]:
        methods = ["GET", "POST"]
        with served(Starlette(routes=[Route("/{n:int}/{path:path}", self._answer, methods=methods)])) as self._url:
            yield self

    def put(self, documents: Node) -> str:
        """The address of a node that answers so, and 404 to all else."""
        self._nodes.append(documents)
        return f"{self._url}/{len(self._nodes) - 1}"

    async def _answer(self, request: HttpRequest) -> Response:
        documents = self._nodes[request.path_params["n"]]
        document = documents.get("/" + request.path_params["path"])
        if document is None:
            return Response(b'{"detail":"Not Found"}', 404, media_type="application/json")
        if document.status is None:
            await asyncio.sleep(_HANG_S)
        headers = {"location": document.location} if document.location else {}
        return Response(document.body, document.status or 200, headers, document.content_type)

    def facts(
        self,
        *nodes: tuple[str, Node],
        declared: Mapping[str, int] | None = None,
        timeout_s: float = 10.0,
    ) -> FleetFacts:
        """What `describe` makes of these nodes, each with its role; "router" is the address that clients know."""
        urls = [(role, self.put(documents)) for role, documents in nodes]
        target = Target(
            router=next((url for role, url in urls if role == "router"), None),
            prefill=tuple(url for role, url in urls if role == "prefill"),
            decode=tuple(url for role, url in urls if role == "decode"),
            declared={"": declared} if declared else {},
        )

        async def ask() -> FleetFacts:
            async with Fleet(target, Keys(), timeout_s) as fleet:
                return await describe(fleet)

        return asyncio.run(ask())

    def complete(self, document: Document, stream: bool, timeout_s: float = 10.0) -> Answer:
        """What a client of ours reads when a prompt is answered so."""
        url = self.put({"/v1/completions": document})

        async def ask() -> Answer:
            async with Fleet(Target(url), Keys(), timeout_s) as fleet:
                return await fleet.complete(Request("hi", 8, stream=stream), "a")

        return asyncio.run(ask())

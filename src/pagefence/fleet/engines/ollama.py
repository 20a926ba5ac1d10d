"""Ollama: `/api/ps` has the context of the models that are loaded at this moment; the pool is told nowhere.

Read in ollama/ollama, versions from 0.12 on:
- `api/types.go`, `ProcessModelResponse`: `context_length` is the loaded runner's, not the model's; 0 until it runs.
- `server/routes.go`: `PsHandler` answers {"models": [...]}; `/api/version` answers {"version"} and nothing else, as
  others do too, so it recognises nobody.
- `server/routes.go`, `server/prompt.go`: `truncate` of a request is true where it is not given, and the OpenAI API has
  no such field. Old messages are dropped and the answer is 200.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import Adapter, Asked, model
from pagefence.fleet.facts import UNKNOWN, Figure, Flag, NodeFacts, brief, figure, text, unknown
from pagefence.fleet.http import Reply

ENGINE = "ollama"
LOADED = "/api/ps"
VERSION = "/api/version"
MODELS = "/v1/models"
_TRUNCATES = Flag(True, "ollama server/routes.go: a request truncates unless it says truncate = false")
_SETTINGS = ("digest", "size_vram", "context_length")
_DETAILS = ("format", "family", "parameter_size", "quantization_level")


def recognises(reply: Reply) -> str | None:
    """By the list of loaded models, and nothing beside it."""
    models = reply.body.get("models")
    if set(reply.body) != {"models"} or not isinstance(models, list):
        return None
    shaped = all("size_vram" in mapping(entry) and "expires_at" in mapping(entry) for entry in models)
    return f"{LOADED} lists loaded models" if shaped else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one server."""
    models = asked.json(LOADED).get("models")
    loaded = [mapping(entry) for entry in models] if isinstance(models, list) else []
    context = _context(asked, loaded)
    one = loaded[0] if len(loaded) == 1 else {}
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=text(asked.json(VERSION), "version"),
        context=context,
        advertised=context,
        model=text(one, "name") or model(asked, MODELS),
        flags={"auto_truncate": _TRUNCATES},
        settings=_settings(one),
        open_api=asked.reply(MODELS).serves,
        missing=("pool", "longest", "page_size"),
    )


def _context(asked: Asked, loaded: list[Mapping[str, object]]) -> Figure:
    source, problem = f"{LOADED} models[0]", asked.reply(LOADED).json_problem
    if problem is not None:
        return unknown(f"{source}.context_length", problem)
    if len(loaded) != 1:
        few = "no model is loaded: send one request first" if not loaded else f"{len(loaded)} models are loaded"
        return unknown(f"{source}.context_length", f"is not told: {few}")
    return figure(loaded[0], ("context_length",), source)


def _settings(one: Mapping[str, object]) -> dict[str, str]:
    details = mapping(one.get("details"))
    found = {name: one[name] for name in _SETTINGS if name in one} | {n: details[n] for n in _DETAILS if n in details}
    return {name: brief(value) for name, value in found.items()}


ADAPTER = Adapter(ENGINE, LOADED, recognises, (VERSION, MODELS), read)

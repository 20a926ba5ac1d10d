"""Find the model to serve, and fetch the one that PageFence embeds.

Needs nothing but the base install: no torch, no numpy.
"""

from __future__ import annotations

from pathlib import Path

from pagefence.models.fetching import fetch, located
from pagefence.models.known import DEFAULT_MODEL, KnownModel, ModelError, cache_dir, is_known, list_models

__all__ = [
    "DEFAULT_MODEL",
    "KnownModel",
    "ModelError",
    "cache_dir",
    "fetch",
    "list_models",
    "located",
    "resolve",
]


def resolve(model: str, cache: Path | None = None) -> Path:
    """The GGUF file or Hugging Face folder that `model` means: a known name (fetched when missing) or a path.

    Raises ModelError when it is neither.
    """
    if is_known(model):
        return fetch(model, cache)
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked_folder(path)
    if path.is_file():
        return _checked_gguf(path)
    names = ", ".join(named.name for named in list_models())
    raise ModelError(
        f"no model {model!r}: it is neither a file, a folder nor one of {names}. "
        "Give a GGUF file, a Hugging Face folder, or a name from `pagefence models`."
    )


def _checked_folder(path: Path) -> Path:
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ModelError(f"{path} is not a Hugging Face model folder: it has no {', no '.join(missing)}.")
    return path


def _checked_gguf(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}.") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file. Give a .gguf file or a Hugging Face folder.")
    return path

"""Chat templates, and what keeps the words of a message apart from those of the template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.models import ModelError

_PRIVATE_USE = range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE)


class Shield:
    """Hides from a template's output which characters of the messages could begin a control token.

    Each character that any control token begins with ("<", as a rule) is replaced in every string of the messages by
    a private-use character that occurs in none of them. After rendering, a control token in the text is the
    template's own, even if a client split one over two fields; `restore` then puts the client's characters back.
    One character stands for one, so lengths, trimming and splitting in a template work as ever.
    """

    def __init__(self, messages: Any, control: Iterable[str]) -> None:
        words = "".join(_strings(messages))
        firsts = sorted({token[0] for token in control if token and token[0] in words})
        free = (chr(code) for codes in _PRIVATE_USE for code in codes if chr(code) not in words)
        self._stand_ins = list(zip(firsts, free, strict=False))
        if len(self._stand_ins) < len(firsts):
            raise ValueError("a message uses every private-use character of Unicode")

    def hide(self, value: Any) -> Any:
        """A copy of `value` with every string in it shielded."""
        if isinstance(value, str):
            for char, stand_in in self._stand_ins:  # of a long text a hundred times faster than `translate`
                value = value.replace(char, stand_in)
            return value
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(item) for item in value]
        return value

    def restore(self, text: str) -> str:
        """`text` with the client's own characters again."""
        for char, stand_in in self._stand_ins:
            text = text.replace(stand_in, char)
        return text


class ChatTemplate:
    """A model's Jinja template, run in a sandbox: it comes from a file that somebody else made."""

    def __init__(self, source: str, bos: str, eos: str) -> None:
        # Settings and names are those that Hugging Face templates are written for.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
            self.syntax: nodes.Template = environment.parse(source)
        except TemplateError as error:
            raise ModelError(f"the model's chat template is not valid Jinja: {error}.") from error
        self.tokens = {"bos_token": bos, "eos_token": eos}

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> ChatTemplate | None:
        """The template in the file's metadata, if any."""
        source = file.get("tokenizer.chat_template")
        if source is None:
            return None
        tokens = file["tokenizer.ggml.tokens"]
        bos, eos = (file.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        return cls(source, "" if bos is None else tokens[bos], "" if eos is None else tokens[eos])

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """`chat_template.jinja`, else the entry in `tokenizer_config.json`, if any."""
        path, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
        try:
            settings = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
            source = path.read_text(encoding="utf-8") if path.is_file() else settings.get("chat_template")
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read the chat template in {folder}: {error}.") from error
        if isinstance(source, list):  # several, by name
            source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
        if source is None:
            return None
        return cls(source, _text_of(settings.get("bos_token")), _text_of(settings.get("eos_token")))

    def render(self, messages: Any, variables: Mapping[str, Any]) -> str:
        """The conversation as one text. Raises ValueError when the template refuses it."""
        try:
            return self._template.render(messages=messages, **self.tokens, **variables)
        except (TemplateError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from error


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _text_of(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token or "")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter as Hugging Face has it, arguments and all."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(layout: str) -> str:
    return datetime.now(UTC).strftime(layout)

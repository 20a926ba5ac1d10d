"""Text to token ids and back, for byte-level BPE vocabularies.

A control token such as `<|im_end|>` is only ever made from text that is trusted to hold one. `encode` takes a text for
plain text unless told otherwise, and `render_chat` lets the template write control tokens but never a message: a
tenant who could write them could end its own turn and speak as somebody else.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from pagefence.engine.model.chat import ChatTemplate, Shield
from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.models import ModelError

_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's token types

# GPT-4's pieces, but for how many digits go together.
_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    """What the name of a pre-tokenizer in a GGUF file stands for."""

    pieces: str | None = None  # a text's pieces, which no token crosses, as a regular expression; None: GPT-2's
    single_digits: bool = False  # every digit is cut off before that
    composed: bool = False  # a text is brought to Unicode's NFC first: llama.cpp leaves that out, the original does not
    whole: bool = False  # a piece that is a token is that token, whatever the merges would make of it
    adds_bos: bool = False  # where the file does not say


_LLAMA3 = _PreTokenizer(_GPT4.replace("DIGITS", "3"), whole=True, adds_bos=True)
_GLM4 = _PreTokenizer(_GPT4.replace("DIGITS", "3"))
_PRE_TOKENIZERS = {
    "gpt-2": _PreTokenizer(),
    "smollm": _PreTokenizer(single_digits=True),
    "qwen2": _PreTokenizer(_GPT4.replace("DIGITS", "1"), composed=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "glm4": _GLM4,
    "chatglm-bpe": _GLM4,
}


class Tokenizer:
    """A vocabulary with its chat template. Safe to share between threads: nothing changes after `load`.

    `control` maps the text of each control token to its id; `vocab` is the number of ids that can be decoded. A model
    may have more ids than its vocabulary has tokens (`ids`, padded for speed): those stand for no text.
    """

    def __init__(self, backend: Backend, template: ChatTemplate | None, ids: int = 0) -> None:
        self._backend = backend
        self._backend.encode_special_tokens = True  # "special tokens in a text are text": see `encode`
        self._backend.no_truncation()  # a file may ask for it, and a cut prompt would be answered as if it were whole
        self._backend.no_padding()
        self._template = template
        added = backend.get_added_tokens_decoder()
        self.control: Mapping[str, int] = {token.content: i for i, token in added.items() if token.special}
        self._control_ids = frozenset(self.control.values())
        self._bytes = _token_bytes(backend, added)
        self._bytes += [b""] * (ids - len(self._bytes))
        self._prefix: list[int] = backend.encode("", add_special_tokens=True).ids
        longest_first = sorted(self.control, key=len, reverse=True)
        self._splitter = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """From a GGUF file, or from the `tokenizer.json` of a Hugging Face folder. Raises ModelError."""
        if path.is_dir():
            return cls(_backend_from_folder(path), ChatTemplate.from_folder(path), _ids_of_folder(path))
        file = GGUFFile(path)
        return cls(_backend_from_gguf(file), ChatTemplate.from_gguf(file))

    @property
    def vocab(self) -> int:
        return len(self._bytes)

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    @property
    def template(self) -> ChatTemplate | None:
        """The model's own."""
        return self._template

    @property
    def prefix(self) -> tuple[int, ...]:
        """What `encode` puts around a text with `add_special`."""
        return tuple(self._prefix)

    def definition(self) -> Mapping[str, Any]:
        """All that decides how a text is cut, as `tokenizer.json` has it, without the vocabulary."""
        whole: dict[str, Any] = json.loads(self._backend.to_str())
        model = {name: value for name, value in whole["model"].items() if name not in ("vocab", "merges")}
        return whole | {"model": model}

    def count(self, text: str) -> int:
        """How many tokens `encode(text)` has; other threads run meanwhile. Raises ValueError for half a character."""
        try:
            return len(self._backend.encode_batch_fast([text], add_special_tokens=False)[0])
        except TypeError:
            raise ValueError("a text holds half a character (a lone surrogate)") from None

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        A byte for which the vocabulary has no token is dropped, as by the original tokenizer (the embedded model lacks
        six control characters and the planes of Unicode from 4 on). With `add_special` the ids begin with what the
        file asks for (a BOS token, say; nothing in the embedded model). With `parse_special` the names of control
        tokens in the text become those tokens: only for text that no client wrote.
        """
        ids = self._joined(self.segments(text)) if parse_special else self._plain(text)
        return [*self._prefix, *ids] if add_special else ids

    def encode_beside(self, text: str) -> list[int]:
        """As `encode(text)`; other threads run meanwhile. Raises ValueError for half a character."""
        try:
            return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        except TypeError:
            raise ValueError("a text holds half a character (a lone surrogate)") from None

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD. Raises ValueError for an id outside the vocabulary."""
        return b"".join(self.token_bytes(i, skip_special) for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """The bytes that one token stands for: none for a control token, unless `skip_special` is false."""
        if not 0 <= token < len(self._bytes):
            raise ValueError(f"token {token} is outside the vocabulary of {len(self._bytes)}")
        if skip_special and token in self._control_ids:
            return b""
        return self._bytes[token]

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of a conversation, by the model's own template.

        Strings anywhere in `messages` are text, whatever they contain. Raises ModelError when the model has no
        template, ValueError when the template refuses the messages.
        """
        variables = {"add_generation_prompt": add_generation_prompt, **variables}
        return self._joined(self.chat_segments(messages, variables))

    def chat_segments(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> list[str | int]:
        """A conversation as the template writes it: texts, between them the control tokens. Raises as `render_chat`.

        Strings of `messages` are text; those of `variables` may write control tokens, as the template does.
        """
        if self._template is None:
            raise ModelError("this model has no chat template: use /v1/completions, or a model that has one.")
        shield = Shield(messages, self.control)
        rendered = self._template.render(shield.hide(messages), variables)
        return [shield.restore(s) if isinstance(s, str) else s for s in self.segments(rendered)]

    def segments(self, text: str) -> list[str | int]:
        """A text that may write control tokens: texts, between them the control tokens."""
        pieces = self._splitter.split(text) if self._splitter else [text]
        return [self.control.get(piece, piece) for piece in pieces if piece]

    def _joined(self, segments: Iterable[str | int]) -> list[int]:
        ids: list[int] = []
        for segment in segments:
            ids += [segment] if isinstance(segment, int) else self._plain(segment)
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if not self._control_ids.isdisjoint(ids):
            raise ModelError("the tokenizer made a control token out of plain text: this vocabulary is not supported.")
        return ids


class IncrementalDecoder:
    """The text of one stream, as its tokens come.

    The deltas, `finish` included, add up to `Tokenizer.decode` of all ids. A character whose bytes are spread over
    several tokens comes out whole with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that became certain with `ids`, perhaps none. Raises ValueError as `decode` does."""
        return self._utf8.decode(b"".join(self._tokenizer.token_bytes(i, self._skip_special) for i in ids))

    def finish(self) -> str:
        """What an unfinished character leaves at the end of the stream: U+FFFD, or nothing."""
        return self._utf8.decode(b"", final=True)


def _backend_from_gguf(file: GGUFFile) -> Backend:
    if (kind := file["tokenizer.ggml.model"]) != "gpt2":
        raise ModelError(f"{file.path}: a {kind!r} vocabulary is not supported, only byte-level BPE (gpt2) is.")
    name = file.get("tokenizer.ggml.pre")  # an old file without one would be guesswork
    if (pre := _PRE_TOKENIZERS.get(name)) is None:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ModelError(
            f"{file.path}: pre-tokenizer {name!r} is not supported in a GGUF file (only {known}). "
            "Give the model as a Hugging Face folder: there tokenizer.json says it all."
        )
    if file.get("tokenizer.ggml.add_eos_token", False):
        raise ModelError(f"{file.path}: a prompt that ends with an EOS token (add_eos_token) is not supported.")
    tokens, kinds = file["tokenizer.ggml.tokens"], file["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in file["tokenizer.ggml.merges"]]
    backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, merges, ignore_merges=pre.whole))
    if pre.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Digits(individual_digits=True)] if pre.single_digits else []),
            *([pre_tokenizers.Split(Regex(pre.pieces), "isolated")] if pre.pieces else []),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.pieces is None),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([_added(t, True) for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL])
    backend.add_tokens([_added(t, False) for t, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED])
    bos = file.get("tokenizer.ggml.bos_token_id")
    if file.get("tokenizer.ggml.add_bos_token", pre.adds_bos) and bos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]}:0 $A:0", special_tokens=[(tokens[bos], bos)]
        )
    return backend


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _backend_from_folder(folder: Path) -> Backend:
    path = folder / "tokenizer.json"
    try:
        backend: Backend = Backend.from_file(str(path))
    except Exception as error:  # the Rust side raises plain Exception
        raise ModelError(f"cannot read {path}: {error}.") from error
    if not _is_byte_level(json.loads(path.read_text(encoding="utf-8")).get("decoder")):
        raise ModelError(f"{path}: this vocabulary is not supported, only byte-level BPE is.")
    return backend


def _ids_of_folder(folder: Path) -> int:
    path = folder / "config.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8")).get("vocab_size", 0)) if path.is_file() else 0
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"cannot read {path}: {error}.") from error


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", ())))


def _token_bytes(backend: Backend, added: Mapping[int, AddedToken]) -> list[bytes]:
    """The bytes of each id. An added token stands for its own text, another for the bytes its characters encode."""
    byte_of = _byte_alphabet()
    size = backend.get_vocab_size(with_added_tokens=True)
    table = [b""] * size
    for token, i in backend.get_vocab(with_added_tokens=True).items():
        if i >= size:
            raise ModelError(f"token id {i} in a vocabulary of {size}: ids with holes are not supported.")
        if i in added or not all(char in byte_of for char in token):
            table[i] = token.encode()
        else:
            table[i] = bytes(byte_of[char] for char in token)
    return table


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: a printable byte is itself, the others follow from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}

"""What lies beside the saved request bodies, so that their findings can be seen again: no key, no answer."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pagefence.fleet import Limits, Request
from pagefence.mistakes import Usage
from pagefence.probes.prompt import Prompt
from pagefence.probes.shot import Shot

FILE = "findings.json"
VERSION = 1
_LARGEST = 64 << 20
_FRAME, _LONGEST_TOKEN = 64, 64  # tokens that an engine puts around a prompt; bytes of a token on average, at most


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent: the shot, how many tokens its prompt had, and the name of the file with its body."""

    shot: Shot
    tokens: int
    counted: bool
    body: str


class Found(msgspec.Struct, frozen=True):
    """A finding, the request that it was made on, and the one that had planted the words, both by their names."""

    kind: str
    probe: str
    check: str
    what: str
    request: str
    planted_in: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """`url`: where it was sent. `support`: positive controls and signs of life, without which nothing is concluded."""

    version: int
    url: str
    seed: int
    limits: Limits
    requests: dict[str, Sent]
    support: list[str]
    findings: list[Found]

    @property
    def order(self) -> tuple[Sent, ...]:
        """What is sent, one after the other: support first, then each finding's planter right before its reader."""
        names = list(self.support)
        for request in dict.fromkeys(finding.request for finding in self.findings):
            planters = {f.planted_in for f in self.findings if f.request == request and f.planted_in is not None}
            names += [*sorted(planters), request]
        return tuple(self.requests[name] for name in names)


def read_manifest(evidence: Path) -> tuple[Manifest, Path]:
    """The manifest, and the folder that it and the bodies lie in. `evidence` is that folder or the JSON report.

    Raises Usage for one that is not there, was made by another version, or was tampered with so that it fits no more.
    """
    folder = evidence if evidence.is_dir() else evidence.with_name(evidence.name + ".evidence")
    file = evidence if evidence.name == FILE else folder / FILE
    try:
        raw = _content(file)
        manifest = msgspec.json.decode(raw, type=Manifest)
    except OSError as error:
        raise Usage(
            f"{evidence} holds no findings to repeat ({error.strerror}): name the folder of request bodies or the JSON "
            "report that it lies beside"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Usage(f"{file} is no list of findings of this version: {str(error)[:150]}") from None
    named = {*manifest.support, *(f.request for f in manifest.findings)}
    named |= {f.planted_in for f in manifest.findings if f.planted_in is not None}
    if manifest.version != VERSION or not named <= set(manifest.requests):
        raise Usage(f"{file} is no list of findings of this version: it names requests that are not there")
    return manifest, file.parent


def read_request(folder: Path, sent: Sent) -> tuple[Request, Prompt, str | None]:
    """The request as it was sent, its prompt, and the model that was asked. Raises Usage."""
    if Path(sent.body).name != sent.body:
        raise Usage(f"{sent.body!r} lies outside the folder of the findings")
    try:
        body = msgspec.json.decode(_content(folder / sent.body), type=dict[str, object])
        request, model = _request(body)
        _fits(sent, request)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        raise Usage(f"cannot read the request in {folder / sent.body}: {error}") from None
    return request, Prompt(request.prompt, sent.tokens, sent.counted), model


def _content(file: Path) -> bytes:
    """Of a file of sensible size; a pipe would be waited for. Raises OSError."""
    about = file.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if about.st_size > _LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return file.read_bytes()


def _fits(sent: Sent, request: Request) -> None:
    """The cost that is shown and what the judges look for are the list's, so the body must be the one that it means.

    Raises ValueError.
    """
    size, words = len(request.prompt.encode()), sent.shot.sentinel.words
    if not 0 < sent.tokens <= size + _FRAME or size > _LONGEST_TOKEN * sent.tokens:
        raise ValueError(f"its prompt has {size:,} bytes, and the list says {sent.tokens:,} tokens")
    if request.max_tokens != sent.shot.max_tokens or request.max_tokens < 1:
        raise ValueError("it has another max_tokens than the list")
    if not words or not all(word and word in request.prompt for word in words):
        raise ValueError("its prompt does not hold the words that the list looks for")


def _request(body: Mapping[str, object]) -> tuple[Request, str | None]:
    known = {"prompt", "max_tokens", "temperature", "seed", "model", "stream", "stream_options", "logit_bias"}
    bias = body.get("logit_bias")
    ban = tuple(int(token) for token in bias) if isinstance(bias, dict) else ()
    prompt, most, heat, seed = (body.get(name) for name in ("prompt", "max_tokens", "temperature", "seed"))
    if not isinstance(prompt, str) or not isinstance(most, int) or isinstance(most, bool):
        raise ValueError("it has no prompt or no max_tokens")
    model = body.get("model")
    request = Request(
        prompt=prompt,
        max_tokens=most,
        temperature=float(heat) if isinstance(heat, int | float) else 0.0,
        seed=seed if isinstance(seed, int) else 0,
        stream=body.get("stream") is True,
        ban=ban,
        extra=tuple((name, value) for name, value in body.items() if name not in known),
    )
    return request, model if isinstance(model, str) else None

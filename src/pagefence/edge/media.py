"""Which parts of a message may be other than text. An engine that fetches what a client names reaches inside (SSRF)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.edge.shape_parts import Content, MediaUrl, Part
from pagefence.edge.shapes import ChatRequest, ResponseRequest, Shape
from pagefence.mistakes import Usage

_TEXT = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
_MEDIA = frozenset({
    "image_url", "input_image", "video_url", "audio_url", "input_audio", "file", "input_file",
})  # fmt: skip


def check_cost(media: str, image_tokens: int | None) -> None:
    """Who lets images through says what one costs, or admission would refuse each. Raises Usage."""
    if media != "refuse" and image_tokens is None:
        raise Usage(
            f"policy.media = {media[:80]!r} lets images through, and nothing says what one costs: set "
            'admission.image_tokens to the most tokens of one image, or policy.media = "refuse"'
        )
    if media == "refuse" and image_tokens is not None:
        raise Usage(
            'admission.image_tokens says what an image costs, and policy.media = "refuse" lets none through: set '
            'policy.media = "data", or take image_tokens out'
        )


def check_media(shape: Shape, policy: Policy) -> Refusal | None:
    """The first part that the policy does not allow."""
    if not isinstance(shape, ChatRequest | ResponseRequest):
        return None
    for where, part in _parts(shape):
        refusal = _check(part, policy, where)
        if refusal is not None:
            return refusal
    return None


def _parts(shape: ChatRequest | ResponseRequest) -> Iterator[tuple[str, Part]]:
    for where, parts in _lists(shape):
        if isinstance(parts, list):
            for number, part in enumerate(parts):
                yield f"{where}[{number}]", part


def _lists(shape: ChatRequest | ResponseRequest) -> Iterator[tuple[str, Content | None]]:
    if isinstance(shape, ChatRequest):
        for index, message in enumerate(shape.messages):
            yield f"messages[{index}].content", message.content
    elif isinstance(shape.input, list):
        for index, item in enumerate(shape.input):
            yield f"input[{index}].content", item.content
            yield f"input[{index}].output", item.output
            yield f"input[{index}].summary", item.summary


def _check(part: Part, policy: Policy, where: str) -> Refusal | None:
    addresses = [_address(value) for value in (part.image_url, part.video_url, part.audio_url, part.file_url)]
    named = [address for address in (*addresses, part.file_data) if address is not None]
    carries = bool(named) or part.input_audio is not None or part.file is not None
    if part.type in _TEXT:
        return _refuse(where, "A part of text holds nothing else.") if carries else None
    if part.type not in _MEDIA:
        return _refuse(f"{where}.type", "There is no such kind of part.")
    if policy.media == "refuse":
        return _refuse(
            f"{where}.type",
            "Only text is taken here: the tokens of anything else are not counted. The operator can allow images with"
            ' media = "data" and image_tokens.',
        )
    if not carries:
        return _refuse(where, "It holds nothing of what it says it is.")
    return next((refusal for address in named if (refusal := _reachable(address, policy, where))), None)


def _address(value: str | MediaUrl | None) -> str | None:
    if isinstance(value, MediaUrl):
        return value.url or ""
    return value


def _reachable(address: str, policy: Policy, where: str) -> Refusal | None:
    """Bytes in place always; else only what an engine may fetch. Never a file of the server's."""
    scheme, host = _split(address)
    if scheme == "data":
        return None
    if policy.media == "any" and scheme in {"http", "https"}:
        return None
    if scheme == "https" and host in policy.media_hosts:
        return None
    return _refuse(where, "The server fetches nothing from there. Send the bytes, as a data URL.")


def _split(address: str) -> tuple[str, str | None]:
    """Scheme and host. What parsers could read differently (backslashes, users, ports, other letters) has no host."""
    if not address.isascii() or not address.isprintable() or any(char in address for char in "\\ "):
        return "", None
    if address[:5].lower() == "data:":
        return "data", None
    try:
        parts = urlsplit(address)
        return (parts.scheme, None) if "@" in parts.netloc or parts.port is not None else (parts.scheme, parts.hostname)
    except ValueError:
        return "", None


def _refuse(param: str, message: str) -> Refusal:
    return Refusal(400, "unsupported_content", message, param)

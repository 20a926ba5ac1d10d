"""What is well framed and still no answer of this API. Pure.

A length that was too short, or a connection that ended an answer, leaves JSON that is cut: half an answer must not look
whole (I5). A page of some other server, or its error in plain text, is nothing that a client of this API can read.
"""

from __future__ import annotations

import json

import msgspec

from pagefence.edge.refusal import Refusal
from pagefence.edge.wire.heads import ResponseHead

JSON, EVENTS = b"application/json", b"text/event-stream"


def unfit_head(head: ResponseHead) -> Refusal | None:
    """Why nothing of it goes to a client. Of an error the body decides (`unfit_content`)."""
    if 300 <= head.status < 400:
        return Refusal(502, "upstream_redirects", "the upstream answers with a redirect, which is not followed.")
    if head.headers.get(b"content-encoding", b"identity").lower() != b"identity":
        return Refusal(502, "upstream_encoded", "the upstream's answer is compressed, though it was asked not to be.")
    if head.status < 300 and _kind(head) not in (JSON, EVENTS):
        return Refusal(502, "upstream_unfit", "the upstream's answer is neither JSON nor a stream of events.")
    return None


def unfit_content(head: ResponseHead, content: bytes) -> Refusal | None:
    """Whether an answer that came to its end is one: JSON that is cut is not, nor is an error in words alone.

    Costs 1 us for 1 kB.
    """
    if _kind(head) == EVENTS or (_kind(head) == JSON and _is_json(content)):
        return None
    if head.status < 400:
        return Refusal(502, "upstream_malformed", "the upstream's answer ends before its JSON does.")
    said = f"the upstream answered with status {head.status} and without an error of this API."
    again = 1 if head.status in (429, 503) else None
    return Refusal(head.status, "upstream_error", said, retry_after_s=again)


def _kind(head: ResponseHead) -> bytes:
    """A type that is not said is JSON, or the content shows that it is not."""
    return head.headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except msgspec.DecodeError:
        return _is_json_to_others(content)
    return True


def _is_json_to_others(content: bytes) -> bool:
    """Half a surrogate pair is no reason to keep an answer back: most clients read it."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True

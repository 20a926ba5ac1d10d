"""What a client asks for, once it has been read and understood. Everything behind the reading works on this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Operation(StrEnum):
    """What may be asked, by the path under /v1/."""

    CHAT = "chat/completions"
    COMPLETION = "completions"
    RESPONSE = "responses"
    EMBEDDING = "embeddings"
    MODELS = "models"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose request it is. `name` is for the operator's own files; outside of them only `tag` may stand.

    isolation_key  derived on the server side (HMAC), sent to the engine as `cache_salt` (I7)
    tag            a keyed hash of the name, for logs, labels and findings
    """

    name: str
    isolation_key: str
    tag: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request that may go on. `body`: what was read, cleaned by the policy; what upstream gets is made from it.

    `size`: bytes of a body that came so large that what is done with it is done beside the event loop; else 0
    """

    operation: Operation
    tenant: Tenant
    request_id: str
    body: Mapping[str, Any]
    model: str | None
    stream: bool
    size: int = 0

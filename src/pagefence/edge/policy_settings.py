"""What an operator decides about requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pagefence.edge.fields import never
from pagefence.mistakes import Usage

Action = Literal["refuse", "strip"]
Unknown = Literal["refuse", "strip", "pass"]
Media = Literal["refuse", "data", "any"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The strictest by default. Raises Usage for what cannot be allowed.

    forbidden    fields and headers that a client must never set: the request is refused, or they are taken out
    unknown      fields that nobody knows; one that may never be set is none of them
    allow        fields that pass all the same, by name: those that need the operator's word, and unknown ones
    media        parts that are not text: none, such as carry their bytes (data URLs), or any http(s) address.
                 Admission has to know what an image costs (`image_tokens`), and refuses sound, video and files.
    media_hosts  hosts from which engines may fetch, with media = "data"
    """

    forbidden: Action = "refuse"
    unknown: Unknown = "refuse"
    allow: frozenset[str] = frozenset()
    media: Media = "refuse"
    media_hosts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for setting, value, values in (
            ("forbidden_fields", self.forbidden, get_args(Action)),
            ("unknown_fields", self.unknown, get_args(Unknown)),
            ("media", self.media, get_args(Media)),
        ):
            if value not in values:
                raise Usage(f"{setting} is one of {', '.join(values)}, not {value!r}")
        for name in sorted(self.allow):
            reason = never(name)
            if reason is not None:
                raise Usage(f"allow_fields cannot hold {name!r}: it {reason}")
        if self.media_hosts and self.media != "data":
            raise Usage('media_hosts says from where, and goes with media = "data"')

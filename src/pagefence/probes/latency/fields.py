"""How a log calls what is needed: OpenTelemetry's GenAI conventions first, then what engines and proxies write.

A name is looked up whole, then as a path (`usage.prompt_tokens`), at the top of a record and below `attributes`. A time
has its unit in the field's name or it is given; it is never guessed from the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pagefence.mistakes import Usage

TOKENS = ("gen_ai.usage.input_tokens", "prompt_tokens", "usage.prompt_tokens", "input_tokens", "num_prompt_tokens")
CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "cached_tokens",
    "usage.prompt_tokens_details.cached_tokens",
    "prompt_tokens_details.cached_tokens",
    "num_cached_tokens",
)
TTFT_S = (
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.server.time_to_first_token",
    "ttft_s",
    "ttft_seconds",
    "time_to_first_token_seconds",
)
TTFT_MS = ("ttft_ms", "time_to_first_token_ms")
AT = ("timestamp", "time", "@timestamp", "ts", "start_time", "created")
ERROR = ("error.type", "error")
STATUS = ("http.response.status_code", "status_code", "status")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNDER = ("attributes",)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names to look up, the first that a record has counts; `unit` is of every time to first token when it is given."""

    tokens: tuple[str, ...] = TOKENS
    cached: tuple[str, ...] = CACHED
    ttft: tuple[str, ...] = (*TTFT_S, *TTFT_MS)
    at: tuple[str, ...] = AT
    unit: str | None = None
    only: tuple[str, str] | None = None

    def scale(self, name: str) -> float:
        """Seconds in one unit of the field `name`."""
        if self.unit is not None:
            return UNITS[self.unit]
        return UNITS["ms"] if name in TTFT_MS else UNITS["s"]


def fields(given: Mapping[str, str | None]) -> Fields:
    """From flags. Raises Usage for a field of the user's own without its unit, and for a unit that is none."""
    own, unit, only = given.get("ttft_field"), given.get("ttft_unit"), given.get("only")
    if unit is not None and unit not in UNITS:
        raise Usage(f"--ttft-unit {unit[:20]!r} is none of {', '.join(UNITS)}")
    if own is not None and unit is None and own not in (*TTFT_S, *TTFT_MS):
        raise Usage(f"--ttft-field {own[:60]!r} has no unit: add --ttft-unit s, or ms")
    name, equals, value = (only or "").partition("=")
    if only is not None and not (name and equals):
        raise Usage(f"--only {only[:60]!r} is no FIELD=VALUE, such as gen_ai.request.model=my-model")
    return Fields(
        tokens=_names(given.get("tokens_field"), TOKENS),
        cached=_names(given.get("cached_field"), CACHED),
        ttft=_names(own, (*TTFT_S, *TTFT_MS)),
        at=_names(given.get("time_field"), AT),
        unit=unit,
        only=(name, value) if only is not None else None,
    )


def _names(own: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    return usual if own is None else (own,)


def find(record: Mapping[str, object], names: tuple[str, ...]) -> tuple[str, object] | None:
    """The first of `names` that the record has with a value, and that value."""
    places = [record, *(inner for under in _UNDER if isinstance(inner := record.get(under), dict))]
    for name in names:
        for place in places:
            value = _at(place, name)
            if value is not None and value != "":
                return name, value
    return None


def _at(place: object, name: str) -> object:
    if not isinstance(place, dict):
        return None
    if name in place or "." not in name:
        return place.get(name)
    first, _, rest = name.partition(".")
    return _at(place.get(first), rest)


def moment(value: object) -> float:
    """Unix seconds of ISO 8601 (without an offset it is UTC) or of a number of s, ms, us or ns. 0 for anything else.

    A number's unit shows in its size: no two of them can be the same year.
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                read = datetime.fromisoformat(str(value))
            except ValueError:
                return 0.0
            return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e8 < value < 1e19:
        return 0.0
    for most, scale in ((1e11, 1.0), (1e14, 1e-3), (1e17, 1e-6)):
        if value < most:
            return float(value) * scale
    return float(value) * 1e-9

"""What a request holds beyond its shape: refused, taken out, or let through, field by field and at any depth.

Runs only for a request that has such a field; the others never leave msgspec's C.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from pagefence.edge.fields import GUARDED, NEUTRAL, never, squeezed
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal

_ECHO = 80

Pair = tuple[Any, Any]
"""What the shape knows of a value, and that with everything that may stand beside it."""


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def settle(body: Mapping[str, Any], shape: type[msgspec.Struct], policy: Policy) -> Pair | Refusal:
    """`body` without what the policy takes out: without what it lets through (for the check of types), and with it."""
    try:
        return _object(body, shape, policy, "")
    except _Refused as refused:
        return refused.refusal


def _object(value: Mapping[str, Any], shape: type[msgspec.Struct], policy: Policy, where: str) -> Pair:
    known: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    inner = _inner_shapes(shape)
    for name, item in value.items():
        path = where + name
        if name in inner:
            known[name], whole[name] = _value(item, inner[name], policy, path)
        elif _passes(name, item, shape, policy, path):
            whole[name] = _passed(item, policy, path)
    return known, whole


def _value(item: Any, shape: type[msgspec.Struct] | None, policy: Policy, where: str) -> Pair:
    if shape is None:
        return item, item
    if isinstance(item, dict):
        return _object(item, shape, policy, f"{where}.")
    if not isinstance(item, list):
        return item, item
    pairs = [_value(part, shape, policy, f"{where}[{index}]") for index, part in enumerate(item)]
    return [known for known, _ in pairs], [whole for _, whole in pairs]


def _passes(name: str, item: Any, shape: type[msgspec.Struct], policy: Policy, path: str) -> bool:
    """Whether a field that the shape does not know stays. Raises where it must not even be there."""
    reason = never(name)
    if reason is not None:
        return _stop(policy.forbidden == "strip", _forbidden(path, reason))
    if name in policy.allow:
        return True
    reason = GUARDED.get(squeezed(name))
    if reason is not None:
        harmless = item is None or any(_same(item, value) for value in NEUTRAL.get(name, ()))
        return _stop(harmless or policy.forbidden == "strip", _guarded(path, name, reason))
    twin = _twins(shape).get(squeezed(name))
    if twin is not None:
        return _stop(policy.unknown == "strip", _misspelt(path, twin))
    if policy.unknown == "pass":
        return True
    return _stop(item is None or policy.unknown == "strip", _unknown(path, name))


def _passed(value: Any, policy: Policy, path: str) -> Any:
    """What nobody checked, without the names that may never come from a client, at any depth."""
    if isinstance(value, list):
        return [_passed(item, policy, f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for name, item in value.items():
        here = f"{path}.{name}"
        reason = never(name)
        guarded = None if name in policy.allow else GUARDED.get(squeezed(name))
        if reason is not None:
            _stop(policy.forbidden == "strip", _forbidden(here, reason))
        elif guarded is not None:
            _stop(policy.forbidden == "strip", _guarded(here, name, guarded))
        else:
            kept[name] = _passed(item, policy, here)
    return kept


def _stop(quietly: bool, refusal: Refusal) -> bool:
    """Take a field out, with or without a word."""
    if not quietly:
        raise _Refused(refusal)
    return False


def _same(value: object, neutral: object) -> bool:
    """Equal, and not true for 1."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def shown(path: str) -> str:
    """A name that a client chose, short enough to say back."""
    return path if len(path) <= _ECHO else path[:_ECHO] + "..."


def _forbidden(path: str, reason: str) -> Refusal:
    message = f"'{shown(path)}' must not be sent by a client: it {reason}."
    return Refusal(400, "forbidden_parameter", message, shown(path))


def _guarded(path: str, name: str, reason: str) -> Refusal:
    message = (
        f"'{shown(path)}' is not taken from clients here: it {reason}. The operator can allow it with"
        f' allow_fields = ["{shown(name)}"].'
    )
    return Refusal(400, "forbidden_parameter", message, shown(path))


def _misspelt(path: str, twin: str) -> Refusal:
    message = f"'{shown(path)}' could be read as '{twin}'; send that."
    return Refusal(400, "unknown_parameter", message, shown(path))


def _unknown(path: str, name: str) -> Refusal:
    message = (
        f"'{shown(path)}' is no field that is known here. The operator can allow it with"
        f' allow_fields = ["{shown(name)}"], or settle all such fields with unknown_fields = "strip" or "pass".'
    )
    return Refusal(400, "unknown_parameter", message, shown(path))


# --- what a shape knows -------------------------------------------------------------------------------------------


@functools.cache
def _inner_shapes(shape: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct] | None]:
    """The fields of a shape, each with the shape of the objects that it may hold."""
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _shape_in(field.type) for field in described.fields}


def _shape_in(described: inspect.Type) -> type[msgspec.Struct] | None:
    if isinstance(described, inspect.StructType):
        return described.cls
    if isinstance(described, inspect.ListType):
        return _shape_in(described.item_type)
    if isinstance(described, inspect.UnionType):
        return next((found for part in described.types if (found := _shape_in(part)) is not None), None)
    return None


@functools.cache
def _twins(shape: type[msgspec.Struct]) -> Mapping[str, str]:
    return {squeezed(name): name for name in _inner_shapes(shape)}

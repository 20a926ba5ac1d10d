"""The fault catalogue: one module per fault, each with a `FAULT`. A new module here is in the catalogue at once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from pagefence.lab.fault import Fault
from pagefence.mistakes import Mistake


class UnknownFault(Mistake):
    """No fault of this name; the message lists those that exist."""


def _catalogue() -> Mapping[str, Fault]:
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    found: dict[str, Fault] = {}
    for module in modules:
        fault: Fault = module.FAULT
        if fault.name in found:
            raise ValueError(f"{module.__name__}: there is a fault {fault.name!r} already")
        found[fault.name] = fault
    return found


FAULTS: Mapping[str, Fault] = _catalogue()


def find(name: str) -> Fault:
    """The fault of this name. Raises UnknownFault."""
    fault = FAULTS.get(name)
    if fault is None:
        raise UnknownFault(f"no fault {name!r}; faults are {', '.join(FAULTS)}")
    return fault

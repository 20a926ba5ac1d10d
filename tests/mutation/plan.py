"""How a mutant gets into a process: into functions that live already, or by way of a fresh import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from .mutants import Mutant, SourceFile


def patch(source: SourceFile, mutant: Mutant) -> None:
    """Give the function its wrong code, or the table its wrong rule.

    Everybody who holds the function has it: tables, importers, properties.
    """
    if mutant.cell:
        exec(f"{mutant.scope} = {ast.unparse(source.places[mutant].new)}", vars(sys.modules[source.module]))
        return
    code = next(_codes_of(source.mutated(mutant), mutant.scope))
    target: Any = sys.modules[source.module]
    for name in mutant.scope.split("."):
        target = vars(target)[name]
    if isinstance(target, property):
        target = target.fget
    function = getattr(target, "__func__", target)
    assert isinstance(function, FunctionType)
    function.__code__ = code


def _codes_of(code: CodeType, qualname: str) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualname:
                yield constant
            yield from _codes_of(constant, qualname)


class _Loader(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        """The wrong code, and nothing from the cache."""
        return self.code


class MutatedImport(MetaPathFinder):
    """From here on the module is imported with the mutant in it. It must not have been imported before."""

    def __init__(self, source: SourceFile, mutant: Mutant) -> None:
        assert source.module not in sys.modules
        self.source = source
        self.loader = _Loader(source.module, str(source.path))
        self.loader.code = cast(CodeType, source.mutated(mutant))
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Only the one module."""
        if fullname != self.source.module:
            return None
        return spec_from_file_location(fullname, self.source.path, loader=self.loader)

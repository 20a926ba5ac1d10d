"""What happens to the mutants of a file: each is put into a process of its own, and the tests are asked."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from functools import partial

import pytest

from . import limits
from .explained import reasons
from .ledger import Entry, Ledger, Outcome, digest_of
from .mutants import Mutant, SourceFile
from .plan import MutatedImport, patch
from .session import Survey, first_failure, in_order, run_pytest, tree_digest


class Judge:
    """Judges by the tests as they were surveyed. When a file changes meanwhile, it stops."""

    def __init__(self, ledger: Ledger, tree: str, survey: Survey) -> None:
        self.ledger = ledger
        self.tree = tree
        self.survey = survey
        self.tests = digest_of(survey)
        self.explained = reasons()

    def judge(self, source: SourceFile) -> None:
        """Every mutant of the file that is not known yet."""
        pending = [mutant for mutant in source.places if self.ledger.verdict(mutant, self.survey) is None]
        # A survivor meets every test. Those that are expected to survive come last.
        pending.sort(key=lambda mutant: mutant.key in self.explained)
        print(f"{source.file}: {len(pending)} of {len(source.places)} mutants to judge", flush=True)
        inside = [mutant for mutant in pending if not mutant.whole]
        if inside:
            status, _ = limits.in_a_child(partial(self._session, source=source, mutants=inside))
            if status != 0:
                sys.exit(f"{source.file}: the session broke off; run again, it goes on from here")
        for mutant in pending:
            if mutant.whole:
                status, said = limits.in_a_child(partial(self._import_anew, source=source, mutant=mutant))
                self._require_same_tree()
                self._note(mutant, status, said)

    def _session(self, _: int, source: SourceFile, mutants: list[Mutant]) -> None:
        """One warm session for all that only needs a function's code replaced, and a fork of it for each mutant."""

        def loop(session: pytest.Session) -> None:
            self._require_same_tree()
            telling: dict[str, Counter[str]] = defaultdict(Counter)
            for mutant in mutants:
                counts = telling[mutant.scope]
                order = in_order(session.items, self.survey, mutant.function, counts)
                if order:
                    status, said = limits.in_a_child(
                        partial(self._replace_code, source=source, mutant=mutant, order=order)
                    )
                    counts[self._note(mutant, status, said)] += 1
                else:
                    self._add(mutant, "never run")

        if run_pytest(loop) != 0:
            raise RuntimeError("the session broke off")

    def _replace_code(self, out: int, source: SourceFile, mutant: Mutant, order: list[pytest.Item]) -> None:
        patch(source, mutant)
        limits.confine()
        os.write(out, (first_failure(order, self.survey) or "").encode())

    def _import_anew(self, out: int, source: SourceFile, mutant: Mutant) -> None:
        """What is fixed when a module is imported needs a session of its own."""
        limits.confine()
        limits.allow_cpu(30)
        MutatedImport(source, mutant)
        judged: list[str | None] = []

        def loop(session: pytest.Session) -> None:
            judged.append(first_failure(in_order(session.items, self.survey, None, Counter()), self.survey))

        run_pytest(loop)
        os.write(out, (judged[0] or "").encode() if judged else b"it cannot be imported")

    def _note(self, mutant: Mutant, status: int, said: bytes) -> str:
        by = said.decode()
        if os.WIFSIGNALED(status):
            self._add(mutant, "out of time")
        elif status != 0 or by:
            self._add(mutant, "killed", by or "the process broke off")
        else:
            self._add(mutant, "survived")
        return by

    def _add(self, mutant: Mutant, outcome: Outcome, by: str = "") -> None:
        test = self.survey[by].source if by in self.survey else ""
        self.ledger.add(Entry(*mutant.key, mutant.source, outcome, by, test, self.tests))
        if outcome in ("survived", "never run"):
            print(f"  {outcome}: {mutant.scope} | {mutant.change}", flush=True)

    def _require_same_tree(self) -> None:
        if tree_digest() != self.tree:
            sys.exit("a file changed while its mutants were judged; run again, it goes on from here")

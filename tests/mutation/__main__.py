"""`python -m tests.mutation [FILE ...]`: judge every mutant that is not known yet, then report.

Stop it whenever you like; the next run goes on. Only functions that changed are judged again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import immutables  # noqa: F401  # what every fork would otherwise load anew

from .judge import Judge
from .ledger import Ledger
from .mutants import SOURCE, SourceFile
from .report import report
from .session import take_survey

ROOMS = ("pool", "protocol")
# A page for people: what it says of the tables is compared with the documentation, word for word.
WITHOUT = {"__init__.py", "table.py"}
PROJECT = Path(__file__).parents[2]
KEPT = PROJECT / "build" / "mutation"


def main() -> int:
    """Zero when the score is reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="as pool/slots.py; all when left out")
    parser.add_argument("--report", action="store_true", help="only say what is known")
    parser.add_argument("--least", type=float, default=95.0, help="the score in per cent that is asked for")
    ask = parser.parse_args()
    os.chdir(PROJECT)
    KEPT.mkdir(parents=True, exist_ok=True)
    files = ask.files or [f"{room}/{path.name}" for room in ROOMS for path in sorted((SOURCE / room).glob("*.py"))]
    sources = [SourceFile(file) for file in files if Path(file).name not in WITHOUT]
    tree, survey = take_survey(KEPT / "survey.json")
    ledger = Ledger(KEPT / "results.jsonl")
    if not ask.report:
        judge = Judge(ledger, tree, survey)
        for source in sources:
            judge.judge(source)
    # The forks wrote it, so it is read anew.
    return report(sources, Ledger(ledger.path), survey, ask.least)


if __name__ == "__main__":
    sys.exit(main())

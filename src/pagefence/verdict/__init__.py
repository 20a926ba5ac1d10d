"""Evidence to verdict, with statistics, and the reports: terminal and JSON."""

from pagefence.verdict.decide import CLEAN, Verdict, decide

__all__ = ["CLEAN", "Verdict", "decide"]

"""Probes ask a fleet and yield evidence: gate, boundary, canary, race. They judge answers; `verdict` judges the run."""

from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.examine import PROBES, Config, Examination, examine

__all__ = ["PROBES", "Check", "Config", "Evidence", "Examination", "Kind", "ProbeResult", "examine"]

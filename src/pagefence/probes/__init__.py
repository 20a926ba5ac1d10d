"""Probes ask a fleet and yield evidence: gate, boundary, canary, salt, conservation.

They judge answers; `verdict` judges the run.
"""

from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.examination import PROBES, Config, Examination
from pagefence.probes.examine import examine

__all__ = ["PROBES", "Check", "Config", "Evidence", "Examination", "Kind", "ProbeResult", "examine"]

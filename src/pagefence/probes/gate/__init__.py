"""The deploy gate: rules as data and pure functions, held against what a fleet says of itself."""

from pagefence.probes.gate.asked import ActiveResults
from pagefence.probes.gate.drift import may_approve
from pagefence.probes.gate.judge import NAME, RULES, gate
from pagefence.probes.gate.policy import HEADROOM, Policy
from pagefence.probes.gate.rule import label

__all__ = ["HEADROOM", "NAME", "RULES", "ActiveResults", "Policy", "gate", "label", "may_approve"]

"""Any live fleet seen through one interface: roles, capacity per node, limits, answers. No judgement here."""

from pagefence.fleet.answer import Answer, ErrorBody
from pagefence.fleet.facts import Figure, FleetFacts, Limits, NodeFacts
from pagefence.fleet.http import Fleet, Leave, Request
from pagefence.fleet.target import Keys, Target

__all__ = [
    "Answer",
    "ErrorBody",
    "Figure",
    "Fleet",
    "FleetFacts",
    "Keys",
    "Leave",
    "Limits",
    "NodeFacts",
    "Request",
    "Target",
]

"""Every answer that passes the edge is watched: its counts, its end, its time, its order, and whose text it holds."""

from pagefence.edge.watching.actions import Action, Actions, Orders, orders
from pagefence.edge.watching.book import Book
from pagefence.edge.watching.expected import Expected, of_admitted
from pagefence.edge.watching.finding import RULES, Doubt, Finding, Kind
from pagefence.edge.watching.generations import Bounds
from pagefence.edge.watching.memory import Manner, Memory
from pagefence.edge.watching.order import ResponseIds
from pagefence.edge.watching.prefixes import Prefixes
from pagefence.edge.watching.sentinels import Sentinels
from pagefence.edge.watching.watch import Watch
from pagefence.probes.sentinel_file import read_sentinels

__all__ = [
    "RULES", "Action", "Actions", "Book", "Bounds", "Doubt", "Expected", "Finding", "Kind", "Manner", "Memory",
    "Orders", "Prefixes", "ResponseIds", "Sentinels", "Watch", "of_admitted", "orders", "read_sentinels",
]  # fmt: skip

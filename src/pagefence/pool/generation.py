"""One 64-bit counter per page or slot answers two questions at once: is it occupied, and is it still the same tenancy?

Odd means occupied. Occupying and releasing each add one, so a handle taken during one tenancy never compares equal
during another, and a comparison with a stale handle fails whether the place is free or let again.
A place whose counter has no next even value is retired rather than wrapped: generation 1 must never come back.
"""

LAST_GENERATION = 2**64 - 1


def is_occupied(generation: int) -> bool:
    """True while somebody holds the place."""
    return generation & 1 == 1


def must_retire(generation: int) -> bool:
    """True when releasing a place of this (odd) generation would wrap its counter."""
    return generation >= LAST_GENERATION

"""Asks at every limit and just over it: what fits is answered in full, what does not gets the original error."""

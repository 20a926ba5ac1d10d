"""Findings of an earlier run, asked for again: the planting request and the reading one, and the same judges."""

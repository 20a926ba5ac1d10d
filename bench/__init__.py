"""Measurements: what the guards cost, and how the engine compares with others on this machine. See `make help`."""

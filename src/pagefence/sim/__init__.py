"""A deterministic world that drives the machines of `protocol/` under hostile schedules: explorer and simulator."""

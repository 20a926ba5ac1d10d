"""Known bugs of this class as faults that can be switched on: each overrides one decision of a machine."""

"""The guard in front of a fleet: nothing reaches a rejection path, every answer is watched."""

"""The hand-off as pure state machines: step(state, message) -> (state, effects).

Sockets, tensors and clocks live outside.

Three machines (`router`, `prefill`, `decode`) share the words of `messages` and decide through `decisions`, so that a
fault can replace one decision and nothing else. `table` prints every message and transition.
"""

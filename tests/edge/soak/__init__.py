"""A soak of the edge: real processes, upstreams that die, hang and lie, clients that leave, dawdle and pipeline."""

"""The serving engine: the machines of `pagefence.protocol`, driven for real by processes, sockets and tensors."""

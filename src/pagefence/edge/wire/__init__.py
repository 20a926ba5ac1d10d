"""HTTP/1.1 as bytes: heads and bodies, strict, without sockets. What is not in the grammar is refused, never mended."""

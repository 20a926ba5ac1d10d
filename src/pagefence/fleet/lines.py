"""The lines of a stream of events, from its bytes.

An HTTP library splits text as Python does, also at U+2028, U+0085 and their like, which JSON may hold as they are: an
event would be torn, and its words never looked at. And it decodes as the answer's header says, which may name anything.
Events are UTF-8, and their lines end with CR, LF or both.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

_END = re.compile(rb"\r\n|\n|\r")


async def lines(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes | None]:
    """Each line without its end; None, and nothing more, when more than `most` bytes came."""
    rest, searched, size = bytearray(), 0, 0
    async for chunk in chunks:
        size += len(chunk)
        rest += chunk
        start = 0
        while (end := _END.search(rest, max(start, searched))) is not None:
            if end.end() == len(rest) and end[0] == b"\r":
                break  # an LF may follow in the next chunk
            yield bytes(rest[start : end.start()])
            start = end.end()
        del rest[:start]
        searched = max(0, len(rest) - 1)
        if size > most:
            yield None
            return
    if rest:
        yield bytes(rest.removesuffix(b"\r"))

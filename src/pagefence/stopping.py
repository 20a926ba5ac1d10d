"""How a service hears that it should end."""

from __future__ import annotations

import asyncio
import signal


class Stop:
    """SIGINT and SIGTERM: the first asks for the end, the second for an end at once."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[signal.Signals] = loop.create_future()
        self.second: asyncio.Future[signal.Signals] = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._came, number)

    def _came(self, number: signal.Signals) -> None:
        for future in (self.first, self.second):
            if not future.done():
                future.set_result(number)
                return

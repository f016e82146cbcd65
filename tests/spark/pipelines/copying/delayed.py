"""A wire with a round trip: a proxy in a thread, which hands on what both sides say later, and can be cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Wire:
    """The proxy.

    Attributes:
        address: where clients connect.
        cuts: how often connections were cut.
    """

    def __init__(self, target: str, delay_s: float) -> None:
        self.address = ""
        self.cuts = 0
        self._target = target
        self._delay_s = delay_s
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_over = asyncio.Event()
        self._is_open = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def open(self) -> None:
        self._thread.start()
        self._is_open.wait(10)

    def cut(self) -> None:
        """End all connections; what is on the wire is lost."""
        self.cuts += 1
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_open.set()
        await self._is_over.wait()
        server.close()
        while len(asyncio.all_tasks()) > 1:  # connections may begin meanwhile
            self._cut()
            await asyncio.sleep(0.01)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        pair = {writer, far_writer}
        self._writers |= pair
        await asyncio.gather(self._hand_on(reader, far_writer), self._hand_on(far_reader, writer))
        self._writers -= pair

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def write(chunk: bytes) -> None:
            if not writer.is_closing():
                writer.write(chunk)

        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 20):
                self._loop.call_later(self._delay_s, write, chunk)
        await asyncio.sleep(self._delay_s)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@contextmanager
def wire_to(target: str, delay_s: float) -> Iterator[Wire]:
    wire = Wire(target, delay_s)
    wire.open()
    try:
        yield wire
    finally:
        wire.close()

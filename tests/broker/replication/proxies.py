"""A wire that can be cut: a proxy between a slave and its master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Wire:
    """Passes on what both sides say, as long as it is whole.

    Attributes:
        address: where the slave connects.
        is_whole: while it is not set, nothing arrives on either side, and nobody is told.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self.is_whole = asyncio.Event()
        self.is_whole.set()
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.is_whole.wait()
        host, _, port = self._target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.ensure_future(self._pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            try:
                while chunk := await reader.read(1 << 16):
                    await self.is_whole.wait()
                    writer.write(chunk)
                    await writer.drain()
            finally:
                writer.close()

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def wire_to(target: str) -> AsyncIterator[Wire]:
    wire = Wire(target)
    server = await asyncio.start_server(wire.take, "127.0.0.1", 0)
    wire.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        server.close()
        await wire.end()

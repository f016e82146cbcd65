"""A master for tests, by its bytes: it ships what a test says, and hears what the slave reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.protocol import replication
from sparrowmq.protocol.replication import GREETING, HEAD, HELLO_SIZE, PROOF_SIZE, REPORT
from tests.broker.replication.slaves import ended


class Followed:
    """One slave's connection, at the master's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def report(self) -> int:
        """What the slave says next."""
        offset: int = REPORT.unpack(await asyncio.wait_for(self.reader.readexactly(REPORT.size), 10))[0]
        return offset

    async def reported(self, offset: int) -> None:
        """Return when the slave has said so."""
        while await self.report() != offset:
            pass

    def ship(self, offset: int, content: bytes = b"") -> None:
        """Some of the log, or a sign of life."""
        self.writer.write(HEAD.pack(offset, len(content)) + content)

    async def has_left(self) -> bool:
        """Whether the slave ends the connection, whatever it says before."""
        return await ended(self.reader)

    async def introduce(self, secret: str, shown: bytes | None = None) -> bool:
        """Show that the secret is known; whether the slave does, too."""
        slaves = await asyncio.wait_for(self.reader.readexactly(HELLO_SIZE), 10)
        assert slaves.startswith(GREETING)
        mine = replication.hello()
        self.writer.write(mine + (shown or replication.proof(secret, "master", slaves, mine)))
        try:
            proof = await asyncio.wait_for(self.reader.readexactly(PROOF_SIZE), 10)
        except asyncio.IncompleteReadError:
            return False
        return replication.is_proof(secret, "slave", slaves, mine, proof)


class ScriptedMaster:
    """A haListenPort, as HAService of 4.9 has it.

    Attributes:
        count: how often a slave came.
    """

    def __init__(self) -> None:
        self.count = 0
        self.address = ""
        self.all: list[Followed] = []
        self._came: asyncio.Queue[Followed] = asyncio.Queue()

    async def slave(self) -> Followed:
        """The next slave that comes."""
        return await asyncio.wait_for(self._came.get(), 20)

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        self.all.append(Followed(reader, writer))
        self._came.put_nowait(self.all[-1])


@asynccontextmanager
async def scripted_master(port: int = 0) -> AsyncIterator[ScriptedMaster]:
    master = ScriptedMaster()
    server = await asyncio.start_server(master.take, "127.0.0.1", port)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield master
    finally:
        server.close()
        for slave in master.all:
            slave.writer.close()
        await asyncio.gather(*(slave.writer.wait_closed() for slave in master.all), return_exceptions=True)

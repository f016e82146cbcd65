"""A slave for tests, by its bytes: it says what a test says, and keeps what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.protocol import replication
from sparrowmq.protocol.replication import HEAD, HELLO_SIZE, PROOF_SIZE, REPORT


async def ended(reader: asyncio.StreamReader) -> bool:
    """True once the other side has ended the connection. Raises: TimeoutError, if it says nothing for 10 s."""
    try:
        while await asyncio.wait_for(reader.read(1 << 16), 10):
            pass
    except ConnectionError:
        pass
    return True


class ScriptedSlave:
    """One connection to a master's haListenPort, as HAClient of 4.9 speaks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.log = b""
        self.began_at: int | None = None

    def report(self, offset: int) -> None:
        self.writer.write(REPORT.pack(offset))

    async def piece(self) -> tuple[int, bytes]:
        """The next piece, or sign of life."""
        offset, size = HEAD.unpack(await asyncio.wait_for(self.reader.readexactly(HEAD.size), 10))
        content = await asyncio.wait_for(self.reader.readexactly(size), 10)
        return offset, content

    async def follow(self, until: int) -> bytes:
        """All of the log up to an offset."""
        while (self.began_at or 0) + len(self.log) < until:
            offset, content = await self.piece()
            if self.began_at is None:
                self.began_at = offset
            assert offset == self.began_at + len(self.log)
            self.log += content
        return self.log

    async def heard(self) -> bytes:
        """The next bytes; none if the master has ended the connection. Raises: TimeoutError."""
        return await asyncio.wait_for(self.reader.read(100), 10)

    async def is_let_go(self) -> bool:
        """Whether the master ends the connection, whatever it says before."""
        return await ended(self.reader)

    async def introduce(self, secret: str, shown: bytes | None = None) -> bool:
        """Show that the secret is known; whether the master does, too."""
        mine = replication.hello()
        self.writer.write(mine)
        hers = await asyncio.wait_for(self.reader.readexactly(HELLO_SIZE), 10)
        proof = await asyncio.wait_for(self.reader.readexactly(PROOF_SIZE), 10)
        self.writer.write(shown or replication.proof(secret, "slave", mine, hers))
        return replication.is_proof(secret, "master", mine, hers, proof)


@asynccontextmanager
async def slave_at(address: str) -> AsyncIterator[ScriptedSlave]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield ScriptedSlave(reader, writer)
    finally:
        writer.close()

"""An inbox in a file of SQLite: handlers with `@idempotent` write effects to it, and the checker counts them.

a delivery ─> mark and effects in one transaction ─> the handler ends as `plan.fate` says ─> commit, or none of it
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.once import idempotent
from sparrowmq.once.sql import SqlStore, metadata

FILE: Final = "effects.db"
PORTION: Final = 500
LOCKED_S: Final = 60.0  # all members write to one file

EFFECTS: Final = sa.Table("effects", sa.MetaData(), sa.Column("message", sa.Text, nullable=False, index=True))

OfPortion = Callable[[list[ReceivedMessage]], Awaitable[None]]


@asynccontextmanager
async def with_inbox(file: Path, group: str, end: OfPortion) -> AsyncIterator[OfPortion]:
    """A handler of portions: an effect for each message that the inbox does not know, then `end` in the transaction."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", connect_args={"timeout": LOCKED_S})

    @idempotent(SqlStore(engine), name=group)
    async def bill(messages: list[ReceivedMessage], connection: AsyncConnection) -> None:
        await connection.execute(sa.insert(EFFECTS), [{"message": each.text()} for each in messages])
        await end(messages)

    try:
        yield bill
    finally:
        await engine.dispose()


class Effects:
    """Reads what the handlers have written.

    Args:
        file: is made unless an earlier part of the run has made it.
    """

    def __init__(self, file: Path) -> None:
        self._engine = sa.create_engine(f"sqlite:///{file}", connect_args={"timeout": LOCKED_S}, poolclass=sa.NullPool)
        with self._engine.connect() as connection:
            # Written to the system at each commit: it survives the death of a process, which is all that happens here.
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        metadata.create_all(self._engine)
        EFFECTS.create(self._engine, checkfirst=True)

    def of(self, messages: Sequence[str]) -> dict[str, int]:
        """The number of effects of each of these messages that has any."""
        effects, message = sa.func.count(), EFFECTS.c.message
        with self._engine.connect() as connection:
            return {
                name: count
                for some in (messages[at : at + PORTION] for at in range(0, len(messages), PORTION))
                for name, count in connection.execute(
                    sa.select(message, effects).where(message.in_(some)).group_by(message)
                )
            }

    def doubled(self) -> list[str]:
        """The messages with more than one effect, of all parts of the run."""
        message = EFFECTS.c.message
        with self._engine.connect() as connection:
            query = sa.select(message).group_by(message).having(sa.func.count() > 1)
            return list(connection.execute(query).scalars())

    def count(self) -> int:
        """The number of all effects."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(EFFECTS)).scalar_one()

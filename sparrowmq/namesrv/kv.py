"""Small settings that operators keep at the name server, by namespace and key, on disk before they are confirmed.

Only one namespace has a meaning. ORDER_TOPIC_CONFIG fixes the queues of an ordered topic, even if brokers come and go:
"broker-a:4;broker-b:4". File and format are those of Java 4.9.8, KVConfigManager.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import write_problem

Table = dict[str, dict[str, str]]
log = logging.getLogger(__name__)


class _Saved(Struct, rename="camel"):
    config_table: Table


class KeyValues:
    """The values by namespace and key, and their file. Raises: BadStore, the file and its copies are damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = snapshot.load(path, _Saved, report=log.warning)
        self.problem = ""  # why the file could not be written; "" once it was
        self._table: Table = saved.config_table if saved else {}
        self._one_at_a_time = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        return dict(self._table.get(namespace, {}))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises: OSError, the value was not saved and is not set."""
        async with self._one_at_a_time:
            await self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if it exists. Raises: OSError, as `put`."""
        async with self._one_at_a_time:
            remaining = {name: value for name, value in self._table.get(namespace, {}).items() if name != key}
            if self.get(namespace, key) is not None:
                await self._replace({**self._table, namespace: remaining})

    async def _replace(self, table: Table) -> None:
        """Save the file first: a value that can be read is on disk."""
        try:
            await asyncio.to_thread(snapshot.save, self.path, _Saved(table))
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {write_problem(error)}"
            raise
        self._table, self.problem = table, ""

    async def try_again(self) -> None:
        """See whether the file can be written again, if it could not."""
        if self.problem:
            async with self._one_at_a_time:
                with suppress(OSError):
                    await self._replace(self._table)

"""A slave's state: topics, groups and offsets change as the journal's records come with its master's log.

the queue of rmq_sys_sparrow_state grows ── each record changes the tables in place ── their files are saved later
a topic was deleted                      ── its queues go, but for messages behind the record
a snapshot ends                          ── the tables have its content, and nothing else
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.state.change import BEGIN, END, Change, Tables
from sparrowmq.broker.state.kept_tables import KeptTables
from sparrowmq.broker.state.replay import changes
from sparrowmq.errors import BadStore, CorruptRecord, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, at_once, to_end
from sparrowmq.protocol.names import STATE_TOPIC, is_system_topic
from sparrowmq.protocol.requests.bodies import JournalMark
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_RETRY_S: Final = 60.0  # after a damaged record, which may be repaired meanwhile


class Follower:
    """Applies the journal at a slave.

    Args:
        position: the queue offset of the first record that the tables do not have.
        is_whole: whether the tables have the state of the journal before `position`.
    Attributes:
        count: the number of applied records.
    """

    def __init__(
        self,
        store: MessageStore,
        tables: KeptTables,
        clock: Clock,
        position: int,
        is_whole: bool,
    ) -> None:
        self.count = 0
        self._store = store
        self._saved = tables
        self._clock = clock
        self._position = position
        self._is_whole = is_whole
        self._fresh: Tables | None = None  # the tables since the begin of a snapshot that has not ended
        self._logged = ""
        for table in (tables.topics, tables.groups, tables.offsets, tables.users, tables.modes):
            table.mark = self._mark

    def part(self) -> Part:
        return Part(tasks=(Task("state", self.run, needs_writing=False),))

    def leave(self) -> None:
        """Note that the tables have another source now: a master that keeps no journal."""
        self._is_whole = False

    async def run(self) -> None:
        """Apply records as they come, until cancelled."""
        queue = self._store.queues.obtain(STATE_TOPIC, 0)
        while True:
            await queue.end.reached(self._position + 1)
            try:
                await to_end(self._catching_up())
            except (CorruptRecord, BadStore, RemoteProtocolError) as bad:
                if str(bad) != self._logged:
                    log.error("changes of topics, groups and offsets cannot be read from the log: %s", bad)
                self._logged = str(bad)
                await self._clock.sleep(_RETRY_S)

    def catch_up(self) -> None:
        """Apply the records that are there, at once. Raises: as `changes`."""
        at_once(self._catching_up())

    def _catching_up(self) -> Steps[None]:
        for position, at, _, change in changes(self._store, self._position):
            yield from self._apply(change, at)
            self._position = position + 1
            self.count += 1
            yield

    def _apply(self, change: Change, at: int) -> Steps[None]:
        if change.mark == BEGIN:
            self._fresh = Tables()
        tables = self._tables()
        tables.apply(change, at)
        is_end = False
        if self._fresh is not None:
            self._fresh.apply(change, at)
            is_end = change.mark == END
            if is_end:
                tables, self._fresh, self._is_whole = self._fresh, None, True
        if is_end or change.topics or change.no_topic:
            self._saved.topics.take(tables.topics_version, tables.topics, tables.incarnations)
        if is_end or change.groups or change.no_group:
            self._saved.groups.take(tables.groups_version, tables.groups)
        if is_end or change.users or change.no_user or change.policies:
            self._saved.users.take(tables.users_version, tables.users, tables.policies)
        if change.modes or (is_end and tables.modes_version):  # a former version has none in its log
            self._saved.modes.take(tables.modes_version, tables.modes)
        if is_end or change.offsets or change.no_offsets or change.no_topic:
            self._saved.offsets.take(tables.offsets)
        self._store.queues.begin_at(change.ends)
        if change.no_topic and not is_system_topic(change.no_topic):
            log.info("topic %s is deleted, as its master says", change.no_topic)
            yield from self._store.deletion.steps(change.no_topic, at)

    def _tables(self) -> Tables:
        """The tables as they are, to change in place."""
        tables, kept = Tables(), self._saved
        tables.topics, tables.topics_version = kept.topics.table, kept.topics.version
        tables.incarnations = kept.topics.incarnations
        tables.groups, tables.groups_version = kept.groups.table, kept.groups.version
        tables.offsets = kept.offsets.table
        tables.users, tables.policies = kept.users.table, kept.users.policies
        tables.users_version = kept.users.version
        tables.modes, tables.modes_version = kept.modes.table, kept.modes.version
        return tables

    def _mark(self) -> JournalMark:
        # Tables from another source have more than the log.
        return JournalMark(self._position, is_ahead=not self._is_whole)

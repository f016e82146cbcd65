"""The topics, groups and offsets of a broker: read at its start, then written to the journal, or followed at a slave.

a start     the tables come from the log, or from the files in `config` (journal_records.py)
a master    `Journal` writes each change to the log
a slave     `Follower` changes the tables as the journal's records come with its master's log
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.broker.access_control import USERS_FILE, Users
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.groups import MODES_FILE, Groups, RequestModes
from sparrowmq.broker.journal import Journal, JournalRules, StateTables
from sparrowmq.broker.journal_records import (
    BEGIN,
    END,
    Change,
    ReplayedState,
    SavedTable,
    Tables,
    read_changes,
    replay_journal,
)
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.queue_locks import Holders
from sparrowmq.broker.topics import Topics
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, CorruptRecord, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, at_once, run_to_end
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.names import STATE_TOPIC, is_system_topic
from sparrowmq.protocol.requests.bodies import DataVersion, GroupConfigTable, JournalMark, TopicConfigTable
from sparrowmq.protocol.requests.client_bodies import RequestModeTable
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets
from sparrowmq.protocol.requests.user_headers import UserTable
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import PendingReply
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)
_NO_VERSION: Final = DataVersion()
_RETRY_S: Final = 60.0  # after a damaged record, which may be repaired meanwhile


@dataclass
class BrokerState(StateTables):
    """The tables of one broker.

    Attributes:
        replayed: the state that the log had.
        is_from_log: whether the log counted for all tables.
        is_foreign: whether another program has written one of the files, which counts now.
        pops: the state of pop consumption. After another program it is unknown, and begins at the offsets.
        locks: who held which queue; also unknown then.
        journal: of a master; `lead` sets it.
        follower: of a slave; `follow` sets it.
    """

    replayed: ReplayedState
    is_from_log: bool
    is_foreign: bool
    pops: PopTable
    locks: Holders
    journal: Journal | None = None
    follower: Follower | None = None

    @staticmethod
    def load(store: MessageStore, settings: BrokerSettings, clock: Clock, trusts_files: bool) -> BrokerState:
        """Load the tables. Queues of topics that were deleted go.

        Args:
            trusts_files: whether a file may have what the log lacks.
        Raises:
            BadStore: the log does not have a table, and neither its file nor one of its copies can be read.
        """
        folder, replayed = settings.config_path, replay_journal(store)
        names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", USERS_FILE, MODES_FILE)
        paths = [folder / name for name in names]
        saved = (
            _saved(paths[0], TopicConfigTable),
            _saved(paths[1], GroupConfigTable),
            _saved(paths[2], ConsumerOffsets),
            _saved(paths[3], UserTable),
            _saved(paths[4], RequestModeTable),
        )
        tables = replayed.tables
        modes_version = tables.modes_version or _NO_VERSION
        versions = (tables.topics_version, tables.groups_version, _NO_VERSION, tables.users_version, modes_version)
        from_log = [
            replayed.overrides_file(file, version, trusts_files) for file, version in zip(saved, versions, strict=True)
        ]
        topics = Topics(paths[0], settings, clock, tables.topic_table if from_log[0] else None)
        groups = Groups(paths[1], settings.auto_create_group, clock, tables.group_table if from_log[1] else None)
        offsets = Offsets(paths[2], tables.offsets if from_log[2] else None)
        users = Users(paths[3], clock, tables.user_table if from_log[3] else None)
        from_log[4] &= tables.modes_version is not None  # a former version kept modes in the file alone
        modes = RequestModes(paths[4], clock, tables.mode_table if from_log[4] else None)
        if from_log[0] and store.flushed.error is None:
            _delete_queues(store, _deleted_before(store, replayed) | tables.deleted)
            store.queues.begin_at(tables.ends)
        for file, is_new in zip((topics.file, groups.file, offsets.file), from_log[:3], strict=True):
            if is_new:
                file.touch()
        if from_log[3] and users.version != _NO_VERSION:  # most brokers have no users, and no file of them
            users.file.touch()
        if from_log[4]:
            modes.file.touch()
        # An old file of Apache's may stay for the modes, so it does not say that Apache's broker was here.
        is_foreign = any(file.is_foreign and not is_new for file, is_new in zip(saved[:4], from_log[:4], strict=True))
        if is_foreign or replayed.begin is None:
            tables.pops, tables.locks = PopTable(), {}
        are_all = all(from_log[:4]) and (from_log[4] or not modes.table)
        return BrokerState(
            topics, groups, offsets, users, modes, replayed, are_all, is_foreign, tables.pops, tables.locks
        )

    async def lead(self, store: MessageStore, clock: Clock, turn: Turn, rules: JournalRules) -> None:
        """Write the journal of a master from now on.

        If a file of another program has counted, the log gets the state at once, and then the file is saved. Otherwise
        a crash could bring the file back, which knows no later change.
        """
        if self.replayed.begin is None and not self.is_foreign:
            self._follower(store, clock).catch_up()  # the log has changes, but lacks the snapshot before them
        if not self.is_from_log:
            self.replayed.begin = None  # so the whole state is written soon
        journal = Journal(store, self, self.replayed, clock, turn, rules)
        self.journal = journal
        self._adopt(store)
        self.offsets.clamp(store.queues.max_offset)
        if self.is_foreign and journal.write_snapshot():
            for table in (self.topics, self.groups, self.offsets, self.users, self.modes):
                file = table.file
                file.touch()
                with suppress(OSError):
                    await file.save()

    def follow(self, store: MessageStore, clock: Clock) -> None:
        """Follow the journal of a master from now on. Its offsets may be ahead of the log here."""
        self._adopt(store)
        self.follower = self._follower(store, clock)

    def commits(self) -> PendingReply | None:
        """Return the answer to a commit, which leaves when the log has it; None at a slave: at once."""
        return self.journal.commit_soon() if self.journal is not None else None

    def parts(self, save_offsets_s: float) -> Iterator[Part]:
        """The parts that save the tables, and write or follow the journal."""
        yield self.topics.file.part("topics", 1)
        yield self.groups.file.part("groups", 1)
        yield self.offsets.file.part("offsets", save_offsets_s)
        yield self.users.file.part("users", 1)
        yield self.modes.file.part("request modes", 1)
        for keeper in (self.journal, self.follower):
            if keeper is not None:
                yield keeper.part()

    def _follower(self, store: MessageStore, clock: Clock) -> Follower:
        return Follower(store, self, clock, self.replayed.position, self.is_from_log)

    def _adopt(self, store: MessageStore) -> None:
        self.topics.adopt(
            [(queue.topic, queue.queue_id) for queue in store.queues],
            lambda topic, queue_id: store.store_time(topic, queue_id, store.queues.max_offset(topic, queue_id) - 1),
        )


def _saved(
    path: Path, kind: type[TopicConfigTable | GroupConfigTable | ConsumerOffsets | UserTable | RequestModeTable]
) -> SavedTable:
    replayed = snapshot.peek(path, kind, json.decode)
    if replayed is None:
        return SavedTable()
    table, is_sealed = replayed
    # Java 4.9 has no version of offsets, and 5.x does not raise that of 4.9's.
    version = None if kind is ConsumerOffsets else table.data_version
    return SavedTable(not is_sealed, version, table.journal)


def _deleted_before(store: MessageStore, replayed: ReplayedState) -> dict[str, int]:
    """Return the topics that neither the newest snapshot nor a later record has, and the log offset of the snapshot.

    Their messages before it belong to topics that were deleted. A slave may not have applied that record.
    """
    begin, known = replayed.begin or 0, replayed.tables.topics
    return {queue.topic: begin for queue in store.queues if queue.topic not in known}


def _delete_queues(store: MessageStore, deleted: dict[str, int]) -> None:
    for topic, at in deleted.items():
        queues = () if is_system_topic(topic) else store.queues.of_topic(topic)
        if any(queue.last_entry()[0] < at for queue in queues):
            store.delete_topic(topic, at)


class Follower:
    """Applies the journal at a slave.

        the queue of rmq_sys_sparrow_state grows ── each record changes the tables ── their files are saved later
        a topic was deleted                      ── its queues go, but for messages behind the record
        a snapshot ends                          ── the tables have its content, and nothing else

    Args:
        position: the queue offset of the first record that the tables do not have.
        is_whole: whether the tables have the state of the journal before `position`.
    Attributes:
        count: the number of applied records.
    """

    def __init__(self, store: MessageStore, tables: StateTables, clock: Clock, position: int, is_whole: bool) -> None:
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
                await run_to_end(self._catching_up())
            except (CorruptRecord, BadStore, RemoteProtocolError) as bad:
                if str(bad) != self._logged:
                    log.error("changes of topics, groups and offsets cannot be read from the log: %s", bad)
                self._logged = str(bad)
                await self._clock.sleep(_RETRY_S)

    def catch_up(self) -> None:
        """Apply the records that are there, at once. Raises: as `read_changes`."""
        at_once(self._catching_up())

    def _catching_up(self) -> Steps[None]:
        for position, at, _, change in read_changes(self._store, self._position):
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
            self._saved.topics.replace(tables.topics_version, tables.topics, tables.incarnations)
        if is_end or change.groups or change.no_group:
            self._saved.groups.replace(tables.groups_version, tables.groups)
        if is_end or change.users or change.no_user or change.policies:
            self._saved.users.replace(tables.users_version, tables.users, tables.policies)
        if change.modes or (is_end and tables.modes_version):  # a former version has none in its log
            self._saved.modes.replace(tables.modes_version, tables.modes)
        if is_end or change.offsets or change.no_offsets or change.no_topic:
            self._saved.offsets.replace(tables.offsets)
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

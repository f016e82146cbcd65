"""The topics, groups and offsets of a broker: read at its start, then written to the journal, or followed at a slave.

a start     the tables come from the log, or from the files in `config` (journal_records.py)
a master    `Journal` writes each change to the log
a slave     `Follower` changes the tables as the journal's records come with its master's log
else        the tables are only read
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
from sparrowmq.broker.change_log import BEGIN, END, UNLOGGED, Change, ChangeLog
from sparrowmq.broker.groups import MODES_FILE, Groups, RequestModes
from sparrowmq.broker.journal import Journal, JournalRules, StateTables
from sparrowmq.broker.journal_records import ReplayedState, SavedTable, Tables, read_changes, replay_journal
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

    `is_from_log` says whether the log counted for all tables, and `is_foreign` whether a file of another program
    counts. Then `pops` and `locks` are unknown.
    """

    replayed: ReplayedState
    is_from_log: bool
    is_foreign: bool
    pops: PopTable
    locks: Holders
    journal: Journal | None = None
    follower: Follower | None = None

    @staticmethod
    async def of_master(
        store: MessageStore,
        settings: BrokerSettings,
        clock: Clock,
        trusts_files: bool,
        turn: Turn,
        rules: JournalRules,
    ) -> BrokerState:
        """Load the tables, and write the journal from now on. Raises: as `load`."""
        journal = Journal(store, clock, turn, rules)
        state = BrokerState.load(store, settings, clock, trusts_files, journal)
        await state._lead(store, clock, journal)
        return state

    @staticmethod
    def of_slave(store: MessageStore, settings: BrokerSettings, clock: Clock) -> BrokerState:
        """Load the tables, and follow the journal of the master from now on. Raises: as `load`.

        Its offsets may be ahead of the log here.
        """
        follower = Follower(store, clock)
        state = BrokerState.load(store, settings, clock, trusts_files=False, change_log=follower)
        state._follow(store, follower)
        return state

    @staticmethod
    def load(
        store: MessageStore,
        settings: BrokerSettings,
        clock: Clock,
        trusts_files: bool,
        change_log: ChangeLog = UNLOGGED,
    ) -> BrokerState:
        """Load the tables; queues of deleted topics go. Raises: BadStore, neither log nor file has a table."""
        folder, replayed = settings.config_path, replay_journal(store)
        file_names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", USERS_FILE, MODES_FILE)
        paths = [folder / name for name in file_names]
        saved_tables = (
            _read_table(paths[0], TopicConfigTable),
            _read_table(paths[1], GroupConfigTable),
            _read_table(paths[2], ConsumerOffsets),
            _read_table(paths[3], UserTable),
            _read_table(paths[4], RequestModeTable),
        )
        tables = replayed.tables
        modes_version = tables.modes_version or _NO_VERSION
        versions = (tables.topics_version, tables.groups_version, _NO_VERSION, tables.users_version, modes_version)
        are_from_log = [
            replayed.overrides_file(file, version, trusts_files)
            for file, version in zip(saved_tables, versions, strict=True)
        ]
        topics = Topics(paths[0], settings, clock, tables.topic_table if are_from_log[0] else None, change_log)
        groups = Groups(
            paths[1], settings.auto_create_group, clock, tables.group_table if are_from_log[1] else None, change_log
        )
        offsets = Offsets(paths[2], tables.offsets if are_from_log[2] else None, change_log)
        users = Users(paths[3], clock, tables.user_table if are_from_log[3] else None, change_log)
        are_from_log[4] &= tables.modes_version is not None  # a former version kept modes in the file alone
        modes = RequestModes(paths[4], clock, tables.mode_table if are_from_log[4] else None, change_log)
        if are_from_log[0] and store.flushed.error is None:
            _delete_queues(store, _deleted_before(store, replayed) | tables.deleted)
            store.queues.begin_at(tables.ends)
        are_exported = [*are_from_log]
        are_exported[3] &= users.version != _NO_VERSION  # most brokers have no users, and no file of them
        files = (topics.file, groups.file, offsets.file, users.file, modes.file)
        for saved_file, is_new in zip(files, are_exported, strict=True):
            if is_new:
                saved_file.touch()
        # An old file of Apache's may stay for the modes, so it does not say that Apache's broker was here.
        is_foreign = any(
            file.is_foreign and not is_new for file, is_new in zip(saved_tables[:4], are_from_log[:4], strict=True)
        )
        if is_foreign or replayed.begin is None:
            tables.pops, tables.locks = PopTable(), {}
        is_all_from_log = all(are_from_log[:4]) and (are_from_log[4] or not modes.table)
        return BrokerState(
            topics, groups, offsets, users, modes, replayed, is_all_from_log, is_foreign, tables.pops, tables.locks
        )

    async def _lead(self, store: MessageStore, clock: Clock, journal: Journal) -> None:
        """If a file of another program has counted, the log gets the state at once: a crash could bring the file back,
        which knows no later change.
        """
        if self.replayed.begin is None and not self.is_foreign:
            follower = Follower(store, clock)
            follower.begin(self)
            follower.catch_up()  # the log has changes, but lacks the snapshot before them
        if not self.is_from_log:
            self.replayed.begin = None  # so the whole state is written soon
        journal.begin(self, self.replayed)
        self.journal = journal
        self._adopt_queues(store)
        self.offsets.clamp(store.queues.max_offset)
        if self.is_foreign and journal.write_snapshot():
            for table in (self.topics, self.groups, self.offsets, self.users, self.modes):
                file = table.file
                file.touch()
                with suppress(OSError):
                    await file.save()

    def _follow(self, store: MessageStore, follower: Follower) -> None:
        self._adopt_queues(store)
        follower.begin(self)
        self.follower = follower

    def answer_commit_soon(self) -> PendingReply | None:
        """Return the answer to a commit, which leaves when the log has it; None at a slave: at once."""
        return self.journal.answer_commit_soon() if self.journal is not None else None

    def parts(self, save_offsets_s: float) -> Iterator[Part]:
        yield self.topics.file.part("topics", 1)
        yield self.groups.file.part("groups", 1)
        yield self.offsets.file.part("offsets", save_offsets_s)
        yield self.users.file.part("users", 1)
        yield self.modes.file.part("request modes", 1)
        for journal_or_follower in (self.journal, self.follower):
            if journal_or_follower is not None:
                yield journal_or_follower.part()

    def _adopt_queues(self, store: MessageStore) -> None:
        self.topics.adopt(
            [(queue.topic, queue.queue_id) for queue in store.queues],
            lambda topic, queue_id: store.store_time(topic, queue_id, store.queues.max_offset(topic, queue_id) - 1),
        )


def _read_table(
    path: Path, kind: type[TopicConfigTable | GroupConfigTable | ConsumerOffsets | UserTable | RequestModeTable]
) -> SavedTable:
    loaded = snapshot.peek(path, kind, json.decode)
    if loaded is None:
        return SavedTable()
    table, is_sealed = loaded
    # Java 4.9 has no version of offsets, and 5.x does not raise that of 4.9's.
    version = None if kind is ConsumerOffsets else table.data_version
    return SavedTable(not is_sealed, version, table.journal)


def _deleted_before(store: MessageStore, replayed: ReplayedState) -> dict[str, int]:
    """Return the topics deleted before the newest snapshot, and its log offset. A slave may have missed it."""
    begin, known_topics = replayed.begin or 0, replayed.tables.topics
    return {queue.topic: begin for queue in store.queues if queue.topic not in known_topics}


def _delete_queues(store: MessageStore, deleted: dict[str, int]) -> None:
    for topic, log_offset in deleted.items():
        queues = () if is_system_topic(topic) else store.queues.of_topic(topic)
        if any(queue.last_entry()[0] < log_offset for queue in queues):
            store.delete_topic(topic, log_offset)


class Follower(ChangeLog):
    """Applies the journal at a slave.

        the queue of rmq_sys_sparrow_state grows ── each record changes the tables ── their files are saved later
        a topic was deleted                      ── its queues go, but for messages behind the record
        a snapshot ends                          ── the tables have its content, and nothing else

    `position` is the queue offset of the first record that the tables do not have, and `is_whole` says whether they
    have the state of the journal before it. `count` is the number of applied records.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self.count = 0
        self._store = store
        self._clock = clock
        self._snapshot_tables: Tables | None = None  # the tables since the begin of a snapshot that has not ended
        self._logged_problem = ""

    def begin(self, state: BrokerState) -> None:
        self._state_tables: StateTables = state
        self._position = state.replayed.position
        self._is_whole = state.is_from_log

    def part(self) -> Part:
        return Part(tasks=(Task("state", self.run, needs_writing=False),))

    def leave(self) -> None:
        self._is_whole = False

    async def run(self) -> None:
        queue = self._store.queues.obtain(STATE_TOPIC, 0)
        while True:
            await queue.end.reached(self._position + 1)
            try:
                await run_to_end(self._catching_up())
            except (CorruptRecord, BadStore, RemoteProtocolError) as damage:
                if str(damage) != self._logged_problem:
                    log.error("changes of topics, groups and offsets cannot be read from the log: %s", damage)
                self._logged_problem = str(damage)
                await self._clock.sleep(_RETRY_S)

    def catch_up(self) -> None:
        at_once(self._catching_up())

    def _catching_up(self) -> Steps[None]:
        for position, log_offset, _, change in read_changes(self._store, self._position):
            yield from self._apply(change, log_offset)
            self._position = position + 1
            self.count += 1
            yield

    def _apply(self, change: Change, log_offset: int) -> Steps[None]:
        if change.mark == BEGIN:
            self._snapshot_tables = Tables()
        tables = self._current_tables()
        tables.apply(change, log_offset)
        is_end = False
        if self._snapshot_tables is not None:
            self._snapshot_tables.apply(change, log_offset)
            is_end = change.mark == END
            if is_end:
                tables, self._snapshot_tables, self._is_whole = self._snapshot_tables, None, True
        if is_end or change.topics or change.no_topic:
            self._state_tables.topics.replace(tables.topics_version, tables.topics, tables.incarnations)
        if is_end or change.groups or change.no_group:
            self._state_tables.groups.replace(tables.groups_version, tables.groups)
        if is_end or change.users or change.no_user or change.policies:
            self._state_tables.users.replace(tables.users_version, tables.users, tables.policies)
        if change.modes or (is_end and tables.modes_version):  # a former version has none in its log
            self._state_tables.modes.replace(tables.modes_version, tables.modes)
        if is_end or change.offsets or change.no_offsets or change.no_topic:
            self._state_tables.offsets.replace(tables.offsets)
        self._store.queues.begin_at(change.ends)
        if change.no_topic and not is_system_topic(change.no_topic):
            log.info("topic %s is deleted, as its master says", change.no_topic)
            yield from self._store.deletion.steps(change.no_topic, log_offset)

    def _current_tables(self) -> Tables:
        tables, state = Tables(), self._state_tables
        tables.topics, tables.topics_version = state.topics.table, state.topics.version
        tables.incarnations = state.topics.incarnations
        tables.groups, tables.groups_version = state.groups.table, state.groups.version
        tables.offsets = state.offsets.table
        tables.users, tables.policies = state.users.table, state.users.policies
        tables.users_version = state.users.version
        tables.modes, tables.modes_version = state.modes.table, state.modes.version
        return tables

    def mark(self) -> JournalMark:
        # Tables from another source have more than the log.
        return JournalMark(self._position, is_ahead=not self._is_whole)

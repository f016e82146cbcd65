"""A record of the journal, the state that records make, and how a start reads them.

    queue 0 of rmq_sys_sparrow_state      one JSON object a record; members that say nothing are left out

    begin  topics  topics  groups  offsets  ends  end    topic  offsets  no topic  group  offsets ...
    └───────────── snapshot ───────────────────────┘     └──────────── changes ─────────────────────

A snapshot has records of the same kind as changes, which may come between them. So a reader takes all records in their
order, from any `begin` on, and has the whole state at the snapshot's `end`. A slave reads on, and drops at each `end`
what the snapshot did not have.

A start reads from the newest `begin` that has an `end`. Each file in `config` names the record of the journal up to
which it has the state (`JournalMark`). The log or the file counts:

    the log has no whole snapshot             the file: Apache's store, or one of ours from before the journal
    the file is newer by its version, and     the file: Apache's broker or an operator has changed it (that of offsets
    has no mark or no checksum                has no version: without a checksum it is newer)
    the file has what the log could not take  the file, at a single broker; a member's log decides for all
    otherwise                                 the log
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparrowmq.broker.change_log import BEGIN, END, Change
from sparrowmq.broker.groups import with_mode
from sparrowmq.broker.offsets import OffsetTable
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.queue_locks import Holders, take_holders
from sparrowmq.broker.saved_state import records_from
from sparrowmq.errors import BadStore, CorruptRecord, RemoteProtocolError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.bodies import (
    DataVersion,
    GroupConfig,
    GroupConfigTable,
    JournalMark,
    TopicConfig,
    TopicConfigTable,
)
from sparrowmq.protocol.requests.client_bodies import Modes, RequestModeTable
from sparrowmq.protocol.requests.user_headers import SUBJECT, Policy, UserEntry, UserTable
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

BEGIN_CODE: Final = Properties(render({Property.TAGS: BEGIN})).tags_code
log = logging.getLogger(__name__)
_READ: Final = 512


class Tables:
    """The state that records make, one after the other; `is_whole` says whether a whole snapshot was taken.

    `ends` says where queues end at least; `deleted` has, by topic, the log offset of the record that deleted it.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicConfig] = {}
        self.topics_version = DataVersion()
        self.incarnations: dict[str, int] = {}
        self.groups: dict[str, GroupConfig] = {}
        self.groups_version = DataVersion()
        self.offsets: OffsetTable = {}
        self.pops = PopTable()
        self.locks: Holders = {}
        self.modes: Modes = {}
        self.modes_version: DataVersion | None = None
        self.users: dict[str, UserEntry] = {}
        self.policies: dict[str, list[Policy]] = {}
        self.users_version = DataVersion()
        self.ends: dict[str, dict[int, int]] = {}
        self.deleted: dict[str, int] = {}
        self.is_whole = False

    @property
    def topic_table(self) -> TopicConfigTable:
        return TopicConfigTable(self.topics_version, self.topics, incarnations=self.incarnations)

    @property
    def group_table(self) -> GroupConfigTable:
        return GroupConfigTable(self.groups_version, self.groups)

    @property
    def mode_table(self) -> RequestModeTable:
        return RequestModeTable(self.modes, self.modes_version)

    @property
    def user_table(self) -> UserTable:
        return UserTable(self.users_version, self.users, self.policies)

    def apply(self, change: Change, log_offset: int) -> None:
        for topic in change.topics:
            self.topics[topic.topic_name] = topic
        self.incarnations |= change.incarnations
        if change.no_topic:
            self.topics.pop(change.no_topic, None)
            self.incarnations.pop(change.no_topic, None)
            self.ends.pop(change.no_topic, None)
            self.deleted[change.no_topic] = log_offset
            for topics in self.offsets.values():
                topics.pop(change.no_topic, None)
            self.pops.drop_topic(change.no_topic)
        for group in change.groups:
            self.groups[group.group_name] = group
        if change.no_group:
            self.groups.pop(change.no_group, None)
        self.topics_version = change.topics_version or self.topics_version
        self.groups_version = change.groups_version or self.groups_version
        for key, queues in change.offsets.items():
            topic_name, _, group_name = key.partition("@")
            self.offsets.setdefault(group_name, {}).setdefault(topic_name, {}).update(queues)
        if change.no_offsets:
            self.offsets.pop(change.no_offsets, None)
            self.pops.drop_group(change.no_offsets)
        for name, ends in change.ends.items():
            self.ends.setdefault(name, {}).update(ends)
        self.pops.apply_all(change.pops)
        take_holders(self.locks, change.locks)
        for mode in change.modes:
            self.modes = with_mode(self.modes, mode)
        self.modes_version = change.modes_version or self.modes_version
        self._apply_users(change)
        self.is_whole = self.is_whole or change.mark == END

    def _apply_users(self, change: Change) -> None:
        for user in change.users:
            self.users[user.username] = user
        if change.no_user:
            self.users.pop(change.no_user, None)
            self.policies.pop(change.no_user, None)
        for user_policies in change.policies:
            name = user_policies.subject.removeprefix(SUBJECT)
            if user_policies.policies:
                self.policies[name] = user_policies.policies
            else:
                self.policies.pop(name, None)
        self.users_version = change.users_version or self.users_version


class ReplayedState:
    """The state that the log has at a start.

    `begin` is the log offset of the newest whole snapshot, and `snapshot_position` the queue offset of its first
    record; `position` is the queue offset to read on at.
    """

    def __init__(self, position: int) -> None:
        self.tables = Tables()
        self.begin: int | None = None
        self.snapshot_position = position
        self.snapshot_bytes = self.changed_bytes = 0
        self.position = position

    def apply(self, position: int, log_offset: int, size: int, change: Change) -> None:
        if self.tables.is_whole:
            self.changed_bytes += size
        else:
            self.snapshot_bytes += size
        if self.begin is None:
            self.begin, self.snapshot_position = log_offset, position
        self.tables.apply(change, log_offset)
        self.position = position + 1

    def overrides_file(self, saved: SavedTable, version: DataVersion, trusts_files: bool) -> bool:
        """Whether the log, with this version of a table, counts and not its file. A member's log decides for all."""
        if self.begin is None:
            return False
        if saved.is_foreign and saved.version is None:
            return False
        mark = saved.mark
        if saved.is_foreign or mark is None:
            file = saved.version
            return file is None or (file.counter, file.timestamp) <= (version.counter, version.timestamp)
        if not trusts_files:
            return True
        return mark.next <= (self.snapshot_position if mark.is_ahead else self.position)


class SavedTable(NamedTuple):
    """A file of `config`. One that `is_foreign` has no checksum: another program, or an operator, has written it."""

    is_foreign: bool = False
    version: DataVersion | None = None
    mark: JournalMark | None = None


def replay_journal(store: MessageStore) -> ReplayedState:
    """Read the state that the log has. If that fails, the log has none, and the files count."""
    queue = store.queues.get(STATE_TOPIC, 0)
    if queue is None:
        return ReplayedState(0)
    try:
        for start in _begins(queue):
            replayed = ReplayedState(start)
            for position, log_offset, size, change in read_changes(store, start):
                replayed.apply(position, log_offset, size, change)
            if replayed.tables.is_whole:
                return replayed
    except (CorruptRecord, BadStore, RemoteProtocolError) as bad:
        log.error(
            "topics, groups and offsets cannot be read from the log: %s; the files in config are read instead", bad
        )
        return ReplayedState(queue.max_offset)
    return ReplayedState(queue.min_offset)


def read_changes(store: MessageStore, position: int) -> Iterator[tuple[int, int, int, Change]]:
    """Yield the queue offset, log offset, size and content of each record. Raises: as `records_from`, `Change.of`."""
    for message in map(record.decode, records_from(store, STATE_TOPIC, 0, position)):
        change = Change.of(message.body)
        yield message.queue_offset, message.physical_offset, message.store_size, change


def _begins(queue: ConsumeQueue) -> Iterator[int]:
    high = queue.max_offset
    while high > queue.min_offset:
        last_entry = high - 1
        start = max(queue.min_offset, high - _READ, last_entry - last_entry % queue.file_entries)
        entries = queue.read(start, high - start)
        for i in range(len(entries) - 1, -1, -1):
            if entries.tags_code(i) == BEGIN_CODE and not entries.is_gap(i):
                yield start + i
        high = start

"""A record of the journal, and the state that its records make.

    queue 0 of rmq_sys_sparrow_state      one JSON object a record; members that say nothing are left out

    begin  topics  topics  groups  offsets  ends  end    topic  offsets  no topic  group  offsets ...
    └───────────── snapshot ───────────────────────┘     └──────────── changes ─────────────────────

A snapshot has records of the same kind as changes: each sets some topics, groups or offsets to their value at its own
place in the log. Changes may come between them. So a reader takes all records in their order, from any `begin` on, and
has the whole state at the snapshot's `end`. A slave reads on, and drops at each `end` what the snapshot did not have.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sparrowmq.broker.offsets import OffsetTable
from sparrowmq.broker.pop.pop_table import PopTable
from sparrowmq.broker.queue_locks import Holder, Holders, take_holders
from sparrowmq.broker.request_modes import with_mode
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.bodies import (
    DataVersion,
    GroupConfig,
    GroupConfigTable,
    TopicConfig,
    TopicConfigTable,
)
from sparrowmq.protocol.requests.client_bodies import Modes, RequestMode, RequestModeTable
from sparrowmq.protocol.requests.user_headers import SUBJECT, Policy, UserEntry, UserPolicies, UserTable

BEGIN: Final = "begin"
END: Final = "end"


class Change(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One record.

    Attributes:
        mark: BEGIN or END of a snapshot.
        topics, groups: new or changed ones, and the version of all after that.
        incarnations: of these topics.
        no_topic: the name of a deleted topic; its queues and offsets go with it.
        no_group: the name of a deleted group; its offsets stay.
        offsets: new offsets by queue id, by "topic@group".
        no_offsets: the group whose offsets are all deleted.
        ends: the next offset of each queue, by topic and queue id. A log whose oldest files are deleted no longer shows
            where a queue ends that has no message since.
        pops: steps of pop consumption (pop_steps.py).
        modes: how some groups consume some topics, and the version of all modes after that.
        locks: new holders of queues that are consumed in order.
        users: new or changed ones, and the version of users and policies after that.
        no_user: the name of a deleted user; its policies go with it.
        policies: those of some users, which replace the former ones.
    """

    mark: str = ""
    topics: list[TopicConfig] = []
    topics_version: DataVersion | None = None
    incarnations: dict[str, int] = {}
    no_topic: str = ""
    groups: list[GroupConfig] = []
    groups_version: DataVersion | None = None
    no_group: str = ""
    offsets: dict[str, dict[int, int]] = {}
    no_offsets: str = ""
    ends: dict[str, dict[int, int]] = {}
    pops: list[bytes] = []
    modes: list[RequestMode] = []
    modes_version: DataVersion | None = None
    locks: list[Holder] = []
    users: list[UserEntry] = []
    users_version: DataVersion | None = None
    no_user: str = ""
    policies: list[UserPolicies] = []

    def entry(self, now_ms: int, host: bytes) -> Entry:
        """The message that stores it. A snapshot's begin has a tag, so it is found in the queue's entries."""
        properties = Properties(render({Property.TAGS: BEGIN} if self.mark == BEGIN else {}))
        return Entry(STATE_TOPIC, 0, _encode(self), properties, now_ms, host)

    @staticmethod
    def of(body: bytes | memoryview) -> Change:
        """Read a record's body. Raises: RemoteProtocolError, it is none of ours."""
        try:
            return _decode(body)
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(f"a record of {STATE_TOPIC} cannot be read: {error}") from error


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Change).decode
BEGIN_CODE: Final = Properties(render({Property.TAGS: BEGIN})).tags_code


class Tables:
    """The state that records make, one after the other.

    Attributes:
        ends: where queues end at least, by topic and queue id.
        deleted: by topic, the log offset of the record that deleted it; its messages before that are gone.
        is_whole: whether a whole snapshot was taken.
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

    def apply(self, change: Change, at: int) -> None:
        """Take the next record, which is at log offset `at`."""
        for topic in change.topics:
            self.topics[topic.topic_name] = topic
        self.incarnations |= change.incarnations
        if change.no_topic:
            self.topics.pop(change.no_topic, None)
            self.incarnations.pop(change.no_topic, None)
            self.ends.pop(change.no_topic, None)
            self.deleted[change.no_topic] = at
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
        for each in change.policies:
            name = each.subject.removeprefix(SUBJECT)
            if each.policies:
                self.policies[name] = each.policies
            else:
                self.policies.pop(name, None)
        self.users_version = change.users_version or self.users_version

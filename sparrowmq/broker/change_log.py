"""A change of a broker's state, and where the tables (topics, groups, offsets, users, request modes) put their changes.

    a master    Journal     writes each change to the log (journal.py)
    a slave     Follower    makes the changes that the journal of its master has (broker_state.py)
    else        ChangeLog   keeps none: a store is looked at

A table gets its change log first, and notes each change at once, before others hear of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.bodies import DataVersion, GroupConfig, JournalMark, TopicConfig
from sparrowmq.protocol.requests.client_bodies import RequestMode
from sparrowmq.protocol.requests.user_headers import UserEntry, UserPolicies

T = TypeVar("T")
BEGIN: Final = "begin"
END: Final = "end"
_MAX_RECORD_BYTES: Final = 128 << 10  # bytes of one record, which is written in one step of about 2 ms
_BYTES_PER_NAME: Final = 250  # bytes of a topic, group or user beside its name
_BYTES_PER_QUEUE: Final = 30
_encode: Final = msgspec.json.Encoder().encode


class Holder(msgspec.Struct, array_like=True):
    """The holder of a queue's lock. Without a client id the queue is free."""

    group: str
    topic: str
    queue_id: int
    client_id: str = ""


class Change(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One record: new or changed entries of each table, and the version of that table then.

    `mark` is BEGIN or END of a snapshot. A deleted topic takes its queues and offsets with it, and a deleted user its
    policies; the offsets of a deleted group stay. `offsets` are by "topic@group" and queue id. `ends` has the next
    offset of each queue: a log whose oldest files are deleted no longer shows where a queue ends that has no message
    since.
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


_decode: Final = msgspec.json.Decoder(Change).decode


class ChangeLog:
    """Keeps no changes. `mark` says which part of the journal a table has; None without one."""

    max_record_bytes = _MAX_RECORD_BYTES

    def note(self, change: Change) -> None:
        pass

    def mark(self) -> JournalMark | None:
        return None

    async def wait_until_safe(self, done_text: str) -> bool:
        """Wait until all changes are on disk, and at slaves if answers wait for slaves.

        Returns False if only the files have a change, and that counts. Raises: RemoteError, it is in effect, but not
        safe yet.
        """
        return False


UNLOGGED: Final = ChangeLog()


def split_table(table: Mapping[str, T], max_bytes: int) -> Iterator[list[T]]:
    """Yield the entries of a table, as many as fit into one record each time. The table may change meanwhile: what is
    deleted is left out.
    """
    names: list[str] = []
    size = 0
    for name in list(table):
        size += len(name) + _BYTES_PER_NAME
        names.append(name)
        if size > max_bytes // 2:
            yield [table[name] for name in names if name in table]
            names, size = [], 0
    if names:
        yield [table[name] for name in names if name in table]


def split_numbers(rows: Iterable[tuple[str, int, int | None]], max_bytes: int) -> Iterator[dict[str, dict[int, int]]]:
    """Yield the number of each queue that has one, by name and queue id, as many as fit into one record each time."""
    piece: dict[str, dict[int, int]] = {}
    size = 0
    for name, queue_id, number in rows:
        if number is None:
            continue
        size += _BYTES_PER_QUEUE + (0 if name in piece else len(name))
        piece.setdefault(name, {})[queue_id] = number
        if size > max_bytes // 2:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece

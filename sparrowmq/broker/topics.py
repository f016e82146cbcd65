"""The topics of one broker: made by a send, by a heartbeat, or by an operator; kept in `topics.json`.

    send to an unknown topic   template TBW102, perm 7 (INHERIT READ WRITE), 8 queues
                               ── min(asked, template) queues, perm 6 ── on this broker only
    heartbeat of group g       %RETRY%g
    a message that gave up     %DLQ%g

Every change raises the version, so that name servers know that theirs is old, and calls `on_change`, which
announces it.
Source: TopicConfigManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)

BENCHMARK_QUEUES: Final = 1024
SCHEDULE_QUEUES: Final = 18
CLUSTER_QUEUES: Final = 16
# What clients ask for by default (defaultTopicQueueNums of a producer), so what a topic most likely had.
LEAST_ADOPTED_QUEUES: Final = 4
# Topics of which there are only queues, as in Java.
_WITHOUT_CONFIG: Final = (names.OP_HALF_TOPIC,)


class Topics:
    """The topics and the version of their whole.

    Args:
        path: of topics.json.
    Attributes:
        on_change: called after every change, when it can be seen here.
        broker_name: whose topics they are.
        permission: what clients may do with all of them, whatever a topic itself permits (brokerPermission).
    Raises:
        BadStore: the file cannot be read, nor its copies.
    """

    def __init__(self, path: Path, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.on_change: Callable[[], object] = lambda: None
        self.broker_name = settings.name
        self.permission = settings.permission
        saved = saved_content(path, TopicConfigTable, json.decode) or TopicConfigTable()
        # Settings may have changed the topics of RocketMQ itself, so a start is a change.
        self.version = self._next(saved.data_version)
        self._table: dict[str, TopicConfig] = saved.topic_config_table
        self._system = {topic.topic_name: topic for topic in _system_topics(settings)}
        self._table = self._system | self._table
        if not settings.auto_create_topic:
            self._table.pop(names.DEFAULT_TOPIC, None)  # Else name servers would let producers use it.
        self.file = SavedFile(path, self.content)

    def use(self, settings: BrokerSettings) -> None:
        """Make topics, and permit what clients may do, by other settings from now on; name servers are told."""
        self._settings = settings
        self.permission = settings.permission
        # Unlike a start without autoCreateTopicEnable the template stays, as name servers know it: it cannot be used.
        inherit = Perm.INHERIT if settings.auto_create_topic else 0
        if inherit or names.DEFAULT_TOPIC in self._table:
            template = _plain(names.DEFAULT_TOPIC, settings.topic_queues, inherit | Perm.READ_WRITE)
            self._table[names.DEFAULT_TOPIC] = self._system[names.DEFAULT_TOPIC] = template
        self._changed()

    def tell_anew(self) -> None:
        """Have name servers told of all topics, though none changed: what is permitted did."""
        self._changed()

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def all(self) -> list[TopicConfig]:
        """Every topic, those of RocketMQ itself too."""
        return list(self._table.values())

    def content(self) -> TopicConfigTable:
        """What topics.json holds, and what GET_ALL_TOPIC_CONFIG answers."""
        return TopicConfigTable(self.version, dict(self._table))

    def is_system(self, name: str) -> bool:
        """Whether RocketMQ itself uses the topic, so that nobody may create, change or delete it."""
        return name in self._system or names.is_system_topic(name)

    def system_names(self) -> list[str]:
        return sorted(self._system.keys() | names.SYSTEM_TOPICS)

    def ensure_for_send(self, name: str, template: str, queues: int, peer: str) -> TopicConfig:
        """The topic, made from its template if need be.

        Args:
            queues: how many the producer would like (defaultTopicQueueNums).
        Raises:
            RemoteError: TOPIC_NOT_EXIST, it may not be made by a send.
            InvalidName
        """
        known = self._table.get(name)
        if known is not None:
            return known
        names.check_topic(name)
        if name.startswith(names.RETRY):
            return self._ensure_inner(name, 1)
        model = self._table.get(template)
        if model is None or not model.perm & Perm.INHERIT:
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! {self._how_to_create(template)}",
            )
        queues = max(1, min(queues, model.write_queue_nums))
        log.info("topic %s is made by a send from %s, with %d queues", name, peer, queues)
        made = TopicConfig(
            name, queues, queues, model.perm & ~Perm.INHERIT, topic_filter_type=model.topic_filter_type
        )
        return self.put(made)

    def ensure_retry(self, group: str, queues: int = 1) -> TopicConfig:
        """Where a group's failed messages wait, made if need be."""
        return self._ensure_inner(names.retry_topic(group), queues)

    def ensure_dlq(self, group: str) -> TopicConfig:
        """Where a group's messages end that failed every time, made if need be. Readable, as since 4.9."""
        return self._ensure_inner(names.dlq_topic(group), 1)

    def ensure_own(self, name: str) -> TopicConfig:
        """A topic of RocketMQ itself that is there from its first message on: one queue, as in Java."""
        return self._ensure_inner(name, 1)

    def adopt(self, queues: Iterable[tuple[str, int]]) -> None:
        """Make the topics that have queues in the store but are not known, as they were made by their first send.

        A send's topic is saved a moment after its first message is acknowledged. Killed in between, the broker
        finds the message and must know its topic. Unlike Java, which writes and syncs the whole of topics.json in
        that send.
        """
        found: dict[str, int] = {}
        for name, queue_id in queues:
            if name not in self._table and name not in _WITHOUT_CONFIG:
                found[name] = max(found.get(name, 0), queue_id + 1)
        for name, count in found.items():
            is_own = names.group_of(name) or names.is_system_topic(name)
            least = 1 if is_own else min(self._settings.topic_queues, LEAST_ADOPTED_QUEUES)
            log.warning(
                "topic %s was not saved before the broker ended; it is made again from its queues", name
            )
            self.put(_plain(name, max(count, least)))

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Create or replace a topic; the caller has checked it."""
        self._table[topic.topic_name] = topic
        self._changed()
        return topic

    def delete(self, name: str) -> bool:
        """Forget a topic; returns whether there was one."""
        if self._table.pop(name, None) is None:
            return False
        log.info("topic %s is deleted", name)
        self._changed()
        return True

    def follow(self, told: TopicConfigTable) -> None:
        """Be as the master says, on its slave."""
        if not told.data_version.is_same(self.version):
            self.version, self._table = told.data_version, dict(told.topic_config_table)
            self.file.touch()
            self.on_change()

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table.values())

    def _ensure_inner(self, name: str, queues: int) -> TopicConfig:
        known = self._table.get(name)
        return known or self.put(TopicConfig(names.check_topic(name), queues, queues, Perm.READ_WRITE))

    def _changed(self) -> None:
        self.version = self._next(self.version)
        self.file.touch()
        self.on_change()

    def _next(self, version: DataVersion) -> DataVersion:
        return msgspec.structs.replace(version, counter=version.counter + 1, timestamp=self._clock.now_ms())

    def _how_to_create(self, template: str) -> str:
        if self._settings.auto_create_topic:
            return f"Its template {template!r} is not one that topics can be made from; use {names.DEFAULT_TOPIC}."
        return "autoCreateTopicEnable is false on this broker, so create it by mqadmin updateTopic."


def _system_topics(settings: BrokerSettings) -> Iterator[TopicConfig]:
    open_if = {True: Perm.INHERIT | Perm.READ_WRITE, False: Perm.INHERIT}
    yield _plain(names.SELF_TEST_TOPIC, 1)
    if settings.auto_create_topic:
        yield _plain(names.DEFAULT_TOPIC, settings.topic_queues, Perm.INHERIT | Perm.READ_WRITE)
    yield _plain(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
    # The admin tool finds the brokers of a cluster by the route of a topic of its name.
    yield _plain(settings.cluster, CLUSTER_QUEUES, open_if[settings.cluster_topic])
    yield _plain(settings.name, 1, open_if[settings.broker_topic])
    yield _plain(names.OFFSET_MOVED_TOPIC, 1)
    yield _plain(names.SCHEDULE_TOPIC, max(SCHEDULE_QUEUES, settings.delay_levels.max))
    if settings.trace_topic_enabled:
        yield _plain(settings.trace_topic, 1)
    yield _plain(settings.cluster + names.REPLY_SUFFIX, 1)


def _plain(name: str, queues: int, perm: int = Perm.READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)

"""The topics of one broker: created by a send, a heartbeat, or an operator; saved in `topics.json`.

    send to an unknown topic   template TBW102, perm 7 (INHERIT READ WRITE), 8 queues
                               ── min(asked, template) queues, perm 6 ── on this broker only
    heartbeat of group g       %RETRY%g
    all retries have failed    %DLQ%g

Every change raises the version and calls `on_change`, which announces the change. By the version, name servers know
that their topics are old. Before that, the change log has it.
Source: TopicConfigManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.change_log import UNLOGGED, Change, ChangeLog, split_table
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.headers import UNKNOWN_INCARNATION
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)

BENCHMARK_QUEUES: Final = 1024
SCHEDULE_QUEUES: Final = 18
CLUSTER_QUEUES: Final = 16
# The queues that producers ask for by default (defaultTopicQueueNums), so most likely the topic had as many.
MIN_ADOPTED_QUEUES: Final = 4
# Topics that have queues, but no entry in topics.json, as in Java.
_WITHOUT_CONFIG: Final = (names.OP_HALF_TOPIC, names.STATE_TOPIC)


class Topics:
    """The topics, and one version for all of them.

    `saved_ms` is the time of the last known change before the start. `permission` limits permissions on all topics.
    """

    def __init__(
        self,
        path: Path,
        settings: BrokerSettings,
        clock: Clock,
        replayed: TopicConfigTable | None = None,
        change_log: ChangeLog = UNLOGGED,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.on_change: Callable[[], object] = lambda: None
        self._change_log = change_log
        self.broker_name = settings.name
        self.permission = settings.permission
        saved = replayed or saved_content(path, TopicConfigTable, json.decode) or TopicConfigTable()
        self.saved_ms = saved.data_version.timestamp
        # Other settings may have changed the system topics, so a start counts as a change.
        self.version = saved.data_version.after_change(clock.now_ms())
        self.table: dict[str, TopicConfig] = saved.topic_config_table
        self.incarnations = {
            name: known_incarnation
            for name, known_incarnation in (saved.incarnations or {}).items()
            if name in self.table
        }
        self._system = {topic.topic_name: topic for topic in _system_topics(settings)}
        self.table = self._system | self.table
        if not settings.auto_create_topic:
            self.table.pop(names.DEFAULT_TOPIC, None)  # otherwise name servers would offer it to producers
        self._last_deleted_incarnation = 0  # the largest incarnation of a deleted topic
        self.file = SavedFile(path, self.content, change_log=change_log)

    def apply_settings(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.permission = settings.permission
        # After a start without autoCreateTopicEnable there is no template. Here it stays, because name servers know it,
        # but no topic can be created from it.
        inherit = Perm.INHERIT if settings.auto_create_topic else 0
        if inherit or names.DEFAULT_TOPIC in self.table:
            template = _simple_topic(names.DEFAULT_TOPIC, settings.topic_queues, inherit | Perm.READ_WRITE)
            self._system[names.DEFAULT_TOPIC] = template
            self.put(template)
        else:
            self._note_change()

    def announce_all(self) -> None:
        self._note_change()

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def all(self) -> list[TopicConfig]:
        return list(self.table.values())

    def content(self) -> TopicConfigTable:
        """The content of topics.json, and of the answer to GET_ALL_TOPIC_CONFIG."""
        return TopicConfigTable(
            self.version, dict(self.table), self._change_log.mark(), dict(self.incarnations) or None
        )

    def forbidden(self, action: str) -> RemoteError:
        return RemoteError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{self.broker_name}] {action} message is forbidden: its brokerPermission is {self.permission}",
        )

    def incarnation(self, name: str) -> int:
        """Return a topic's incarnation: 0 if there is no such topic, 1 if it is not known."""
        return self.incarnations.get(name, UNKNOWN_INCARNATION) if name in self.table else 0

    def may_be(self, name: str, incarnation: int) -> bool:
        """Whether a topic may be the one that had this incarnation."""
        return self.incarnation(name) in (UNKNOWN_INCARNATION, incarnation)

    def is_system(self, name: str) -> bool:
        return name in self._system or names.is_system_topic(name)

    def system_names(self) -> list[str]:
        return sorted(self._system.keys() | names.SYSTEM_TOPICS)

    def ensure_for_send(self, name: str, template: str, queues: int, peer: str) -> TopicConfig:
        """Return the topic; create it from its template if it does not exist. Raises: RemoteError, InvalidName."""
        known = self.table.get(name)
        if known is not None:
            return known
        names.check_topic(name)
        if name.startswith(names.RETRY):
            return self._ensure_inner(name, 1)
        template_topic = self.table.get(template)
        if template_topic is None or not template_topic.perm & Perm.INHERIT:
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! {self._how_to_create(template)}",
            )
        queues = max(1, min(queues, template_topic.write_queue_nums))
        log.info("topic %s is made by a send from %s, with %d queues", name, peer, queues)
        topic = TopicConfig(
            name,
            queues,
            queues,
            template_topic.perm & ~Perm.INHERIT,
            topic_filter_type=template_topic.topic_filter_type,
        )
        return self.put(topic)

    def ensure_retry(self, group: str, queues: int = 1) -> TopicConfig:
        """Return the retry topic of a group, where failed messages wait; create it if it does not exist."""
        return self._ensure_inner(names.retry_topic(group), queues)

    def ensure_dlq(self, group: str) -> TopicConfig:
        """Return the dead-letter queue of a group; create it if it does not exist. Readable, as in Java since 4.9."""
        return self._ensure_inner(names.dlq_topic(group), 1)

    def ensure_own(self, name: str) -> TopicConfig:
        """Return a system topic that exists from its first message on: one queue, as in Java."""
        return self._ensure_inner(name, 1)

    def adopt(self, queues: Iterable[tuple[str, int]], newest_ms: Callable[[str, int], int | None]) -> None:
        """Add the queues of the store that no topic has: of an unknown topic, or behind the queues of a known one.

        The log has each change of topics before the messages that rely on it. So this only finds queues if the log
        could not take the change, or there is no journal. A known topic counts only with messages after its last known
        change, as it may be narrower on purpose.
        """
        unknown_topics: dict[str, int] = {}
        wider_topics: dict[str, int] = {}
        for name, queue_id in queues:
            known_topic = self.table.get(name)
            if known_topic is None and name not in _WITHOUT_CONFIG:
                unknown_topics[name] = max(unknown_topics.get(name, 0), queue_id + 1)
            elif known_topic is not None and self._is_behind_known_queues(known_topic, queue_id, newest_ms):
                wider_topics[name] = max(wider_topics.get(name, 0), queue_id + 1)
        for name, count in wider_topics.items():
            log.warning("topic %s has messages in %d queues, more than it was known to have", name, count)
            known_topic = self.table[name]
            self.put(msgspec.structs.replace(known_topic, read_queue_nums=count, write_queue_nums=count))
        for name, count in unknown_topics.items():
            is_system = names.is_system_topic(name)  # No change says that the broker has made it.
            is_own = names.group_of(name) or is_system
            least = 1 if is_own else min(self._settings.topic_queues, MIN_ADOPTED_QUEUES)
            log.log(
                logging.DEBUG if is_system else logging.WARNING,
                "topic %s was not saved before the broker ended; it is made again from its queues",
                name,
            )
            self.incarnations[name] = UNKNOWN_INCARNATION  # It was lost with the settings.
            self.put(_simple_topic(name, max(count, least)))

    def _is_behind_known_queues(
        self, topic: TopicConfig, queue_id: int, newest_ms: Callable[[str, int], int | None]
    ) -> bool:
        name = topic.topic_name
        if queue_id < max(topic.read_queue_nums, topic.write_queue_nums) or self.is_system(name):
            return False
        return (newest_ms(name, queue_id) or 0) > self.saved_ms

    def put(self, topic: TopicConfig) -> TopicConfig:
        name = topic.topic_name
        if name not in self.table:
            # Two topics of a name may be made in one millisecond.
            self.incarnations.setdefault(name, max(self._clock.now_ms(), self._last_deleted_incarnation + 1))
        self.table[name] = topic
        self._note_change(topic)
        return topic

    def delete(self, name: str) -> bool:
        """Delete a topic. Returns whether it existed. If not, slaves still hear that its queues are to go."""
        is_known = self.table.pop(name, None) is not None
        self._last_deleted_incarnation = max(self._last_deleted_incarnation, self.incarnations.pop(name, 0))
        if is_known:
            log.info("topic %s is deleted", name)
            self.version = self.version.after_change(self._clock.now_ms())
        self._change_log.note(Change(no_topic=name, topics_version=self.version))
        if is_known:
            self._announce()
        return is_known

    def follow(self, masters: TopicConfigTable) -> None:
        if not masters.data_version.is_same(self.version):
            self.replace(masters.data_version, dict(masters.topic_config_table), masters.incarnations or {})

    def replace(self, version: DataVersion, table: dict[str, TopicConfig], incarnations: dict[str, int]) -> None:
        self.version, self.table, self.incarnations = version, table, incarnations
        self._announce()

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self.table.values())

    def snapshot(self) -> Iterator[Change]:
        for topics in split_table(self.table, self._change_log.max_record_bytes):
            yield self._change_of(topics)

    def _change_of(self, topics: list[TopicConfig]) -> Change:
        names_in_change = [topic.topic_name for topic in topics]
        incarnations = {name: self.incarnations[name] for name in names_in_change if name in self.incarnations}
        return Change(topics=topics, topics_version=self.version, incarnations=incarnations)

    def _ensure_inner(self, name: str, queues: int) -> TopicConfig:
        topic = self.table.get(name)
        return topic or self.put(TopicConfig(names.check_topic(name), queues, queues, Perm.READ_WRITE))

    def _note_change(self, topic: TopicConfig | None = None) -> None:
        self.version = self.version.after_change(self._clock.now_ms())
        if topic is not None:
            self._change_log.note(self._change_of([topic]))
        self._announce()

    def _announce(self) -> None:
        self.file.touch()
        self.on_change()

    def _how_to_create(self, template: str) -> str:
        if self._settings.auto_create_topic:
            return f"Its template {template!r} is not one that topics can be made from; use {names.DEFAULT_TOPIC}."
        return "autoCreateTopicEnable is false on this broker, so create it by mqadmin updateTopic."


def _system_topics(settings: BrokerSettings) -> Iterator[TopicConfig]:
    perm_if_open = {True: Perm.INHERIT | Perm.READ_WRITE, False: Perm.INHERIT}
    yield _simple_topic(names.SELF_TEST_TOPIC, 1)
    if settings.auto_create_topic:
        yield _simple_topic(names.DEFAULT_TOPIC, settings.topic_queues, Perm.INHERIT | Perm.READ_WRITE)
    yield _simple_topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
    # The admin tool finds the brokers of a cluster by the route of a topic of its name.
    yield _simple_topic(settings.cluster, CLUSTER_QUEUES, perm_if_open[settings.cluster_topic])
    yield _simple_topic(settings.name, 1, perm_if_open[settings.broker_topic])
    yield _simple_topic(names.OFFSET_MOVED_TOPIC, 1)
    yield _simple_topic(names.SCHEDULE_TOPIC, max(SCHEDULE_QUEUES, settings.delay_levels.max))
    if settings.trace_topic_enabled:
        yield _simple_topic(settings.trace_topic, 1)
    yield _simple_topic(settings.cluster + names.REPLY_SUFFIX, 1)


def _simple_topic(name: str, queues: int, perm: int = Perm.READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)

"""The state that a slave copies from its master beside the log: delay progress and request modes. Of a master without a
journal, as Java's, also topics, groups and consumer offsets.

    every ten seconds, and when its log is followed    GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                                                       GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET,
                                                       GET_ALL_MESSAGE_REQUEST_MODE
    the master's topics name its journal, or records   from now on only the last two, until the connection ends:
    of it have come                                    an answer could be older than the log
    the master is gone                                 the last copy stays in use
    its log differs from ours (ha_slave.py)            nothing is copied: it is not our master

If the master no longer knows a topic, the slave deletes the topic's queues. It deletes only queues whose last message
was here before it asked the master: a later message may belong to a new topic of that name. Unlike Java's slaves.
Source: SlaveSynchronize, Java 4.9.8.

A log's files must have the same size at both (`SameSettings`). Otherwise the slave notices the difference only where
the first file of one of them ends, perhaps after days. So it asks for the master's settings as soon as it knows the
master. Masters with accounts show their settings only to administrators, and are not asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.delayed.delay import DelayProgress
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.replication.ha_slave import HaSlave
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError, NetworkError, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import run_to_end
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.requests.admin_headers import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
    GetBrokerConfig,
)
from sparrowmq.protocol.requests.bodies import GroupConfigTable, TopicConfigTable
from sparrowmq.protocol.requests.client_bodies import RequestModeTable
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets, DelayOffsets
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.settings.settings_files import parse_properties
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
TIMEOUT_S: Final = 3.0
FILE_SIZE: Final = "mappedFileSizeCommitLog"
RETRY_S: Final = 1.0
_OLD_NAME: Final = "mapedFileSizeCommitLog"  # before Java 4.9


class Mirror:
    """Copy a master's topics, groups and offsets while the slave runs, if its log is equal to ours (`is_ours`)."""

    def __init__(
        self,
        store: MessageStore,
        state: BrokerState,
        delayed: DelayProgress,
        pool: Pool,
        clock: Clock,
        is_ours: Callable[[], bool],
    ) -> None:
        self._store = store
        assert state.follower is not None
        self._topics = state.topics
        self._groups = state.groups
        self._offsets = state.offsets
        self._modes = state.modes
        self._delayed = delayed
        self._follower = state.follower
        self._records_before_connection = state.follower.count  # of the journal's records before the connection
        self._keeps_journal = False
        self._pool = pool
        self._clock = clock
        self._is_ours = is_ours
        self._address = ""
        self._wake = asyncio.Event()
        self._logged_problem = ""

    def part(self) -> Part:
        return Part(tasks=(Task("mirror", self.run),))

    def set_master(self, address: str) -> None:
        """Copy from the master at this address, as a name server reports it; "" if no name server knows one."""
        if address != self._address:
            self._address = address
            self.wake()

    def wake(self) -> None:
        self._records_before_connection, self._keeps_journal = self._follower.count, False
        self._delayed.leave_master()
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            if self._address and self._is_ours():
                await self._copy_state(self._address)
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), PERIOD_S)

    async def _copy_state(self, address: str) -> None:
        try:
            session = await self._pool.session(address)
            if not self._has_journal():
                await self._take_topics(session)
            groups = None if self._has_journal() else await session.call(GetAllSubscriptionGroup(), timeout_s=TIMEOUT_S)
            if groups is not None and not self._has_journal():
                self._groups.follow(GroupConfigTable.decode(groups.body))
            offsets = None if self._has_journal() else await session.call(GetAllConsumerOffset(), timeout_s=TIMEOUT_S)
            if offsets is not None and not self._has_journal():
                self._offsets.follow(ConsumerOffsets.decode(offsets.body))
            delays = await session.call(GetAllDelayOffset(), timeout_s=TIMEOUT_S)
            if delays.body:
                self._delayed.follow(DelayOffsets.decode(delays.body))
            await self._take_modes(session)
        except SparrowError as error:
            self._log_problem(address, str(error))
        else:
            self._log_problem(address, "")

    async def _take_modes(self, session: Session) -> None:
        """Take how groups consume. A master of 4.9 does not know the request."""
        try:
            answer = await session.call(GetAllRequestModes(), timeout_s=TIMEOUT_S)
        except RemoteError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        else:
            mode_table = RequestModeTable.decode(answer.body)
            if mode_table.journal is None:  # else the log brings them
                self._modes.replace(mode_table.data_version, mode_table.message_request_mode_map)

    def _has_journal(self) -> bool:
        """Whether the log brings topics, groups and offsets, or has begun to while an answer was on its way."""
        return self._keeps_journal or self._follower.count > self._records_before_connection

    async def _take_topics(self, session: Session) -> None:
        end = self._store.end
        answer = await session.call(GetAllTopicConfig(), timeout_s=TIMEOUT_S)
        topic_table = TopicConfigTable.decode(answer.body)
        self._keeps_journal = topic_table.journal is not None
        if self._has_journal():
            return
        self._follower.leave()
        self._topics.follow(topic_table)
        last_offsets: dict[str, int] = {}
        for queue in self._store.queues:
            topic = queue.topic
            if topic not in topic_table.topic_config_table and not is_system_topic(topic):
                last_offsets[topic] = max(last_offsets.get(topic, 0), queue.last_entry()[0])
        for topic, offset in last_offsets.items():
            if offset < end:
                log.info("topic %s is deleted, as its master says", topic)
                await run_to_end(self._store.deletion.begin(topic))

    def _log_problem(self, address: str, problem: str) -> None:
        if problem and problem != self._logged_problem:
            log.warning(
                "topics, groups and offsets cannot be copied from the master at %s, retrying every %g s: %s",
                *(address, PERIOD_S, problem),
            )
        elif self._logged_problem and not problem:
            log.info("topics, groups and offsets are copied from the master at %s again", address)
        self._logged_problem = problem


class SameSettings:
    def __init__(self, settings: BrokerSettings, slave: HaSlave, pool: Pool, clock: Clock) -> None:
        self._settings = settings
        self._slave = slave
        self._pool = pool
        self._clock = clock
        self._address = ""
        self._wake = asyncio.Event()

    def part(self) -> Part:
        return Part(tasks=(Task("settings of the master", self.run),))

    def set_master(self, address: str) -> None:
        if address and address != self._address and not self._settings.checks_access:
            self._address = address
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self._wake.is_set() and not await self._compare(self._address):
                with suppress(TimeoutError):
                    await self._clock.wait_for(self._wake.wait(), RETRY_S)

    async def _compare(self, address: str) -> bool:
        try:
            session = await self._pool.session(address)
            answer = await session.call(GetBrokerConfig(), timeout_s=TIMEOUT_S)
            theirs = file_size(parse_properties(bytes(answer.body).decode()))
        except NetworkError:
            return False
        except (RemoteError, ValueError) as refused:
            log.info("the settings of the master at %s are not known: %s", address, refused)
            return True
        ours = self._settings.commit_log_file_bytes
        if theirs and (problem := size_problem(ours, theirs, address)):
            self._slave.refuse(ConfigError(problem))
        return True


def size_problem(ours: int, theirs: int, address: str) -> str:
    """Return what to do about log files of another size than the master's; "" if the sizes are the same."""
    if ours == theirs:
        return ""
    return (
        f"{FILE_SIZE} = {ours} here, and {theirs} at the master at {address}: both need the same. "
        f"Set {FILE_SIZE}={theirs} here, move the store of this broker away (it has files of the other size), "
        "and start it empty"
    )


def file_size(settings: Mapping[str, str]) -> int:
    """Return the size of the log's files by a master's settings; 0 if they do not say it."""
    size_text = settings.get(FILE_SIZE) or settings.get(_OLD_NAME) or ""
    return whole_number(size_text) or 0

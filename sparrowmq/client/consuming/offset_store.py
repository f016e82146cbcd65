"""Consumer offsets: at the broker for a group that shares its queues, in a local file for broadcasting.

Each member of a broadcast group reads everything, so a number at the broker would not fit them all. The file has the
place and the form of Java's: <folder>/<client>/<group>/offsets.json. Source: RemoteBrokerOffsetStore and
LocalFileOffsetStore, Java 4.9.8.

The offset at which a group begins in a queue that it takes over:

    committed offset          the group's offset, if it ever consumed the queue
    start="latest"            after the newest message; the retry topic from its beginning
    start="new"               the same, in a young topic too
    start="earliest"          at the oldest message
    start=datetime            at the first message stored since

A broker answers 0 for a group that never consumed a queue whose beginning is still there. "latest" follows this answer,
as in Java. With "new" and a datetime the client asks whether the group has committed that 0. The end of "new" is
committed at once, so that members that join later begin there too. Source: RebalancePushImpl.computePullFromWhere, Java
4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from sparrowmq.client.arguments import check_time
from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.consumer_settings import Start
from sparrowmq.client.sending.send_result import is_from_slave
from sparrowmq.core import snapshot
from sparrowmq.errors import NetworkError, RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests import headers
from sparrowmq.protocol.requests.admin_headers import GetAllConsumerOffset
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets, ResetOffsets
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)
_MAX_LOGGED_QUEUES: Final = 20  # queues in a line of the log


class OffsetStore(Protocol):
    """The offsets of a group, as consumers use them."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The committed offset; None if there is none. Raises: SparrowError."""

    async def resume(self, queue: MessageQueue) -> int | None:
        """The offset of a queue that is taken over: as `read`, or one not committed yet. Raises: SparrowError."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, SparrowError]:
        """Keep these offsets. Those that fail are logged, kept with the next commit, and returned with their errors."""

    async def commit_again(self, queue: MessageQueue, offset: int) -> SparrowError | None:
        """Commit an offset again, if it has changed since. Return the error if that fails."""

    async def has(self, queue: MessageQueue) -> bool:
        """Return whether the group has committed an offset of the queue, even 0. Raises: SparrowError."""

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that another member has now."""

    def moved(self, queue: MessageQueue) -> None:
        """Forget the offsets of a queue, because an operator has set another one."""


def offset_store_of(group: str, network: Network, folder: Path | None) -> OffsetStore:
    """The offsets of a group: in a folder if it broadcasts, otherwise at the brokers."""
    if folder is None:
        return BrokerOffsets(group, network.brokers)
    return LocalOffsets(folder / f"{network.ip}@{network.instance}" / group / "offsets.json")


def log_reset(log_limit: LogLimit, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Warn that an operator has moved a group. A broker can say so at any time, of any number of queues."""
    first = ", ".join(f"{queue} to {offset}" for queue, offset in islice(offsets.items(), _MAX_LOGGED_QUEUES))
    rest_text = f" and {len(offsets) - _MAX_LOGGED_QUEUES} more" if len(offsets) > _MAX_LOGGED_QUEUES else ""
    log_limit.log(log, logging.WARNING, "group %s was moved to other offsets: %s%s", group, first, rest_text)


class BrokerOffsets:
    """Offsets of a group that shares its queues. Unchanged ones are not sent again.

    An offset that could not be committed, because the broker was away or a slave, is kept until the queue comes back.
    No other member can have consumed the queue meanwhile.
    """

    def __init__(self, group: str, brokers: Brokers) -> None:
        self._group = group
        self._brokers = brokers
        self._committed: dict[MessageQueue, int] = {}
        self._uncommitted: dict[MessageQueue, int] = {}
        self._failing: set[MessageQueue] = set()  # One line says so, until the next success.

    async def resume(self, queue: MessageQueue) -> int | None:
        committed = await self.read(queue)
        remembered = self._uncommitted.get(queue)
        if remembered is None or (committed is not None and committed >= remembered):
            return committed
        # A broker that lost its store begins again, and no message is behind its end.
        is_there = remembered <= await newest(queue, self._brokers)
        self._uncommitted.pop(queue, None)
        return remembered if is_there else committed

    async def read(self, queue: MessageQueue) -> int | None:
        session = await self._brokers.having(queue)
        request = headers.QueryConsumerOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            return (await session.call(request)).header.offset
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, SparrowError]:
        errors: dict[MessageQueue, SparrowError] = {}
        changed_offsets = {queue: offset for queue, offset in offsets.items() if self._committed.get(queue) != offset}
        sessions: dict[MessageQueue, Session] = {}
        for queue, offset in changed_offsets.items():
            try:
                sessions[queue] = await self._brokers.having(queue)
            except SparrowError as error:
                errors[queue] = error
                self._report(queue, offset, error)
        calls = [session.call(self._update(queue, changed_offsets[queue])) for queue, session in sessions.items()]
        # Gathered, because a caller that is cancelled leaves no answer that nothing awaits.
        for queue, answer in zip(sessions, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, SparrowError):
                errors[queue] = answer
                self._report(queue, changed_offsets[queue], answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._committed[queue] = changed_offsets[queue]
                self._uncommitted.pop(queue, None)
                self._failing.discard(queue)
        return errors

    async def commit_again(self, queue: MessageQueue, offset: int) -> SparrowError | None:
        try:
            if await self.read(queue) != offset:
                session = await self._brokers.having(queue)
                await session.call(self._update(queue, offset))
        except SparrowError as error:
            self._report(queue, offset, error)
            return error
        return None

    async def has(self, queue: MessageQueue) -> bool:
        session = await self._brokers.having(queue)
        request = headers.QueryConsumerOffset(self._group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            await session.call(request)
            answer = await session.call(GetAllConsumerOffset())  # Apache up to 4.9 ignores `set_zero_if_not_found`.
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return False
            if error.code == ResponseCode.NO_PERMISSION:
                return True  # Apache up to 4.9 never refuses this list.
            raise
        table = ConsumerOffsets.decode(answer.body).offset_table
        return queue.queue_id in table.get(f"{queue.topic}@{self._group}", {})

    def _update(self, queue: MessageQueue, offset: int) -> headers.UpdateConsumerOffset:
        return headers.UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )

    def _report(self, queue: MessageQueue, offset: int, error: SparrowError) -> None:
        if isinstance(error, NetworkError) or is_from_slave(error):
            self._uncommitted[queue] = offset
        level = logging.DEBUG if queue in self._failing else logging.WARNING
        self._failing.add(queue)
        log.log(level, "cannot commit offset %d of %s for group %s: %s", offset, queue, self._group, error)

    def forget(self, queue: MessageQueue) -> None:
        self._committed.pop(queue, None)
        self._failing.discard(queue)

    def moved(self, queue: MessageQueue) -> None:
        self._committed.pop(queue, None)  # Pulls, and other members, have committed since.
        self._uncommitted.pop(queue, None)


class LocalOffsets:
    """Offsets of one broadcast consumer, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offsets: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        return self._loaded().get(queue)

    async def resume(self, queue: MessageQueue) -> int | None:
        return self._loaded().get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, SparrowError]:
        known_offsets = self._loaded()
        if any(known_offsets.get(queue) != offset for queue, offset in offsets.items()):
            known_offsets.update(offsets)
            try:
                snapshot.save(self._file, ResetOffsets(known_offsets), encode=ResetOffsets.encode)
            except OSError as error:
                log.warning("cannot keep offsets in %s (%s); after a restart messages come twice", self._file, error)
        return {}

    async def commit_again(self, queue: MessageQueue, offset: int) -> SparrowError | None:
        """Do nothing: no other process writes the file."""

    async def has(self, queue: MessageQueue) -> bool:
        return queue in self._loaded()

    def forget(self, queue: MessageQueue) -> None:
        """Do nothing: no other process writes the file."""

    def moved(self, queue: MessageQueue) -> None:
        """Do nothing: a file is always there."""

    def _loaded(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            table = snapshot.load(self._file, ResetOffsets, decode=lambda raw, kind: kind.decode(raw))
            self._offsets = dict(table.offset_table) if table else {}
        return self._offsets


async def first_offset(queue: MessageQueue, start: Start, offsets: OffsetStore, brokers: Brokers) -> int:
    """The offset to pull first. Raises: SparrowError, the broker could not be asked."""
    committed = await offsets.resume(queue)
    if committed is not None and committed > 0:
        return committed
    if start == "earliest" or queue.topic.startswith(RETRY):
        return 0
    if start == "latest":
        return await newest(queue, brokers) if committed is None or committed < 0 else 0
    start_offset = await (newest(queue, brokers) if start == "new" else offset_at(queue, start, brokers))
    if committed == 0 and await offsets.has(queue):
        return 0
    if start == "new":
        await offsets.commit({queue: start_offset})
    return start_offset


async def newest(queue: MessageQueue, brokers: Brokers) -> int:
    """The offset that the next message will get."""
    session = await brokers.having(queue)
    answer = await session.call(headers.GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def oldest(queue: MessageQueue, brokers: Brokers) -> int:
    session = await brokers.having(queue)
    answer = await session.call(headers.GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_at(queue: MessageQueue, time: datetime, brokers: Brokers) -> int:
    """The offset of the first message stored since a time; a datetime without zone is local time.

    Apache's brokers up to 4.9 answer the nearest message, which can be one message early.
    Raises: ConfigError, it is no time, or out of what can be counted.
    """
    return await offset_since(queue, check_time("time", time), brokers)


async def offset_since(queue: MessageQueue, timestamp_ms: int, brokers: Brokers) -> int:
    """As `offset_at`, of a time in ms; the end of the queue if all messages are older."""
    session = await brokers.having(queue)
    request = headers.SearchOffset(queue.topic, queue.queue_id, timestamp_ms, headers.FIRST_AT_OR_AFTER)
    return (await session.call(request)).header.offset

"""Consumer offsets: at the broker for a group that shares its queues, in a local file for broadcasting.

Each member of a broadcast group reads everything, so a number at the broker would not fit them all. The file has
the place and the form of Java's: <folder>/<client>/<group>/offsets.json.
Source: RemoteBrokerOffsetStore and LocalFileOffsetStore, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.sending.outcome import is_slaves
from sparrowmq.core import snapshot
from sparrowmq.errors import NetworkError, RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import GetAllConsumerOffset
from sparrowmq.protocol.requests.headers import GetMaxOffset, QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets, ResetOffsets
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

_MOST_SHOWN: Final = 20  # queues in a line of the log


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


def offsets_of(group: str, network: Network, folder: Path | None) -> OffsetStore:
    """The offsets of a group: in a folder if it broadcasts, otherwise at the brokers."""
    if folder is None:
        return BrokerOffsets(group, network.brokers)
    return LocalOffsets(folder / f"{network.ip}@{network.instance}" / group / "offsets.json")


def log_reset(lines: LogLimit, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Warn that an operator has moved a group. A broker can say so at any time, of any number of queues."""
    first = ", ".join(f"{queue} to {offset}" for queue, offset in islice(offsets.items(), _MOST_SHOWN))
    more = f" and {len(offsets) - _MOST_SHOWN} more" if len(offsets) > _MOST_SHOWN else ""
    lines.log(log, logging.WARNING, "group %s was moved to other offsets: %s%s", group, first, more)


class BrokerOffsets:
    """Offsets of a group that shares its queues. Unchanged ones are not sent again.

    An offset that could not be committed, because the broker was away or a slave, is kept until the queue comes back.
    No other member can have consumed the queue meanwhile. Without the offset, handled messages would be delivered
    again.
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
        is_there = remembered <= await self._end(queue)
        self._uncommitted.pop(queue, None)
        return remembered if is_there else committed

    async def _end(self, queue: MessageQueue) -> int:
        session = await self._brokers.having(queue)
        request = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (await session.call(request)).header.offset

    async def read(self, queue: MessageQueue) -> int | None:
        session = await self._brokers.having(queue)
        request = QueryConsumerOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            return (await session.call(request)).header.offset
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, SparrowError]:
        failed: dict[MessageQueue, SparrowError] = {}
        changed = {queue: at for queue, at in offsets.items() if self._committed.get(queue) != at}
        sessions: dict[MessageQueue, Session] = {}
        for queue, offset in changed.items():
            try:
                sessions[queue] = await self._brokers.having(queue)
            except SparrowError as error:
                failed[queue] = error
                self._report(queue, offset, error)
        calls = [session.call(self._update(queue, changed[queue])) for queue, session in sessions.items()]
        # Gathered, because a caller that is cancelled leaves no answer that nothing awaits.
        for queue, answer in zip(sessions, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, SparrowError):
                failed[queue] = answer
                self._report(queue, changed[queue], answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._committed[queue] = changed[queue]
                self._uncommitted.pop(queue, None)
                self._failing.discard(queue)
        return failed

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
        request = QueryConsumerOffset(self._group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
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

    def _update(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
        return UpdateConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )

    def _report(self, queue: MessageQueue, offset: int, error: SparrowError) -> None:
        if isinstance(error, NetworkError) or is_slaves(error):
            self._uncommitted[queue] = offset
        level = logging.DEBUG if queue in self._failing else logging.WARNING
        self._failing.add(queue)
        log.log(level, "cannot commit offset %d of %s for group %s: %s", offset, queue, self._group, error)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that another member has now."""
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
        known = self._loaded()
        if any(known.get(queue) != offset for queue, offset in offsets.items()):
            known.update(offsets)
            try:
                snapshot.save(self._file, ResetOffsets(known), encode=ResetOffsets.encode)
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

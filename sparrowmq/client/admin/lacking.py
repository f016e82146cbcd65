"""The lag of a slave in messages: the ends of its queues against those of its master, topic by topic.

Java's brokers report messages and times in no other way. It takes one request for each topic at both, so it is asked
for explicitly, and only of a slave whose log is shorter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sparrowmq.client.admin.operations.topic_operations import topic_offsets, topic_table
from sparrowmq.client.admin.servers import Servers
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

_AT_ONCE: Final = 32  # topics

Ends = Mapping[MessageQueue, TopicOffset]


async def lacking(servers: Servers, master: str, slave: str) -> tuple[int, float | None]:
    """Return the lag of a slave in messages, and in seconds between the newest messages; None if it has none.

    Half messages, and those that wait for their time, count too. Raises: NetworkError, RemoteError.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(topic: str) -> tuple[Ends, Ends]:
        async with gate:
            theirs, its = await asyncio.gather(_ends(servers, master, topic), _ends(servers, slave, topic))
            return theirs, its

    pairs = await asyncio.gather(*map(one, await topic_table(servers, master)))
    return sum(_missing(*pair) for pair in pairs), _silence_s(pairs)


async def _ends(servers: Servers, address: str, topic: str) -> Ends:
    try:
        return await topic_offsets(servers, address, topic)
    except RemoteError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}  # The slave takes topics every ten seconds.


def _missing(theirs: Ends, its: Ends) -> int:
    """Return the number of messages of one topic that the slave does not have."""
    total = 0
    for queue, end in theirs.items():
        here = its.get(queue)
        total += max(end.max_offset - (here.max_offset if here is not None else end.min_offset), 0)
    return total


def _silence_s(pairs: list[tuple[Ends, Ends]]) -> float | None:
    """Return the time between the newest message of the master and that of the slave."""
    newest = [
        max((end.last_update_timestamp for pair in pairs for end in pair[at].values()), default=0)
        for at in (0, 1)
    ]
    return max(newest[0] - newest[1], 0) / 1000 if newest[1] else None

"""Finding messages: QUERY_MESSAGE (12) by key or unique id, VIEW_MESSAGE_BY_ID (33) by offset id.

Source: QueryMessageProcessor, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.headers import QueryMessage, QueryMessageReply, ViewMessage
from sparrowmq.remoting.dispatch import Answer, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.store.message_store import MessageStore

# However many are asked for (Java: maxMsgsNumBatch). For a unique id, which should be unique, half of it.
MOST: Final = 64
MOST_FOR_UNIQUE_KEY: Final = 32


class QueryHandler:
    """Finds messages in the store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @handles(QueryMessage)
    def by_key(self, header: QueryMessage, body: bytes, peer: Peer) -> Answer:
        """Messages of a topic with a key, or with a unique id, stored in a span of time; the newest, oldest first."""
        most = MOST_FOR_UNIQUE_KEY if header.unique_key_query else min(header.max_num, MOST)
        candidates = self._store.query(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp
        )
        found = [view for view in reversed(candidates) if _has_key(view, header.topic, header.key)]
        if not found:
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct"
            )
        return Answer(header=QueryMessageReply(*self._store.indexed), body=found)

    @handles(ViewMessage)
    def by_offset(self, header: ViewMessage, body: bytes, peer: Peer) -> Answer:
        """The one message that begins at a log offset."""
        found = self._store.record_at(header.offset)
        if found is None:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return Answer(body=[found])


def _has_key(view: memoryview, topic: str, key: str) -> bool:
    """Whether it is the key and not only its hash that agrees. Unlike Java, which leaves that to its clients."""
    message = record.decode(view, check_crc=False)
    return message.topic == topic and (key == message.unique_key or key in message.keys)

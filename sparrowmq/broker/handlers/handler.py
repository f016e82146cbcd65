"""The base of handlers: the parts that they share, and common refusals."""

from __future__ import annotations

from sparrowmq.broker.shared_parts import SharedParts
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import TopicConfig


class Handler:
    """A handler, with the shared parts at hand."""

    def __init__(self, shared: SharedParts) -> None:
        self._store = shared.store
        self._writer = shared.writer
        self._topics = shared.topics
        self._groups = shared.groups
        self._offsets = shared.offsets
        self._clients = shared.clients
        self._consumption = shared.consumption
        self._clock = shared.clock

    def _known_topic(self, name: str) -> TopicConfig:
        """Raises: RemoteError, there is no such topic."""
        topic = self._topics.get(name)
        if topic is None:
            raise RemoteError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

"""The content of one send request: a message, or a batch of messages of one topic."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.client.cluster.routes import TEMPLATE_QUEUES
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, Property
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessageV2
from sparrowmq.protocol.wire.fields import text_of


@dataclass(slots=True, eq=False)
class Packed:
    """A message or a batch as it is sent, before its queue is known.

    Attributes:
        properties: as rendered; those of a batch hold for all its messages.
        is_timed: only brokers that deliver at any time can take it.
    """

    topic: str
    body: bytes
    properties: str
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    is_timed: bool = False

    def request(self, group: str, queue: MessageQueue, now_ms: int) -> SendMessageV2:
        """The header of its request in the name of a producer group; `body` goes with it."""
        kind = SendBatchMessage if self.is_batch else SendMessageV2
        return kind(
            producer_group=group,
            topic=self.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=TEMPLATE_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=now_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=False,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )


def batch_properties(*, wait_stored: bool) -> str:
    """The properties of a batch.

    It has no UNIQ_KEY of its own, as Java 5 sends it: 4.9's broker would give that to every message.
    """
    return properties.render({Property.WAIT: text_of(wait_stored)})

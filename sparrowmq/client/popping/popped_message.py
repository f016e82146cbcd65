"""A message that was popped, and its receipt, with which it is acknowledged."""

from __future__ import annotations

import asyncio

from sparrowmq.client.consuming.received import Owner, ReceivedMessage
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.receipt_handle import ReceiptHandle


class Receipt:
    """The right to acknowledge one message, until the message becomes visible again.

    Args:
        offset, visible_s: by default those that the handle says.
    Attributes:
        topic: the full name of the topic that was popped.
        pop: the handle that all messages of one queue in one pop share, or the message's own.
        offset: of the message in its queue.
        visible_s: the time of the clock at which the message becomes visible again.
        changing: ends when a request that changes the invisible time is answered; None if there is none.
        is_spent: the message was acknowledged, or given back.
    """

    __slots__ = ("_clock", "_text", "changing", "is_spent", "offset", "pop", "topic", "visible_s")

    def __init__(
        self,
        topic: str,
        text: str | None,
        pop: ReceiptHandle,
        clock: Clock,
        offset: int | None = None,
        visible_s: float | None = None,
    ) -> None:
        self.topic = topic
        self._clock = clock
        self.changing: asyncio.Future[None] | None = None
        self.is_spent = False
        if offset is None or visible_s is None:
            self.renew(text, pop)
        else:
            self._text, self.pop, self.offset, self.visible_s = text, pop, offset, visible_s

    def renew(self, text: str | None, handle: ReceiptHandle) -> None:
        """Take another handle, by which the message is invisible from now on. The text is as the broker gave it."""
        self._text = text
        self.pop, self.offset = handle, handle.queue_offset
        self.visible_s = self._clock.monotonic() + handle.invisible_ms / 1000

    @property
    def handle(self) -> ReceiptHandle:
        """The words of the handle."""
        pop = self.pop
        return pop if pop.queue_offset == self.offset else pop._replace(queue_offset=self.offset)

    @property
    def text(self) -> str:
        """The handle as a request has it."""
        return self._text or str(self.handle)

    @property
    def left_s(self) -> float:
        """The seconds until the message becomes visible; negative ones if another consumer may have the message."""
        return self.visible_s - self._clock.monotonic()


class PoppedMessage(ReceivedMessage):
    """A message that was delivered by a pop.

    Attributes:
        is_dead: a copy of it is in the dead-letter queue, so it needs no other copy.
        burial: held by the call that makes this copy, and acknowledges the message; made by the first call.
    """

    __slots__ = ("burial", "is_dead", "receipt")

    def __init__(
        self,
        stored: StoredMessage | PulledMessage,
        queue: MessageQueue,
        receipt: Receipt,
        owner: Owner | None = None,
        namespace: str = "",
    ) -> None:
        super().__init__(stored, queue, None, owner, namespace)
        self.receipt = receipt
        self.is_dead = False
        self.burial: asyncio.Lock | None = None

    @property
    def is_current(self) -> bool:
        """Return whether the message is still invisible to other consumers."""
        return super().is_current and self.receipt.left_s > 0


def receipt_of(message: object) -> Receipt:
    """The receipt of a message. Raises: ConfigError, it was not popped."""
    if not isinstance(message, PoppedMessage):
        raise ConfigError(f"{message!r} was not received by a simple consumer; give a message of `receive`")
    return message.receipt


def unspent(message: object, consequence: str) -> Receipt:
    """The receipt of a message. Raises: ConfigError, it was not popped, or is settled already, with the consequence."""
    receipt = receipt_of(message)
    if receipt.is_spent:
        raise ConfigError(f"{message!r} is settled already, so {consequence}")
    return receipt

"""A message that was popped, and its receipt, with which it is acknowledged.

pop --> Receipt of queue 0 <-- message, message, ...        all messages of one queue share one
    --> Receipt of queue 1 <-- message, ...
change of the invisible time --> a Receipt for this message alone
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sparrowmq.client.consuming.delivered import Owner
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.popping.message_runs import with_receipt
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.receipt_handle import ReceiptHandle


class Receipt(NamedTuple):
    """The right to acknowledge messages of one queue, until they become visible again.

    Attributes:
        topic: the full name of the topic that was popped.
        handle: the one of this message, or of the first of those that share the receipt.
        clock: measures their invisible time.
        visible_s: the time of the clock at which the messages become visible again.
        is_own: it is the receipt of one message only.
        text: the handle as the broker gave it; "" if it was made here.
    """

    topic: str
    handle: ReceiptHandle
    clock: Clock
    visible_s: float
    is_own: bool = False
    text: str = ""

    @staticmethod
    def own(topic: str, text: str, handle: ReceiptHandle, clock: Clock) -> Receipt:
        """The receipt of one message, which is invisible from now on."""
        visible_s = clock.monotonic() + handle.invisible_ms / 1000
        return Receipt(topic, handle, clock, visible_s, is_own=True, text=text)


class PoppedMessage(ReceivedMessage):
    """A message that was delivered by a pop. `popped_messages` makes several at once.

    Attributes:
        _receipt: renewed when its invisible time is changed.
        _is_spent: the message was acknowledged, or given back.
        _is_dead: a copy of it is in the dead-letter queue, so it needs no other copy.
        _burial: held by the call that makes this copy, and acknowledges the message; made by the first call.
    """

    __slots__ = ("__dict__",)  # few messages need one
    _receipt: Receipt
    _is_dead = False
    _burial: asyncio.Lock | None = None

    @property
    def _handle(self) -> ReceiptHandle:
        """The words of its handle."""
        handle, offset = self._receipt.handle, self._handle_offset
        return handle if handle.queue_offset == offset else handle._replace(queue_offset=offset)

    @property
    def _handle_offset(self) -> int:
        """The queue offset that its handle says."""
        receipt = self._receipt
        return receipt.handle.queue_offset if receipt.is_own else self.offset

    @property
    def _handle_text(self) -> str:
        """The handle as a request has it."""
        return self._receipt.text or str(self._handle)

    @property
    def _left_s(self) -> float:
        """The seconds until it becomes visible; negative ones if another consumer may have it."""
        return self._receipt.visible_s - self._receipt.clock.monotonic()

    @property
    def is_current(self) -> bool:
        """Return whether the message is still invisible to other consumers."""
        return super().is_current and self._left_s > 0

    def _renew(self, text: str, handle: ReceiptHandle) -> None:
        """Take another handle, by which the message is invisible from now on. The text is as the broker gave it."""
        self._receipt = Receipt.own(self._receipt.topic, text, handle, self._receipt.clock)


def popped_messages(
    records: Sequence[StoredMessage | PulledMessage],
    queue: MessageQueue,
    receipt: Receipt,
    owner: Owner | None = None,
    namespace: str = "",
) -> list[PoppedMessage]:
    """Return messages that share a receipt. `queue` is without the namespace already."""
    return with_receipt(PoppedMessage, records, queue, receipt, owner, namespace)


def popped(message: object) -> PoppedMessage:
    """The message. Raises: ConfigError, it was not popped."""
    if not isinstance(message, PoppedMessage):
        raise ConfigError(f"{message!r} was not received by a simple consumer; give a message of `receive`")
    return message


def unspent(message: object, consequence: str) -> PoppedMessage:
    """The message. Raises: ConfigError, it was not popped, or is settled already, with the consequence."""
    found = popped(message)
    if found._is_spent:
        raise ConfigError(f"{message!r} is settled already, so {consequence}")
    return found

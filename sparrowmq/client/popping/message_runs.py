"""Loops over the messages of a pop. They are compiled, because each message passes all of them.

the answer ──> with_receipt ──> handlers ──> spend ──> runs_of ──> the acknowledgement
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sparrowmq.client.consuming.delivered import DeliveredMessage, Settle, made
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.messages.pulled_message import PulledMessage

M = TypeVar("M", bound=DeliveredMessage)


def with_receipt(
    kind: Callable[[StoredMessage | PulledMessage, MessageQueue, Settle | None, Any, str], M],
    records: Sequence[StoredMessage | PulledMessage],
    queue: MessageQueue,
    receipt: object,
    owner: object,
    namespace: str,
) -> list[M]:
    """Return messages that share a receipt, as `kind`. `queue` is without the namespace already."""
    messages = made(kind, records, queue, None, owner, "")
    for message in messages:
        message._receipt = receipt
        message._namespace = namespace
    return messages


def spend(messages: Sequence[DeliveredMessage], is_spent: bool) -> None:
    """Note that messages are acknowledged, or that they are not."""
    for message in messages:
        message._is_spent = is_spent


def unspent_of(messages: Sequence[M]) -> list[M]:
    """Return the messages that are not acknowledged yet."""
    return [message for message in messages if not message._is_spent]


def runs_of(messages: Sequence[DeliveredMessage]) -> list[tuple[int, int]]:
    """Return the begin and end of each run: its messages share a receipt, and no offset is between them."""
    runs: list[tuple[int, int]] = []
    receipt: object = None
    begin = index = offset = 0
    for message in messages:
        if message._receipt is not receipt or message.offset != offset:
            if index > begin:
                runs.append((begin, index))
            begin, receipt, offset = index, message._receipt, message.offset
        index += 1
        offset += 1
    if index > begin:
        runs.append((begin, index))
    return runs


def spent_by_receipt(messages: Sequence[DeliveredMessage]) -> list[tuple[Any, int]]:
    """Return the receipts of acknowledged messages in turn, each with the number of messages in turn that share it."""
    runs: list[tuple[Any, int]] = []
    receipt: object = None
    count = 0
    for message in messages:
        if not message._is_spent:
            continue
        if message._receipt is not receipt:
            if count:
                runs.append((receipt, count))
            receipt, count = message._receipt, 0
        count += 1
    if count:
        runs.append((receipt, count))
    return runs


def unsettled(messages: Sequence[DeliveredMessage]) -> list[Settle | None]:
    """Take from messages what is called when they are settled, so that nothing else settles them meanwhile."""
    settles = [message._settle for message in messages]
    for message in messages:
        message._settle = None
    return settles


def settle_later(messages: Sequence[DeliveredMessage], settles: Sequence[Settle | None]) -> None:
    """Give back to messages that are not acknowledged what `unsettled` took."""
    for message, settle in zip(messages, settles, strict=True):
        if not message._is_spent:
            message._settle = settle

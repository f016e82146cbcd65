"""The outcome of a send: stored, stored less safely than the broker is configured to, or to be tried again.

All senders, with an event loop or without, decide here what an answer means.
Source: SendStatus and MQClientAPIImpl.processSendResponse, Java 4.9.8.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from sparrowmq.errors import NetworkError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue


class SendStatus(Enum):
    """The safety with which a message was stored, compared with the broker's configuration."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


LESS_SAFE: Final = frozenset(int(status.value) for status in SendStatus if status is not SendStatus.OK)


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The place where a message was stored.

    Attributes:
        msg_id: the message's own id, made before it was sent; consumers see the same id.
        offset_msg_id: the broker's id, which says where it is stored.
        status: not OK means stored, but less safely than the broker was configured to.
        recall_handle: `recall` takes back the message with it; None if the message does not wait, or by a delay level.
    """

    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None


def is_from_slave(error: BaseException) -> bool:
    """Return whether a slave of ours refused a request. It has done nothing, and its master is elsewhere."""
    return isinstance(error, RemoteError) and error.is_slaves


def is_retriable(error: BaseException) -> bool:
    """Return whether the same send may succeed at another broker, or later at the same one."""
    return isinstance(error, NetworkError) or (isinstance(error, RemoteError) and error.retriable)

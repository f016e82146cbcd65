"""What became of a send: stored, stored less safely than the broker is told to, or to be tried again.

The one place that says which answers mean what; whoever sends, with an event loop or without, asks here.
Source: SendStatus and MQClientAPIImpl.processSendResponse, Java 4.9.8.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from sparrowmq.errors import OF_A_SLAVE, NetworkError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue


class SendStatus(Enum):
    """How safely a message was stored, by the broker's own configuration."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


LESS_SAFE: Final = frozenset(int(status.value) for status in SendStatus if status is not SendStatus.OK)


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went.

    Attributes:
        msg_id: the message's own id, known before it was sent; consumers see the same.
        offset_msg_id: the broker's id, which says where it is stored.
        status: not OK means stored, but less safely than the broker was configured to.
        recall_handle: by which `recall` takes back what waits for its time; None if it does not, or by a delay level.
    """

    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None


def is_slaves(error: BaseException) -> bool:
    """Whether a slave of ours refused a send, which it certainly did not store; its master is elsewhere now."""
    return (
        isinstance(error, RemoteError)
        and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        and OF_A_SLAVE in error.remark
    )


def may_go_right_again(error: BaseException) -> bool:
    """Whether the same send, after this error, may succeed at another broker, or later at the same."""
    return isinstance(error, NetworkError) or (isinstance(error, RemoteError) and error.retriable)

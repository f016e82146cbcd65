"""Refusals of brokers: asking again later may help, or never will.

If retries never help, the error is raised at once. With retries it would come after ten seconds, and four times, as
Spark repeats a failed task.
"""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.client.cluster.blocking_network import answer
from sparrowmq.client.sending.outcome import LESS_SAFE
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

# Brokers that start, stop or have too much to do say these.
_PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
    }
)
# PullMessageProcessor, Java 4.9.8, gives it the code SYSTEM_ERROR.
_NO_SUCH_FILTER: Final = "The broker does not support consumer to filter"
# Another broker of the topic may take what this one refuses with these.
_ELSEWHERE: Final = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


def demand_stored(request: Request[Any], reply: Command) -> None:
    """Raises: RemoteError, a message was refused. One that is stored less safely than asked for is stored."""
    try:
        answer(request, reply)
    except RemoteError as error:
        if error.code not in LESS_SAFE:
            raise


def may_pass(refusal: RemoteError) -> bool:
    """Whether the same request may succeed later at the same broker."""
    return refusal.code in _PASSING and not isinstance(refusal, AccessDenied) and not is_of_filter(refusal)


def may_go_elsewhere(error: Exception) -> bool:
    """Whether a send that this broker will never take may be taken by another."""
    return isinstance(error, RemoteError) and error.code in _ELSEWHERE


def is_of_filter(refusal: RemoteError) -> bool:
    """Whether the broker refuses the expression by which messages are chosen."""
    if refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return True
    return refusal.code == ResponseCode.SYSTEM_ERROR and refusal.remark.startswith(_NO_SUCH_FILTER)

"""The requests that a slave refuses: those that would write to its log, or change state that it copies from its master.

This check runs before the access guard, which a slave also has. A master has no such check.
Source: DefaultMessageStore.checkStoreStatus and EndTransactionProcessor, Java 4.9.8; AdminBrokerProcessor.validateSlave
of 5.x. Slaves of 4.9 accept changes of topics and groups, which last until the next copy from the master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparrowmq.errors import A_SLAVE, OF_A_SLAVE, RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.request_table import Access, Row
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Guard

_OF_MASTER: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    }
)

_POPS: Final = (
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)
_REASONS: Final[dict[int, str]] = {
    RequestCode.COMMIT_BATCH: f"{A_SLAVE}; its master has the staged batch",
    RequestCode.END_TRANSACTION: "Message store is slave mode, so end transaction is forbidden: "
    f"{A_SLAVE}; its master has the half message",
    **dict.fromkeys(_POPS, f"{A_SLAVE}; its master has the state of popped messages"),
}
_LOCKS_AT_MASTER: Final = f"{A_SLAVE}; its master has the locks of queues"
_REASONS_OF_ELECTED: Final[dict[int, str]] = {
    RequestCode.LOCK_BATCH_MQ: _LOCKS_AT_MASTER,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKS_AT_MASTER,
    RequestCode.UPDATE_CONSUMER_OFFSET: f"the offset is not committed: {A_SLAVE}; commit to its master",
}


def not_the_master() -> RemoteError:
    return RemoteError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {OF_A_SLAVE}; send to its master"
    )


def refusing(guard: Guard | None, *, is_elected: bool = False) -> Guard:
    """Return a guard that refuses what a slave may not do, and then asks `guard`.

    If the group elects its master (`is_elected`), also commits of offsets and locks of queues: a new master soon has
    its own.
    """

    def refuse(peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        if row.access is Access.WRITE or row.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            raise not_the_master()
        reason = _REASONS.get(row.code) or (_REASONS_OF_ELECTED.get(row.code) if is_elected else None)
        if reason is not None:
            raise RemoteError(ResponseCode.SLAVE_NOT_AVAILABLE, reason)
        if row.code in _OF_MASTER:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, should execute it from master broker.",
            )
        if guard is not None:
            guard(peer, command, row, header)

    return refuse


def refusing_once_over(
    guard: Guard | None, takes: Callable[[], bool], on_request: Callable[[], object] = lambda: None
) -> Guard:
    """Return a master's guard that becomes a slave's once another broker may lead. `on_request`: a client reads."""
    refuse = refusing(guard, is_elected=True)

    def ask(peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        if row.access is Access.READ:
            on_request()
        if not takes():
            refuse(peer, command, row, header)
        elif guard is not None:
            guard(peer, command, row, header)

    return ask

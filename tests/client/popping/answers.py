"""Answers of a scripted broker to consumers that pop."""

from __future__ import annotations

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.pop_headers import (
    ChangeInvisibleTimeReply,
    NotificationReply,
    PopMessageReply,
)
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import Reply
from tests.client.scripted import Scripted
from tests.records import encoded

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
BATCH = RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
NOTIFICATION = RequestCode.NOTIFICATION
POPPED_MS = 1_795_144_375_341
OF_SLAVE = Reply(
    ResponseCode.SLAVE_NOT_AVAILABLE,
    remark="this broker is a slave; its master has the state of popped messages",
)
NOTHING = Reply(ResponseCode.PULL_NOT_FOUND, PopMessageReply(0, 0, 0, 0))


def answers(peer: Scripted) -> None:
    """Let a peer answer as a broker without messages."""
    peer.usual |= {
        POP: lambda _: NOTHING,
        ACK: lambda _: Reply(),
        BATCH: lambda _: Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        CHANGE: lambda command: changed(command),
        NOTIFICATION: lambda _: None,
    }


def changed(command: Command) -> Reply:
    return Reply(header=ChangeInvisibleTimeReply(POPPED_MS + 5, int(command.ext_fields()["invisibleTime"]), 3))


def rec(offset: int, tag: str = "a", properties: str = "", topic: str = "t", queue_id: int = 1) -> bytes:
    written = f"TAGS\x01{tag}\x02UNIQ_KEY\x01ID{offset}\x02{properties}".encode()
    return encoded(topic, queue_id, b"body", written, queue_offset=offset, physical_offset=1000)


def popped(*records: bytes, start: int = 5, invisible_ms: int = 30_000, counts: str | None = None) -> Reply:
    """An answer with records of queue 1."""
    header = PopMessageReply(POPPED_MS, invisible_ms, 2, 0, f"0 1 {start}", None, counts)
    return Reply(0, header, body=b"".join(records))


def found() -> Reply:
    return Reply(header=NotificationReply(has_msg=True))


def fields(peer: Scripted, code: int) -> list[dict[str, str]]:
    """The fields of the requests of a code."""
    return [command.ext_fields() for command in peer.requests(code)]

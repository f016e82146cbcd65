"""One answer of the answers of several brokers, and routes with the proxy's address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.mqproxy.remoting.destinations import Reach
from sparrowmq.protocol.requests.bodies import BrokerRoute, ConsumerList
from sparrowmq.protocol.requests.headers import QueryMessageReply
from sparrowmq.protocol.wire.command import Command


def joined(reach: Reach, answers: list[Command]) -> Command:
    """The answer to a request that went to several brokers, of which at least one has answered."""
    good = [answer for answer in answers if answer.code == 0]
    try:
        if reach is Reach.MEMBERS and good:
            lists = [ConsumerList.decode(answer.body).consumer_id_list for answer in good]
            members = sorted({member for each in lists for member in each})
            return replace(good[0], body=ConsumerList(members).encode())
        if reach is Reach.RECORDS and good:
            return replace(max(good, key=_updated), body=b"".join(answer.body for answer in good))
    except RemoteProtocolError:
        pass  # the first answer goes on as it is
    if reach is Reach.ALL and len(good) < len(answers):
        return next(answer for answer in answers if answer.code)
    return (good or answers)[0]


def _updated(answer: Command) -> Any:
    return answer.header(QueryMessageReply).index_last_update_timestamp


def readdressed(rows: Iterable[BrokerRoute], address: str) -> list[BrokerRoute]:
    """The same brokers, all of them at one address."""
    return [replace(row, broker_addrs=dict.fromkeys(row.broker_addrs, address)) for row in rows]

"""Answers of the proxy: one of the answers of several brokers, and routes with its own address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.mqproxy.remoting.destinations import Reach
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import BrokerRoute
from sparrowmq.protocol.requests.client_bodies import ConsumerConnections, ConsumerList
from sparrowmq.protocol.requests.headers import QueryMessageReply
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import LANGUAGE, PROTOCOL_VERSION, REPLY_FLAG, Command


def joined(reach: Reach, answers: list[Command]) -> Command:
    """The answer to a request that went to several brokers, of which at least one has answered."""
    good = [answer for answer in answers if answer.code == 0]
    try:
        if reach is Reach.MEMBERS and good:
            lists = [ConsumerList.decode(answer.body).consumer_id_list for answer in good]
            members = sorted({member for each in lists for member in each})
            return replace(good[0], body=ConsumerList(members).encode())
        if reach is Reach.CONNECTIONS and good:
            return replace(
                good[0], body=united(ConsumerConnections.decode(each.body) for each in good).encode()
            )
        if reach is Reach.RECORDS and good:
            return replace(max(good, key=_updated), body=b"".join(answer.body for answer in good))
    except RemoteProtocolError:
        pass  # the first answer goes on as it is
    if reach is Reach.ALL and len(good) < len(answers):
        return next(answer for answer in answers if answer.code)
    return (good or answers)[0]


def with_consumers(answer: Command, own: ConsumerConnections) -> Command:
    """The brokers' answer about the members of a group, with the members at the gRPC port."""
    if not own.connection_set or answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE):
        return answer
    theirs = [] if answer.code else [ConsumerConnections.decode(answer.body)]
    return replace(answer, code=ResponseCode.SUCCESS, remark=None, body=united([*theirs, own]).encode())


def united(parts: Iterable[ConsumerConnections]) -> ConsumerConnections:
    """One group of several, of which the first decides how it consumes."""
    first, *others = parts
    for each in others:
        known = {row.client_id for row in first.connection_set}
        first = replace(
            first,
            connection_set=first.connection_set
            + [row for row in each.connection_set if row.client_id not in known],
            subscription_table=each.subscription_table | first.subscription_table,
        )
    return first


def _updated(answer: Command) -> Any:
    return answer.header(QueryMessageReply).index_last_update_timestamp


def readdressed(rows: Iterable[BrokerRoute], address: str) -> list[BrokerRoute]:
    """The same brokers, all of them at one address."""
    return [replace(row, broker_addrs=dict.fromkeys(row.broker_addrs, address)) for row in rows]


def found_already() -> Command:
    """The answer to a question for messages that the answer to the same question has."""
    reply = reply_of(b"", ResponseCode.QUERY_NOT_FOUND, "mqproxy has answered this for all brokers")
    return replace(reply, fields=QueryMessageReply(0, 0).ext_fields())


def reply_of(body: Body | bytes, code: int = 0, remark: str | None = None) -> Command:
    """An answer of the proxy itself."""
    raw = body if isinstance(body, bytes) else body.encode()
    return Command(
        code=code, flag=REPLY_FLAG, version=PROTOCOL_VERSION, language=LANGUAGE, remark=remark, body=raw
    )

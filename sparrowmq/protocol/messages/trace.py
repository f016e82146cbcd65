"""Traces: what producers and consumers did with a message, as they report it to the trace topic.

    Pub             a producer sent it
    SubBefore       a consumer is about to handle it
    SubAfter        ... and has handled it; both have one request id
    EndTransaction  a producer committed it, or rolled it back

A trace message's body is a row of records, each a row of fields:

    Pub \\x01 1767225600000 \\x01 DefaultRegion \\x01 group \\x01 topic ... \\x02 SubBefore \\x01 ... \\x02

Absent values are "null", as in Java: its reader would drop an empty field at a record's end. The keys of the trace
message are the ids and keys of all its messages, so that a search by key finds it.
Source: TraceDataEncoder, Java 4.9.8; its readers are `mqadmin queryMsgTraceById` and the dashboards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from sparrowmq.errors import RemoteProtocolError

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"
_ABSENT: Final = "null"


class TracedKind(IntEnum):
    """The kind of a message; Java's MessageType."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class Reaction(IntEnum):
    """The result of a handler; Java's ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class PubTrace:
    """A producer sent a message.

    Attributes:
        time_ms: the begin of the send.
        store_host: the broker that stored it.
        body_size: in bytes, before compression.
        cost_ms: the time until the broker's answer.
    """

    time_ms: int
    group: str
    topic: str
    msg_id: str
    tag: str | None
    keys: str | None
    store_host: str
    body_size: int
    cost_ms: int
    kind: TracedKind
    offset_msg_id: str
    is_success: bool
    region: str = DEFAULT_REGION


@dataclass(frozen=True, slots=True)
class SubBeforeTrace:
    """A consumer is about to handle a message; `retries` of its deliveries have failed before."""

    time_ms: int
    group: str
    request_id: str
    msg_id: str
    retries: int
    keys: str | None
    region: str = DEFAULT_REGION


@dataclass(frozen=True, slots=True)
class SubAfterTrace:
    """A consumer has handled a message. For a batch, `cost_ms` is the message's share of the time.

    Attributes:
        time_ms: the end of the handling; None from clients before 4.7, which omit the group too.
    """

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    reaction: Reaction
    time_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionTrace:
    """A producer ended a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

    time_ms: int
    group: str
    topic: str
    msg_id: str
    tag: str | None
    keys: str | None
    store_host: str
    transaction_id: str | None
    state: str
    is_check: bool
    kind: TracedKind = TracedKind.COMMIT
    region: str = DEFAULT_REGION


Trace: TypeAlias = PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace


def encode(trace: Trace) -> str:
    """Encode one record, with its end."""
    return FIELD_END.join([_text(value) for value in _fields(trace)]) + RECORD_END


def decode(text: str) -> list[Trace]:
    """Decode the records of a trace message's body. Unknown kinds are left out.

    Raises: RemoteProtocolError, a record does not have the fields of its kind.
    """
    records = [record.split(FIELD_END) for record in text.split(RECORD_END) if record]
    try:
        return [_READERS[fields[0]](fields[1:]) for fields in records if fields[0] in _READERS]
    except (ValueError, IndexError) as error:
        raise RemoteProtocolError(f"the trace {text[:200]!r} cannot be read: {error}") from error


def _fields(trace: Trace) -> Sequence[object]:
    match trace:
        case SubBeforeTrace():
            who = (trace.time_ms, trace.region, trace.group, trace.request_id)
            return ("SubBefore", *who, trace.msg_id, trace.retries, trace.keys)
        case SubAfterTrace():
            how = (
                trace.request_id,
                trace.msg_id,
                trace.cost_ms,
                trace.is_success,
                trace.keys,
                trace.reaction,
            )
            return ("SubAfter", *how, trace.time_ms, trace.group)
    told = (trace.region, trace.group, trace.topic, trace.msg_id, trace.tag, trace.keys, trace.store_host)
    if isinstance(trace, PubTrace):
        after = (trace.body_size, trace.cost_ms, trace.kind, trace.offset_msg_id, trace.is_success)
        return ("Pub", trace.time_ms, *told, *after)
    ended = (trace.kind, trace.transaction_id, trace.state, trace.is_check)
    return ("EndTransaction", trace.time_ms, *told, *ended)


def _text(value: object) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value)


def _pub(fields: list[str]) -> PubTrace:
    time, region, group, topic, msg_id, tag, keys, host, size, cost, kind, *rest = fields
    offset_id, success = rest[:2] if len(rest) > 1 else ("", rest[0])  # before 4.2 there was no offset id
    return PubTrace(
        int(time),
        group,
        topic,
        msg_id,
        _value(tag),
        _value(keys),
        host,
        int(size),
        int(cost),
        TracedKind(int(kind)),
        offset_id,
        success == "true",
        region,
    )


def _before(fields: list[str]) -> SubBeforeTrace:
    time, region, group, request_id, msg_id, retries, *rest = fields
    keys = _value(rest[0]) if rest else None
    return SubBeforeTrace(int(time), group, request_id, msg_id, int(retries), keys, region)


def _after(fields: list[str]) -> SubAfterTrace:
    request_id, msg_id, cost, success, keys, *rest = fields
    return SubAfterTrace(
        request_id,
        msg_id,
        int(cost),
        success == "true",
        _value(keys),
        Reaction(int(rest[0])) if rest else Reaction.SUCCESS,
        int(rest[1]) if len(rest) > 1 and rest[1] != _ABSENT else None,
        _value(rest[2]) if len(rest) > 2 else None,
    )


def _end_of_transaction(fields: list[str]) -> EndTransactionTrace:
    time, region, group, topic, msg_id, tag, keys, host, kind, transaction_id, state, check = fields[:12]
    return EndTransactionTrace(
        int(time),
        group,
        topic,
        msg_id,
        _value(tag),
        _value(keys),
        host,
        _value(transaction_id),
        state,
        check == "true",
        TracedKind(int(kind)),
        region,
    )


def _value(text: str) -> str | None:
    return None if text in (_ABSENT, "") else text


_READERS: Final[dict[str, Callable[[list[str]], Trace]]] = {
    "Pub": _pub,
    "SubBefore": _before,
    "SubAfter": _after,
    "EndTransaction": _end_of_transaction,
}

"""The records of a transaction: the record that each step stores, and the fields of a half message.

    half     RMQ_SYS_TRANS_HALF_TOPIC[0]      the message as sent, and REAL_TOPIC, REAL_QID
    copy     the same topic                   again before each check, TRANSACTION_CHECK_TIMES one more
    commit   its own topic and queue          system flag COMMIT; the field "prepared offset" is the half's offset
    op       RMQ_SYS_TRANS_OP_HALF_TOPIC[0]   tag "d", body: the queue offset of the newest copy, in digits;
                                              5.x: many of them, a comma after each
    discard  TRANS_CHECK_MAX_TIME_TOPIC[0]    checked too often, or too old

With access control, a half message has the property TRAN_OWNER: the account that sent it. Its copies keep the property.
The committed message and the message in a check-back do not have it.

Copies also have TRAN_PREPARED_QUEUE_OFFSET, the queue offset of the first copy. It links the copies after a crash. Java
writes and reads this property only in copies that it makes without asking a producer.
Source: TransactionalMessageBridge, EndTransactionProcessor and AbstractTransactionalMessageCheckListener, Java 4.9.7;
the properties also from the stores in tests/golden.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.redirect import REAL_QID, REAL_TOPIC, address, move, readdress, restore
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Destination
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.message_id import offset_id
from sparrowmq.protocol.messages.properties import TIMERS, Properties, Terms, mark, render
from sparrowmq.protocol.messages.property_names import DELAYS, Property
from sparrowmq.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, RETRY
from sparrowmq.protocol.requests.headers import CheckTransactionState

REMOVED: Final = "d"
# Room for the extra properties of copies: the first copy's queue offset, and the number of checks.
ROOM: Final = len(Property.TRAN_PREPARED_QUEUE_OFFSET) + 21 + len(Property.TRANSACTION_CHECK_TIMES) + 12


def _marked(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, mark(name)) for name in names)


MARK: Final = mark(Property.TRAN_MSG)
_GROUP: Final = mark(Property.PGROUP)
_IMMUNITY: Final = mark(Property.CHECK_IMMUNITY_TIME_IN_SECONDS)
_OWNER: Final = mark(Property.TRAN_OWNER)
# Only the broker says who sent a message, and which half messages are copies. A producer that claimed to send a copy
# would end the transaction of another producer at the next start.
_BROKER_PROPERTIES: Final = _marked(
    Property.TRAN_OWNER, Property.TRAN_PREPARED_QUEUE_OFFSET, Property.TRANSACTION_CHECK_TIMES
)
# A half message with a property that begins so takes no lane: `divert` changes or refuses it.
NOT_PLAIN: Final = tuple([name.encode() for name, _ in _BROKER_PROPERTIES] + [b"REAL_"])
_DELAY: Final = mark(Property.DELAY)
_DELAYS: Final = _marked(*DELAYS)
_OP_PROPERTIES: Final = Properties(f"{Property.TAGS}\x01{REMOVED}\x02")  # shared by all op records
_OP_TERMS: Final = Terms(_OP_PROPERTIES)


def is_half(properties: Properties) -> bool:
    """Whether these properties belong to a half message, or to one that was. Other messages cost one search."""
    if not properties.has(MARK):
        return False
    mark_value = properties.marked(MARK)
    return mark_value is not None and (mark_value == "true" or mark_value.lower() == "true")


def comes_back(entry: Entry) -> bool:
    """Whether the message is a retry of a failed one; it may still have the mark of a half message.

    Unlike Java, which checks the delay only, no message to a retry topic becomes a half message.
    """
    delayed_again = entry.reconsume_times > 0 and bool(entry.properties.get(Property.DELAY))
    return delayed_again or entry.topic.startswith(RETRY)


def divert(entry: Entry, group: str) -> Destination:
    """Make a half message of a producer's message; return its destination. Raises: RemoteError, it has a delay."""
    properties = entry.properties
    if properties.has(TIMERS) or properties.has(_DELAY):
        _refuse_delay(properties)
    own_group = properties.marked(_GROUP)
    if own_group is None:
        own_group = group
        properties.put(Property.PGROUP, group)
    for name, name_mark in _BROKER_PROPERTIES:
        if properties.has(name_mark):
            properties.remove(name)
    entry.sys_flag &= ~SysFlag.TRANSACTION_MASK
    entry.terms = Terms(properties)
    destination_of_half = Destination(entry.topic, entry.queue_id, own_group, entry.terms, entry.owner)
    if entry.owner is not None:
        properties.add(f"{Property.TRAN_OWNER}\x01{entry.owner}\x02")
    move(entry, HALF_TOPIC, 0)
    return destination_of_half


def copy(half: StoredMessage, origin: int, check_times: int) -> Entry:
    properties = {**half.properties, Property.TRAN_PREPARED_QUEUE_OFFSET: str(origin)}
    if check_times:
        properties[Property.TRANSACTION_CHECK_TIMES] = str(check_times)
    return readdress(half, HALF_TOPIC, 0, Properties(render(properties)))


def resumed(message: StoredMessage) -> Entry:
    properties = dict(message.properties) | {Property.TRANSACTION_CHECK_TIMES: "0"}
    properties.pop(Property.TRAN_PREPARED_QUEUE_OFFSET, None)
    return readdress(message, HALF_TOPIC, 0, Properties(render(properties)))


def destination(properties: Properties, owner: str | None = None) -> Destination:
    """Return the destination of a half message. Raises: InvalidMessage, it has none."""
    topic, queue_id = address(properties.marked(REAL_TOPIC), properties.marked(REAL_QID))
    return Destination(topic, queue_id, properties.marked(_GROUP), Terms(properties), owner)


def discarded(half: StoredMessage) -> Entry:
    """Return the record of a half message that is discarded because no producer reported its end."""
    entry = readdress(half, CHECK_MAX_TIME_TOPIC, 0, Properties(render(half.properties)))
    # Unlike Java: by this field, a start sees that the message is discarded already.
    entry.prepared_offset = half.physical_offset
    return entry


def op(queue_offset: int, now_ms: int, host: bytes) -> Entry:
    entry = Entry(OP_HALF_TOPIC, 0, str(queue_offset).encode(), _OP_PROPERTIES, now_ms, host)
    entry.terms = _OP_TERMS
    return entry


def ended_by(message: StoredMessage) -> list[int]:
    """Return the queue offsets in an op record of either version; other text is skipped, as in Java."""
    if message.tags != REMOVED:
        return []
    numbers = (whole_number(text) for text in message.body.decode("ascii", "replace").split(","))
    return [number for number in numbers if number is not None]


def question(half: StoredMessage, entry: Entry, placed: Placed) -> tuple[CheckTransactionState, bytes]:
    """Return the request that checks a transaction with its producer, and its body, for the copy at `placed`."""
    asked = restore(half)
    asked.properties = entry.properties
    if asked.properties.has(_OWNER):
        asked.properties = Properties(entry.properties.render())
        asked.properties.remove(Property.TRAN_OWNER)
    unique_key = half.unique_key
    header = CheckTransactionState(
        tran_state_table_offset=placed.queue_offset,
        commit_log_offset=placed.offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=offset_id(placed.store_host, placed.offset),
    )
    return header, record.encode(asked, placed, crc=False)


def check_times(half: StoredMessage) -> int:
    return whole_number(half.properties.get(Property.TRANSACTION_CHECK_TIMES)) or 0


def origin(half: StoredMessage) -> int | None:
    """Return the first copy's queue offset; None for the first copy, and for Java's copies that do not have it."""
    return whole_number(half.properties.get(Property.TRAN_PREPARED_QUEUE_OFFSET))


def identity(half: StoredMessage) -> tuple[str | None, str | None, int]:
    return half.properties.get(Property.PGROUP), half.unique_key, half.born_timestamp_ms


def own_immunity_s(half: Properties | dict[str, str]) -> int | None:
    """Return how long after its birth a message is not checked, if the producer set CHECK_IMMUNITY_TIME_IN_SECONDS."""
    if isinstance(half, Properties):
        return whole_number(half.marked(_IMMUNITY))
    return whole_number(half.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS))


def _refuse_delay(properties: Properties) -> None:
    """Raise for a delay. Unlike Java 4.9, which loses such a message: after its delay it is a half message again."""
    for name, delay_mark in _DELAYS:
        if properties.marked(delay_mark) not in (None, "0"):
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a message of a transaction cannot be delayed, and this has the property {name}; leave it out",
            )

"""The receipt handle of a popped message, which acknowledging it needs, and the places in an answer to POP_MESSAGE.

    START-OFFSET POP-TIME INVISIBLE-MS REVIVE-QUEUE KIND BROKER-NAME QUEUE-ID QUEUE-OFFSET COMMIT-LOG-OFFSET

One blank is between two words. Older brokers leave out the commit log offset. SparrowMQ's brokers have no revive queue:
the word is a random token there. A record of a retry topic has its handle in the property POP_CK, which producers may
have set too. Otherwise the client makes the handle from the header of the answer, which has three lists. `;` is between
entries:

    startOffsetInfo    KIND QUEUE-ID START-OFFSET              the first offset that was looked at in the queue
    msgOffsetInfo      KIND QUEUE-ID OFFSET,OFFSET,...         the popped messages of the queue
    queueCounts        COUNT,COUNT,...                         instead of msgOffsetInfo: the messages of each queue of
                                                               startOffsetInfo, in its order. Ours
    orderCountInfo     KIND QUEUE-ID TIMES                     former deliveries of each message of the queue,
                       KIND qoQUEUE-ID%OFFSET TIMES            or of one message

The kind says which topic has the record: the topic itself or one of the two retry topics that groups have for it.
Source: ExtraInfoUtil, KeyBuilder and MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.names import RETRY

ORDERLY_REVIVE_QUEUE: Final = 999  # the revive queue of every handle of an orderly pop
ABSENT: Final = -1

_MIN_WORDS: Final = 8  # a handle has at least so many
_MAX_WORDS: Final = 9
_MAX_DIGITS: Final = 19  # of the largest number
_MAX_NUMBER: Final = (1 << 63) - 1  # of Java's long
_MESSAGE_PREFIX: Final = "qo"
# The gRPC port and its broker parse each handle, one behind the other.
_CACHED_HANDLES: Final = 1024
_MAX_CACHED_CHARACTERS: Final = 200
# A handle with all words. Its numbers have 18 digits at most, so they need no check against the largest one.
_USUAL_PATTERN: Final = re.compile(
    r"([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([012]) ([^ ]+) "
    r"([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18})"
)


class Kind(IntEnum):
    """The topic that has a popped record."""

    NORMAL = 0
    # %RETRY%group_topic
    RETRY_V1 = 1
    # %RETRY%group+topic
    RETRY_V2 = 2

    @classmethod
    def of(cls, topic: str) -> Kind:
        if not topic.startswith(RETRY):
            return cls.NORMAL
        return cls.RETRY_V2 if "+" in topic else cls.RETRY_V1

    def topic_of(self, topic: str, group: str) -> str:
        """The full name of the topic of this kind, for a topic and a group."""
        if self is Kind.NORMAL:
            return topic
        return f"{RETRY}{group}{'_' if self is Kind.RETRY_V1 else '+'}{topic}"


_KINDS: Final = {str(int(kind)): kind for kind in Kind}


class ReceiptHandle(NamedTuple):
    """The words of a handle. `ABSENT` is a commit log offset that a broker left out."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    kind: Kind
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int = ABSENT

    def __str__(self) -> str:
        times = f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue} {int(self.kind)}"
        text = f"{times} {self.broker_name} {self.queue_id} {self.queue_offset}"
        return text if self.commit_log_offset == ABSENT else f"{text} {self.commit_log_offset}"

    @property
    def visible_ms(self) -> int:
        return self.pop_time_ms + self.invisible_ms

    def with_times(self, pop_time_ms: int, invisible_ms: int, revive_queue: int) -> ReceiptHandle:
        """The handle after a change of the invisible time, as Java's client makes it of a broker's answer."""
        return self._replace(
            start_offset=self.queue_offset,
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            revive_queue=revive_queue,
        )

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == ORDERLY_REVIVE_QUEUE

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """Parse a handle. Raises: ConfigError, the text is none."""
        usual = _parse_usual(text) if len(text) <= _MAX_CACHED_CHARACTERS else None
        if usual is not None:
            return usual
        words = text.split(" ")
        if not _MIN_WORDS <= len(words) <= _MAX_WORDS or not all(words):
            raise ConfigError("receipt handle is invalid; give the handle of a message that was received")
        start, popped, invisible, revive = [_number(word) for word in words[:4]]
        queue, offset = [_number(word) for word in words[6:8]]
        log_offset = _number(words[8], or_absent=True) if len(words) > _MIN_WORDS else ABSENT
        return cls(start, popped, invisible, revive, _kind(words[4]), words[5], queue, offset, log_offset)


@lru_cache(_CACHED_HANDLES)
def _parse_usual(text: str) -> ReceiptHandle | None:
    match = _USUAL_PATTERN.fullmatch(text)
    if match is None:
        return None
    start, popped, invisible, revive, kind, name, queue, offset, log_offset = match.groups()
    numbers = int(start), int(popped), int(invisible), int(revive)
    return ReceiptHandle(*numbers, _KINDS[kind], name, int(queue), int(offset), int(log_offset))


class PoppedQueue(NamedTuple):
    """The popped messages of one queue. `offsets` are those of its messages, in their order."""

    kind: Kind
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


class OrderCounts(NamedTuple):
    """The former deliveries of messages in an orderly pop."""

    by_queue: Mapping[tuple[Kind, int], int]  # by kind and queue id
    by_message: Mapping[tuple[Kind, int, int], int]  # by kind, queue id and offset. They win.

    def __str__(self) -> str:
        queues = [f"{kind:d} {queue} {times}" for (kind, queue), times in self.by_queue.items()]
        messages = [
            f"{kind:d} {_MESSAGE_PREFIX}{queue}%{offset} {times}"
            for (kind, queue, offset), times in self.by_message.items()
        ]
        return ";".join([*queues, *messages])

    def of(self, kind: Kind, queue_id: int, offset: int) -> int:
        return self.by_message.get((kind, queue_id, offset), self.by_queue.get((kind, queue_id), 0))

    @classmethod
    def parse(cls, text: str | None) -> OrderCounts:
        by_queue: dict[tuple[Kind, int], int] = {}
        by_message: dict[tuple[Kind, int, int], int] = {}
        for kind, place, times in _entries(text):
            if place.startswith(_MESSAGE_PREFIX):
                queue, _, offset = place.removeprefix(_MESSAGE_PREFIX).partition("%")
                by_message[kind, _number(queue), _number(offset)] = _number(times)
            else:
                by_queue[kind, _number(place)] = _number(times)
        return cls(by_queue, by_message)


def start_offsets_text(queues: Iterable[PoppedQueue]) -> str:
    return ";".join(f"{queue.kind:d} {queue.queue_id} {queue.start_offset}" for queue in queues)


def message_offsets_text(queues: Iterable[PoppedQueue]) -> str:
    return ";".join(f"{queue.kind:d} {queue.queue_id} {','.join(map(str, queue.offsets))}" for queue in queues)


def queue_counts_text(queues: Iterable[PoppedQueue]) -> str:
    return ",".join([str(len(queue.offsets)) for queue in queues])


def queue_counts(text: str | None) -> list[int]:
    return [_number(count) for count in text.split(",")] if text else []


def popped_queues(start_offsets: str | None, message_offsets: str | None = None) -> dict[tuple[Kind, int], PoppedQueue]:
    """Parse startOffsetInfo and msgOffsetInfo into the queues, by kind and id. Raises: ConfigError."""
    offsets = {
        (kind, _number(queue)): tuple(map(_number, listed.split(",")))
        for kind, queue, listed in _entries(message_offsets)
    }
    queues = ((kind, _number(queue), _number(start)) for kind, queue, start in _entries(start_offsets))
    return {
        (kind, queue): PoppedQueue(kind, queue, start, offsets.get((kind, queue), ())) for kind, queue, start in queues
    }


def handle_in_record(text: str, pop_time_ms: int, *, is_listed: bool) -> ReceiptHandle | None:
    """The handle that a broker has put into a record's POP_CK; None if a producer has put the text there. If the answer
    `is_listed`, names the queue, only a record of a retry topic has its handle in it, with the time of this pop.
    """
    if not text:
        return None
    try:
        handle = ReceiptHandle.parse(text)
    except ConfigError:
        return None
    if is_listed and (handle.kind is Kind.NORMAL or handle.pop_time_ms != pop_time_ms):
        return None
    return handle


def _entries(text: str | None) -> list[tuple[Kind, str, str]]:
    entries = []
    for entry in (text or "").split(";"):
        words = entry.split(" ")
        if len(words) == 3:
            entries.append((_kind(words[0]), words[1], words[2]))
        elif entry:
            raise ConfigError(f"answer to a pop is invalid: {entry!r} has not three words")
    return entries


def _number(word: str, *, or_absent: bool = False) -> int:
    if or_absent and word == str(ABSENT):
        return ABSENT
    number = whole_number(word, _MAX_DIGITS)
    if number is None:
        raise ConfigError(f"receipt handle is invalid: {word[:_MAX_DIGITS]!r} is not a number")
    if number > _MAX_NUMBER:
        raise ConfigError(f"receipt handle is invalid: {word} is above {_MAX_NUMBER}")
    return number


def _kind(word: str) -> Kind:
    if word not in ("0", "1", "2"):
        raise ConfigError(f"receipt handle is invalid: {word[:_MAX_DIGITS]!r} is not a kind of topic")
    return Kind(int(word))

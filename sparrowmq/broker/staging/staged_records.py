"""The records of the topic rmq_sys_STAGED, as a start reads them from the log.

    open, done    begin a run of a writer, and end the publication of a batch
    part          messages for one queue
    commit        the decision on a batch
    kept          the state of a writer (saved_writers.py)

A log that came from a false master, or from another program, may hold anything in this topic. So each record is checked
as a whole before any of it counts. One that no broker of ours writes is left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from sparrowmq.broker.staging.writers import Address, CommitBody, Others, SavedAuthor, Source, begins
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.names import check_topic, is_closed_to_clients
from sparrowmq.protocol.requests.bodies import MOST_QUEUES

_KIND: Final = "STAGED_KIND"
_WRITER: Final = "STAGED_WRITER"
_RUN: Final = "STAGED_RUN"
_BATCH: Final = "STAGED_BATCH"
_ATTEMPT: Final = "STAGED_ATTEMPT"
_NUMBER: Final = "STAGED_NUMBER"
_TOPIC: Final = "STAGED_TOPIC"
_QUEUE: Final = "STAGED_QUEUE"
_OWNER: Final = "STAGED_OWNER"
OPEN, PART, COMMIT, DONE, KEPT = "open", "part", "commit", "done", "kept"

_END_OF_NUMBERS: Final = 1 << 63


class StagedPart(NamedTuple):
    """The place of messages in their batch, and the queue to publish them in."""

    attempt: str
    number: int
    to: Address


class StagedRecord(NamedTuple):
    """A record: `content` is a `StagedPart`, a `CommitBody` or a `SavedAuthor` by its kind; None of the other kinds."""

    kind: str
    source: Source
    content: StagedPart | CommitBody | SavedAuthor | None = None


def properties_of(kind: str, source: Source) -> dict[str, str]:
    """Return the properties that a record of any kind has."""
    found = {_KIND: kind, _WRITER: source.writer, _RUN: source.run, _BATCH: str(source.batch)}
    return found if source.owner is None else found | {_OWNER: source.owner}


def properties_of_part(part: StagedPart) -> dict[str, str]:
    """Return the other properties of a part."""
    topic, queue_id = part.to
    return {_ATTEMPT: part.attempt, _NUMBER: str(part.number), _TOPIC: topic, _QUEUE: str(queue_id)}


def read(message: StoredMessage) -> StagedRecord:
    """Return a record of the topic. Raises: RemoteProtocolError, no broker of ours has written it."""
    said = message.properties
    try:
        source = Source(said[_WRITER], said[_RUN], _number(said[_BATCH]), said.get(_OWNER))
        return StagedRecord(said[_KIND], source, _content(said[_KIND], message))
    except KeyError as absent:
        raise RemoteProtocolError(f"it has no property {absent}") from None
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise RemoteProtocolError(str(error)) from None


def _content(kind: str, message: StoredMessage) -> StagedPart | CommitBody | SavedAuthor | None:
    """Raises: KeyError, ValueError, RecursionError, DecodeError, RemoteProtocolError."""
    if kind == PART:
        said = message.properties
        batches.places(bytes(message.body))
        return StagedPart(said[_ATTEMPT], _number(said[_NUMBER]), _address(said[_TOPIC], said[_QUEUE]))
    if kind == COMMIT:
        body = msgspec.json.decode(message.body, type=CommitBody)
        begins(body)
        return body
    if kind == KEPT:
        state = msgspec.json.decode(message.body, type=SavedAuthor)
        msgspec.json.decode(state.others, type=Others)
        if not state.runs or max(abs(state.last_batch), abs(state.used_ms)) >= _END_OF_NUMBERS:
            raise ValueError("it has no run, or a number that no writer can have")
        return state
    if kind not in (OPEN, DONE):
        raise ValueError(f"{kind!r} is no kind of record")
    return None


def _address(topic: str, queue_id: str) -> Address:
    if is_closed_to_clients(check_topic(topic)) or not 0 <= _number(queue_id) < MOST_QUEUES:
        raise ValueError(f"no client may send to queue {queue_id[:32]} of topic {topic}")
    return topic, _number(queue_id)


def _number(text: str) -> int:
    """The number of a batch, a request or a queue; a writer without a batch has -1 in its record."""
    number = whole_number(text.removeprefix("-"), len(str(_END_OF_NUMBERS)))
    if number is None or number >= _END_OF_NUMBERS:
        raise ValueError(f"{text[:32]!r} is no number of a batch, a request or a queue")
    return -number if text.startswith("-") else number

"""The writers of staged batches: their runs, attempts and owners.

A writer belongs to the account that sent its first request (remoting/peer.py). Its records and stagedBatches.json keep
the owner. Other accounts get AccessDenied: they could commit a batch without its messages, and end its run. A writer
without an owner, of an older version or of a time without access control, belongs to the
first account that uses it.

Each log file gets the state of all writers before retention can delete the previous file.

    open  part  commit  done  ...    kept  kept  open  part  commit  done  ...    kept  kept  ...
    └──── a file of the log ────┘    └──────────── the next file ─────────┘

Retention may delete a writer's own records while the broker still needs its state. A member that never led has no
stagedBatches.json, and a member that led long ago has an old one. So a member reads "kept" records: each has the state
of one writer at this place in the log, without staged batches that are not committed. A "kept" record replaces the
state of its writer, and later records change that state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, DiskFull, InvalidMessage, RemoteError
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.remoting.peer import Signer, may_act_for, may_take_over, owner_of
from sparrowmq.store.message_store import MessageStore

# The latest runs that are remembered of a writer. It begins a run when it is started again.
REMEMBERED_RUNS: Final = 32
# A writer's state stays for 30 days, so the number of writers is limited.
MOST_WRITERS: Final = 20_000
MOST_OF_AN_OWNER: Final = 1_000
# So are the bytes of their decisions about other brokers, which stay for as long, and are saved with each change.
MOST_DECIDED_BYTES: Final = 128 << 20
MOST_DECIDED_BYTES_OF_AN_OWNER: Final = 32 << 20

Address = tuple[str, int]
Others = dict[str, dict[str, int]]  # by broker, as `CommitBody.attempts`
OthersJson = bytes  # their JSON, which takes an eighth of the memory; b"" without others
NO_OTHERS: Final = b"{}"  # no other brokers, in a saved state
_GROWTH: Final = 4  # write again once the log has grown by this many times the bytes of all kept records


@dataclass(frozen=True, slots=True)
class Source:
    writer: str
    run: str
    batch: int
    owner: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"batch {self.batch} of {shown(self.writer)}"


@dataclass(frozen=True, slots=True)
class Piece:
    offset: int
    size: int
    target: Address


# The place of committed messages whose records are deleted.
GONE: Final = Piece(-1, 0, ("", 0))


@dataclass(slots=True)
class Attempt:
    batch: int
    run: str
    position: int  # the queue offset of its first record
    pieces: dict[int, Piece] = field(default_factory=dict)


@dataclass(slots=True)
class OpenPiece:
    """A piece that is being published: what its messages share, and the places in its body of those that are left."""

    shared: Entry
    body: bytes
    remaining_places: bytes


@dataclass(slots=True)
class Publication:
    """A committed batch on its way to its queues. Messages that were published before a restart are skipped."""

    source: Source
    previous_batch: int
    previous_others: OthersJson
    previous_plan: str
    position: int  # the queue offset of the first record that it needs
    pieces: deque[Piece]
    begins: dict[Address, int] = field(default_factory=dict)  # the ends of its queues at the commit
    skipped: dict[Address, int] = field(default_factory=dict)  # published messages of the next pieces
    open_piece: OpenPiece | None = None  # the first of `pieces`, if some of its messages are published
    retry_s: float = 0.0  # the time to try a damaged piece again, by the monotonic clock


@dataclass(frozen=True, slots=True)
class Decision:
    end: int
    is_repeated: bool
    others: OthersJson


@dataclass(slots=True)
class WriterState:
    runs: list[str] = field(default_factory=list)  # only the last one may write
    last_batch: int = -1
    others: OthersJson = b""  # the other brokers of the last batch
    plan: str = ""  # of the last batch; "" if its writer named none
    used_ms: int = 0
    commit_end: int = 0  # the end of the record that committed the last batch
    attempts: dict[str, Attempt] = field(default_factory=dict)
    owner: str | None = None
    kept_at: int = -1  # the offset from which on the log has the whole state; -1 if it has not


class SavedWriter(msgspec.Struct):
    runs: list[str]
    last_batch: int
    used_ms: int
    others: msgspec.Raw = msgspec.Raw(NO_OTHERS)
    owner: str | None = None
    plan: str = ""
    kept_at: int = -1


class SavedStaging(msgspec.Struct):
    """The content of stagedBatches.json. A start reads the topic's records from `position` on.

    `log_end` is the end of the log that has this state. A shorter log lacks a part of it.
    """

    position: int = 0
    log_end: int = 0
    writers: dict[str, SavedWriter] = {}


class CommitBody(msgspec.Struct):
    """The body of a commit: the number of answered requests of each attempt, also at `others`.

    In its record it also has the ends of the queues then, by "topic@queue".
    """

    attempts: dict[str, int]
    begins: dict[str, int] = {}
    others: Others = {}
    plan: str = ""


def json_of(others: Others) -> OthersJson:
    return msgspec.json.encode(others) if others else b""


def begins(body: CommitBody) -> dict[Address, int]:
    ends = {}
    for name, begin in body.begins.items():
        topic, _, queue_id = name.rpartition("@")
        ends[topic, int(queue_id)] = begin
    return ends


def check_repetition(writer_state: WriterState, source: Source, plan: str) -> None:
    """Check that a repeated batch is the last one, as it was. An older checkpoint has others. Raises: RemoteError."""
    if source.batch == writer_state.last_batch and plan in ("", writer_state.plan or plan):
        return
    raise RemoteError(
        ResponseCode.ILLEGAL_OPERATION,
        f"{source} is not the one that was committed: batch {writer_state.last_batch} was the last; the checkpoint "
        "is an older copy, so its rows are stored in part. Restore the newest checkpoint, or begin with a new one, "
        "behind the rows that are stored",
    )


def owner_for(writers: Mapping[str, WriterState], name: str, peer: Signer) -> str | None:
    """Return the owner of a writer when this peer uses it; a new one is its own. Raises: AccessDenied, RemoteError."""
    writer_state, owner = writers.get(name), owner_of(peer)
    if writer_state is None:
        _refuse_too_many(writers, owner)
        return owner
    if writer_state.owner is None:
        return owner
    if not may_take_over(peer, writer_state.owner):
        raise AccessDenied(f"writer {shown(name)} belongs to another account")
    # An administrator who acts for the owner leaves the writer to its owner.
    return writer_state.owner if may_act_for(peer, writer_state.owner) else owner


def check_decision_room(writers: Mapping[str, WriterState], source: Source, others: OthersJson) -> None:
    writer_state = writers.get(source.writer)
    if not others or (writer_state is not None and source.batch <= writer_state.last_batch):
        return
    all_bytes = of_owner = len(others)
    for name, other in writers.items():
        if other.others and name != source.writer:
            all_bytes += len(other.others)
            of_owner += len(other.others) if other.owner == source.owner else 0
    if all_bytes > MOST_DECIDED_BYTES or (source.owner and of_owner > MOST_DECIDED_BYTES_OF_AN_OWNER):
        raise RemoteError(
            ResponseCode.ILLEGAL_OPERATION,
            f"{source} has {len(others)} bytes about attempts at other brokers, and the broker keeps at most "
            f"{MOST_DECIDED_BYTES_OF_AN_OWNER} bytes of an account and {MOST_DECIDED_BYTES} together. Write with fewer "
            "tasks or to one broker, or use the names of writers again. A writer is forgotten after 30 days without a "
            "request",
        )


def _refuse_too_many(writers: Mapping[str, WriterState], owner: str | None) -> None:
    of_owner = 0 if owner is None else sum(writer_state.owner == owner for writer_state in writers.values())
    if of_owner >= MOST_OF_AN_OWNER or len(writers) >= MOST_WRITERS:
        limit_text = f"{MOST_OF_AN_OWNER} of this account" if of_owner >= MOST_OF_AN_OWNER else f"{MOST_WRITERS}"
        raise RemoteError(
            ResponseCode.ILLEGAL_OPERATION,
            f"the broker already tracks the maximum of {limit_text} staging writers; reuse their names. A "
            "writer is forgotten after 30 days without a request",
        )


class WriterRecords:
    """Writes the state of writers to the log, by `append`, which stores a "kept" record."""

    def __init__(
        self, store: MessageStore, writers: Mapping[str, WriterState], append: Callable[[Source, bytes], Placed]
    ) -> None:
        self._store = store
        self._writers = writers
        self._append = append
        self._record_bytes = 0  # the size of the records that were written last

    async def keep(self) -> None:
        """Write the writers that the last log file lacks, if they are due. On a full disk they wait."""
        end, file_size = self._store.end, self._store.settings.commit_log_file_size
        oldest = min((writer_state.kept_at for writer_state in self._writers.values()), default=end)
        if oldest < self._store.begin or end - oldest > _GROWTH * self._record_bytes:
            last_file = end - end % file_size
            names = [name for name, writer_state in self._writers.items() if writer_state.kept_at < last_file]
            if names:
                with suppress(DiskFull):
                    await run_to_end(self._keep_all(names))

    def _keep_all(self, names: list[str]) -> Steps[None]:
        self._record_bytes = 0
        for name in names:
            writer_state = self._writers.get(name)
            if writer_state is not None:
                self._keep_one(name, writer_state)
            yield

    def _keep_one(self, name: str, writer_state: WriterState) -> None:
        source = Source(name, writer_state.runs[-1], writer_state.last_batch, writer_state.owner)
        try:
            placed = self._append(source, msgspec.json.encode(saved(writer_state)))
        except InvalidMessage:  # the record is too large for a file of the log
            writer_state.kept_at = self._store.end
        else:
            writer_state.kept_at = placed.offset
            self._record_bytes += placed.size


def saved(writer_state: WriterState) -> SavedWriter:
    return SavedWriter(
        list(writer_state.runs),
        writer_state.last_batch,
        writer_state.used_ms,
        msgspec.Raw(writer_state.others or NO_OTHERS),
        writer_state.owner,
        writer_state.plan,
        writer_state.kept_at,
    )


def take_saved(writer_state: WriterState, state: SavedWriter) -> None:
    writer_state.runs, writer_state.last_batch, writer_state.used_ms = state.runs, state.last_batch, state.used_ms
    others = bytes(state.others)  # a copy, because `Raw` is a view of the whole file
    writer_state.others = b"" if others == NO_OTHERS else others
    writer_state.owner, writer_state.plan, writer_state.kept_at = state.owner, state.plan, state.kept_at

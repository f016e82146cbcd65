"""The journal: a master writes each change of its topics, groups, offsets, pops and queue locks to its log.

    topics, groups    one record a change, in the turn of the change: before the message that made the topic
    offsets           commits whose clients wait for an answer: one record for each turn of the loop
                      other commits, such as those of pulls: one record a second, with the queues that changed
    pops              all steps of a turn: before offsets, which follow from them
    locks             new holders, before they learn that they have their queues
    a snapshot        before the first record; when the changes since the last one take four times its size;
                      when the log has gone on to another file, because retention deletes the oldest ones

An answer to an operator waits until its record is on disk, and at the slaves of a SYNC_MASTER, as a message with
SEND_OK. If the log cannot take a record, for instance on a full disk, the change is only in memory and in the file, and
the file's mark says that the log lacks it. Once the log takes records again, a snapshot contains the whole state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from sparrowmq.broker.access_control import Users
from sparrowmq.broker.change_log import BEGIN, END, Change, ChangeLog, split_numbers
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.journal_records import ReplayedState
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.part import Chore, Part
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import InvalidMessage, NotSafeInTime, RemoteError, SparrowError, StoreError, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.durability import Durability
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.condition_kinds import STATE_NOT_LOGGED
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import STATE_TOPIC, is_system_topic
from sparrowmq.protocol.requests.bodies import JournalMark
from sparrowmq.remoting.handler import PendingReply, Reply
from sparrowmq.store.appender import LogEnded
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)
PERIOD_S: Final = 1.0
_GROWTH: Final = 4  # the next snapshot is due when changes take this many times the bytes of the last one
_MIN_GROWTH_BYTES: Final = 1 << 20
_OFFSETS_AT_ONCE: Final = 500  # written in one step


class Journal(ChangeLog):
    """Writes the state of one master to its log, from `begin` on; commits at the end of the loop's turn."""

    def __init__(self, store: MessageStore, clock: Clock, turn: Turn, rules: JournalRules) -> None:
        self._store = store
        self._clock = clock
        self._turn = turn
        self._rules = rules
        self._host = store.settings.store_host
        self.max_record_bytes = min(self.max_record_bytes, store.settings.commit_log_file_size // 4)
        # The log offset of the newest whole snapshot, and its size; None without one.
        self._snapshot_begin: int | None = None
        queue = store.queues.get(STATE_TOPIC, 0)
        self._next_queue_offset = 0 if queue is None else queue.next_offset
        self._last_record_end = store.end  # the end of the last record
        self._problem: SparrowError | None = None  # why the log lacks a change
        self._old_problem: SparrowError | None = None  # that before the snapshot which is being written
        # The log lacks these deletions. A snapshot just omits a topic; a slave deletes its queues only for a record.
        self._unlogged_deletions: set[str] = set()
        self._is_reported = False
        self._waiting_answers: list[_WaitingAnswer] = []  # commits, acknowledgements and orderly pops
        self._commits_wait = False
        self._pops: LoggedPops | None = None
        self._locks: QueueLocks | None = None
        self._locks_end: int | None = 0  # the end of their last record; None: the log lacks a change
        self._is_writing = False

    def begin(self, tables: StateTables, replayed: ReplayedState) -> None:
        """Write the changes of these tables from now on. The log has the state `replayed`."""
        self._tables: StateTables = tables
        self._snapshot_begin = replayed.begin
        self._snapshot_bytes, self._changed_bytes = replayed.snapshot_bytes, replayed.changed_bytes

    def part(self) -> Part:
        return Part(
            chores=(Chore("journal", PERIOD_S, self.write_what_is_due),),
            saves=(self.close,),
            probes=((STATE_NOT_LOGGED, self._condition),),
        )

    def _condition(self) -> str:
        """Return why the log lacks a change; "" if the log ended, or the store failed: another condition says so."""
        is_over = isinstance(self._store.appender.full_error, LogEnded)
        if self._lack_reason is None or self._store.flushed.error is not None or is_over:
            return ""
        return f"the log lacks the last changes of topics, groups or offsets: {self._lack_reason}"

    @property
    def is_behind(self) -> bool:
        return self._lack_reason is not None

    @property
    def _lack_reason(self) -> SparrowError | None:
        return self._problem or self._old_problem

    def note_offsets(self, max_queues: int | None = None) -> None:
        """Write the steps of pops, and then the offsets that changed since the last call, at most `max_queues`."""
        self.note_pops()
        for change in self._tables.offsets.take_changes(max_queues):
            self.note(change)

    def watch_pops(self, pops: LoggedPops) -> None:
        self._pops = pops

    def note_pops(self) -> None:
        if self._pops is not None:
            for steps in self._pops.take_steps():
                self.note(Change(pops=steps))

    def watch_locks(self, locks: QueueLocks) -> None:
        self._locks = locks
        locks.is_logged = True

    def note_locks(self) -> None:
        if self._locks is not None:
            for piece in self._locks.take_changes():
                self.note(Change(locks=piece))
                self._locks_end = self._last_record_end if self._lack_reason is None else None

    async def wait_until_locks_are_safe(self) -> None:
        """Wait until all lock holders are as safe as acknowledged messages. Raises: RemoteError, they are not."""
        done_text = "the queues are locked"
        self.note_locks()
        if self._locks_end is None:
            if self._lack_reason is None or self._rules.are_files_trusted:
                return
            raise not_safe_error(done_text, self._lack_reason)
        await self._wait_until_durable(self._store.durability(True), self._locks_end, done_text)

    def answer_commit_soon(self) -> PendingReply:
        """Return the answer to a commit. It leaves when the offset is as safe as an acknowledged message."""
        self._commits_wait = True
        return self.answer_soon(None)

    def answer_soon(
        self,
        answer: Reply | None,
        pending_reply: PendingReply | None = None,
        make_refusal: Callable[[BaseException], RemoteError] | None = None,
    ) -> PendingReply:
        """Return the answer to a change of pops. It leaves when the change is as safe as an acknowledged message.

        `pending_reply` is that of a held request. `make_refusal` makes the error if the change is not safe.
        """
        if not self._waiting_answers:
            self._turn.write(self._write_and_answer)
        pending_reply = pending_reply or PendingReply()
        self._waiting_answers.append(
            _WaitingAnswer(pending_reply, answer, make_refusal or partial(not_safe_error, "the offset is committed"))
        )
        return pending_reply

    def _write_and_answer(self) -> None:
        if self._commits_wait and len(self._tables.offsets.unlogged) > _OFFSETS_AT_ONCE:
            # Pulls have committed many offsets. Write them in several turns; answers wait for all of them.
            self.note_offsets(_OFFSETS_AT_ONCE)
            asyncio.get_running_loop().call_soon(self._turn.write, self._write_and_answer)
            return
        waiting_answers, self._waiting_answers = self._waiting_answers, []
        commits_wait, self._commits_wait = self._commits_wait, False
        to_answer = []
        for answer in waiting_answers:
            if answer.pending_reply.is_unwanted:
                answer.pending_reply.answer(None, None)
            else:
                to_answer.append(answer)
        self.note_pops()
        if not to_answer:
            return
        if commits_wait:
            self.note_offsets()
        if self._lack_reason is not None:
            self._answer(to_answer, None if self._rules.are_files_trusted else self._lack_reason)
        else:
            self._store.durability(True).when(self._last_record_end, partial(self._answer, to_answer))

    def _answer(self, waiting_answers: list[_WaitingAnswer], error: BaseException | None) -> None:
        problem = self._error_if_unsafe(error)
        for waiting_answer in waiting_answers:
            if problem is None:
                waiting_answer.pending_reply.answer(waiting_answer.answer, None)
            else:
                waiting_answer.pending_reply.answer(None, waiting_answer.make_refusal(problem))

    async def wait_until_safe(self, done_text: str) -> bool:
        await self.write_changes()
        if self._lack_reason is not None:
            if self._rules.are_files_trusted:
                return False
            raise not_safe_error(done_text, self._lack_reason)
        await self._wait_until_durable(self._store.on_disk, self._last_record_end, done_text)
        return True

    async def _wait_until_durable(self, durability: Durability, end: int, done_text: str) -> None:
        future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._store.publish()
        self._store.flusher.kick()
        durability.when(end, partial(_set_result, future))
        problem = self._error_if_unsafe(await future)
        if problem is not None:
            raise not_safe_error(done_text, problem)

    def _error_if_unsafe(self, error: BaseException | None) -> BaseException | None:
        """Return the error; None if only slaves are lacking, and no other broker can lead without the change."""
        lacks_slaves = isinstance(error, NotSafeInTime) and error.code == ResponseCode.SLAVE_NOT_AVAILABLE
        return None if lacks_slaves and self._rules.is_alone() else error

    def note(self, change: Change) -> None:
        """Write a change. Without a snapshot, or if the log lacks a change, write the whole state before it.

        If the log lacks a change and the state is large, `write_what_is_due` writes the state later, with this change.
        """
        is_small = self._snapshot_bytes <= self.max_record_bytes
        if self._snapshot_begin is None or (self._problem is not None and is_small):
            for _ in self._write_snapshot_in_steps():
                pass
        if self._problem is None:
            self._append(change)
        if self._problem is not None and change.no_topic:
            self._unlogged_deletions.add(change.no_topic)

    def _append(self, change: Change) -> int:
        try:
            placed = self._store.append(change.entry(self._clock.now_ms(), self._host))[0]
        except (StoreError, InvalidMessage) as error:
            if not self._is_reported and not isinstance(error, LogEnded):
                log.warning("the log lacks a change of topics, groups or offsets: %s", error)
            self._problem, self._is_reported = error, True
            return 0
        self._last_record_end, self._next_queue_offset = placed.end, placed.queue_offset + 1
        self._changed_bytes += placed.size
        return placed.size

    def mark(self) -> JournalMark | None:
        if self._snapshot_begin is None:
            return None
        return JournalMark(self._next_queue_offset, self.is_behind)

    def write_snapshot(self) -> bool:
        """Write the whole state to disk in one step. Returns whether the log could take it."""
        for _ in self._write_snapshot_in_steps():
            pass
        if self._problem is None:
            with suppress(StoreError):
                self._store.flush()
                return True
        return False

    async def write_what_is_due(self) -> None:
        await self.write_changes()
        if self._is_snapshot_due():
            for _ in self._write_snapshot_in_steps():
                await asyncio.sleep(0)

    async def write_changes(self) -> None:
        """Write the locks and offsets that changed; other work goes on between the records."""
        self.note_locks()
        # The oldest are written first. Those that change meanwhile are not waited for: clients may change any number.
        for _ in range(len(self._tables.offsets.unlogged) // _OFFSETS_AT_ONCE):
            self.note_offsets(_OFFSETS_AT_ONCE)
            await asyncio.sleep(0)
        self.note_offsets(_OFFSETS_AT_ONCE)

    async def close(self) -> None:
        self.note_locks()
        self.note_offsets()
        self._store.publish()

    def _is_snapshot_due(self) -> bool:
        if self._problem is not None:
            return not isinstance(self._problem, StoreFailed)
        if self._snapshot_begin is None:
            return self._store.end > 0
        if self._changed_bytes > max(_GROWTH * self._snapshot_bytes, _MIN_GROWTH_BYTES):
            return True
        if self._snapshot_begin < self._store.begin:
            return True
        file_size = self._store.settings.commit_log_file_size
        is_in_last_file = self._snapshot_begin // file_size == self._store.end // file_size
        return not is_in_last_file and self._store.end - self._snapshot_begin > _GROWTH * self._snapshot_bytes

    def _write_snapshot_in_steps(self) -> Iterator[None]:
        """Write a snapshot, record by record. A reader uses it only if it is complete."""
        if self._is_writing:
            return
        self._is_writing = True
        self._problem, self._old_problem = None, self._lack_reason
        try:
            begin, size = self._store.end, 0
            self._changed_bytes, changed_bytes_before = 0, self._changed_bytes
            for change in self._snapshot_changes():
                written_bytes = self._append(change)
                if not written_bytes:
                    self._changed_bytes = changed_bytes_before
                    return
                size += written_bytes
                yield
        finally:
            self._is_writing = False
        self._old_problem = None
        if self._is_reported:
            log.info("the log has all changes of topics, groups and offsets again")
            self._is_reported = False
        self._unlogged_deletions.clear()
        self._snapshot_begin, self._snapshot_bytes = begin, size
        self._locks_end = self._last_record_end
        self._changed_bytes = max(self._changed_bytes - size, 0)

    def _snapshot_changes(self) -> Iterator[Change]:
        tables = self._tables
        yield Change(mark=BEGIN)
        for name in sorted(self._unlogged_deletions):
            if tables.topics.get(name) is None:
                yield Change(no_topic=name, topics_version=tables.topics.version)
        yield from tables.topics.snapshot()
        yield from tables.groups.snapshot()
        yield from tables.offsets.snapshot()
        for piece in split_numbers(self._queue_ends(), self.max_record_bytes):
            yield Change(ends=piece)
        if self._pops is not None:
            for steps in self._pops.snapshot():
                yield Change(pops=steps)
        if self._locks is not None:
            for piece_of_locks in self._locks.snapshot():
                yield Change(locks=piece_of_locks)
        yield from tables.modes.snapshot()
        yield from tables.users.snapshot()
        yield Change(mark=END)

    def _queue_ends(self) -> Iterator[tuple[str, int, int]]:
        queues = self._store.queues
        for queue in (queue for topic in queues.topics() for queue in queues.of_topic(topic)):
            name = queue.topic
            is_known = self._tables.topics.get(name) is not None or (is_system_topic(name) and name != STATE_TOPIC)
            if queue.next_offset and is_known and queues.get(name, queue.queue_id) is queue:
                yield name, queue.queue_id, queue.next_offset


@dataclass
class StateTables:
    topics: Topics
    groups: Groups
    offsets: Offsets
    users: Users
    modes: RequestModes


@dataclass(frozen=True)
class JournalRules:
    """The rules of one master."""

    are_files_trusted: bool = True  # a start uses changes that only the files have, as without slaves
    is_alone: Callable[[], bool] = lambda: True  # no other broker can become the master without the changes of this one


class LoggedPops(Protocol):
    """The pop state, whose changes the journal takes, as steps: those since the last call, or the present state."""

    def take_steps(self) -> Iterator[list[bytes]]: ...

    def snapshot(self) -> Iterator[list[bytes]]: ...


class _WaitingAnswer(NamedTuple):
    """An answer that waits until a change is safe. `make_refusal` makes the error for the client if it is not."""

    pending_reply: PendingReply
    answer: Reply | None
    make_refusal: Callable[[BaseException], RemoteError]


def _set_result(future: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not future.done():
        future.set_result(error)


def not_safe_error(done_text: str, problem: BaseException) -> RemoteError:
    code = problem.code if isinstance(problem, NotSafeInTime) else ResponseCode.SYSTEM_ERROR
    remark = (
        f"{done_text} and in effect here, but not yet safe: {problem}. The broker tries again by itself; if it is lost "
        "before that, the change is lost, too"
    )
    error = RemoteError(code, remark)
    error.__cause__ = problem
    return error

"""The pull loop of one task: the messages that brokers have of its ranges, in order.

Pulls are pipelined. Offsets are dense, so the start of the next pull is known before the last is answered, as long as
each answer is complete. An answer may stop short: a Java 4.9 broker gives 32 messages at most, or 8 from disk; ours a
mebibyte. The rest is then asked for before any later row is given out. `step`, the rows of a pull, follows the size of
the broker's answers; to learn it the first pull goes alone.

    range   |--------- ask ---------|--------- ask ---------|--------- ask ---------|
    answer  |== given ==|-- rest ---|=======================|

A filtered pull skips an unknown number of rows, so each range is one ask then, and an answer may reach beyond the
range.

When a broker goes away, the asks that it has not answered are sent again in their turn, and those to other brokers stay
under way: rows are given out once, and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.client.cluster.blocking_network import BlockingLink, BlockingNetwork
from sparrowmq.errors import BrokerUnreachable, ConfigError, NetworkError, NoRoute, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, PullFlag
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply
from sparrowmq.protocol.subscription import ALL, SQL92, TAG
from sparrowmq.remoting.request_in_flight import remote_error
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.partition_ranges import NEW_TOPIC_ADVICE, Bounds, Range, clamp_offset, lose
from sparrowmq.spark.worker import may_pass, refuses_filter

_FULL_ANSWERS_BEFORE_MORE: Final = 8
_MAX_ROWS_OF_JAVA: Final = 64  # answers that end here or before end with a number of rows: Java's 8 or 32


class NotReady(NetworkError):
    """A broker is there but cannot give these rows now; later it may."""


class NotThere(NotReady):
    """A queue ends before the rows that were planned: its broker lost them, or a slave is behind."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.bounds = bounds


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """Records of a range, as they came.

    `range` begins and ends with the answer, or with the asked range if that is nearer. `count` is how many there must
    be; None when a filter decided. If it `reaches_beyond`, some may be behind the range.
    """

    range: Range
    body: bytes
    count: int | None = None
    reaches_beyond: bool = False


@dataclass(frozen=True, slots=True)
class _PullInFlight:
    """A pull that is under way; `link` is None when it must be sent (again) before it can be waited for."""

    range: Range
    link: BlockingLink | None
    opaque: int
    is_rest: bool


class Pulls:
    """Pulls the ranges of a task, many at once."""

    def __init__(self, network: BlockingNetwork, ranges: Iterable[Range], options: SourceOptions) -> None:
        self._network = network
        self._options = options
        self._is_filtered = options.expression != ALL or options.sql is not None
        # Both in the order of the ranges; everything under way comes before everything to do.
        self._in_flight: deque[_PullInFlight] = deque()
        self._waiting_ranges = deque(range for range in ranges if len(range))
        self._step = options.pull_rows
        self._max_in_flight = 1
        self._full_answers = 0
        self._last_was_short = True  # the last answer; the first one is believed
        self._failures = 0
        self._short_answers = 0  # which said that the queue ends before the rows asked for
        self._gap: Range | None = None  # rows that are gone, and that the log does not name yet

    def answers(self) -> Iterator[PullAnswer]:
        """Yield the answers of the brokers, in the order of the ranges.

        Raises: RowsLost, rows are gone and the options want to know; RemoteError, ConfigError, a broker refuses the
        pull, or the filter; NetworkError, a broker could not be reached, or was not ready, in all retries.
        """
        while self._waiting_ranges or self._in_flight:
            self._fill()
            try:
                answer = self._await_first()
            except (NetworkError, NoRoute) as error:
                self._retry(error)
                continue
            if self._failures:
                self._network.recovered()
            self._failures = self._short_answers = 0
            if answer is not None:
                self._log_gap()
                yield answer
        self._log_gap()

    def _fill(self) -> None:
        while self._waiting_ranges and len(self._in_flight) < self._max_in_flight and not self._is_stuck:
            range = self._waiting_ranges.popleft()
            size = len(range) if self._is_filtered else min(self._step, len(range))
            piece = replace(range, end=range.start + size)
            try:
                pull = self._start_pull(piece)
            except (NetworkError, NoRoute):
                pull = _PullInFlight(piece, None, 0, is_rest=False)  # when it is its turn it fails again, or does not
            self._in_flight.append(pull)
            if piece.end < range.end:
                self._waiting_ranges.appendleft(replace(range, start=piece.end))

    @property
    def _is_stuck(self) -> bool:
        return bool(self._in_flight) and self._in_flight[-1].link is None

    def _start_pull(self, piece: Range, *, is_rest: bool = False) -> _PullInFlight:
        link = self._network.link(piece.queue)
        return _PullInFlight(piece, link, link.send(self._request(piece)), is_rest)

    def _request(self, piece: Range) -> PullMessage:
        options = self._options
        return PullMessage(
            consumer_group=options.group or options.group_prefix,
            topic=piece.queue.topic,
            queue_id=piece.queue.queue_id,
            queue_offset=piece.start,
            max_msg_nums=min(len(piece), options.pull_rows),
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=options.sql or options.expression,
            expression_type=SQL92 if options.sql else TAG,
            max_msg_bytes=options.pull_bytes,
            incarnation=piece.incarnation if (piece.incarnation or 0) > 0 else None,
        )

    def _await_first(self) -> PullAnswer | None:
        """The answer to the first ask. It stays under way until the answer was dealt with."""
        pull = self._in_flight[0]
        if pull.link is None or pull.link.has_ended:
            pull = self._in_flight[0] = self._start_pull(pull.range, is_rest=pull.is_rest)
        assert pull.link is not None, "it was just sent"
        reply = pull.link.wait(pull.opaque, self._options.pull_timeout_ms / 1000)
        match reply.code:
            case ResponseCode.SUCCESS:
                return self._complete_answer(pull, reply.header(PullMessageReply).next_begin_offset, reply.body)
            case ResponseCode.PULL_RETRY_IMMEDIATELY:
                self._handle_skip(pull, reply.header(PullMessageReply).next_begin_offset)
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_OFFSET_MOVED:
                header = reply.header(PullMessageReply)
                self._handle_moved(pull, Bounds(header.min_offset, header.max_offset))
            # A master that has had the topic knows best that it is gone; a slave may be behind.
            case ResponseCode.TOPIC_NOT_EXIST if pull.range.incarnation is not None and self._network.has_master(
                pull.range.queue.broker_name
            ):
                self._handle_deleted(pull, reply.remark)
            case code:
                raise self._error_of_refusal(pull, remote_error(code, reply.remark))
        return None

    def _error_of_refusal(self, pull: _PullInFlight, refusal: RemoteError) -> Exception:
        if may_pass(refusal):
            return NotReady(
                f"{_broker_name(pull)} answered a pull of {pull.range} with {refusal.code}: {refusal.remark}"
                f"{_read_queues_advice(pull.range.queue, refusal)}"
            )
        if refuses_filter(refusal):
            filter = f"filter.sql={self._options.sql!r}" if self._options.sql else self._options.expression
            advice = "SQL92 needs a broker with enablePropertyFilter=true; filter in Spark otherwise"
            return ConfigError(f"{_broker_name(pull)} refuses the filter {filter}: {refusal.remark} ({advice})")
        return refusal

    def _complete_answer(self, pull: _PullInFlight, next_offset: int, body: bytes) -> PullAnswer:
        if next_offset <= pull.range.start:
            raise NotReady(f"{_broker_name(pull)} returned messages of {pull.range} without a next offset behind them")
        answered = replace(pull.range, end=min(next_offset, pull.range.end))
        self._advance(pull, next_offset)
        if self._is_filtered or next_offset > pull.range.end:
            return PullAnswer(answered, body, reaches_beyond=next_offset > pull.range.end)
        if not pull.is_rest:
            self._adapt_step(requested=len(pull.range), received=len(answered), size_bytes=len(body))
        return PullAnswer(answered, body, count=len(answered))

    def _handle_skip(self, pull: _PullInFlight, next_offset: int) -> None:
        if next_offset <= pull.range.start:
            raise NotReady(f"{_broker_name(pull)} has no messages of {pull.range} now and returned no next offset")
        if not self._is_filtered:
            self._note_gap(pull, min(next_offset, pull.range.end))
        self._advance(pull, next_offset)

    def _handle_moved(self, pull: _PullInFlight, bounds: Bounds) -> None:
        """The queue does not hold the asked offset (any more)."""
        if pull.range.start >= bounds.start:
            if self._network.has_master(pull.range.queue.broker_name):
                raise NotThere(bounds)
            reason = f"its master is away, and its slave has {pull.range.queue} only up to {bounds.end}"
            raise BrokerUnreachable(pull.range.queue.broker_name, reason)
        # An ask behind this one may have been answered before its rows went.
        self._note_gap(pull, bounds.start if self._fails_on_loss else min(bounds.start, pull.range.end))
        self._advance(pull, bounds.start)

    def _note_gap(self, pull: _PullInFlight, end: int) -> None:
        """Note that the rows of an ask up to `end` are gone. Raises: RowsLost, the options want to know."""
        gap = replace(pull.range, end=end)
        if self._fails_on_loss:
            lose(_gap_text(gap), fail=True)
        if self._gap is not None and self._gap.queue == gap.queue and self._gap.end == gap.start:
            gap = replace(gap, start=self._gap.start)
        else:
            self._log_gap()
        self._gap = gap

    def _log_gap(self) -> None:
        if self._gap is not None:
            lose(_gap_text(self._gap), fail=False)
            self._gap = None

    def _handle_deleted(self, pull: _PullInFlight, remark: str | None) -> None:
        queue, last_offset = pull.range.queue, pull.range.end - 1
        problem = f"offsets {pull.range.start} to {last_offset} of {queue} are gone: {remark}"
        lose(problem, fail=self._fails_on_loss, advice=NEW_TOPIC_ADVICE)
        self._advance(pull, pull.range.end)

    def _advance(self, pull: _PullInFlight, next_offset: int) -> None:
        """The first ask is done up to `next_offset`; its rest comes before everything else."""
        if next_offset >= pull.range.end:
            self._in_flight.popleft()
            return
        rest = replace(pull.range, start=next_offset)
        if len(self._in_flight) == 1:
            self._in_flight.popleft()
            self._waiting_ranges.appendleft(rest)  # to be cut again: the step may have changed
        else:
            self._in_flight[0] = self._start_pull(rest, is_rest=True)

    def _adapt_step(self, requested: int, received: int, size_bytes: int) -> None:
        """Ask next time for what was given, or for a little more if that was all that was asked for.

        Most answers end with the bytes that one may have. As rows differ in size, a sixteenth is kept free for that
        after a short answer, and half of it as more is asked for again: a rest costs a request of its own. An answer
        that ends with a file of the broker is short as well, once in 300,000 rows, so one alone means nothing.
        """
        self._max_in_flight = self._options.pulls_in_flight
        was_short, self._last_was_short = self._last_was_short, received < requested
        if received < requested:
            self._full_answers = 0
            if was_short:
                self._step = received - (received // 16 if received > _MAX_ROWS_OF_JAVA else 0)
            return
        self._full_answers += 1
        if self._full_answers == _FULL_ANSWERS_BEFORE_MORE:
            growth = max(self._step // 16, min(self._step, _MAX_ROWS_OF_JAVA // 2))
            fitting = received * self._options.pull_bytes // max(1, size_bytes)
            max_step = min(self._options.pull_rows, fitting - fitting // 32)
            self._step, self._full_answers = max(self._step, min(self._step + growth, max_step)), 0

    def _retry(self, error: NetworkError | NoRoute) -> None:
        """Have the first ask sent again, or give up."""
        self._in_flight[0] = replace(self._in_flight[0], link=None)
        if isinstance(error, NotThere):
            self._short_answers += 1
            if self._short_answers > self._options.retries:
                lost_range = self._in_flight.popleft().range
                clamp_offset(lost_range.queue, lost_range.end, error.bounds, fail=self._fails_on_loss)
                self._short_answers = 0
            self._network.recover(error, self._short_answers)
            return
        self._failures += 1
        self._network.recover(error, self._failures)

    @property
    def _fails_on_loss(self) -> bool:
        return self._options.fail_on_data_loss


def _broker_name(pull: _PullInFlight) -> str:
    return pull.link.address if pull.link else pull.range.queue.broker_name


def _read_queues_advice(queue: MessageQueue, refusal: RemoteError) -> str:
    """The remedy for a queue that its topic does not show any more: its messages are there, and are not given."""
    if not refusal.remark.startswith(f"queueId[{queue.queue_id}] is illegal"):
        return ""
    return (
        f". {queue} has messages that were not read, and its topic got fewer read queues. Give it {queue.queue_id + 1} "
        "again until they are read (`mqadmin updateTopic -r`); `sparrowmq topic scale` waits for readers"
    )


def _gap_text(gap: Range) -> str:
    return f"offsets {gap.start} to {gap.end - 1} of {gap.queue} are gone"

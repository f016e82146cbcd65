"""The pull loop of one task: the messages that brokers have of its ranges, in order.

Pulls are pipelined. Offsets are dense, so the start of the next pull is known before the last is answered, as long as
each answer is complete. So ranges are cut into asks of `step` rows, and many asks are under way. An answer may stop
short: a Java 4.9 broker gives 32 messages at most, or 8 from disk; ours a mebibyte. The rest is then asked for before
any later row is given out. `step` follows the size of the broker's answers; to learn it the first ask goes alone.

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
class Pulled:
    """Records of a range, as they came.

    Attributes:
        range: what they are of; `start` and `end` are those of the answer, or the end of the asked range if that is
        nearer. count: how many there must be; None when a filter decided. reaches_beyond: whether some may lie behind
        the range.
    """

    range: Range
    body: bytes
    count: int | None = None
    reaches_beyond: bool = False


@dataclass(frozen=True, slots=True)
class _Ask:
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
        self._under_way: deque[_Ask] = deque()
        self._to_do = deque(each for each in ranges if len(each))
        self._step = options.pull_rows
        self._depth = 1
        self._full_answers = 0
        self._was_short = True  # the last answer; the first one is believed
        self._failures = 0
        self._short_answers = 0  # which said that the queue ends before the rows asked for
        self._gap: Range | None = None  # rows that are gone, and that the log does not name yet

    def answers(self) -> Iterator[Pulled]:
        """Yield the answers of the brokers, in the order of the ranges.

        Raises:
            RowsLost: rows are gone and the options want to know.
            RemoteError, ConfigError: a broker refuses the pull, or the filter.
            NetworkError: a broker could not be reached, or was not ready, in all retries.
        """
        while self._to_do or self._under_way:
            self._fill()
            try:
                pulled = self._take()
            except (NetworkError, NoRoute) as error:
                self._try_again(error)
                continue
            if self._failures:
                self._network.recovered()
            self._failures = self._short_answers = 0
            if pulled is not None:
                self._log_gap()
                yield pulled
        self._log_gap()

    def _fill(self) -> None:
        while self._to_do and len(self._under_way) < self._depth and not self._is_stuck:
            whole = self._to_do.popleft()
            size = len(whole) if self._is_filtered else min(self._step, len(whole))
            piece = replace(whole, end=whole.start + size)
            try:
                ask = self._ask(piece)
            except (NetworkError, NoRoute):
                ask = _Ask(piece, None, 0, is_rest=False)  # when it is its turn it fails again, or does not
            self._under_way.append(ask)
            if piece.end < whole.end:
                self._to_do.appendleft(replace(whole, start=piece.end))

    @property
    def _is_stuck(self) -> bool:
        return bool(self._under_way) and self._under_way[-1].link is None

    def _ask(self, piece: Range, *, is_rest: bool = False) -> _Ask:
        link = self._network.link(piece.queue)
        return _Ask(piece, link, link.send(self._request(piece)), is_rest)

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

    def _take(self) -> Pulled | None:
        """The answer to the first ask. It stays under way until the answer was dealt with."""
        ask = self._under_way[0]
        if ask.link is None or ask.link.has_ended:
            ask = self._under_way[0] = self._ask(ask.range, is_rest=ask.is_rest)
        assert ask.link is not None, "it was just sent"
        reply = ask.link.wait(ask.opaque, self._options.pull_timeout_ms / 1000)
        match reply.code:
            case ResponseCode.SUCCESS:
                return self._pulled(ask, reply.header(PullMessageReply).next_begin_offset, reply.body)
            case ResponseCode.PULL_RETRY_IMMEDIATELY:
                self._handle_skip(ask, reply.header(PullMessageReply).next_begin_offset)
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_OFFSET_MOVED:
                header = reply.header(PullMessageReply)
                self._handle_moved(ask, Bounds(header.min_offset, header.max_offset))
            # A master that has had the topic knows best that it is gone; a slave may be behind.
            case ResponseCode.TOPIC_NOT_EXIST if ask.range.incarnation is not None and self._network.has_master(
                ask.range.queue.broker_name
            ):
                self._handle_deleted(ask, reply.remark)
            case code:
                raise self._error_of_refusal(ask, remote_error(code, reply.remark))
        return None

    def _error_of_refusal(self, ask: _Ask, refusal: RemoteError) -> Exception:
        if may_pass(refusal):
            return NotReady(
                f"{_broker_of(ask)} answered a pull of {ask.range} with {refusal.code}: {refusal.remark}"
                f"{_read_queues_advice(ask.range.queue, refusal)}"
            )
        if refuses_filter(refusal):
            filter = f"filter.sql={self._options.sql!r}" if self._options.sql else self._options.expression
            advice = "SQL92 needs a broker with enablePropertyFilter=true; filter in Spark otherwise"
            return ConfigError(f"{_broker_of(ask)} refuses the filter {filter}: {refusal.remark} ({advice})")
        return refusal

    def _pulled(self, ask: _Ask, next_offset: int, body: bytes) -> Pulled:
        if next_offset <= ask.range.start:
            raise NotReady(f"{_broker_of(ask)} returned messages of {ask.range} without a next offset behind them")
        answered = replace(ask.range, end=min(next_offset, ask.range.end))
        self._go_on(ask, next_offset)
        if self._is_filtered or next_offset > ask.range.end:
            return Pulled(answered, body, reaches_beyond=next_offset > ask.range.end)
        if not ask.is_rest:
            self._adapt_step(requested=len(ask.range), received=len(answered), size_bytes=len(body))
        return Pulled(answered, body, count=len(answered))

    def _handle_skip(self, ask: _Ask, next_offset: int) -> None:
        if next_offset <= ask.range.start:
            raise NotReady(f"{_broker_of(ask)} has no messages of {ask.range} now and returned no next offset")
        if not self._is_filtered:
            self._note_gap(ask, min(next_offset, ask.range.end))
        self._go_on(ask, next_offset)

    def _handle_moved(self, ask: _Ask, bounds: Bounds) -> None:
        """The queue does not hold the asked offset (any more)."""
        if ask.range.start >= bounds.start:
            if self._network.has_master(ask.range.queue.broker_name):
                raise NotThere(bounds)
            behind = f"its master is away, and its slave has {ask.range.queue} only up to {bounds.end}"
            raise BrokerUnreachable(ask.range.queue.broker_name, behind)
        # An ask behind this one may have been answered before its rows went.
        self._note_gap(ask, bounds.start if self._fails else min(bounds.start, ask.range.end))
        self._go_on(ask, bounds.start)

    def _note_gap(self, ask: _Ask, end: int) -> None:
        """Note that the rows of an ask up to `end` are gone. Raises: RowsLost, the options want to know."""
        gap = replace(ask.range, end=end)
        if self._fails:
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

    def _handle_deleted(self, ask: _Ask, remark: str | None) -> None:
        queue, last = ask.range.queue, ask.range.end - 1
        problem = f"offsets {ask.range.start} to {last} of {queue} are gone: {remark}"
        lose(problem, fail=self._fails, advice=NEW_TOPIC_ADVICE)
        self._go_on(ask, ask.range.end)

    def _go_on(self, ask: _Ask, next_offset: int) -> None:
        """The first ask is done up to `next_offset`; its rest comes before everything else."""
        if next_offset >= ask.range.end:
            self._under_way.popleft()
            return
        rest = replace(ask.range, start=next_offset)
        if len(self._under_way) == 1:
            self._under_way.popleft()
            self._to_do.appendleft(rest)  # to be cut again: the step may have changed
        else:
            self._under_way[0] = self._ask(rest, is_rest=True)

    def _adapt_step(self, requested: int, received: int, size_bytes: int) -> None:
        """Ask next time for what was given, or for a little more if that was all that was asked for.

        Most answers end with the bytes that one may have. As rows differ in size, a sixteenth is kept free for that
        after a short answer, and half of it as more is asked for again: a rest costs a request of its own. An answer
        that ends with a file of the broker is short as well, once in 300,000 rows, so one alone means nothing.
        """
        self._depth = self._options.pulls_in_flight
        was_short, self._was_short = self._was_short, received < requested
        if received < requested:
            self._full_answers = 0
            if was_short:
                self._step = received - (received // 16 if received > _MAX_ROWS_OF_JAVA else 0)
            return
        self._full_answers += 1
        if self._full_answers == _FULL_ANSWERS_BEFORE_MORE:
            more = max(self._step // 16, min(self._step, _MAX_ROWS_OF_JAVA // 2))
            fitting = received * self._options.pull_bytes // max(1, size_bytes)
            most = min(self._options.pull_rows, fitting - fitting // 32)
            self._step, self._full_answers = max(self._step, min(self._step + more, most)), 0

    def _try_again(self, error: NetworkError | NoRoute) -> None:
        """Have the first ask sent again, or give up."""
        self._under_way[0] = replace(self._under_way[0], link=None)
        if isinstance(error, NotThere):
            self._short_answers += 1
            if self._short_answers > self._options.retries:
                lost = self._under_way.popleft().range
                clamp_offset(lost.queue, lost.end, error.bounds, fail=self._fails)
                self._short_answers = 0
            self._network.recover(error, self._short_answers)
            return
        self._failures += 1
        self._network.recover(error, self._failures)

    @property
    def _fails(self) -> bool:
        return self._options.fail_on_data_loss


def _broker_of(ask: _Ask) -> str:
    return ask.link.address if ask.link else ask.range.queue.broker_name


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

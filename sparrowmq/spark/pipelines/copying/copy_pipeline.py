"""Copies one queue to a broker of ours with many requests under way: the rate does not depend on the round trip.

    requests    follows 500, reaches 900 | follows 900, reaches 1300 | follows 1300 ...
    answers               stored                  not stored: the copies reach 900

Each request names the end of the copies before it, and the broker stores a request only if that is where the copies
end. So copies are in order, and none comes twice, also if answers are lost, or another copier works on the queue. After
a failure the copier looks where the copies end, and goes on there. Copies that a slave did not confirm in time are a
failure, too: the next master may lack them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, Link, answer
from sparrowmq.client.sending.outcome import LESS_SAFE, may_go_right_again
from sparrowmq.errors import BrokerUnreachable, NetworkError, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import copied_batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.copied_batch import Copy
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import CopyBatch, CopyBatchReply
from sparrowmq.spark.options import SinkOptions

_OF_PROPERTIES: Final = 512  # bytes of a message beside its body, about


class Original(NamedTuple):
    """A message to copy; `body` is as stored, compressed if `sys_flag` says so."""

    queue: MessageQueue
    offset: int
    born_ms: int
    flag: int
    sys_flag: int
    properties: Mapping[str, str]
    body: bytes


class _Sent(NamedTuple):
    """A request under way."""

    rows: list[Original]
    request: CopyBatch
    link: Link
    opaque: int


class _NotNext(Exception):
    """The broker has not stored copies, because those before them end elsewhere: at `reached`, if it knows that."""

    def __init__(self, reached: int) -> None:
        super().__init__(reached)
        self.reached = reached


def parcels(
    rows: Iterable[Original],
    options: SinkOptions,
    may_share: Callable[[Original, Original], bool] = lambda first, row: True,
) -> Iterator[list[Original]]:
    """Rows for one request each. `may_share` says whether a row may follow in the request of another one."""
    parcel: list[Original] = []
    size = 0
    for row in rows:
        row_size = len(row.body) + _OF_PROPERTIES
        fits = len(parcel) < options.batch_rows and size + row_size <= options.batch_bytes
        if parcel and not (fits and may_share(parcel[0], row)):
            yield parcel
            parcel, size = [], 0
        parcel.append(row)
        size += row_size
    if parcel:
        yield parcel


class CopyPipeline:
    """Copies for one queue.

    Args:
        source: the name of the queue that is copied.
        look: finds out where the copies end.
        properties: returns those of a copy.
    Attributes:
        sent: the number of copies that are stored.
    """

    def __init__(
        self,
        network: BlockingNetwork,
        options: SinkOptions,
        source: str,
        target: MessageQueue,
        look: Callable[[], int],
        properties: Callable[[Original], str],
    ) -> None:
        self._network = network
        self._options = options
        self._source = source
        self._target = target
        self._look = look
        self._properties = properties
        self._under_way: deque[_Sent] = deque()
        self._waiting: deque[list[Original]] = deque()
        self._next = 0  # the end of the copies, when all that is under way is stored
        self._begins = True
        self._failures = 0
        self.sent = 0

    def copy(self, rows: Iterable[Original], done: int) -> None:
        """Copy rows; the copies end at `done`.

        Raises:
            SendFailed: the broker refuses a message.
            NetworkError: it is away, for longer than the options allow.
        """
        self._next, self._begins = done, True
        fresh = parcels(rows, self._options)
        while True:
            try:
                self._fill(fresh)
                if not self._under_way:
                    return
                self._settle()
            except (NetworkError, RemoteError, _NotNext) as error:
                self._go_back(error)

    def _fill(self, fresh: Iterator[list[Original]]) -> None:
        while len(self._under_way) < self._options.max_in_flight:
            parcel = self._waiting.popleft() if self._waiting else next(fresh, None)
            if parcel is None:
                return
            rows = [row for row in parcel if row.offset >= self._next]
            self.sent += len(parcel) - len(rows)
            if rows:
                self._send(rows)

    def _send(self, rows: list[Original]) -> None:
        target = self._target
        request = CopyBatch(
            target.topic,
            target.queue_id,
            self._source,
            follows=self._next,
            reaches=rows[-1].offset + 1,
            begins=self._begins or None,
        )
        parts = [
            Copy(row.born_ms, row.sys_flag, BatchPart(row.body, self._properties(row).encode(), row.flag))
            for row in rows
        ]
        try:
            link = self._network.link_to_master(target)
            opaque = link.send(request, copied_batch.encode(parts))
        except NetworkError:
            self._waiting.appendleft(rows)
            raise
        self._under_way.append(_Sent(rows, request, link, opaque))
        self._next, self._begins = request.reaches, False

    def _settle(self) -> None:
        """Wait for the answer to the oldest request."""
        rows, request, link, opaque = self._under_way[0]
        said = link.wait(opaque, self._options.send_timeout_ms / 1000)
        try:
            reply = answer(request, said)
        except RemoteError as error:
            if error.code == ResponseCode.FLUSH_SLAVE_TIMEOUT:
                raise BrokerUnreachable(self._target.broker_name, f"a slave is late: {error}") from error
            if error.code not in LESS_SAFE:
                raise
            reply = said.header(CopyBatchReply)
        if not reply.stored:
            raise _NotNext(reply.reached)
        self._under_way.popleft()
        self.sent += len(rows)
        if self._failures:
            self._network.recovered()
        self._failures = 0

    def _go_back(self, error: NetworkError | RemoteError | _NotNext) -> None:
        """Take back all that is under way, and find out where to go on. Raises: as `copy`."""
        taken = list(self._under_way)
        self._under_way.clear()
        for each in taken[1:]:
            with suppress(NetworkError):
                each.link.wait(each.opaque, self._options.send_timeout_ms / 1000)
        self._waiting.extendleft(each.rows for each in reversed(taken))
        if isinstance(error, RemoteError) and not may_go_right_again(error):
            self._part_refused(error)
        elif not isinstance(error, _NotNext):
            self._failures += 1
            self._network.recover(error, self._failures)
        is_known = isinstance(error, _NotNext) and error.reached >= 0
        self._next = error.reached if isinstance(error, _NotNext) and is_known else self._look()
        self._begins = True

    def _part_refused(self, refusal: RemoteError) -> None:
        """Take a refused batch apart, as one of its messages is the reason. Raises: SendFailed, it has only one."""
        rows = self._waiting.popleft()
        if len(rows) == 1:
            raise SendFailed(f"the broker refuses {rows[0].queue} {rows[0].offset}: {refusal}") from refusal
        self._waiting.extendleft([row] for row in reversed(rows))

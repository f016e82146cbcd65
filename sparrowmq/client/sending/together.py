"""A batch that was gathered, on its way through the outbox: one request, and a result or an error for each sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.sending.gathering import OVERHEAD_BYTES, Parts
from sparrowmq.client.sending.outcome import SendStatus
from sparrowmq.client.sending.outgoing import Outgoing, Sent, result_of, results_of, set_error, stored_in
from sparrowmq.client.sending.packing import WAITS
from sparrowmq.protocol.messages import batch

# Brokers wait for their durability unless a batch says otherwise. Apache's 4.9.7 gives each message what it says.
_PROPERTIES: Final = ""


@dataclass(slots=True, eq=False)
class Together(Outgoing):
    """Messages that travel as one batch, or a gathered message that stayed alone. `Parts` has their senders."""

    parts: Parts = field(default_factory=lambda: Parts("", 0.0))

    @property
    def is_oneway(self) -> bool:
        return False

    @property
    def is_abandoned(self) -> bool:
        return self.parts.is_abandoned()

    @property
    def cost_bytes(self) -> int:
        return len(self.body) + self.count * OVERHEAD_BYTES

    def succeed(self, sent: Sent) -> None:
        header = sent.header
        if header.stored_at is not None:
            for future, result in zip(self.parts.futures, results_of(self, sent), strict=True):
                if not future.done():
                    future.set_result(result)
            return
        self.parts.succeed(header.msg_id.split(","), stored_in(self, sent), header.queue_offset, SendStatus(sent.code))

    def fail(self, error: BaseException, is_told: bool = False) -> None:
        for future in self.parts.futures:
            if not future.done():
                set_error(future, self.failure(error), is_told)

    def singles(self) -> Iterator[Outgoing]:
        """The messages that are still wanted, each for itself, with the time and the attempts that are left."""
        parts = self.parts
        for part, msg_id, future in zip(batch.decode(self.body), parts.msg_ids, parts.futures, strict=True):
            if not future.done():
                yield Outgoing(
                    self.topic,
                    bytes(part.body),
                    WAITS + bytes(part.properties).decode(),
                    timeout_s=self.timeout_s,
                    msg_ids=(msg_id,),
                    future=future,
                    result=result_of,
                    started=self.started,
                    deadline=self.deadline,
                    attempts=self.attempts - 1,
                    queue=self.queue,
                    is_in_doubt=self.is_in_doubt,
                    is_recognised=self.is_recognised,
                    namespace=self.namespace,
                )


def together(parts: Parts, namespace: str) -> Together:
    """The gathered messages as one request: a batch, or a single message."""
    count = len(parts.futures)
    is_batch = count > 1
    return Together(
        parts.topic,
        parts.encode() if is_batch else parts.only_body(),
        _PROPERTIES if is_batch else WAITS + parts.only_properties().decode(),
        is_batch=is_batch,
        timeout_s=parts.timeout_s,
        msg_ids=tuple(parts.msg_ids),
        namespace=namespace,
        count=count,
        parts=parts,
    )

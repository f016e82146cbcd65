"""Sends the flights in the order of their departures, so that each aircraft's flights stay in order.

    flights ──┬── lane of queue 0 ── batch ── answer ── batch ── answer ...
              ├── lane of queue 1 ── ...
              └── ...

One aircraft is always on one queue, and each queue has one batch of flights under way: the next one leaves when it is
stored. Only a second attempt could reorder them: messages to a chosen queue get none, and the first batch that fails
ends the replay.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence

from examples.flights.flight_book import Flight
from examples.flights.stages import Stage
from sparrowmq.client.client import Client
from sparrowmq.errors import SendFailed, SparrowError
from sparrowmq.protocol.messages.message import Message, MessageQueue

MOST_IN_BATCH = 64
MOST_WAITING = 256  # of one lane
TIMEOUT_S = 30.0  # for a sync of a busy disk


class Replay:
    """One run through the flights; `stage` shows its progress."""

    def __init__(self, mq: Client, topic: str, stage: Stage) -> None:
        self._mq = mq
        self._topic = topic
        self._stage = stage

    async def run(self, flights: Iterable[Flight]) -> None:
        """Return when every flight is stored.

        Raises:
            SendFailed: flights were refused or not acknowledged; others may be stored, but none is sent any more.
            NoRoute: there is no such topic.
        """
        queues = await self._mq.queues(self._topic)
        if not queues:
            raise SendFailed(f"no queue of topic {self._topic} takes messages; give it write permission")
        lanes = {queue: Lane() for queue in queues}
        self._stage.begin()
        failures: list[Exception] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue, lane in lanes.items():
                    tasks.create_task(self._send(queue, lane))
                for flight in flights:
                    await lanes[queue_of(flight.aircraft, queues)].put(flight)
                for lane in lanes.values():
                    await lane.put(None)
        except* SparrowError as errors:
            failures += errors.exceptions
        if failures:
            stopped = f"the replay stopped after {self._stage.done} flights: {failures[0]}"
            raise SendFailed(stopped) from failures[0]

    async def _send(self, queue: MessageQueue, lane: Lane) -> None:
        async for flights in lane.batches():
            messages = [self._message(flight) for flight in flights]
            await self._mq.send_many(messages, queue=queue, timeout_s=TIMEOUT_S)
            self._stage.size_bytes += sum(len(message.body) for message in messages)
            self._stage.reach(self._stage.done + len(messages))

    def _message(self, flight: Flight) -> Message:
        keys = [flight.tailnum] if flight.tailnum else ()
        return Message(self._topic, flight.body(), flight.carrier, keys, flight.properties())


class Lane:
    """The flights that wait for one queue; None is behind the last one."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Flight | None] = asyncio.Queue(MOST_WAITING)

    async def put(self, flight: Flight | None) -> None:
        """Add a flight, when there is room."""
        await self._waiting.put(flight)

    async def batches(self) -> AsyncIterator[list[Flight]]:
        """The waiting flights, in portions."""
        while (flight := await self._waiting.get()) is not None:
            batch = [flight]
            while len(batch) < MOST_IN_BATCH and not self._waiting.empty():
                following = self._waiting.get_nowait()
                if following is None:
                    yield batch
                    return
                batch.append(following)
            yield batch


def queue_of(aircraft: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """An aircraft's queue; the same one in every process, unlike with Python's own hash."""
    return queues[zlib.crc32(aircraft.encode()) % len(queues)]

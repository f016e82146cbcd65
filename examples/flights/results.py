"""Consumes the topic `delays`, and keeps the latest result of each origin and hour.

A result comes again whenever its hour got more flights, and may come twice. The number of its micro-batch shows which
one is the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from examples.flights.stages import Stage
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received_message import ReceivedMessage

GROUP = "demo-results"
FEWEST_FLIGHTS = 5  # an hour with less says little about an airport


class Results:
    """The results that a consumer group has received."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._latest: dict[tuple[str, datetime], dict[str, Any]] = {}
        self._seen: set[tuple[int, int]] = set()

    async def consume(self, mq: Client, topic: str) -> None:
        """Until cancelled."""
        async with mq.subscribe(topic, self.take, group=GROUP, start="earliest") as consumer:
            await consumer.closed()

    def take(self, message: ReceivedMessage) -> None:
        """One result; a second delivery of the same message changes nothing."""
        place = (message.queue.queue_id, message.offset)
        if place in self._seen:
            return
        row = message.json()
        row["hour"] = datetime.fromisoformat(row["hour"])
        key = (row["origin"], row["hour"])
        known = self._latest.get(key)
        if known is None or known["batch"] <= row["batch"]:
            self._latest[key] = row
        self._seen.add(place)
        self._stage.size_bytes += len(message.body)
        self._stage.reach(len(self._seen))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The latest result of each origin and hour."""
        return list(self._latest.values())

    def worst(self, count: int) -> dict[str, list[Mapping[str, Any]]]:
        """The hours with the longest mean delay, by origin."""
        worst: dict[str, list[Mapping[str, Any]]] = {}
        rows = [row for row in self.rows if row["flights"] - row["cancelled"] >= FEWEST_FLIGHTS]
        for row in sorted(rows, key=lambda row: -float(row["mean_dep_delay_min"])):
            hours = worst.setdefault(row["origin"], [])
            if len(hours) < count:
                hours.append(row)
        return dict(sorted(worst.items()))

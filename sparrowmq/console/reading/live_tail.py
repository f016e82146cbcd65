"""The messages of a topic as they arrive: each page has one reader, without a group whose offsets it could move. Each
reader has its own client, so several people, or several pages of one person, can look at once.

A reader keeps the newest two hundred messages, of at most 16 MiB; a page shows them when it asks. A pause freezes the
shown messages, and new ones are still counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.admin.message_search import read_aside
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.reading.message_body import JsonPath
from sparrowmq.protocol.names import TOOLS_GROUP

KEPT: Final = 200
KEPT_BYTES: Final = 16 << 20
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The topic and the filters; the broker filters by tag or SQL92, and the console by path and text."""

    topic: str
    tag: str | None = None
    where: str | None = None
    path: JsonPath | None = None
    text: str = ""

    async def fits(self, message: ReceivedMessage) -> bool:
        """Return whether to show a message; no path and no text is in a body that cannot be decompressed."""
        if self.path is None and not self.text:
            return True
        body = await read_aside(message.stored)
        if body.trouble is not None or (self.path is not None and not self.path.fits(body.content)):
            return False
        return not self.text or self.text.encode() in body.content


@dataclass(slots=True)
class Tail:
    """The messages that have come."""

    wanted: Wanted
    messages: deque[ReceivedMessage] = field(default_factory=deque)
    examined: int = 0  # messages that came from the brokers
    found: int = 0  # the messages that fit
    fresh: int = 0  # rises with each change of `messages`
    is_paused: bool = False
    is_begun: bool = False  # the reader has places in the queues

    async def take(self, messages: list[ReceivedMessage]) -> None:
        """Keep the messages that fit; while paused, only count them."""
        fitting = [each for each in messages if await self.wanted.fits(each)]
        self.examined += len(messages)
        self.found += len(fitting)
        if fitting and not self.is_paused:
            self.messages.extend(fitting)
            self._drop_oldest()
            self.fresh += 1

    def _drop_oldest(self) -> None:
        size_bytes = sum(each.store_size for each in self.messages)
        while len(self.messages) > KEPT or (size_bytes > KEPT_BYTES and len(self.messages) > 1):
            size_bytes -= self.messages.popleft().store_size

    async def run(self, look: Look, away: Callable[[], Collection[str]] = tuple) -> None:
        """Follow the topic until cancelled.

        Args:
            away: the brokers that do not answer now. Their queues are followed as soon as they answer.
        Raises:
            SparrowError: what the reader raises.
        """
        topic, tag, where = self.wanted.topic, self.wanted.tag, self.wanted.where
        async with look.another() as mq, mq.pull_consumer(group=TOOLS_GROUP, start="latest") as reader:
            while True:
                left_out = set(away())
                queues = [each for each in await reader.queues(topic) if each.broker_name not in left_out]
                reader.assign(queues, tag, where=where)
                if not self.is_begun and queues:
                    await reader.seek_to_end()
                    self.is_begun = True
                while set(away()) == left_out:
                    if queues:
                        await self.take(await reader.poll())
                    else:
                        await look.clock.sleep(_AGAIN_S)

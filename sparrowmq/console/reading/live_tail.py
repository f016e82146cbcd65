"""The messages of a topic as they arrive: each page has one reader, without a group whose offsets it could move. Each
reader has its own client, so several people, or several pages of one person, can look at once.

A reader keeps the newest two hundred messages; a page shows them when it asks. A pause freezes the shown messages, and
new ones are still counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.reading.message_body import JsonPath
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.names import TOOLS_GROUP

KEPT: Final = 200
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The topic and the filters; the broker filters by tag or SQL92, and the console by path and text."""

    topic: str
    tag: str | None = None
    where: str | None = None
    path: JsonPath | None = None
    text: str = ""

    def fits(self, message: ReceivedMessage) -> bool:
        """Return whether to show a message; a body that cannot be decompressed does not match."""
        try:
            body = message.body
        except RemoteProtocolError:
            return False
        if self.path is not None and not self.path.fits(body):
            return False
        return not self.text or self.text.encode() in body


@dataclass(slots=True)
class Tail:
    """The messages that have come."""

    wanted: Wanted
    messages: deque[ReceivedMessage] = field(default_factory=lambda: deque(maxlen=KEPT))
    examined: int = 0  # messages that came from the brokers
    found: int = 0  # the messages that fit
    fresh: int = 0  # rises with each change of `messages`
    is_paused: bool = False
    is_begun: bool = False  # the reader has places in the queues

    def take(self, messages: list[ReceivedMessage]) -> None:
        """Keep the messages that fit; while paused, only count them."""
        fitting = [each for each in messages if self.wanted.fits(each)]
        self.examined += len(messages)
        self.found += len(fitting)
        if fitting and not self.is_paused:
            self.messages.extend(fitting)
            self.fresh += 1

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
                        self.take(await reader.poll())
                    else:
                        await look.clock.sleep(_AGAIN_S)

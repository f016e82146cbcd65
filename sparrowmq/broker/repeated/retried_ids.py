"""The unique ids of messages whose repeated send was stored. Their first send may still come, on another connection.

    first send ── in a buffer of the network, or of the broker's system ─────────> recognised by its id
    the producer's connection ends ── second send, on a new one ──> stored, noted

On one connection the first send always comes first. So few messages are noted, and for two minutes at most. The ids are
in two generations, and the older one is forgotten every minute. Each account has its own ids and its own limit: it
cannot displace those of others. An id takes about 180 bytes.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.loop.clock import Clock

GENERATION_S: Final = 60.0
MOST_OF_ONE: Final = 20_000  # of an account, or of all clients without accounts, in a generation
MOST: Final = 100_000

Key = tuple[str | None, str, str]  # account, topic, unique id


class RetriedIds:
    """The ids of one broker, with the log offsets of their messages.

    Attributes:
        topics: the topics with ids. The sends of others need no look.
        pending: the ids of the batch that is looked up or stored now, in several sets.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}
        self._counts: dict[str | None, int] = {}
        self._turned_s = 0.0
        self.topics: set[str] = set()
        self.pending: list[set[Key]] = []
        self._young_topics: set[str] = set()
        self._pending_topic: str | None = None

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, owner: str | None, topic: str, unique_id: str, offset: int) -> None:
        """Note an id, unless its account has too many of them."""
        self._turn()
        count = self._counts.get(owner, 0)
        if count < MOST_OF_ONE and len(self._young) < MOST:
            self._young[owner, topic, unique_id] = offset
            self._counts[owner] = count + 1
            self._young_topics.add(topic)
            self.topics.add(topic)

    def begin(self, pending: list[set[Key]], topic: str | None) -> None:
        """Set `pending`. A topic is in `topics` until the end."""
        self.pending, self._pending_topic = pending, topic
        if topic is not None:
            self.topics.add(topic)

    def end(self) -> None:
        self.pending, self._pending_topic = [], None

    def is_under_way(self, key: Key) -> bool:
        """Whether a batch with this message is looked up or stored now."""
        return any(key in each for each in self.pending)

    def offset(self, owner: str | None, topic: str, unique_id: str) -> int | None:
        """The log offset of the message with a noted id; None if the id is not noted."""
        self._turn()
        key = owner, topic, unique_id
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def _turn(self) -> None:
        """Forget the older generation once the younger one is old."""
        now_s = self._clock.monotonic()
        passed_s = now_s - self._turned_s
        if passed_s < GENERATION_S:
            return
        self._old = self._young if passed_s < 2 * GENERATION_S else {}
        self.topics = self._young_topics if self._old else set()
        if self._pending_topic is not None:
            self.topics.add(self._pending_topic)
        self._young, self._counts, self._young_topics, self._turned_s = {}, {}, set(), now_s

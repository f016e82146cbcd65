"""The choice of messages in pieces of a log that `sparrowmq store resend` sends, before a cluster is asked.

Pieces are read three times: for this choice, to ask the cluster, and to send. So no bodies are kept in memory, only a
key and a place for each message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sparrowmq.client.admin.resent_message import Key, LeftOut, Resent, resent
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.store.care.piece_reading import PieceRecord, check_name, read


class Place(NamedTuple):
    """A message in a piece."""

    file: Path
    offset: int  # in the log


class Draft:
    """The messages of some pieces that can be sent.

    Args:
        files: the pieces, in any order.
        topics: take only messages of these topics; without topics all.
    Attributes:
        left_out: the number of records that are not sent, by the reason.
        sound: the number of all messages that can be read.
        damaged: the number of damaged places.
        damaged_bytes: the size of all of them together.
    Raises:
        BadStore: a file is no piece; OSError, it cannot be read.
    """

    def __init__(self, files: Sequence[Path], topics: Collection[str] = ()) -> None:
        for file in files:
            check_name(file)
        self._files = sorted(set(files), key=lambda file: file.name)
        self._only = frozenset(topics)
        self.left_out: Counter[LeftOut] = Counter()
        self.sound = self.damaged = self.damaged_bytes = 0
        self._chosen: dict[Key, tuple[Place, int]] = {}  # and the number of tries
        self._timed: dict[tuple[str, str, str | None], Key] = {}  # by topic, unique id and account
        self._recalls = Recalls()
        for file in self._files:
            for each in read(file):
                self._take(file, each)
        for named, key in self._timed.items():
            if self._recalls.include(*named):
                del self._chosen[key]
                self.left_out[LeftOut.RECALLED] += 1
        self.places = {place for place, _ in self._chosen.values()}

    @property
    def topics(self) -> list[str]:
        """The topics of the chosen messages."""
        return sorted({topic for topic, *_ in self._chosen})

    def messages(self, places: Collection[Place]) -> Iterator[tuple[Place, Resent]]:
        """Yield the messages at these places, in the order of the log."""
        for file in self._files:
            for each in read(file):
                place = Place(file, each.offset)
                if each.message is not None and place in places:
                    message = resent(each.message)
                    if isinstance(message, Resent):
                        yield place, message

    def _take(self, file: Path, found: PieceRecord) -> None:
        if found.message is None:
            self.damaged += 1
            self.damaged_bytes += found.size
            return
        self.sound += 1
        message = resent(found.message)
        if isinstance(message, LeftOut):
            self.left_out[message] += 1
            if message is LeftOut.RECALL:
                self._recalls.add(found.message.properties)
        elif not self._only or message.topic in self._only:
            self._choose(Place(file, found.offset), message)

    def _choose(self, place: Place, message: Resent) -> None:
        """Choose a message, or the last of several tries of one."""
        tries = message.stored.reconsume_times
        before = self._chosen.get(message.key)
        if before is not None:
            self.left_out[LeftOut.COPY] += 1
        if before is None or before[1] < tries:
            self._chosen.pop(message.key, None)
            self._chosen[message.key] = place, tries
        if message.due_ms:
            owner = message.stored.properties.get(Property.TIMER_OWNER)
            self._timed[message.topic, message.unique_id, owner] = message.key

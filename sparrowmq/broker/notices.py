"""Notices to the members of a consumer group that its members or topics have changed (code 40).

    a change in a small group       all members are notified at once
    more changes, or a large group  collected; one round of notices each second

A group gets up to 100 notices a second at once, so a small group shares out its queues without a delay. In a large
group each join would notify every member: 2,000 members that join make 2 million notices. With one round a second, a
member gets one notice for all changes of that second. A notified member asks at once who the others are, so a large
round goes out in portions: 5,000 questions at the same moment would delay other requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.headers import NotifyConsumerIdsChanged
from sparrowmq.remoting.peer import Peer

ROUND_S: Final = 1.0
AT_ONCE: Final = (
    100  # notices to one group between two rounds that are not collected; also a portion of a round
)
PAUSE_S: Final = 0.01  # between two portions
ROUND_TAKES_S: Final = 0.5  # at most: the pauses of a huge round are shorter


class Notified(Protocol):
    """A consumer group, as notices see it."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def members(self) -> Mapping[Peer, object]:
        """Its members by their connections."""


class Notices:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, int] = {}  # since the last round
        self._waiting: dict[str, Notified] = {}

    def changed(self, group: Notified) -> None:
        """Notify the group's members, at once or in the next round."""
        sent = self._sent.get(group.name, 0) + len(group.members)
        if sent > AT_ONCE:
            self._waiting[group.name] = group
            return
        self._sent[group.name] = sent
        for peer in group.members:
            peer.tell(NotifyConsumerIdsChanged(group.name))

    async def round(self) -> None:
        """Notify the members of the groups that wait, within ROUND_TAKES_S. Call it each second."""
        waiting = self._waiting
        self._sent, self._waiting = {}, {}
        portions = sum(len(group.members) for group in waiting.values()) / AT_ONCE
        for number, (group, peer) in enumerate(_members(waiting.values())):
            if number and number % AT_ONCE == 0:
                await self._clock.sleep(min(PAUSE_S, ROUND_TAKES_S / portions))
            if peer in group.members:
                peer.tell(NotifyConsumerIdsChanged(group.name))


def _members(groups: Iterable[Notified]) -> Iterator[tuple[Notified, Peer]]:
    return ((group, peer) for group in groups for peer in list(group.members))

"""Notices to the members of a consumer group that its members or topics have changed (code 40).

    a change in a small group       all members are notified at once
    more changes, or a large group  collected; one round of notices within a second

A group gets up to 100 notices a second at once, so a small group shares out its queues without a delay. In a large
group each join would notify every member: 2,000 members that join make 2 million notices. With one round a second, a
member gets one notice for all changes of that second.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

from sparrowmq.loop.slices import Steps, to_end
from sparrowmq.protocol.requests.headers import NotifyConsumerIdsChanged
from sparrowmq.remoting.peer import Peer

ROUND_S: Final = 1.0
AT_ONCE: Final = 100  # notices to one group between two rounds that are not collected


class Notified(Protocol):
    """A consumer group, as notices see it."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def members(self) -> Mapping[Peer, object]:
        """Its members by their connections."""


class Notices:
    def __init__(self) -> None:
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

    def round(self) -> Coroutine[Any, Any, None]:
        """Notify the members of the groups that wait. Call it each second."""
        waiting = self._waiting
        self._sent, self._waiting = {}, {}
        return to_end(_notify(waiting.values()))


def _notify(groups: Iterable[Notified]) -> Steps[None]:
    for group in groups:
        for peer in list(group.members):
            peer.tell(NotifyConsumerIdsChanged(group.name))
            yield

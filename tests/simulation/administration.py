"""Operators' changes: topics that are made, made wider, filled and deleted, and groups that are made and deleted.

Each program has names of its own. So it knows which answer came last, however many programs there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.client.client import Client
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from tests.simulation.cluster import BROKER

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

_AT_ONCE: Final = 3  # topics, or groups, of one program
_HANDS_OVER: Final = 0.03  # the share of changes of the lead


class Administration:
    """The program of one operator.

    Args:
        name: the begin of all names of its topics and groups.
        mean_s: between two changes.
    Attributes:
        topics: the names of the topics that are changed now; `groups` likewise.
    """

    def __init__(self, workload: Workload, name: str, mean_s: float) -> None:
        self._workload = workload
        self._history = workload.history
        self._rng = workload.rng
        self._mean_s = mean_s
        self._number = 0
        # It is not known whether an operation without an answer will still happen. So its name is not used again.
        self.topics = [self._next_name(f"{name}t") for _ in range(_AT_ONCE)]
        self.groups = [self._next_name(f"{name}g") for _ in range(_AT_ONCE)]

    async def run(self, mq: Client) -> None:
        """Change topics and groups until the run is over."""
        changes: list[Callable[[Client], Awaitable[None]]] = [
            *(self._make, self._make, self._widen, self._fill, self._fill, self._delete),
            self._group,
        ]
        while not self._workload.is_over:
            change = self._hand_over if self._rng.random() < _HANDS_OVER else self._rng.choice(changes)
            try:
                await change(mq)
            except SparrowError:
                self._history.failed += 1
            await self._workload.pause(self._mean_s)

    async def _make(self, mq: Client) -> None:
        name, queues = self._rng.choice(self.topics), self._rng.randint(1, 4)
        if self._known(name) == {0}:
            await self._change_topic(name, queues, mq.admin.create_topic(name, queues=queues, exist_ok=True))

    async def _widen(self, mq: Client) -> None:
        name = self._rng.choice(self.topics)
        before = max(self._known(name))
        if before:
            queues = before + self._rng.randint(1, 3)
            await self._change_topic(name, queues, mq.admin.change_topic(name, queues=queues))

    async def _delete(self, mq: Client) -> None:
        name = self._rng.choice(self.topics)
        if self._known(name) != {0}:
            self._history.will_delete(name)
            await self._change_topic(name, 0, mq.admin.delete_topic(name))

    async def _fill(self, mq: Client) -> None:
        """Send to the last queue, which a master that has forgotten a change does not know."""
        name = self._rng.choice(self.topics)
        queues = max(self._known(name))
        if queues:
            identity = self._workload.next_identity("f", mq)
            queue = MessageQueue(name, BROKER, queues - 1)
            try:
                self._workload.note(await mq.send(name, identity.encode(), queue=queue, timeout_s=3.0), identity)
            except SparrowError:
                self._replace(self.topics, name)  # the message may still come, after a deletion as well
                raise

    def _known(self, name: str) -> set[int]:
        return self._history.topics.setdefault(name, {0})

    async def _change_topic(self, name: str, queues: int, change: Coroutine[Any, Any, object]) -> None:
        """Change a topic, and note what it may have meanwhile, and afterwards. Raises: SparrowError."""
        self._history.topics[name].add(queues)
        try:
            await change
        except SparrowError:
            self._replace(self.topics, name)
            raise
        self._history.changed(f"topic {name} has {queues} queues")
        self._history.topics[name] = {queues}

    async def _group(self, mq: Client) -> None:
        name = self._rng.choice(self.groups)
        exists = self._history.groups.setdefault(name, {False}) == {False}
        self._history.groups[name].add(exists)
        try:
            await (mq.admin.create_group(name, exist_ok=True) if exists else mq.admin.delete_group(name))
        except SparrowError:
            self._replace(self.groups, name)
            raise
        self._history.changed(f"group {name} is {'there' if exists else 'gone'}")
        self._history.groups[name] = {exists}

    def _replace(self, names: list[str], name: str) -> None:
        if name in names:
            names[names.index(name)] = self._next_name(name.rstrip("0123456789"))

    def _next_name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    async def _hand_over(self, mq: Client) -> None:
        """Let another member lead, half of the time one by name."""
        members = sorted(self._workload.cluster.members)
        await mq.admin.hand_over(BROKER, self._rng.choice(members) if self._rng.random() < 0.5 else None)

"""Backups of members while their brokers run: each copy is restored, and compared with what was acknowledged before.

`store backup` and `store restore` are programs of their own on the member's machine. So they run as processes beside
the broker, and the broker goes on between two of their calls of the system. They may fail: a disk is full, or a log is
being cut. What they finish must be right.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages import record
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.copier import remove
from sparrowmq.store.care.restore import restore
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk
from tests.simulation.cluster import Cluster
from tests.simulation.files import ROOT
from tests.simulation.history import ORDERS, History, Place
from tests.simulation.world import SimClock, this_process

_COPY: Final = f"{ROOT}/copy"
_RESTORED: Final = f"{ROOT}/restored"
_PAUSES: Final = 0.02


class Backups:
    """The backups of one run.

    Attributes:
        done: the number of copies that were made, restored and compared.
        failed: the number of those that could not be made.
    """

    def __init__(self, cluster: Cluster, history: History) -> None:
        self.done = 0
        self.failed = 0
        self._cluster = cluster
        self._history = history

    def begin(self, number: int) -> None:
        """Make a backup of a member, unless one is being made there."""
        host, settings = self._cluster.members[number], self._cluster.settings(number)
        if not host.has_power or any(not tool.is_dead for tool in host.tools):
            return
        # Other members may lack what was acknowledged, and a former master may have other messages in its place.
        is_complete = number in self._cluster.in_sync() and number not in self._cluster.blank
        acknowledged = self._history.acknowledged if is_complete else {}
        known = {place: each for place, each in acknowledged.items() if place[0] == ORDERS}
        topics = dict(self._history.decided_topics()) if is_complete else {}

        async def program() -> None:
            clock = SimClock(this_process(self._cluster.world))
            try:
                found, queues = await asyncio.to_thread(_restored, settings, clock)
            except (SparrowError, OSError) as error:
                self._cluster.world.scheduler.note(f"backup of {host.name} failed: {error!r}")
                self.failed += 1
                return
            self.done += 1
            self._compare(f"the backup of {host.name}", known, found)
            for name, possible in self._history.decided_topics():
                if topics.get(name) is possible:  # no operation on it since
                    self._history.check_topic(name, queues.get(name, 0))

        host.run_tool(program, _PAUSES)

    def _compare(self, what: str, known: dict[Place, str], found: dict[Place, str]) -> None:
        """Compare what a copy has with what was acknowledged before it was begun."""
        for place, identity in known.items():
            there = found.get(place)
            if there != identity and not (there is None and self._history.is_old(identity)):
                self._history.violated("backup", f"{what} has {there} at {place}, where {identity} was acknowledged")


def _restored(settings: BrokerSettings, clock: Clock) -> tuple[dict[Place, str], dict[str, int]]:
    """Back a store up, restore the copy, and return its ordinary messages, and the topics with their queues."""
    there = replace(settings, store_path=Path(_RESTORED))
    disk, of_new = Disk(), there.store(there.port)
    for folder in (_COPY, _RESTORED):
        remove(disk, folder)
    backup(settings.store(settings.port), _COPY, disk)
    restore(_COPY, of_new, disk)
    with MessageStore.open(of_new, vfs=disk) as store:
        state = BrokerState.load(store, there, clock, trusts_files=False)
        return _messages(store), {topic.topic_name: topic.read_queue_nums for topic in state.topics}


def _messages(store: MessageStore) -> dict[Place, str]:
    found: dict[Place, str] = {}
    for queue in store.queues:
        if queue.topic != ORDERS:
            continue
        offset = queue.min_offset
        while offset < queue.end.value:
            read = store.read(queue.topic, queue.queue_id, offset, 500)
            for each in (each for view in read.views for each in record.walk(view)):
                message = record.decode(each)
                place = queue.topic, queue.queue_id, message.queue_offset
                found[place] = bytes(message.body).decode().rstrip()
            offset = max(read.next_offset, offset + 1)
    return found
